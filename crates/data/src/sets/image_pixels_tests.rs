use super::*;
use crate::scaling::Resize;
use crate::testing::{part, picture};
use data_encoding::HEXLOWER;
use image::imageops::FilterType;
use image::{ImageBuffer, Luma, LumaA, Rgb, Rgba};

fn pixels(size: usize, channels: usize, interpolation: Interpolation, resize: Resize) -> Pixels {
    Pixels { size, channels, scaling: Scaling { resize, interpolation } }
}

/// Against Pillow: tests/reference/scale.py computes the expected values.
#[test]
fn images_are_scaled_and_made_grey_as_pillow_does_it() {
    let all: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("../../../../tests/reference/scale.json")).unwrap();
    assert!(all.len() > 10);
    for case in all {
        let (own, size): (usize, [usize; 2]) = (part(&case, "own"), part(&case, "size"));
        let (to, channels): (usize, usize) = (part(&case, "to"), part(&case, "channels"));
        let (planes, [height, width]) = (picture(own, size), size.map(|side| side as u32));
        let at = |x: u32, y: u32, c: usize| planes[(c * size[0] + y as usize) * size[1] + x as usize];
        let image: DynamicImage = match own {
            1 => ImageBuffer::from_fn(width, height, |x, y| Luma([at(x, y, 0)])).into(),
            _ => ImageBuffer::from_fn(width, height, |x, y| Rgb([0, 1, 2].map(|c| at(x, y, c)))).into(),
        };
        let mut out = Vec::new();
        pixels(to, channels, Interpolation::Pil, part(&case, "resize")).fitted(image, &mut out);
        assert_eq!(HEXLOWER.encode(&out), part::<String>(&case, "pixels"), "{size:?} to {to}");
    }
}

#[test]
fn every_kind_of_image_is_scaled_as_before() {
    let value = |x: u32, y: u32, c: u32| (x * 9173 + y * 3571 + x * y * 77 + c * 20_011) as u16;
    let deep = |x, y| [0, 1, 2, 3].map(|c| value(x, y, c));
    let byte = |x, y| deep(x, y).map(|v| (v >> 8) as u8);
    let (w, h) = (45, 31);
    let images: [DynamicImage; 8] = [
        ImageBuffer::from_fn(w, h, |x, y| Rgb(*byte(x, y).first_chunk().unwrap())).into(),
        ImageBuffer::from_fn(w, h, |x, y| Rgba(byte(x, y))).into(),
        ImageBuffer::from_fn(w, h, |x, y| Luma([byte(x, y)[0]])).into(),
        ImageBuffer::from_fn(w, h, |x, y| LumaA(*byte(x, y).first_chunk().unwrap())).into(),
        ImageBuffer::from_fn(w, h, |x, y| Rgb(*deep(x, y).first_chunk().unwrap())).into(),
        ImageBuffer::from_fn(w, h, |x, y| Rgba(deep(x, y))).into(),
        ImageBuffer::from_fn(w, h, |x, y| Luma([deep(x, y)[0]])).into(),
        ImageBuffer::from_fn(w, h, |x, y| LumaA(*deep(x, y).first_chunk().unwrap())).into(),
    ];
    for image in images {
        for size in [16, 31, 50] {
            let color = image.color();
            let mut planes = Vec::new();
            let fit = |channels, resize| pixels(size, channels, Interpolation::Tensor, resize);
            let n = size as u32;
            fit(3, Resize::Crop).fitted(image.clone(), &mut planes);
            let rgb = image.resize_to_fill(n, n, FilterType::Triangle).into_rgb8();
            let expected: Vec<u8> =
                (0..3).flat_map(|c| rgb.as_raw()[c..].iter().copied().step_by(3)).collect();
            assert_eq!(planes, expected, "{color:?} to {size}");
            fit(1, Resize::Squash).fitted(image.clone(), &mut planes);
            let rgb = image.resize_exact(n, n, FilterType::Triangle).into_rgb8();
            let expected: Vec<u8> = rgb.pixels().map(|Rgb(colour)| grey(*colour)).collect();
            assert_eq!(planes, expected, "{color:?} to {size}");
        }
    }
}

/// `Image.convert("L")` of Pillow 13.
#[test]
fn grey_is_that_of_itu_r_601() {
    for (colour, expected) in [
        ([255, 0, 0], 76),
        ([0, 255, 0], 150),
        ([0, 0, 255], 29),
        ([255, 255, 255], 255),
        ([12, 200, 99], 132),
        ([77, 77, 77], 77),
        ([1, 0, 0], 0),
        ([2, 0, 0], 1),
    ] {
        assert_eq!(grey(colour), expected, "{colour:?}");
        let image = DynamicImage::from(ImageBuffer::from_pixel(9, 9, Rgb(colour)));
        let mut planes = Vec::new();
        for interpolation in Interpolation::ALL {
            pixels(8, 1, interpolation, Resize::Crop).fitted(image.clone(), &mut planes);
            assert_eq!(planes, [expected; 64]);
        }
        assert_eq!(pixels(8, 1, Interpolation::Tensor, Resize::Crop).whole(image, &mut planes), [9, 9]);
        assert_eq!(planes, [expected; 81]);
    }
}
