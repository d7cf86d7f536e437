def sample(path):
    """A PNG or JPEG file as the model takes it: [1, CHANNELS, SIZE, SIZE]."""
    image = Image.open(path)
    if image.mode.startswith("I"):  # grey of 16 bits
        image = Image.fromarray(((np.array(image).astype(int) + 128) // 257).astype("uint8"))
    image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    # SCALE
    # COLOURS
    return (x / 255 - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)
