//! 2-d convolution (cross-correlation, as in all frameworks) and its gradients. Instead of unfolding each image into
//! columns, a block of images is transposed to `[pixel][channel][image]`. Every run of neighbouring taps is then a
//! contiguous operand of a matrix product over many images, however small the maps are, and padding costs nothing.
//! Source: the "direct convolution" of Zhang et al., 2018 (arXiv:1809.10170), with the batch as the vector dimension.

use super::conv_plan::{Plan, TapRun};
use super::conv_weight;
use super::layout::{SKIP, gather, scatter, taps_outward, to_lanes};
use super::product::Product;
use super::tasks::{for_each, scratch};

/// Sizes of a convolution. Pairs are (rows, columns); zero padding on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Channels of an input image.
    pub in_channels: usize,
    /// Rows of an input image, without padding.
    pub height: usize,
    /// Columns of an input image, without padding.
    pub width: usize,
    /// Channels of an output image.
    pub out_channels: usize,
    /// Size of the window.
    pub kernel: [usize; 2],
    /// Distance between windows.
    pub stride: [usize; 2],
    /// Zeros on each side.
    pub padding: [usize; 2],
}

impl ConvShape {
    /// Rows of the output map; 0 if the kernel is larger than the padded input.
    pub fn out_height(&self) -> usize {
        out_size(self.height, self.kernel[0], self.stride[0], self.padding[0])
    }

    /// Columns of the output map; 0 if the kernel is larger than the padded input.
    pub fn out_width(&self) -> usize {
        out_size(self.width, self.kernel[1], self.stride[1], self.padding[1])
    }

    /// Elements of the input, `[batch, in_channels, height, width]`.
    pub fn input_len(&self) -> usize {
        self.batch * self.in_channels * self.in_pixels()
    }

    /// Elements of the output, `[batch, out_channels, out_height, out_width]`.
    pub fn output_len(&self) -> usize {
        self.batch * self.out_channels * self.out_pixels()
    }

    /// Elements of the weights, `[out_channels, in_channels, kernel rows, kernel columns]`.
    pub fn weight_len(&self) -> usize {
        self.out_channels * self.in_channels * self.kernel_len()
    }

    pub(super) fn in_pixels(&self) -> usize {
        self.height * self.width
    }

    pub(super) fn out_pixels(&self) -> usize {
        self.out_height() * self.out_width()
    }

