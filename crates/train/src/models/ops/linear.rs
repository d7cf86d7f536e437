//! A linear layer with what follows it, as one operation over our own kernel (`kernels::linear`).

use super::{Flat, buffer, record, recycle, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::activation::{gelu, gelu_approximate, relu};
use burn::tensor::{Tensor, module};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::linear::{
    LinearShape, Terms, backward_activation, backward_bias, backward_input, backward_weight, forward,
};

pub use kernels::linear::Activation;

/// `activation(x w^T + bias + residual)`: `x` is `[rows, inputs]`, `w` `[outputs, inputs]` as in `torch.nn.Linear`,
/// `residual` shaped like the result, `[rows, outputs]`.
pub fn linear(
    x: Tensor<2>,
    w: Tensor<2>,
    bias: Option<Tensor<1>>,
    residual: Option<Tensor<2>>,
    activation: Activation,
) -> Tensor<2> {
    if !is_host(&x.device()) {
        let y = module::linear(x, w.transpose(), bias);
        let y = match residual {
            Some(residual) => y + residual,
            None => y,
        };
        return match activation {
            Activation::None => y,
            Activation::Relu => relu(y),
            Activation::Gelu => gelu(y),
            Activation::GeluTanh => gelu_approximate(y),
        };
    }
    let ([rows, inputs], [outputs, _]) = (x.dims(), w.dims());
    let shape = LinearShape { rows, inputs, outputs };
    assert!(residual.as_ref().is_none_or(|r| r.dims() == [rows, outputs]), "shape of a residual: {shape:?}");
    if !x.device().is_autodiff() {
        let (x, w, bias, residual) =
            (super::plain(x), super::plain(w), bias.map(super::plain), residual.map(super::plain));
        let call = LinearCall { shape, activation, bias: bias.as_ref(), residual: residual.as_ref() };
        let (out, _) = call.run(&x, &w, false);
        recycle(x);
        residual.into_iter().for_each(recycle);
        return Tensor::from_primitive::<Flex>(out);
    }
    let ((x, x_node), (w, w_node)) = (super::tracked(x), super::tracked(w));
    let (bias, b_node) = bias.map(super::tracked).unzip();
    let (residual, r_node) = residual.map(super::tracked).unzip();
    let call = LinearCall { shape, activation, bias: bias.as_ref(), residual: residual.as_ref() };
    let (out, slope) = call.run(&x, &w, true);
    let result = match activation {
        Activation::None => None,
        Activation::Relu => Some(out.clone()),
        Activation::Gelu | Activation::GeluTanh => slope,
    };
    let saved = LinearState { shape, activation, x, w, result, has_bias: bias.is_some() };
    match (b_node, r_node) {
        (None, None) => record(LinearStep, [x_node, w_node], saved, out),
        (Some(node), None) | (None, Some(node)) => record(LinearStep, [x_node, w_node, node], saved, out),
        (Some(bias), Some(residual)) => record(LinearStep, [x_node, w_node, bias, residual], saved, out),
    }
}

struct LinearCall<'a> {
    shape: LinearShape,
    activation: Activation,
    bias: Option<&'a Flat>,
    residual: Option<&'a Flat>,
}

impl LinearCall<'_> {
    /// The result, and the derivative of the activation if it is asked for and has to be kept.
    fn run(&self, x: &Flat, w: &Flat, derivative: bool) -> (Flat, Option<Flat>) {
        let &LinearCall { shape, activation, bias, residual } = self;
        let dims = [shape.rows, shape.outputs];
        let mut out = buffer(shape.rows * shape.outputs);
        let derivative = derivative && activation.has_slope();
        let mut slope = if derivative { buffer(out.len()) } else { Vec::new() };
        let terms = Terms { weight: values(w), bias: bias.map(values), residual: residual.map(values) };
        forward(shape, values(x), terms, activation, &mut out, &mut slope, threads());
        let slope = derivative.then(|| tensor(slope, dims));
        (tensor(out, dims), slope)
    }
}

#[derive(Clone, Debug)]
struct LinearState {
    shape: LinearShape,
    activation: Activation,
    x: Flat,
    w: Flat,
    /// From which the activation's derivative follows.
    result: Option<Flat>,
    has_bias: bool,
}

#[derive(Debug)]
struct LinearStep;

/// Parents: `x`, `w`, the bias if there is one, the residual if there is one.
impl<const N: usize> Backward<Flex, N> for LinearStep {
    type State = LinearState;

    fn backward(self, ops: Ops<LinearState, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let LinearState { shape, activation, x, w, result, has_bias } = ops.state;
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let dz = match result {
            None => dy,
            Some(result) => {
                let mut dz = buffer(shape.rows * shape.outputs);
                backward_activation(activation, values(&result), values(&dy), &mut dz, threads());
                recycle(dy);
                recycle(result);
                tensor(dz, [shape.rows, shape.outputs])
            }
        };
        for (i, node) in ops.parents.into_iter().enumerate() {
            let Some(node) = node else { continue };
            let gradient = match i {
                0 => {
                    let mut dx = buffer(shape.rows * shape.inputs);
                    backward_input(shape, values(&w), values(&dz), &mut dx, threads());
                    tensor(dx, [shape.rows, shape.inputs])
                }
                1 => {
                    let mut dw = buffer(shape.outputs * shape.inputs);
                    backward_weight(shape, values(&x), values(&dz), &mut dw, threads());
                    tensor(dw, [shape.outputs, shape.inputs])
                }
                2 if has_bias => {
                    let mut db = vec![0.0; shape.outputs];
                    backward_bias(shape, values(&dz), &mut db, threads());
                    tensor(db, [shape.outputs])
                }
                _ => dz.clone(),
            };
            grads.register::<Flex>(node.id, gradient);
        }
        recycle(dz);
        recycle(x);
    }
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
