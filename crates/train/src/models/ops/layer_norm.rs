//! Layer normalisation.

use super::{Flat, buffer, dims, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::layer_norm::{self, LayerNormInputs};

/// `torch.nn.functional.layer_norm` over the last dimension.
pub fn layer_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, bias: Tensor<1>, eps: f64) -> Tensor<D> {
    assert_eq!(x.dims()[D - 1], weight.dims()[0], "width of a layer norm");
    if !is_host(&x.device()) {
        return burn::tensor::module::layer_norm(x, weight, Some(bias), eps);
    }
    if !x.device().is_autodiff() {
        let (x, weight, bias) = (super::plain(x), super::plain(weight), super::plain(bias));
        let (out, _) = forward(&x, &weight, &bias, eps);
        recycle(x);
        return Tensor::from_primitive::<Flex>(out);
    }
    let ((x, x_node), (weight, w_node), (bias, b_node)) =
        (super::tracked(x), super::tracked(weight), super::tracked(bias));
    let (out, statistics) = forward(&x, &weight, &bias, eps);
    let state = LayerNormState { x, weight, statistics };
    record(NormStep, [x_node, w_node, b_node], state, out)
}

fn forward(x: &Flat, weight: &Flat, bias: &Flat, eps: f64) -> (Flat, Vec<[f32; 2]>) {
    let (x_values, weight, bias) = (values(x), values(weight), values(bias));
    let mut out = buffer(x_values.len());
    let mut statistics = vec![[0.0; 2]; x_values.len() / weight.len()];
    layer_norm::forward(x_values, weight, bias, eps as f32, &mut out, &mut statistics, threads());
    (tensor(out, dims(x)), statistics)
}

#[derive(Clone, Debug)]
struct LayerNormState {
    x: Flat,
    weight: Flat,
    statistics: Vec<[f32; 2]>,
}

#[derive(Debug)]
struct NormStep;

impl Backward<Flex, 3> for NormStep {
    type State = LayerNormState;

    fn backward(self, ops: Ops<LayerNormState, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let LayerNormState { x, weight, statistics } = &ops.state;
        let saved = LayerNormInputs { x: values(x), weight: values(weight), statistics };
        let width = saved.weight.len();
        let (mut dx, mut dw, mut db) = (buffer(saved.x.len()), vec![0.0; width], vec![0.0; width]);
        layer_norm::backward(saved, values(&dy), &mut dx, &mut dw, &mut db, threads());
        let gradients = [tensor(dx, dims(x)), tensor(dw, [width]), tensor(db, [width])];
        register(grads, &ops, gradients);
        recycle(dy);
        recycle(ops.state.x);
    }
}

#[cfg(test)]
#[path = "layer_norm_tests.rs"]
mod tests;
