//! Convolution as a custom Burn operation with our own CPU kernel (`kernels::conv`). Burn's flex backend runs one matrix
//! product per image, which is slow for deep layers with 1x1 to 4x4 maps; our kernel runs one for many images.

use super::{Flat, record, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn::tensor::ops::ConvOptions;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::conv::{self, ConvShape};

/// `torch.nn.functional.conv2d` for one stride and one padding: `x` `[batch, in, h, w]`, `w` `[out, in, kh, kw]`.
pub fn conv2d(
    x: Tensor<4>,
    w: Tensor<4>,
    bias: Option<Tensor<1>>,
    stride: usize,
    padding: usize,
) -> Tensor<4> {
    if !is_host(&x.device()) {
        let options = ConvOptions::new([stride; 2], [padding; 2], [1; 2], 1);
        return burn::tensor::module::conv2d(x, w, bias, options);
    }
    let [batch, in_channels, height, width] = x.dims();
    let [out_channels, _, kh, kw] = w.dims();
    let shape = ConvShape {
        batch,
        in_channels,
        height,
        width,
        out_channels,
        kernel: [kh, kw],
        stride: [stride, stride],
        padding: [padding, padding],
    };
    if x.device().is_autodiff() { tracked(shape, x, w, bias) } else { plain(shape, x, w, bias) }
}

fn plain(shape: ConvShape, x: Tensor<4>, w: Tensor<4>, bias: Option<Tensor<1>>) -> Tensor<4> {
    let (x, w, bias) = (super::plain(x), super::plain(w), bias.map(super::plain));
    Tensor::from_primitive::<Flex>(forward(&shape, &x, &w, bias.as_ref()))
}

fn tracked(shape: ConvShape, x: Tensor<4>, w: Tensor<4>, bias: Option<Tensor<1>>) -> Tensor<4> {
    let ((x, x_node), (w, w_node)) = (super::tracked(x), super::tracked(w));
    let Some(bias) = bias else {
        let out = forward(&shape, &x, &w, None);
        return record(ConvStep, [x_node, w_node], ConvState { shape, x, w }, out);
    };
    let (bias, b_node) = super::tracked(bias);
    let out = forward(&shape, &x, &w, Some(&bias));
    record(ConvStep, [x_node, w_node, b_node], ConvState { shape, x, w }, out)
}

/// Saved for the backward pass. Cheap to clone: the buffers are shared.
#[derive(Clone, Debug)]
struct ConvState {
    shape: ConvShape,
    x: Flat,
    w: Flat,
}

#[derive(Debug)]
struct ConvStep;

fn forward(shape: &ConvShape, x: &Flat, w: &Flat, bias: Option<&Flat>) -> Flat {
    let mut out = vec![0.0; shape.output_len()];
    conv::forward(shape, values(x), values(w), bias.map(values), &mut out, threads());
    tensor(out, [shape.batch, shape.out_channels, shape.out_height(), shape.out_width()])
}

impl ConvState {
    fn input_gradient(&self, dy: &[f32]) -> Flat {
        let s = &self.shape;
        let mut dx = vec![0.0; s.input_len()];
        conv::backward_input(s, values(&self.w), dy, &mut dx, threads());
        tensor(dx, [s.batch, s.in_channels, s.height, s.width])
    }

    fn weight_gradient(&self, dy: &[f32]) -> Flat {
        let s = &self.shape;
        let mut dw = vec![0.0; s.weight_len()];
        conv::backward_weight(s, values(&self.x), dy, &mut dw, threads());
        tensor(dw, [s.out_channels, s.in_channels, s.kernel[0], s.kernel[1]])
    }

    fn bias_gradient(&self, dy: &[f32]) -> Flat {
        let mut db = vec![0.0; self.shape.out_channels];
        conv::backward_bias(&self.shape, dy, &mut db);
        tensor(db, [self.shape.out_channels])
    }
}

/// The parents are input, weight and, if present, bias.
impl<const N: usize> Backward<Flex, N> for ConvStep {
    type State = ConvState;

    fn backward(self, ops: Ops<ConvState, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let gradients: [fn(&ConvState, &[f32]) -> Flat; 3] =
            [ConvState::input_gradient, ConvState::weight_gradient, ConvState::bias_gradient];
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(node) = parent {
                grads.register::<Flex>(node.id, gradient(&ops.state, values(&dy)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::*;
    use burn::tensor::TensorData;
    use burn::tensor::ops::ConvOptions;

    /// Compares values and all three gradients with Burn's convolution.
    #[test]
    fn conv2d_and_its_gradients_equal_burns() {
        for (channels, size, kernel, stride, padding) in
            [(3, 8, 3, 1, 1), (3, 9, 7, 2, 3), (4, 1, 3, 1, 1), (4, 5, 1, 2, 0)]
        {
            let x = random([5, channels, size, size], 1).require_grad();
            let w = random([6, channels, kernel, kernel], 2).require_grad();
            let b = random([6], 3).require_grad();
            let options = ConvOptions::new([stride, stride], [padding, padding], [1, 1], 1);
            let run = |own: bool| {
                let (x, w, b) = (x.clone(), w.clone(), b.clone());
                let y = match own {
                    true => conv2d(x, w, Some(b), stride, padding),
                    false => burn::tensor::module::conv2d(x, w, Some(b), options.clone()),
                };
                (y.clone().inner(), (y.clone() * y).sum().backward())
            };
            let ((own, own_grads), (theirs, their_grads)) = (run(true), run(false));
            let close = |a: TensorData, b: TensorData| {
                a.assert_approx_eq::<f32>(&b, burn::tensor::Tolerance::rel_abs(1e-4, 1e-4))
            };
            close(own.into_data(), theirs.into_data());
            close(x.grad(&own_grads).unwrap().into_data(), x.grad(&their_grads).unwrap().into_data());
            close(w.grad(&own_grads).unwrap().into_data(), w.grad(&their_grads).unwrap().into_data());
            close(b.grad(&own_grads).unwrap().into_data(), b.grad(&their_grads).unwrap().into_data());
        }
    }
}
