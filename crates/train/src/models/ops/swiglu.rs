//! The gated activation of Llama's MLPs.

use super::{Flat, buffer, dims, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn::tensor::activation::silu;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::swiglu;

/// `torch.nn.functional.silu(gate) * up`; both have the same shape.
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    if !is_host(&gate.device()) {
        return silu(gate) * up;
    }
    if !gate.device().is_autodiff() {
        let (gate, up) = (super::plain(gate), super::plain(up));
        let out = forward(&gate, &up);
        [gate, up].into_iter().for_each(recycle);
        return Tensor::from_primitive::<Flex>(out);
    }
    let ((gate, gate_node), (up, up_node)) = (super::tracked(gate), super::tracked(up));
    let out = forward(&gate, &up);
    record(SwigluStep, [gate_node, up_node], [gate, up], out)
}

fn forward(gate: &Flat, up: &Flat) -> Flat {
    let mut out = buffer(values(gate).len());
    swiglu::forward(values(gate), values(up), &mut out, threads());
    tensor(out, dims(gate))
}

#[derive(Debug)]
struct SwigluStep;

impl Backward<Flex, 2> for SwigluStep {
    type State = [Flat; 2];

    fn backward(self, ops: Ops<[Flat; 2], 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let [gate, up] = &ops.state;
        let [mut dgate, mut dup] = [(); 2].map(|()| buffer(values(gate).len()));
        swiglu::backward(values(gate), values(up), values(&dy), &mut dgate, &mut dup, threads());
        let gradients = [dgate, dup].map(|gradient| tensor(gradient, dims(gate)));
        register(grads, &ops, gradients);
        recycle(dy);
        ops.state.into_iter().for_each(recycle);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, equal, frozen, leaves};
    use super::*;

    fn apply(op: fn(Tensor<2>, Tensor<2>) -> Tensor<2>) -> impl Fn(&[Tensor<1>]) -> Tensor<2> {
        move |given| {
            op(given[0].clone().reshape([13, 9]) * 5.0, given[1].clone().reshape([9, 13]).transpose())
        }
    }

    fn reference(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
        silu(gate) * up
    }

    #[test]
    fn values_and_gradients_equal_burns() {
        equal("swiglu", &leaves([13 * 9; 2]), 1e-6, apply(swiglu), apply(reference));
    }

    #[test]
    fn only_inputs_that_require_a_gradient_get_one() {
        frozen(&leaves([13 * 9; 2]), apply(swiglu));
    }

    #[test]
    fn held_activations_keep_their_values() {
        let [x, up] = leaves([13 * 9; 2]);
        testing::held_activations_keep_their_values(x, |x| {
            let op = |x: Tensor<2>| swiglu(x, up.clone().reshape([13, 9]));
            let first = op(x.clone().reshape([13, 9]));
            [x, first.clone().reshape([13 * 9]), op(first).reshape([13 * 9])]
        });
    }
}
