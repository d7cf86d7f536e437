//! The end of a residual block: addition and ReLU in one pass.

use super::{Flat, dims, record, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::elementwise;

/// `relu(a + b)` for tensors of one shape.
pub fn add_relu(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    let dims = a.dims();
    assert_eq!(dims, b.dims(), "the two ways through a residual block give the same shape");
    if !is_host(&a.device()) {
        return relu(a + b);
    }
    let sum = |a: &Flat, b: &Flat| {
        let mut out = vec![0.0; values(a).len()];
        elementwise::add_relu(values(a), values(b), &mut out, threads());
        tensor(out, dims)
    };
    if !a.device().is_autodiff() {
        return Tensor::from_primitive::<Flex>(sum(&super::plain(a), &super::plain(b)));
    }
    let ((a, a_node), (b, b_node)) = (super::tracked(a), super::tracked(b));
    let out = sum(&a, &b);
    record(AddReluStep, [a_node, b_node], out.clone(), out)
}

#[derive(Debug)]
struct AddReluStep;

impl Backward<Flex, 2> for AddReluStep {
    /// The result: the gradient is 0 where this is 0.
    type State = Flat;

    fn backward(self, ops: Ops<Flat, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let out = &ops.state;
        let mut dx = vec![0.0; values(out).len()];
        elementwise::relu_backward(values(out), values(&dy), &mut dx, threads());
        let dx = tensor(dx, dims(out));
        register(grads, &ops, [dx.clone(), dx]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::super::{batch_norm_train, max_pool2d};
    use super::*;
    use burn::tensor::Tolerance;
    use burn::tensor::ops::MaxPoolOptions;

    fn close<const D: usize>(a: Tensor<D>, b: Tensor<D>) {
        a.into_data().assert_approx_eq::<f32>(&b.into_data(), Tolerance::rel_abs(1e-4, 1e-4));
    }

    /// Compares values and gradients of a residual block made from our operations with one from Burn's.
    #[test]
    fn residual_block_equals_burns_operations() {
        let x = random([3, 4, 7, 6], 1).require_grad();
        let w = random([4], 2).require_grad();
        let b = random([4], 3).require_grad();
        let run = |own: bool| {
            let (x, w, b) = (x.clone(), w.clone(), b.clone());
            let y = match own {
                true => {
                    let (y, _) = batch_norm_train(x.clone(), w.clone(), b.clone(), 1e-5, true);
                    let (z, _) = batch_norm_train(y, w, b, 1e-5, false);
                    max_pool2d(add_relu(z, x), 3, 2, 1)
                }
                false => {
                    let norm = |x, w, b| burn::tensor::module::batch_norm_train(x, w, b, 1e-5).output;
                    let y = relu(norm(x.clone(), w.clone(), b.clone()));
                    let z = relu(norm(y, w, b) + x);
                    let options = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([1, 1]);
                    burn::tensor::module::max_pool2d(z, options)
                }
            };
            (y.clone().inner(), (y.clone() * y).sum().backward())
        };
        let ((own, own_grads), (theirs, their_grads)) = (run(true), run(false));
        close(own, theirs);
        close(x.grad(&own_grads).unwrap(), x.grad(&their_grads).unwrap());
        close(w.grad(&own_grads).unwrap(), w.grad(&their_grads).unwrap());
        close(b.grad(&own_grads).unwrap(), b.grad(&their_grads).unwrap());
    }
}
