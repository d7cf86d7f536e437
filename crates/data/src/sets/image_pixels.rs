//! Decoded images as planes of bytes (channel, row, column), in the size of the samples or in their own.

use crate::resample::{Picture, Window, resized_part};
use crate::resample_float::scaled;
use crate::scaling::{Interpolation, Scaling};
use image::DynamicImage;

/// The format that images are converted to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels {
    /// Height and width.
    pub size: usize,
    /// 1 for grey, 3 for colour.
    pub channels: usize,
    pub scaling: Scaling,
}

impl Pixels {
    /// A square of the image. It is scaled with its own colours, which are converted afterwards.
    pub fn fitted(self, image: DynamicImage, planes: &mut Vec<u8>) {
        let size = size_of(&image);
        let (to, part) = self.scaling.window(size, self.size);
        let colours = match self.scaling.interpolation {
            Interpolation::Tensor => {
                let (colours, pixels) = in_floats(image, [size, to], part);
                separate(&pixels, colours, planes);
                colours
            }
            Interpolation::Pil => {
                let mut pixels = Vec::new();
                let colours = own_planes(image, &mut pixels);
                planes.resize(colours * self.size * self.size, 0);
                let whole = Window { top: 0, left: 0, height: size[0], width: size[1] };
                resized_part(Picture { pixels: &pixels, size }, whole, to, part, planes);
                colours
            }
        };
        self.convert(planes, colours);
    }

    /// The whole image; returns its height and width.
    pub fn whole(self, image: DynamicImage, planes: &mut Vec<u8>) -> [usize; 2] {
        let size = size_of(&image);
        let colours = own_planes(image, planes);
        self.convert(planes, colours);
        size
    }

    /// Gives `planes`, one or three, the number of channels.
    fn convert(self, planes: &mut Vec<u8>, colours: usize) {
        let len = planes.len() / colours;
        match (colours, self.channels) {
            (1, 3) => (0..2).for_each(|_| planes.extend_from_within(..len)),
            (3, 1) => {
                for i in 0..len {
                    planes[i] = grey([planes[i], planes[len + i], planes[2 * len + i]]);
                }
                planes.truncate(len);
            }
            _ => {}
        }
    }
}

/// The brightness of a colour by ITU-R 601, as Pillow's mode `L` and torchvision's `Grayscale` have it.
fn grey([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

fn size_of(image: &DynamicImage) -> [usize; 2] {
    [image.height() as usize, image.width() as usize]
}

/// One plane of a grey image, three of another; returns how many.
fn own_planes(image: DynamicImage, planes: &mut Vec<u8>) -> usize {
    match image.color().has_color() {
        false => separate(image.into_luma8().as_raw(), 1, planes),
        true => separate(image.into_rgb8().as_raw(), 3, planes),
    }
}

/// Planes of what is stored pixel by pixel.
fn separate(pixels: &[u8], colours: usize, planes: &mut Vec<u8>) -> usize {
    planes.clear();
    (0..colours).for_each(|c| planes.extend(pixels.iter().skip(c).step_by(colours)));
    colours
}

/// The part of a scaled image, pixel by pixel, and the number of its colours. Samples of 16 bits are rounded to bytes afterwards.
fn in_floats(image: DynamicImage, sides: [[usize; 2]; 2], part: Window) -> (usize, Vec<u8>) {
    let (color, bytes) = (image.color(), |deep: &u16| ((u32::from(*deep) + 128) / 257) as u8);
    let deep = color.bytes_per_pixel() > color.channel_count();
    match (deep, color.has_color()) {
        (false, false) => (1, scaled(image.into_luma8().as_raw(), 1, sides, part)),
        (false, true) => (3, scaled(image.into_rgb8().as_raw(), 3, sides, part)),
        (true, false) => {
            (1, scaled(image.into_luma16().as_raw(), 1, sides, part).iter().map(bytes).collect())
        }
        (true, true) => (3, scaled(image.into_rgb16().as_raw(), 3, sides, part).iter().map(bytes).collect()),
    }
}

#[cfg(test)]
#[path = "image_pixels_tests.rs"]
mod tests;
