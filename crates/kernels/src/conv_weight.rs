//! The gradient of a convolution's weights. Input blocks are transposed to `[image][pixel][channel]` and output
//! gradients to `[pixel][channel][image]`, so that the gradient of each run of taps is one matrix product that sums
//! over the images of a block. Each task owns a block of output channels (or, for a small kernel and large maps, a
//! group of pixels; the groups' partial sums are added in order), so no sum depends on which thread computes it.

use super::conv::{ConvShape, FEW_CHANNELS};
use super::conv_plan::{Plan, TapRun};
use super::layout::{scatter, to_lanes};
use super::product::Product;
use super::tasks::{for_each, scratch};

/// Images summed by one product.
const LANES: usize = 64;
/// Maximum elements of transposed input and gradients held at once (unless one block needs more): 4 MiB.
const HELD: usize = 1 << 20;
/// Padding after each image's row, in elements: without it, rows of a power of two collide in the cache.
const ROW_PADDING: usize = 16;
/// Groups of pixels if the output channels do not give enough tasks.
const GROUPS: usize = 4;

/// How the work is divided, which depends on the shape only.
struct Cut<'a> {
    shape: &'a ConvShape,
    plan: &'a Plan,
    lanes: usize,
    /// Elements of one image of the transposed input.
    row: usize,
    /// Whether a pixel's taps are first copied together (few input channels) to form one longer product.
    together: bool,
    /// Elements of one output channel's gradient during summation: taps x input channels, rounded up if `together`.
    width: usize,
    groups: usize,
    /// Output channels per task.
    block: usize,
}

impl<'a> Cut<'a> {
    fn new(shape: &'a ConvShape, plan: &'a Plan) -> Cut<'a> {
        let together = shape.in_channels < FEW_CHANNELS && plan.taps.len() > 1;
        let exact = plan.taps.len() * shape.in_channels;
        let outputs = shape.out_channels;
        Cut {
            shape,
            plan,
            // At least two blocks per batch, if enough images remain.
            lanes: (shape.batch / 2).next_multiple_of(16).clamp(16, LANES).min(shape.batch),
            row: shape.in_channels * shape.in_pixels() + ROW_PADDING,
            together,
            width: if together { exact.next_multiple_of(16) } else { exact },
            groups: if together { GROUPS } else { 1 },
            block: if together {
                outputs
            } else {
                outputs.div_ceil(2).next_multiple_of(8).min(64).min(outputs)
            },
        }
    }

    fn dy_len(&self) -> usize {
        self.shape.out_channels * self.shape.out_pixels()
    }
}

/// `dw` from `x` and `dy`, whose lengths have been checked.
pub(super) fn backward(shape: &ConvShape, x: &[f32], dy: &[f32], dw: &mut [f32], parallelism: usize) {
    let plan = Plan::forward(shape);
    if x.is_empty() || dy.is_empty() || plan.taps.is_empty() {
        dw.fill(0.0);
        return;
    }
    let cut = Cut::new(shape, &plan);
    let mut sums = scratch(cut.groups * shape.out_channels * cut.width);
    sums.fill(0.0);

    let image_len = cut.row + cut.dy_len();
    let blocks = (HELD / (cut.lanes * image_len)).clamp(1, shape.batch.div_ceil(cut.lanes));
    let mut inner = scratch(blocks * cut.lanes * image_len);
    let x_offsets: Vec<usize> = (0..shape.in_pixels()).map(|pixel| pixel * shape.in_channels).collect();
    let dy_offsets = to_lanes(shape.out_channels, shape.out_pixels(), cut.lanes);
    let held = blocks * cut.lanes;
    for (x, dy) in x.chunks(held * (cut.row - ROW_PADDING)).zip(dy.chunks(held * cut.dy_len())) {
        let images = dy.len() / cut.dy_len();
        let blocks = x
            .chunks(cut.lanes * (cut.row - ROW_PADDING))
            .zip(dy.chunks(cut.lanes * cut.dy_len()))
            .zip(inner.chunks_exact_mut(cut.lanes * image_len));
        for_each(parallelism, blocks, |((x, dy), inner)| {
            let (inner_x, inner_dy) = inner.split_at_mut(cut.lanes * cut.row);
            for (x, inner_x) in x.chunks_exact(cut.row - ROW_PADDING).zip(inner_x.chunks_exact_mut(cut.row)) {
                scatter(x, shape.in_pixels(), shape.in_channels, &x_offsets, inner_x);
            }
            scatter(dy, cut.dy_len(), dy.len() / cut.dy_len(), &dy_offsets, inner_dy);
        });
        let tasks_per_group = shape.out_channels.div_ceil(cut.block);
        // Either a group's channels fill whole tasks or the group is one task: no task spans two groups.
        let tasks = sums.chunks_mut(cut.block * cut.width).enumerate();
        for_each(parallelism, tasks, |(task, sums)| {
            let mut left = images;
            for inner in inner.chunks_exact(cut.lanes * image_len).take(images.div_ceil(cut.lanes)) {
                let images = left.min(cut.lanes);
                left -= images;
                add_block(
                    &cut,
                    task / tasks_per_group,
                    task % tasks_per_group * cut.block,
                    inner,
                    images,
                    sums,
                );
            }
        });
    }
    finish(&cut, &sums, dw, parallelism);
}

