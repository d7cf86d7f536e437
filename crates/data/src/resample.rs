//! Scales a window of an image as Pillow 13 does with `BILINEAR`, bit for bit, which is what torchvision's `resized_crop`
//! does with PIL images: a triangle filter that widens when the image shrinks (antialias), with weights in fixed point, in
//! two passes, each rounded to bytes. Earlier versions of Pillow always narrow first; pixels then differ by one at most.

use std::ops::Range;

/// An image as planes of bytes (channel, row, column).
#[derive(Clone, Copy)]
pub struct Picture<'a> {
    pub pixels: &'a [u8],
    /// Height and width.
    pub size: [usize; 2],
}

/// A window of an image, in pixels. It is inside the image and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

/// Fraction bits of a weight: a sum of pixels has 8 more, and a sign.
const BITS: u32 = 32 - 8 - 2;

/// Writes the window of `picture`, scaled to `[height, width]`, to `out`.
pub fn resized_crop(picture: Picture<'_>, window: Window, to: [usize; 2], out: &mut [u8]) {
    resized_part(picture, window, to, Window { top: 0, left: 0, height: to[0], width: to[1] }, out);
}

/// As `resized_crop`, of which it writes this part.
pub fn resized_part(picture: Picture<'_>, window: Window, to: [usize; 2], part: Window, out: &mut [u8]) {
    let [height, width] = picture.size;
    let mut rows = Filter::new(window.height, to[0], part.top..part.top + part.height);
    let mut columns = Filter::new(window.width, to[1], part.left..part.left + part.width);
    // Pillow's order of the passes: found by trying its version 13.0.0.
    let gained = |from: usize, to: usize| from as isize - to as isize;
    let (shorter, narrower) = (gained(window.height, to[0]), gained(window.width, to[1]));
    let shorten_first = shorter > 0 && shorter > 2 * narrower;
    // The first pass leaves out what the second does not read.
    let read = if shorten_first { columns.begin_at_0() } else { rows.begin_at_0() };
    let mut between = vec![0; if shorten_first { part.height * read.len() } else { read.len() * part.width }];
    let planes = picture.pixels.chunks_exact(height * width);
    for (plane, out) in planes.zip(out.chunks_exact_mut(part.height * part.width)) {
        if shorten_first {
            rows.shorten(&plane[window.top * width + window.left + read.start..], width, &mut between);
            columns.narrow(&between, read.len(), out);
        } else {
            columns.narrow(&plane[(window.top + read.start) * width + window.left..], width, &mut between);
            rows.shorten(&between, part.width, out);
        }
    }
}

/// The weights of output positions along one axis.
struct Filter {
    /// For each output position its first source position and its part of `weights`.
    spans: Vec<(usize, Range<usize>)>,
    weights: Vec<i32>,
}

impl Filter {
    fn new(from: usize, to: usize, part: Range<usize>) -> Self {
        let mut filter = Self { spans: Vec::with_capacity(part.len()), weights: Vec::new() };
        let scale = from as f64 / to as f64;
        // Also the filter's support.
        let widened = scale.max(1.0);
        for i in part {
            let center = (i as f64 + 0.5) * scale;
            // Without scaling Pillow copies. A cast of a negative number is 0.
            let first = if from == to { i } else { (center - widened + 0.5) as usize };
            let end = if from == to { i + 1 } else { ((center + widened + 0.5) as usize).min(from) };
            let triangle = |x: usize| (1.0 - ((x as f64 - center + 0.5) * (1.0 / widened)).abs()).max(0.0);
            let sum: f64 = (first..end).map(triangle).sum();
            let begin = filter.weights.len();
            let fixed = |x| (0.5 + triangle(x) / sum * f64::from(1 << BITS)) as i32;
            filter.weights.extend((first..end).map(fixed));
            filter.spans.push((first, begin..filter.weights.len()));
        }
        filter
    }

    /// Counts source positions from the first that it reads; returns those that it reads.
    fn begin_at_0(&mut self) -> Range<usize> {
        let start = self.spans.first().map_or(0, |(first, _)| *first);
        let end = self.spans.last().map_or(0, |(first, weights)| first + weights.len());
        self.spans.iter_mut().for_each(|(first, _)| *first -= start);
        start..end
    }

    /// The pass along rows, of which `source` has one every `stride` bytes.
    fn narrow(&self, source: &[u8], stride: usize, out: &mut [u8]) {
        for (row, out) in source.chunks(stride).zip(out.chunks_exact_mut(self.spans.len())) {
            for ((first, weights), out) in self.spans.iter().zip(out) {
                let terms = row[*first..].iter().zip(&self.weights[weights.clone()]);
                *out = rounded(terms.map(|(p, w)| i32::from(*p) * w).sum());
            }
        }
    }

    /// The pass along columns.
    fn shorten(&self, source: &[u8], stride: usize, out: &mut [u8]) {
        let width = out.len() / self.spans.len();
        let mut sums = vec![0; width];
        for ((first, weights), out) in self.spans.iter().zip(out.chunks_exact_mut(width)) {
            sums.fill(0);
            for (row, weight) in source.chunks(stride).skip(*first).zip(&self.weights[weights.clone()]) {
                sums.iter_mut().zip(row).for_each(|(sum, p)| *sum += i32::from(*p) * weight);
            }
            out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = rounded(*sum));
        }
    }
}

fn rounded(sum: i32) -> u8 {
    ((sum + (1 << (BITS - 1))) >> BITS).clamp(0, 255) as u8
}
