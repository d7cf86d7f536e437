//! How images of any size become the squares that models take.

use super::resample::Window;
use schemars::JsonSchema;
use serde::Deserialize;
use spec::choice;

choice! {
    /// How the shape of an image is made a square.
    Resize:
    /// Scale the shorter side to the size, and take the centre.
    Crop = "crop",
    /// Scale width and height to the size, each by its own factor.
    Squash = "squash",
}

choice! {
    /// How pixels are interpolated when an image is scaled: linearly, over more pixels when it shrinks (antialias), in either case.
    Interpolation:
    /// In floats, rounded once: close to torchvision on uint8 tensors.
    Tensor = "tensor",
    /// As Pillow's `BILINEAR`, to the bit: what torchvision does with PIL images.
    Pil = "pil",
}

/// How images become squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-section" = "Sizes of images"))]
pub struct Scaling {
    /// What happens to the shape of an image: `crop` scales the shorter side to `image_size` and takes the centre, as
    /// torchvision's `Resize(image_size)` and `CenterCrop(image_size)`; `squash` scales width and height each to it, as
    /// `Resize((image_size, image_size))`. `random-resized-crop` takes its window of the original image instead.
    pub resize: Resize,
    /// How pixels are interpolated: linearly and with antialias in either case, `tensor` in floats, which is close to
    /// torchvision on uint8 tensors, `pil` as Pillow 13, to the bit, which is what torchvision does with PIL images.
    pub interpolation: Interpolation,
}

impl Scaling {
    /// Height and width to which an image of this height and width is scaled, and the part of it that becomes a square of `size`.
    pub fn window(self, image: [usize; 2], size: usize) -> ([usize; 2], Window) {
        let part = |[top, left]: [usize; 2]| Window { top, left, height: size, width: size };
        if self.resize == Resize::Squash {
            return ([size; 2], part([0, 0]));
        }
        let shorter = image[0].min(image[1]);
        match self.interpolation {
            Interpolation::Tensor => {
                let factor = size as f64 / shorter as f64;
                let to = image.map(|side| (side as f64 * factor).round() as usize);
                (to, part(to.map(|side| (side - size) / 2)))
            }
            // As torchvision computes them.
            Interpolation::Pil => {
                let longer = |side: usize| ((size * side) as f64 / shorter as f64) as usize;
                let to = image.map(|side| if side == shorter { size } else { longer(side) });
                let half = |side: usize| ((side - size) as f64 / 2.0).round_ties_even() as usize;
                (to, part(to.map(half)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_of_the_centre_or_of_the_whole_image() {
        let of = |resize, interpolation, image, size| {
            let (to, part) = Scaling { resize, interpolation }.window(image, size);
            assert_eq!([part.height, part.width], [size; 2]);
            (to, [part.top, part.left])
        };
        use Interpolation::{Pil, Tensor};
        assert_eq!(of(Resize::Squash, Pil, [7, 300], 32), ([32, 32], [0, 0]));
        assert_eq!(of(Resize::Crop, Tensor, [100, 75], 32), ([43, 32], [5, 0]));
        // torchvision rounds down what is scaled, and halves of what is cropped to even.
        assert_eq!(of(Resize::Crop, Pil, [100, 75], 32), ([42, 32], [5, 0]));
        assert_eq!(of(Resize::Crop, Pil, [30, 47], 30), ([30, 47], [0, 8]));
        assert_eq!(of(Resize::Crop, Pil, [30, 49], 30), ([30, 49], [0, 10]));
        assert_eq!(of(Resize::Crop, Tensor, [32768, 1], 8), ([262_144, 8], [131_068, 0]));
    }
}
