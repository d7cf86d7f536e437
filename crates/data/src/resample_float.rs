//! Scales images with a triangle filter that widens when the image shrinks (antialias), in floats: columns first, then rows,
//! rounded once. Every number is computed as the crate `image` does it with `FilterType::Triangle`, but only for the wanted
//! part: of an image of one column the whole result would have gigabytes.

use super::resample::Window;
use std::ops::Range;

/// A value of a channel, in the order row, column, channel.
pub trait Sample: Copy + Into<f32> {
    fn rounded(x: f32) -> Self;
}

impl Sample for u8 {
    fn rounded(x: f32) -> Self {
        x.round() as Self
    }
}

impl Sample for u16 {
    fn rounded(x: f32) -> Self {
        x.round() as Self
    }
}

/// The `part` of an image that was scaled from one height and width to another.
pub fn scaled<S: Sample>(
    samples: &[S],
    channels: usize,
    [from, to]: [[usize; 2]; 2],
    part: Window,
) -> Vec<S> {
    let rows = weights(from[0], to[0], part.top..part.top + part.height);
    let columns = weights(from[1], to[1], part.left..part.left + part.width);
    let first = columns.first().map_or(0, |(left, _)| *left);
    let end = columns.last().map_or(0, |(left, weights)| left + weights.len());
    let mut line = vec![0.0f32; (end - first) * channels];
    let mut out = Vec::with_capacity(part.height * part.width * channels);
    for (top, weights) in &rows {
        line.fill(0.0);
        for (row, weight) in samples.chunks_exact(from[1] * channels).skip(*top).zip(weights) {
            let row = &row[first * channels..end * channels];
            line.iter_mut().zip(row).for_each(|(sum, sample)| *sum += (*sample).into() * weight);
        }
        for (left, weights) in &columns {
            for channel in 0..channels {
                let terms = line[(left - first) * channels + channel..].iter().step_by(channels);
                out.push(S::rounded(terms.zip(weights).map(|(x, weight)| x * weight).sum()));
            }
        }
    }
    out
}

/// For each output position in `part` its first source position, and the weights from there.
fn weights(from: usize, to: usize, part: Range<usize>) -> Vec<(usize, Vec<f32>)> {
    let ratio = from as f32 / to as f32;
    let widened = ratio.max(1.0);
    let of = |i: usize| {
        let center = (i as f32 + 0.5) * ratio;
        // A cast of a negative number is 0.
        let first = ((center - widened).floor() as usize).min(from - 1);
        let end = ((center + widened).ceil() as usize).clamp(first + 1, from);
        let center = center - 0.5;
        let triangle = |x: usize| (1.0 - ((x as f32 - center) / widened).abs()).max(0.0);
        let mut weights: Vec<f32> = (first..end).map(triangle).collect();
        let sum: f32 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        (first, weights)
    };
    part.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::Scaling;
    use image::imageops::{FilterType, crop_imm, resize};
    use image::{ImageBuffer, Rgb};

    /// Each image as the crate scales and crops it, to the bit.
    #[test]
    fn a_part_has_the_bits_of_the_whole() {
        let mut state = 1u64;
        let mut noise = |n: usize| -> Vec<u16> {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 48) as u16
            };
            (0..n).map(|_| next()).collect()
        };
        for ([height, width], size) in [
            ([40, 25], 16),
            ([25, 40], 16),
            ([9, 9], 32),
            ([16, 16], 16),
            ([333, 217], 64),
            ([3, 700], 8),
            ([5000, 1], 8),
            ([8, 11], 8),
        ] {
            let deep = noise(height * width * 3);
            let bytes: Vec<u8> = deep.iter().map(|sample| (sample >> 8) as u8).collect();
            let (to, part) = Scaling::default().window([height, width], size);
            let (w, h) = (width as u32, height as u32);
            let window = [part.left, part.top, part.width, part.height].map(|n| n as u32);
            let sides = [[height, width], to];
            macro_rules! expected {
                ($samples:expr) => {{
                    let image: ImageBuffer<Rgb<_>, _> =
                        ImageBuffer::from_raw(w, h, $samples.clone()).unwrap();
                    let whole = resize(&image, to[1] as u32, to[0] as u32, FilterType::Triangle);
                    let [left, top, width, height] = window;
                    crop_imm(&whole, left, top, width, height).to_image().into_raw()
                }};
            }
            assert_eq!(scaled(&bytes, 3, sides, part), expected!(bytes), "{height} x {width} to {size}");
            assert_eq!(scaled(&deep, 3, sides, part), expected!(deep), "{height} x {width} to {size}");
        }
    }

    /// The whole result would have 100 GB.
    #[test]
    fn only_the_wanted_part_is_computed() {
        let column: Vec<u8> = (0..32_768).map(|y| (y / 128) as u8).collect();
        let (to, part) = Scaling::default().window([32_768, 1], 1024);
        assert_eq!(to, [33_554_432, 1024]);
        let out = scaled(&column, 1, [[32_768, 1], to], part);
        assert_eq!((out.len(), out[0], out[1024 * 1024 - 1]), (1024 * 1024, 127, 128));
    }
}
