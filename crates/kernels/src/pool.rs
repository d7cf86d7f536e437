//! 2-d max pooling over NCHW maps, as in PyTorch: padding never wins, the first of equal values in a window wins, and
//! NaN wins over every number (of several NaNs, the last).

use std::ops::Range;

use super::conv::out_size;
use super::layout::scatter;
use super::tasks::{for_each, scratch};
use super::wide::wide;

/// Sizes of a pooling; `planes` is batch times channels. Pairs are (rows, columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Channels of all images.
    pub planes: usize,
    /// Rows of an input map, without padding.
    pub height: usize,
    /// Columns of an input map, without padding.
    pub width: usize,
    /// Size of the window.
    pub kernel: [usize; 2],
    /// Distance between windows.
    pub stride: [usize; 2],
    /// At most half the kernel, so that every window contains a pixel.
    pub padding: [usize; 2],
}

impl PoolShape {
    /// Rows of an output map.
    pub fn out_height(&self) -> usize {
        out_size(self.height, self.kernel[0], self.stride[0], self.padding[0])
    }

    /// Columns of an output map.
    pub fn out_width(&self) -> usize {
        out_size(self.width, self.kernel[1], self.stride[1], self.padding[1])
    }

    fn in_pixels(&self) -> usize {
        self.height * self.width
    }

    fn out_pixels(&self) -> usize {
        self.out_height() * self.out_width()
    }

    fn check(&self, x: usize, y: usize, indices: usize) {
        assert!(
            (0..2).all(|i| self.stride[i] > 0 && self.kernel[i] > 0),
            "empty pooling window or stride: {self:?}"
        );
        assert!(
            (0..2).all(|i| self.padding[i] <= self.kernel[i] / 2),
            "padding above half the window: {self:?}"
        );
        assert!(u32::try_from(self.in_pixels()).is_ok(), "more pixels than 32-bit indices: {self:?}");
        assert_eq!(x, self.planes * self.in_pixels(), "length of a pooling's input: {self:?}");
        assert_eq!(y, self.planes * self.out_pixels(), "length of a pooling's output: {self:?}");
        assert_eq!(indices, y, "length of a pooling's indices: {self:?}");
    }
}

/// Planes per task; a multiple of [`LANES`].
const BLOCK: usize = 256;
/// Planes compared at once, one per lane; enough that the compiler vectorises the loop instead of unrolling it.
const LANES: usize = 64;

/// Fills `out` and `indices` (row * width + column of each maximum in its input map). Uses at most `parallelism` threads.
pub fn max_forward(shape: &PoolShape, x: &[f32], out: &mut [f32], indices: &mut [u32], parallelism: usize) {
    shape.check(x.len(), out.len(), indices.len());
    if out.is_empty() {
        return;
    }
    let outs = BLOCK * shape.out_pixels();
    let lane_offsets: Vec<usize> = (0..shape.in_pixels()).map(|pixel| pixel * LANES).collect();
    let blocks = x.chunks(BLOCK * shape.in_pixels()).zip(out.chunks_mut(outs).zip(indices.chunks_mut(outs)));
    for_each(parallelism, blocks, |(x, (out, indices))| {
        let mut inner = scratch(shape.in_pixels() * LANES);
        let outs = LANES * shape.out_pixels();
        let groups =
            x.chunks(LANES * shape.in_pixels()).zip(out.chunks_mut(outs).zip(indices.chunks_mut(outs)));
        for (x, (out, indices)) in groups {
            scatter(x, shape.in_pixels(), x.len() / shape.in_pixels(), &lane_offsets, &mut inner);
            lanes(shape, &inner, out, indices);
        }
    });
}

/// Gradient of the input: adds each `dy` to the pixel of its maximum. Overwrites `dx`. Uses at most `parallelism` threads.
pub fn max_backward(shape: &PoolShape, dy: &[f32], indices: &[u32], dx: &mut [f32], parallelism: usize) {
    shape.check(dx.len(), dy.len(), indices.len());
    if dy.is_empty() || dx.is_empty() {
        dx.fill(0.0);
        return;
    }
    let outs = BLOCK * shape.out_pixels();
    let blocks = dx.chunks_mut(BLOCK * shape.in_pixels()).zip(dy.chunks(outs).zip(indices.chunks(outs)));
    for_each(parallelism, blocks, |(dx, (dy, indices))| {
        dx.fill(0.0);
        let winners = dy.chunks_exact(shape.out_pixels()).zip(indices.chunks_exact(shape.out_pixels()));
        for (dx, (dy, indices)) in dx.chunks_exact_mut(shape.in_pixels()).zip(winners) {
            for (&dy, &index) in dy.iter().zip(indices) {
                dx[index as usize] += dy;
            }
        }
    });
}

/// `x` is `[pixel][lane]`; `out` and `indices` are the maps of the lanes in use.
fn lanes(shape: &PoolShape, x: &[f32], out: &mut [f32], indices: &mut [u32]) {
    let (width, pixels) = (shape.out_width(), shape.out_pixels());
    for pixel in 0..pixels {
        let [rows, columns] = [(pixel / width, shape.height), (pixel % width, shape.width)];
        let rows = window(rows.0, rows.1, shape.kernel[0], shape.stride[0], shape.padding[0]);
        let columns = window(columns.0, columns.1, shape.kernel[1], shape.stride[1], shape.padding[1]);
        // If all values of a window are -inf, its first pixel wins.
        let first = (rows.start * shape.width + columns.start) as u32;
        let mut pair = [([f32::NEG_INFINITY; LANES], [first; LANES]); 2];
        let [mut now, mut next] = pair.each_mut();
        for row in rows {
            for at in row * shape.width + columns.start..row * shape.width + columns.end {
                compare(&x[at * LANES..][..LANES], at as u32, &now.0, &now.1, &mut next.0, &mut next.1);
                std::mem::swap(&mut now, &mut next);
            }
        }
        let (best, index) = &*now;
        let maps = out[pixel..].iter_mut().step_by(pixels).zip(indices[pixel..].iter_mut().step_by(pixels));
        for ((out, to), (&best, &index)) in maps.zip(best.iter().zip(index)) {
            (*out, *to) = (best, index);
        }
    }
}

