class Rectangles(torchvision.models.VisionTransformer):
    """For images that are not square."""

    def _process_input(self, x):
        return self.conv_proj(x).flatten(2).transpose(1, 2)