    pub(super) fn kernel_len(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    pub(super) fn check(&self, x: usize, w: usize, y: usize) {
        assert!(self.stride.iter().all(|&s| s > 0), "a convolution's stride is at least 1: {self:?}");
        assert_eq!(x, self.input_len(), "length of a convolution's input: {self:?}");
        assert_eq!(w, self.weight_len(), "length of a convolution's weights: {self:?}");
        assert_eq!(y, self.output_len(), "length of a convolution's output: {self:?}");
    }
}

/// Output size along one axis: positions of a window of `kernel` on `input` with `padding` on both sides.
pub(super) fn out_size(input: usize, kernel: usize, stride: usize, padding: usize) -> usize {
    (input + 2 * padding).checked_sub(kernel).map_or(0, |room| room / stride + 1)
}

/// Images in one block: enough to fill the vector registers, and at least two blocks per batch if enough images remain.
/// Depends on the batch only, never on the number of threads.
fn lanes(batch: usize) -> usize {
    (batch / 2).next_multiple_of(16).clamp(16, 32).min(batch)
}

/// `out[n,o] = bias[o] + sum over c of x[n,c] * w[o,c]` (`*`: correlation). Overwrites `out`.
///
/// Panics if a slice's length does not match `shape`; so do the gradients below.
pub fn forward(
    shape: &ConvShape,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    out: &mut [f32],
    parallelism: usize,
) {
    shape.check(x.len(), w.len(), out.len());
    let plan = Plan::forward(shape);
    let (inputs, taps) = (shape.in_channels, plan.taps.len());
    // The weights of a 1x1 kernel are already in order.
    let mut moved = scratch(if shape.kernel_len() == 1 { 0 } else { shape.out_channels * taps * inputs });
    if !moved.is_empty() {
        let block = shape.out_channels.div_ceil(8);
        let blocks =
            moved.chunks_mut(block * taps * inputs).zip(w.chunks(block * inputs * shape.kernel_len()));
        for_each(parallelism, blocks, |(to, from)| {
            taps_outward(from, inputs, shape.kernel_len(), &plan.taps, to);
        });
    }
    let sums = Sums {
        plan: &plan,
        weights: if shape.kernel_len() == 1 { w } else { &moved },
        src: Map { channels: inputs, pixels: shape.in_pixels() },
        dst: Map { channels: shape.out_channels, pixels: shape.out_pixels() },
        lanes: lanes(shape.batch),
    };
    sums.run(x, bias, out, parallelism);
}

/// Gradient of the input: `dx` (the input's shape, overwritten) from `dy` (the output's shape).
pub fn backward_input(shape: &ConvShape, w: &[f32], dy: &[f32], dx: &mut [f32], parallelism: usize) {
    shape.check(dx.len(), w.len(), dy.len());
    let plan = Plan::backward(shape);
    let mut moved = scratch(plan.taps.len() * shape.in_channels * shape.out_channels);
    if !moved.is_empty() {
        weights_inward(shape, &plan, w, &mut moved, parallelism);
    }
    let sums = Sums {
        plan: &plan,
        weights: &moved,
        src: Map { channels: shape.out_channels, pixels: shape.out_pixels() },
        dst: Map { channels: shape.in_channels, pixels: shape.in_pixels() },
        lanes: lanes(shape.batch),
    };
    sums.run(dy, None, dx, parallelism);
}

/// Gradient of the weights: `dw` (the weights' shape, overwritten), summed over the batch.
pub fn backward_weight(shape: &ConvShape, x: &[f32], dy: &[f32], dw: &mut [f32], parallelism: usize) {
    shape.check(x.len(), dw.len(), dy.len());
    conv_weight::backward(shape, x, dy, dw, parallelism);
}

/// Gradient of the bias: `db[o]` is the sum of `dy` over images and pixels, computed in f64.
pub fn backward_bias(shape: &ConvShape, dy: &[f32], db: &mut [f32]) {
    assert_eq!(dy.len(), shape.output_len(), "length of a convolution's output: {shape:?}");
    assert_eq!(db.len(), shape.out_channels, "length of a convolution's bias: {shape:?}");
    let pixels = shape.out_pixels();
    for (channel, db) in db.iter_mut().enumerate() {
        let maps = (0..shape.batch).map(|n| &dy[(n * shape.out_channels + channel) * pixels..][..pixels]);
        *db = maps.flatten().map(|&value| f64::from(value)).sum::<f64>() as f32;
    }
}

/// `[outputs][inputs][kernel]` to `[inputs][taps of the plan][outputs]`.
fn weights_inward(shape: &ConvShape, plan: &Plan, w: &[f32], moved: &mut [f32], parallelism: usize) {
    let (inputs, outputs, all, kept) =
        (shape.in_channels, shape.out_channels, shape.kernel_len(), plan.taps.len());
    // If most taps meet only padding, they are removed before the transposition.
    let few = 2 * kept < all;
    let mut dense = scratch(if few { outputs * inputs * kept } else { 0 });
    if few {
        let rows = outputs.div_ceil(8);
        let blocks = dense.chunks_mut(rows * inputs * kept).zip(w.chunks(rows * inputs * all));
        for_each(parallelism, blocks, |(to, from)| taps_outward(from, inputs, all, &plan.taps, to));
    }
    let block = inputs.min(32);
    let mut offsets = vec![SKIP; block * all];
    for channel in 0..block {
        for (position, &tap) in plan.taps.iter().enumerate() {
            let column = if few { position * block + channel } else { channel * all + tap };
            offsets[column] = (channel * kept + position) * outputs;
        }
    }
    for_each(parallelism, moved.chunks_mut(block * kept * outputs).enumerate(), |(i, to)| {
        let channels = to.len() / (kept * outputs);
        if few {
            for position in 0..kept {
                let from = &dense[position * inputs + i * block..];
                scatter(from, inputs * kept, outputs, &offsets[position * block..][..channels], to);
            }
        } else {
            scatter(&w[i * block * all..], inputs * all, outputs, &offsets[..channels * all], to);
        }
    });
}

#[derive(Clone, Copy)]
struct Map {
    channels: usize,
    pixels: usize,
}

impl Map {
    fn len(self) -> usize {
        self.channels * self.pixels
    }
}

/// A convolution in one direction: each destination pixel is the sum over its plan's runs of source times weights `[dst
/// channels][taps][src channels]`.
struct Sums<'a> {
    plan: &'a Plan,
    weights: &'a [f32],
    src: Map,
    dst: Map,
    lanes: usize,
}

