//! Normalisation by the root mean square.

use super::{Flat, buffer, dims, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::rms_norm::{self, RmsNormInputs};

/// `torch.nn.functional.rms_norm` over the last dimension.
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, eps: f64) -> Tensor<D> {
    assert_eq!(x.dims()[D - 1], weight.dims()[0], "width of an RMS norm");
    if !is_host(&x.device()) {
        return composed(x, weight, eps);
    }
    if !x.device().is_autodiff() {
        let (x, weight) = (super::plain(x), super::plain(weight));
        let (out, _) = forward(&x, &weight, eps);
        recycle(x);
        return Tensor::from_primitive::<Flex>(out);
    }
    let ((x, x_node), (weight, w_node)) = (super::tracked(x), super::tracked(weight));
    let (out, scales) = forward(&x, &weight, eps);
    record(NormStep, [x_node, w_node], RmsNormState { x, weight, scales }, out)
}

/// From Burn's operations.
fn composed<const D: usize>(x: Tensor<D>, weight: Tensor<1>, eps: f64) -> Tensor<D> {
    let squares = (x.clone() * x.clone()).mean_dim(D - 1);
    x * (squares + eps).sqrt().recip() * weight.unsqueeze()
}

fn forward(x: &Flat, weight: &Flat, eps: f64) -> (Flat, Vec<f32>) {
    let (x_values, weight) = (values(x), values(weight));
    let mut out = buffer(x_values.len());
    let mut scales = vec![0.0; x_values.len() / weight.len()];
    rms_norm::forward(x_values, weight, eps as f32, &mut out, &mut scales, threads());
    (tensor(out, dims(x)), scales)
}

#[derive(Clone, Debug)]
struct RmsNormState {
    x: Flat,
    weight: Flat,
    scales: Vec<f32>,
}

#[derive(Debug)]
struct NormStep;

impl Backward<Flex, 2> for NormStep {
    type State = RmsNormState;

    fn backward(self, ops: Ops<RmsNormState, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let RmsNormState { x, weight, scales } = &ops.state;
        let saved = RmsNormInputs { x: values(x), weight: values(weight), scales };
        let width = saved.weight.len();
        let (mut dx, mut dw) = (buffer(saved.x.len()), vec![0.0; width]);
        rms_norm::backward(saved, values(&dy), &mut dx, &mut dw, threads());
        let gradients = [tensor(dx, dims(x)), tensor(dw, [width])];
        register(grads, &ops, gradients);
        recycle(dy);
        recycle(ops.state.x);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, equal, frozen, leaves};
    use super::*;
    use burn::tensor::Device;

    const EPS: f64 = 1e-5;

    /// Sums of at most 130 products below 2, in another order, times an inverse root that is below 3 for the rows here but those of
    /// one element.
    const TOLERANCE: f32 = 5e-5;

    type Norm = fn(Tensor<2>, Tensor<1>, f64) -> Tensor<2>;

    fn apply(norm: Norm, rows: usize, width: usize) -> impl Fn(&[Tensor<1>]) -> Tensor<2> {
        move |given| norm(given[0].clone().reshape([rows, width]), given[1].clone(), EPS)
    }

    #[test]
    fn values_and_gradients_equal_burns() {
        for (rows, width) in [(1, 9), (7, 2), (130, 9), (130, 33)] {
            let given = leaves([rows * width, width]);
            let of = |norm| apply(norm, rows, width);
            equal(&format!("{rows} x {width}"), &given, TOLERANCE, of(rms_norm), of(composed));
        }
    }

    #[test]
    fn inputs_and_gradients_may_be_views() {
        let (rows, width) = (130, 9);
        let given = leaves([width * rows, 2 * width]);
        let strided = |norm: Norm, given: &[Tensor<1>]| {
            let x = given[0].clone().reshape([width, rows]).transpose();
            let weight = given[1].clone().reshape([width, 2]).narrow(1, 1, 1).reshape([width]);
            norm(x, weight, EPS).transpose()
        };
        equal("strided", &given, TOLERANCE, |g| strided(rms_norm, g), |g| strided(composed, g));
    }

    #[test]
    fn only_inputs_that_require_a_gradient_get_one() {
        frozen(&leaves([130 * 33, 33]), apply(rms_norm, 130, 33));
    }

    #[test]
    fn held_activations_keep_their_values() {
        let [x, weight] = leaves([130 * 33, 33]);
        testing::held_activations_keep_their_values(x, |x| {
            let norm = |x: Tensor<2>| rms_norm(x, weight.clone(), EPS);
            let first = norm(x.clone().reshape([130, 33]));
            [x, first.clone().reshape([130 * 33]), norm(first).reshape([130 * 33])]
        });
    }

    /// 24 elements are rows of 3, too.
    #[test]
    #[should_panic(expected = "width of an RMS norm")]
    fn rejects_a_weight_of_another_width() {
        let device = Device::flex();
        rms_norm(Tensor::<2>::ones([6, 4], &device), Tensor::ones([3], &device), EPS);
    }
}
