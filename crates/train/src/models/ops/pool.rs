//! Max pooling.

use super::{Flat, record, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn::tensor::ops::MaxPoolOptions;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::pool::{PoolShape, max_backward, max_forward};
use std::sync::Arc;

/// `torch.nn.functional.max_pool2d` with a square window: the first of equal values gets the gradient.
pub fn max_pool2d(x: Tensor<4>, kernel: usize, stride: usize, padding: usize) -> Tensor<4> {
    if !is_host(&x.device()) {
        let options = MaxPoolOptions::new([kernel; 2]).with_stride([stride; 2]).with_padding([padding; 2]);
        return burn::tensor::module::max_pool2d(x, options);
    }
    let [batch, channels, height, width] = x.dims();
    let shape = PoolShape {
        planes: batch * channels,
        height,
        width,
        kernel: [kernel; 2],
        stride: [stride; 2],
        padding: [padding; 2],
    };
    let dims = [batch, channels, shape.out_height(), shape.out_width()];
    if !x.device().is_autodiff() {
        return Tensor::from_primitive::<Flex>(forward(&shape, &super::plain(x), dims).0);
    }
    let (x, node) = super::tracked(x);
    let (out, indices) = forward(&shape, &x, dims);
    let state = PoolState { shape, dims: [batch, channels, height, width], indices: indices.into() };
    record(PoolStep, [node], state, out)
}

fn forward(shape: &PoolShape, x: &Flat, dims: [usize; 4]) -> (Flat, Vec<u32>) {
    let len = dims.iter().product();
    let (mut out, mut indices) = (vec![0.0; len], vec![0; len]);
    max_forward(shape, values(x), &mut out, &mut indices, threads());
    (tensor(out, dims), indices)
}

#[derive(Clone, Debug)]
struct PoolState {
    shape: PoolShape,
    /// Dimensions of the input.
    dims: [usize; 4],
    indices: Arc<[u32]>,
}

#[derive(Debug)]
struct PoolStep;

impl Backward<Flex, 1> for PoolStep {
    type State = PoolState;

    fn backward(self, ops: Ops<PoolState, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let PoolState { shape, dims, indices } = &ops.state;
        let mut dx = vec![0.0; dims.iter().product()];
        max_backward(shape, values(&dy), indices, &mut dx, threads());
        let dx = tensor(dx, *dims);
        register(grads, &ops, [dx]);
    }
}
