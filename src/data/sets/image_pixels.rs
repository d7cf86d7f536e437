//! Decoded images as planes of bytes (channel, row, column), in the size of the samples or in their own.

use image::DynamicImage;
use image::imageops::FilterType;

/// The format that images are converted to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels {
    /// Height and width.
    pub size: u32,
    /// 1 for grey, 3 for colour.
    pub channels: usize,
}

impl Pixels {
    /// Scales the shorter side to `size`, then crops the centre.
    pub fn fitted(self, image: &DynamicImage, planes: &mut Vec<u8>) {
        self.planes(image.resize_to_fill(self.size, self.size, FilterType::Triangle), planes);
    }

    /// The whole image; returns its height and width.
    pub fn whole(self, image: DynamicImage, planes: &mut Vec<u8>) -> [usize; 2] {
        let size = [image.height() as usize, image.width() as usize];
        self.planes(image, planes);
        size
    }

    fn planes(self, image: DynamicImage, planes: &mut Vec<u8>) {
        planes.clear();
        if self.channels == 1 {
            planes.extend_from_slice(image.into_luma8().as_raw());
        } else {
            let pixels = image.into_rgb8();
            for c in 0..3 {
                planes.extend(pixels.as_raw().iter().skip(c).step_by(3));
            }
        }
    }
}
