//! Batch normalisation of images, fused with an optional ReLU.

use super::{Flat, dims, record, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
#[cfg(feature = "cubecl-devices")]
use ddp::device::is_host;
use kernels::norm::{self, BatchNormInputs, NormShape, Statistics};

/// The statistics of a batch: `[channels]` each, with biased variance. On the batch's device, without autodiff.
pub struct BatchStatistics {
    pub mean: Tensor<1>,
    pub variance: Tensor<1>,
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` with the batch's own statistics, then ReLU if `relu`.
/// `x` is `[batch, channels, h, w]`, on a device with autodiff.
pub fn batch_norm_train(
    x: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    eps: f64,
    relu: bool,
) -> (Tensor<4>, BatchStatistics) {
    #[cfg(feature = "cubecl-devices")]
    if !is_host(&x.device()) {
        return super::norm_on_device::train(x, weight, bias, eps, relu);
    }
    let dims = x.dims();
    let shape = shape(dims);
    let ((x, x_node), (weight, w_node), (bias, b_node)) =
        (super::tracked(x), super::tracked(weight), super::tracked(bias));
    let channels = || vec![0.0; shape.channels];
    let (mut mean, mut variance, mut inv_std) = (channels(), channels(), channels());
    let mut out = vec![0.0; values(&x).len()];
    let statistics = Statistics { mean: &mut mean, variance: &mut variance, inv_std: &mut inv_std };
    let (w, b) = (values(&weight), values(&bias));
    norm::forward_train(shape, values(&x), w, b, eps as f32, relu, &mut out, statistics, threads());
    let out = tensor(out, dims);
    let state = BatchNormState {
        shape,
        x,
        weight,
        mean: tensor(mean.clone(), [shape.channels]),
        inv_std: tensor(inv_std, [shape.channels]),
        relu_out: relu.then(|| out.clone()),
    };
    let plain = |values| Tensor::from_primitive::<Flex>(tensor(values, [shape.channels]));
    let statistics = BatchStatistics { mean: plain(mean), variance: plain(variance) };
    (record(NormStep, [x_node, w_node, b_node], state, out), statistics)
}

/// As [`batch_norm_train`], with given statistics, on a device without autodiff.
pub fn batch_norm_eval(
    x: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    mean: Tensor<1>,
    variance: Tensor<1>,
    eps: f64,
    relu: bool,
) -> Tensor<4> {
    let dims = x.dims();
    #[cfg(feature = "cubecl-devices")]
    if !is_host(&x.device()) {
        return super::norm_on_device::eval(x, weight, bias, mean, variance, eps, relu);
    }
    let x = super::plain(x);
    let [w, b, m, v] = [weight, bias, mean, variance].map(super::plain);
    let mut out = vec![0.0; values(&x).len()];
    let (w, b, m, v) = (values(&w), values(&b), values(&m), values(&v));
    norm::forward_eval(shape(dims), values(&x), w, b, m, v, eps as f32, relu, &mut out, threads());
    Tensor::from_primitive::<Flex>(tensor(out, dims))
}

fn shape([batch, channels, height, width]: [usize; 4]) -> NormShape {
    NormShape { batch, channels, pixels: height * width }
}

#[derive(Clone, Debug)]
struct BatchNormState {
    shape: NormShape,
    x: Flat,
    weight: Flat,
    mean: Flat,
    inv_std: Flat,
    relu_out: Option<Flat>,
}

#[derive(Debug)]
struct NormStep;

impl Backward<Flex, 3> for NormStep {
    type State = BatchNormState;

    fn backward(self, ops: Ops<BatchNormState, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let BatchNormState { shape, x, weight, mean, inv_std, relu_out } = &ops.state;
        let saved = BatchNormInputs {
            x: values(x),
            mean: values(mean),
            inv_std: values(inv_std),
            weight: values(weight),
            relu_out: relu_out.as_ref().map(values),
        };
        let mut dx = vec![0.0; values(x).len()];
        let (mut dw, mut db) = (vec![0.0; shape.channels], vec![0.0; shape.channels]);
        norm::backward(*shape, saved, values(&dy), &mut dx, &mut dw, &mut db, threads());
        let gradients = [tensor(dx, dims(x)), tensor(dw, [shape.channels]), tensor(db, [shape.channels])];
        register(grads, &ops, gradients);
    }
}