wide! {
    /// The larger of `best` and `values` in each lane, with its index; NaN always wins. Not in place: the compiler
    /// would generate masked stores, which are slow on AMD processors.
    fn compare(
        values: &[f32], at: u32, best: &[f32], index: &[u32], next_best: &mut [f32], next_index: &mut [u32],
    ) {
        let next = next_best.iter_mut().zip(next_index);
        for ((&value, (&best, &index)), (next_best, next_index)) in values.iter().zip(best.iter().zip(index)).zip(next) {
            let wins = (value > best) | value.is_nan();
            *next_best = if wins { value } else { best };
            *next_index = if wins { at } else { index };
        }
    }
}

/// The input positions of a window along one axis.
#[inline(always)]
fn window(at: usize, input: usize, kernel: usize, stride: usize, padding: usize) -> Range<usize> {
    let start = at * stride;
    start.saturating_sub(padding)..(start + kernel - padding).min(input)
}

#[cfg(test)]
mod tests {
    use super::super::testing::noise;
    use super::*;
    use proptest::prelude::*;

    /// PyTorch's loop, unchanged.
    fn naive(s: &PoolShape, x: &[f32]) -> Vec<(f32, usize)> {
        let mut all = Vec::new();
        for x in x.chunks_exact(s.height * s.width) {
            for (i, j) in (0..s.out_height()).flat_map(|i| (0..s.out_width()).map(move |j| (i, j))) {
                let start = [i * s.stride[0], j * s.stride[1]];
                let rows = start[0].saturating_sub(s.padding[0])
                    ..(start[0] + s.kernel[0] - s.padding[0]).min(s.height);
                let columns = start[1].saturating_sub(s.padding[1])
                    ..(start[1] + s.kernel[1] - s.padding[1]).min(s.width);
                let mut best = (f32::NEG_INFINITY, rows.start * s.width + columns.start);
                for at in rows.flat_map(|row| columns.clone().map(move |column| row * s.width + column)) {
                    if x[at] > best.0 || x[at].is_nan() {
                        best = (x[at], at);
                    }
                }
                all.push(best);
            }
        }
        all
    }

    fn check(shape: &PoolShape, x: &[f32]) {
        let expected = naive(shape, x);
        for parallelism in [1, 2, 3] {
            let (mut out, mut indices) = (vec![7.0; expected.len()], vec![7; expected.len()]);
            max_forward(shape, x, &mut out, &mut indices, parallelism);
            let got: Vec<(u32, usize)> =
                out.iter().zip(&indices).map(|(v, &i)| (v.to_bits(), i as usize)).collect();
            let expected: Vec<(u32, usize)> = expected.iter().map(|&(v, i)| (v.to_bits(), i)).collect();
            assert_eq!(got, expected, "{shape:?}");
            let dy = noise(out.len(), 12);
            let (mut dx, mut expected_dx) = (vec![7.0; x.len()], vec![0.0; x.len()]);
            max_backward(shape, &dy, &indices, &mut dx, parallelism);
            for (i, (&dy, &(_, at))) in dy.iter().zip(&expected).enumerate() {
                expected_dx[i / shape.out_pixels() * shape.in_pixels() + at] += dy;
            }
            assert_eq!(dx, expected_dx, "{shape:?}");
        }
    }

    #[test]
    fn ties_nan_and_infinities() {
        let shape =
            PoolShape { planes: 1, height: 2, width: 4, kernel: [2; 2], stride: [2; 2], padding: [0; 2] };
        let low = f32::NEG_INFINITY;
        check(&shape, &[1.0, 1.0, f32::NAN, 5.0, 1.0, 0.0, 2.0, f32::NAN]);
        check(&shape, &[low, low, -0.0, 0.0, low, low, 0.0, -0.0]);
        let mut indices = [9; 2];
        max_forward(&shape, &[3.0, 3.0, 0.0, 1.0, 3.0, 3.0, 1.0, 0.0], &mut [0.0; 2], &mut indices, 1);
        assert_eq!(indices, [0, 3]);
    }

    #[test]
    fn the_stem_of_a_resnet() {
        let shape =
            PoolShape { planes: 600, height: 16, width: 16, kernel: [3; 2], stride: [2; 2], padding: [1; 2] };
        check(&shape, &noise(600 * 256, 3));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_shape(
            planes in 1usize..5, size in [1usize..12, 1usize..12], kernel in [1usize..5, 1usize..5],
            stride in [1usize..4, 1usize..4], padding in [0usize..3, 0usize..3],
        ) {
            let padding = [padding[0].min(kernel[0] / 2), padding[1].min(kernel[1] / 2)];
            let shape = PoolShape { planes, height: size[0], width: size[1], kernel, stride, padding };
            // Coarse values, so that ties are frequent.
            let x: Vec<f32> = noise(planes * size[0] * size[1], 4).iter().map(|x| (x * 3.0).round()).collect();
            check(&shape, &x);
        }
    }
}
