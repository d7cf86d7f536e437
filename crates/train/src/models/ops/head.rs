//! The last layer of a language model together with the cross-entropy.

use super::cross_entropy::classes_of;
use super::{Flat, buffer, dims, record, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::{Int, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::head::{self, HeadSums};
use kernels::linear::LinearShape;

/// From so many logits on, not all of them are computed at once: 32 MiB.
pub const MANY_LOGITS: usize = 1 << 23;

/// Whether [`head_cross_entropy`] is for these rows of the last layer's input and its weight.
pub fn has_many_logits(x: &Tensor<2>, w: &Tensor<2>) -> bool {
    is_host(&x.device()) && x.dims()[0] * w.dims()[0] >= MANY_LOGITS
}

/// `cross_entropy(linear(x, w), targets, smoothing)`, and what is counted of the logits, which are not kept: `x` is `[rows, inputs]`, `w`
/// `[classes, inputs]`, `targets` `[rows]`. In host memory.
///
/// Panics if a target is not a class.
pub fn head_cross_entropy(
    x: Tensor<2>,
    w: Tensor<2>,
    targets: Tensor<1, Int>,
    smoothing: f64,
) -> (Tensor<1>, HeadSums) {
    let ([rows, inputs], [outputs, _]) = (x.dims(), w.dims());
    let (shape, targets) = (LinearShape { rows, inputs, outputs }, classes_of(targets, outputs));
    let run = |x: &Flat, w: &Flat, dx: &mut [f32], dw: &mut [f32]| {
        let sums = head::forward(shape, values(x), values(w), &targets, smoothing, dx, dw, threads());
        (tensor(vec![(sums.loss / rows as f64) as f32], [1]), sums)
    };
    if !x.device().is_autodiff() {
        let (loss, sums) = run(&super::plain(x), &super::plain(w), &mut [], &mut []);
        return (Tensor::from_primitive::<Flex>(loss), sums);
    }
    let ((x, x_node), (w, w_node)) = (super::tracked(x), super::tracked(w));
    let (mut dx, mut dw) = (buffer(values(&x).len()), buffer(values(&w).len()));
    let (loss, sums) = run(&x, &w, &mut dx, &mut dw);
    let gradients = [tensor(dx, [rows, inputs]), tensor(dw, [outputs, inputs])];
    (record(HeadStep, [x_node, w_node], gradients, loss), sums)
}

#[derive(Debug)]
struct HeadStep;

impl Backward<Flex, 2> for HeadStep {
    /// The gradients of the loss.
    type State = [Flat; 2];

    fn backward(self, ops: Ops<[Flat; 2], 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let factor = values(&dy)[0];
        let scaled = |gradient: &Flat| match factor {
            1.0 => gradient.clone(),
            _ => tensor(values(gradient).iter().map(|g| g * factor).collect(), dims(gradient)),
        };
        let gradients = ops.state.each_ref().map(scaled);
        register(grads, &ops, gradients);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{equal, frozen, leaves, pass};
    use super::super::{Activation, cross_entropy, linear};
    use super::*;

    const ROWS: usize = 130;
    const INPUTS: usize = 9;
    const CLASSES: usize = 33;

    fn apply(
        loss: impl Fn(Tensor<2>, Tensor<2>, Tensor<1, Int>) -> Tensor<1>,
    ) -> impl Fn(&[Tensor<1>]) -> Tensor<1> {
        move |given| {
            let (x, w) =
                (given[0].clone().reshape([ROWS, INPUTS]), given[1].clone().reshape([CLASSES, INPUTS]));
            let targets: Vec<i64> = (0..ROWS).map(|row| (row * 7 % CLASSES) as i64).collect();
            let targets = Tensor::from_ints(&targets[..], &x.device());
            loss(x, w, targets)
        }
    }

    fn given() -> [Tensor<1>; 2] {
        leaves([ROWS * INPUTS, CLASSES * INPUTS])
    }

    #[test]
    fn values_and_gradients_equal_those_of_two_layers() {
        for smoothing in [0.0, 0.1] {
            let two = move |x, w, targets| {
                cross_entropy(linear(x, w, None, None, Activation::None), targets, smoothing)
            };
            let one = move |x, w, targets| head_cross_entropy(x, w, targets, smoothing).0;
            equal(&format!("smoothing {smoothing}"), &given(), 3e-6, apply(one), apply(two));
        }
    }

    #[test]
    fn only_inputs_that_require_a_gradient_get_one() {
        frozen(&given(), apply(|x, w, targets| head_cross_entropy(x, w, targets, 0.0).0));
    }

    /// The gradient is computed in the forward pass; the loss may be scaled or used twice afterwards.
    #[test]
    fn the_gradient_is_proportional_to_the_losses_weight() {
        let once = pass(&given(), apply(|x, w, targets| head_cross_entropy(x, w, targets, 0.1).0));
        let twice = pass(
            &given(),
            apply(|x, w, targets| {
                let loss = head_cross_entropy(x, w, targets, 0.1).0;
                loss.clone() * 0.5 + loss * 1.5
            }),
        );
        for (once, twice) in once.iter().zip(&twice) {
            let times: Vec<f32> = once.iter().flatten().map(|x| x * 2.0).collect();
            assert_eq!(twice.as_deref(), Some(&times[..]));
        }
    }
}
