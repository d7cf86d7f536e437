//! Against torchvision: tests/reference/augment.py computes the expected values.

use super::*;
use crate::SampleKey;
use crate::resample::{Picture, resized_crop};
use crate::rng::Stream;
use crate::testing::{augment_reference, part, picture};
use data_encoding::HEXLOWER;

const USUAL: ResizedCrop = ResizedCrop { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] };

#[test]
fn windows_are_scaled_as_torchvision_scales_them() {
    let all = augment_reference("crops");
    assert_eq!(all.len(), 11);
    for case in all {
        let (channels, size): (usize, [usize; 2]) = (part(&case, "channels"), part(&case, "size"));
        let [top, left, height, width] = part(&case, "window");
        let to: [usize; 2] = part(&case, "to");
        let pixels = picture(channels, size);
        let mut out = vec![0; channels * to[0] * to[1]];
        let window = Window { top, left, height, width };
        resized_crop(Picture { pixels: &pixels, size }, window, to, &mut out);
        let expected: String = part(&case, "pixels");
        assert_eq!(HEXLOWER.encode(&out), expected, "{window:?} of {size:?} to {to:?}");
    }
}

#[test]
fn a_drawn_area_and_ratio_give_the_sides_of_torchvision() {
    for case in augment_reference("attempts") {
        let got = sides(part(&case, "size"), part(&case, "area"), part(&case, "log_ratio"));
        assert_eq!(got, part::<Option<[usize; 2]>>(&case, "sides"), "{case}");
    }
}

#[test]
fn what_never_fits_is_cropped_in_the_centre() {
    for case in augment_reference("fallbacks") {
        let [top, left, height, width] = part(&case, "window");
        let crop = ResizedCrop { ratio: part(&case, "ratio"), ..USUAL };
        assert_eq!(crop.central(part(&case, "size")), Window { top, left, height, width }, "{case}");
    }
    // No window of this image has an allowed ratio, so all ten draws fail.
    let whole = ResizedCrop { scale: [1.0, 1.0], ..USUAL };
    let mut rng = CounterRng::new(SampleKey { seed: 1, epoch: 2, sample: 3 }, Stream::ResizedCrop);
    assert_eq!(whole.draw([10, 40], &mut rng), whole.central([10, 40]));
    assert_eq!(USUAL.central([1, 40]), Window { top: 0, left: 19, height: 1, width: 1 });
    assert_eq!(USUAL.central([40, 1]), Window { top: 19, left: 0, height: 1, width: 1 });
}

/// Windows are inside the image, of an allowed area and ratio to a pixel, and anywhere.
#[test]
fn windows_are_drawn_from_the_whole_image() {
    let size @ [height, width] = [60, 80];
    let (mut areas, mut corners) = (Vec::new(), [false; 4]);
    for sample in 0..2000 {
        let mut rng = CounterRng::new(SampleKey { seed: 1, epoch: 2, sample }, Stream::ResizedCrop);
        let Window { top, left, height: h, width: w } = USUAL.draw(size, &mut rng);
        assert!(h > 0 && w > 0 && top + h <= height && left + w <= width);
        let (least, most) = ((w as f64 - 0.5) / (h as f64 + 0.5), (w as f64 + 0.5) / (h as f64 - 0.5));
        assert!(least <= 4.0 / 3.0 && most >= 0.75, "{h} x {w}");
        areas.push((h * w) as f64 / (height * width) as f64);
        let ends = [top == 0, left == 0, top + h == height, left + w == width];
        corners.iter_mut().zip(ends).for_each(|(seen, here)| *seen |= here);
    }
    areas.sort_by(f64::total_cmp);
    assert_eq!(corners, [true; 4]);
    assert!(areas[0] > 0.07 && areas[0] < 0.1 && areas[1999] > 0.9, "{} to {}", areas[0], areas[1999]);
    // Large windows often don't fit and are drawn again, so the median is below the middle of the range.
    assert!((0.4..0.54).contains(&areas[1000]), "median {}", areas[1000]);
}
