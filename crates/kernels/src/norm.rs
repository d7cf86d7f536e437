//! Batch normalisation of NCHW tensors over images and pixels, as in PyTorch: training normalises by the batch's mean
//! and biased variance; the caller updates the running statistics. A ReLU can be fused.
//!
//! A few channels are processed at a time, so that the second and third pass find them in the cache. Sums over images
//! are computed in f32, one per pixel of the map, and added in f64 every `FOLD` images: the order is the same on every
//! processor and with any number of threads.

use super::norm_loops::{add, add_products, add_products_relu, add_squares, input_gradient, mask, normalise};
use super::tasks::{TaskBuffers, for_each, scratch};

/// Images summed in f32 before the sums move to f64.
const FOLD: usize = 32;
/// Maximum elements of one tensor in a task's channels (unless one channel needs more): 256 KiB.
const HELD: usize = 1 << 16;

/// Sizes of a batch normalisation; `pixels` is height times width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormShape {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Elements of a channel of one image.
    pub pixels: usize,
}

impl NormShape {
    fn image(&self) -> usize {
        self.channels * self.pixels
    }

    fn check(&self, tensors: &[usize], vectors: &[usize]) {
        let len = self.batch * self.image();
        assert!(tensors.iter().all(|&l| l == len), "tensors of {tensors:?} elements, not {len}: {self:?}");
        assert!(vectors.iter().all(|&l| l == self.channels), "vectors of {vectors:?} elements: {self:?}");
    }

    /// Channels per task.
    fn block(&self) -> usize {
        (HELD / (self.batch * self.pixels).max(1)).clamp(1, self.channels.max(1))
    }

    /// For each block of channels, its part of every image. Empty tensors have no blocks.
    fn cut<'a>(&self, out: &'a mut [f32]) -> Vec<Vec<&'a mut [f32]>> {
        if out.is_empty() {
            return Vec::new();
        }
        let mut blocks: Vec<Vec<_>> = Vec::new();
        blocks.resize_with(self.channels.div_ceil(self.block()), || Vec::with_capacity(self.batch));
        for image in out.chunks_exact_mut(self.image()) {
            for (block, part) in blocks.iter_mut().zip(image.chunks_mut(self.block() * self.pixels)) {
                block.push(part);
            }
        }
        blocks
    }
}

/// Statistics of the batch per channel; the backward pass needs `mean` and `inv_std`.
pub struct Statistics<'a> {
    /// Over all images and pixels.
    pub mean: &'a mut [f32],
    /// Biased variance (divided by n, not n - 1).
    pub variance: &'a mut [f32],
    /// `1 / sqrt(variance + eps)`.
    pub inv_std: &'a mut [f32],
}

/// `out = (x - mean) * inv_std * weight + bias`, then ReLU if `relu`; fills `statistics`. Uses at most `parallelism`
/// threads.
///
/// Panics if the slices' lengths do not match `shape`; so do the other functions here.
#[allow(clippy::too_many_arguments)]
pub fn forward_train(
    shape: NormShape,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    relu: bool,
    out: &mut [f32],
    statistics: Statistics,
    parallelism: usize,
) {
    let Statistics { mean, variance, inv_std } = statistics;
    shape
        .check(&[x.len(), out.len()], &[weight.len(), bias.len(), mean.len(), variance.len(), inv_std.len()]);
    let count = (shape.batch * shape.pixels) as f64;
    let block = shape.block();
    let per_block = mean.chunks_mut(block).zip(variance.chunks_mut(block)).zip(inv_std.chunks_mut(block));
    let tasks = shape.cut(out).into_iter().zip(per_block).enumerate();
    for_each(parallelism, tasks, |(task, (mut out, ((mean, variance), inv_std)))| {
        let part = ChannelRange { shape, first: task * block, channels: mean.len() };
        let mut sums = Sums::new(&part);
        sums.add(&part, |n, sum, _| add(part.channels(x, n), sum));
        sums.totals(0, mean, count);
        let centre = part.spread(|c| mean[c]);
        sums.add(&part, |n, sum, _| add_squares(part.channels(x, n), &centre, sum));
        sums.totals(0, variance, count);
        for (inv_std, &variance) in inv_std.iter_mut().zip(&*variance) {
            *inv_std = (1.0 / (f64::from(variance) + f64::from(eps)).sqrt()) as f32;
        }
        let scale = part.spread(|c| inv_std[c] * weight[part.first + c]);
        let bias = part.spread(|c| bias[part.first + c]);
        for (n, out) in out.iter_mut().enumerate() {
            normalise(part.channels(x, n), &centre, &scale, &bias, relu, out);
        }
    });
}

/// As [`forward_train`] with given statistics, for evaluation: `out = (x - mean) / sqrt(variance + eps) * weight +
/// bias`, then ReLU if `relu`.
#[allow(clippy::too_many_arguments)]
pub fn forward_eval(
    shape: NormShape,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    mean: &[f32],
    variance: &[f32],
    eps: f32,
    relu: bool,
    out: &mut [f32],
    parallelism: usize,
) {
    shape.check(&[x.len(), out.len()], &[weight.len(), bias.len(), mean.len(), variance.len()]);
    let block = shape.block();
    for_each(parallelism, shape.cut(out).into_iter().enumerate(), |(task, mut out)| {
        let first = task * block;
        let part = ChannelRange { shape, first, channels: block.min(shape.channels - first) };
        let inv_std = |c: usize| (1.0 / (f64::from(variance[c]) + f64::from(eps)).sqrt()) as f32;
        let centre = part.spread(|c| mean[first + c]);
        let scale = part.spread(|c| inv_std(first + c) * weight[first + c]);
        let bias = part.spread(|c| bias[first + c]);
        for (n, out) in out.iter_mut().enumerate() {
            normalise(part.channels(x, n), &centre, &scale, &bias, relu, out);
        }
    });
}