/// Adds one block of images to a task's sums, for pixel group `group` and output channels from `first`.
fn add_block(cut: &Cut, group: usize, first: usize, inner: &[f32], images: usize, sums: &mut [f32]) {
    let (x, dy) = inner.split_at(cut.lanes * cut.row);
    let (outputs, channels) = (cut.shape.out_channels, cut.shape.in_channels);
    let mut product = Product {
        m: cut.width,
        n: sums.len() / cut.width,
        k: images,
        dst_step: cut.width,
        lhs_step: if cut.together { cut.width } else { cut.row },
        rhs_step: cut.lanes,
        accumulate: true,
    };
    let mut patches = scratch(if cut.together { images * cut.width } else { 0 });
    let pixels = cut.shape.out_pixels();
    for (pixel, runs) in cut.plan.by_pixel(pixels) {
        // Groups are ranges of pixels.
        if runs.is_empty() || pixel * cut.groups / pixels != group {
            continue;
        }
        let dy = &dy[(pixel * outputs + first) * cut.lanes..];
        if cut.together {
            fill_patches(cut, runs, x, &mut patches);
            product.run(sums, &patches, dy);
        } else {
            for run in runs {
                product.m = run.taps * channels;
                product.run(&mut sums[run.tap * channels..], &x[run.src * channels..], dy);
            }
        }
    }
}

/// `[image][taps x channels]` for one pixel; zeros for taps on padding and after the last tap.
fn fill_patches(cut: &Cut, runs: &[TapRun], x: &[f32], patches: &mut [f32]) {
    let channels = cut.shape.in_channels;
    let filled: usize = runs.iter().map(|run| run.taps * channels).sum();
    if filled < cut.width {
        patches.fill(0.0);
    }
    for (patch, x) in patches.chunks_exact_mut(cut.width).zip(x.chunks_exact(cut.row)) {
        for run in runs {
            let len = run.taps * channels;
            patch[run.tap * channels..][..len].copy_from_slice(&x[run.src * channels..][..len]);
        }
    }
}

/// `[group][output][tap][input]` to `[output][input][kernel]`, adding the groups in order.
fn finish(cut: &Cut, sums: &[f32], dw: &mut [f32], parallelism: usize) {
    let (inputs, all) = (cut.shape.in_channels, cut.shape.kernel_len());
    let block = cut.shape.out_channels.div_ceil(8);
    for_each(parallelism, dw.chunks_mut(block * inputs * all).enumerate(), |(i, dw)| {
        if cut.plan.taps.len() < all {
            dw.fill(0.0);
        }
        for (j, dw) in dw.chunks_exact_mut(inputs * all).enumerate() {
            for group in 0..cut.groups {
                let sums = &sums[(group * cut.shape.out_channels + i * block + j) * cut.width..];
                for (&tap, sums) in cut.plan.taps.iter().zip(sums.chunks_exact(inputs)) {
                    let to = dw[tap..].iter_mut().step_by(all);
                    if group == 0 {
                        to.zip(sums).for_each(|(to, &sum)| *to = sum);
                    } else {
                        to.zip(sums).for_each(|(to, &sum)| *to += sum);
                    }
                }
            }
        }
    });
}