/// With fewer source channels, the runs of a pixel are first copied together to form one longer sum.
pub(super) const FEW_CHANNELS: usize = 16;

impl Sums<'_> {
    fn run(&self, src: &[f32], bias: Option<&[f32]>, dst: &mut [f32], parallelism: usize) {
        if src.is_empty() || dst.is_empty() {
            dst.fill(0.0);
            add_bias(bias, self.dst, dst);
            return;
        }
        let from = to_lanes(self.src.channels, self.src.pixels, self.lanes);
        let back = to_lanes(self.dst.channels, self.dst.pixels, self.lanes);
        let blocks = src.chunks(self.lanes * self.src.len()).zip(dst.chunks_mut(self.lanes * self.dst.len()));
        for_each(parallelism, blocks, |(src, dst)| {
            let images = src.len() / self.src.len();
            let mut inner = scratch(self.lanes * self.src.len());
            scatter(src, self.src.len(), images, &from, &mut inner);
            let mut sums = scratch(self.lanes * self.dst.len());
            self.block(&inner, images, &mut sums);
            gather(&sums, &back, images, dst, self.dst.len());
            add_bias(bias, self.dst, dst);
        });
    }

    /// `src` and `dst` are `[pixel][channel][lanes]`; the first `images` lanes are used.
    fn block(&self, src: &[f32], images: usize, dst: &mut [f32]) {
        let (channels, taps) = (self.src.channels, self.plan.taps.len());
        let together = channels < FEW_CHANNELS && taps > 1;
        let mut patch = scratch(if together { taps * channels * self.lanes } else { 0 });
        let mut product = Product {
            m: images,
            n: self.dst.channels,
            k: 0,
            dst_step: self.lanes,
            lhs_step: self.lanes,
            rhs_step: taps * channels,
            accumulate: false,
        };
        let row = channels * self.lanes;
        let pixels = dst.chunks_exact_mut(self.dst.channels * self.lanes);
        for ((_, runs), dst) in self.plan.by_pixel(self.dst.pixels).zip(pixels) {
            if runs.is_empty() {
                dst.fill(0.0);
            } else if together {
                fill_patch(runs, src, row, taps, &mut patch);
                product.k = taps * channels;
                product.run(dst, &patch, self.weights);
            } else {
                for (i, run) in runs.iter().enumerate() {
                    product.k = run.taps * channels;
                    product.accumulate = i > 0;
                    product.run(dst, &src[run.src * row..], &self.weights[run.tap * channels..]);
                }
            }
        }
    }
}

/// Copies the source rows of a pixel's runs (`row` elements per pixel) to the positions of their taps; other taps are
/// set to zero.
fn fill_patch(runs: &[TapRun], src: &[f32], row: usize, taps: usize, patch: &mut [f32]) {
    if runs.iter().map(|run| run.taps).sum::<usize>() < taps {
        patch.fill(0.0);
    }
    for run in runs {
        patch[run.tap * row..][..run.taps * row].copy_from_slice(&src[run.src * row..][..run.taps * row]);
    }
}

/// Adds each channel's bias to the maps of whole images.
fn add_bias(bias: Option<&[f32]>, map: Map, dst: &mut [f32]) {
    let Some(bias) = bias else { return };
    assert_eq!(bias.len(), map.channels, "length of a convolution's bias");
    if map.pixels == 0 {
        return;
    }
    for (values, &bias) in dst.chunks_exact_mut(map.pixels).zip(bias.iter().cycle()) {
        values.iter_mut().for_each(|value| *value += bias);
    }
}

#[cfg(test)]
#[path = "conv_tests.rs"]
mod tests;