/// Inputs of the backward pass of [`forward_train`].
#[derive(Clone, Copy)]
pub struct BatchNormInputs<'a> {
    /// The forward pass's input.
    pub x: &'a [f32],
    /// From [`Statistics`].
    pub mean: &'a [f32],
    /// From [`Statistics`].
    pub inv_std: &'a [f32],
    /// As in the forward pass, one element per channel.
    pub weight: &'a [f32],
    /// The forward pass's result if it had a ReLU (no gradient passes where it is 0), else `None`.
    pub relu_out: Option<&'a [f32]>,
}

/// Gradients of the input, the weight and the bias (all overwritten) from `dy`. Uses at most `parallelism` threads.
pub fn backward(
    shape: NormShape,
    saved: BatchNormInputs,
    dy: &[f32],
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: &mut [f32],
    parallelism: usize,
) {
    let BatchNormInputs { x, mean, inv_std, weight, relu_out } = saved;
    let relu_len = relu_out.map_or(x.len(), <[f32]>::len);
    shape.check(
        &[x.len(), dy.len(), dx.len(), relu_len],
        &[mean.len(), inv_std.len(), weight.len(), dweight.len(), dbias.len()],
    );
    if dx.is_empty() {
        dweight.fill(0.0);
        dbias.fill(0.0);
    }
    let count = (shape.batch * shape.pixels) as f32;
    let block = shape.block();
    let tasks =
        shape.cut(dx).into_iter().zip(dweight.chunks_mut(block).zip(dbias.chunks_mut(block))).enumerate();
    for_each(parallelism, tasks, |(task, (mut dx, (dweight, dbias)))| {
        let first = task * block;
        let part = ChannelRange { shape, first, channels: dbias.len() };
        let centre = part.spread(|c| mean[first + c]);
        let mut sums = Sums::new(&part);
        sums.add(&part, |n, sum, product| match relu_out {
            None => add_products(part.channels(dy, n), part.channels(x, n), &centre, sum, product),
            Some(out) => {
                add_products_relu(
                    part.channels(dy, n),
                    part.channels(out, n),
                    part.channels(x, n),
                    &centre,
                    sum,
                    product,
                );
            }
        });
        sums.totals(0, dbias, 1.0);
        // So far the sum of dy * (x - mean); the weight's gradient uses the normalised x.
        sums.totals(1, dweight, 1.0);
        for (c, dweight) in dweight.iter_mut().enumerate() {
            *dweight *= inv_std[first + c];
        }
        // dx = scale * (dy - mean(dy) - normalised x * mean(dy * normalised x)).
        let scale = part.spread(|c| inv_std[first + c] * weight[first + c]);
        let constant = part.spread(|c| dbias[c] / count);
        let slope = part.spread(|c| inv_std[first + c] * dweight[c] / count);
        for (n, dx) in dx.iter_mut().enumerate() {
            match relu_out {
                None => dx.copy_from_slice(part.channels(dy, n)),
                Some(out) => mask(part.channels(dy, n), part.channels(out, n), dx),
            }
            input_gradient(part.channels(x, n), &centre, &constant, &slope, &scale, dx);
        }
    });
}

/// The channels of one task.
struct ChannelRange {
    shape: NormShape,
    first: usize,
    channels: usize,
}

impl ChannelRange {
    fn len(&self) -> usize {
        self.channels * self.shape.pixels
    }

    /// The task's part of image `n`.
    fn channels<'a>(&self, tensor: &'a [f32], n: usize) -> &'a [f32] {
        &tensor[n * self.shape.image() + self.first * self.shape.pixels..][..self.len()]
    }

    /// Repeats each channel's value for all of its pixels, so that the inner loops need no channel index.
    fn spread(&self, value: impl Fn(usize) -> f32) -> TaskBuffers {
        let mut all = scratch(self.len());
        for (c, values) in all.chunks_exact_mut(self.shape.pixels).enumerate() {
            values.fill(value(c));
        }
        all
    }
}

/// Two sums per channel: f32 over some images, one per pixel, then f64.
struct Sums {
    pixels: usize,
    running: [TaskBuffers; 2],
    totals: [Vec<f64>; 2],
}

impl Sums {
    fn new(part: &ChannelRange) -> Sums {
        Sums {
            pixels: part.shape.pixels,
            running: [scratch(part.len()), scratch(part.len())],
            totals: [vec![0.0; part.channels], vec![0.0; part.channels]],
        }
    }

    /// Sums from zero; `image(n, first, second)` adds image `n` to the running sums.
    fn add(&mut self, part: &ChannelRange, image: impl Fn(usize, &mut [f32], &mut [f32])) {
        self.totals.iter_mut().for_each(|totals| totals.fill(0.0));
        let [first, second] = &mut self.running;
        for start in (0..part.shape.batch).step_by(FOLD) {
            first.fill(0.0);
            second.fill(0.0);
            for n in start..part.shape.batch.min(start + FOLD) {
                image(n, first, second);
            }
            for (totals, running) in self.totals.iter_mut().zip([&*first, &*second]) {
                for (total, running) in totals.iter_mut().zip(running.chunks_exact(self.pixels)) {
                    *total += running.iter().map(|&value| f64::from(value)).sum::<f64>();
                }
            }
        }
    }

    fn totals(&self, which: usize, to: &mut [f32], divisor: f64) {
        for (to, total) in to.iter_mut().zip(&self.totals[which]) {
            *to = (total / divisor) as f32;
        }
    }
}

#[cfg(test)]
#[path = "norm_tests.rs"]
mod tests;
