//! Batch normalisation on a device, from Burn's operations: two reductions and one pass in each direction. Autodiff through
//! the formula would keep and read many more arrays. Computed in f32 for images of any type.

use super::norm::BatchStatistics;
use burn::backend::{Autodiff, BackendTypes, Cube};
use burn::tensor::{Tensor, activation};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use ddp::module::{in_dtype, in_f32};

type Ad = Autodiff<Cube>;
type Primitive = <Cube as BackendTypes>::FloatTensorPrimitive;

/// See [`super::batch_norm_train`].
pub(super) fn train(
    x: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    eps: f64,
    relu: bool,
) -> (Tensor<4>, BatchStatistics) {
    let dtype = x.dtype();
    let ((x, x_node), (weight, w_node), (bias, b_node)) = (parts(x), parts(weight), parts(bias));
    let x_f32 = in_f32(x.clone());
    let mean = channel_mean(x_f32.clone());
    let centred = x_f32 - spread(mean.clone());
    let variance = channel_mean(centred.clone() * centred.clone());
    let inv_std = (variance.clone() + eps).sqrt().recip();
    let mut out = centred * spread(inv_std.clone() * weight.clone()) + spread(bias);
    if relu {
        out = activation::relu(out);
    }
    let out = in_dtype(out, dtype);
    let state = DeviceNormState {
        x: primitive(x),
        mean: primitive(mean.clone()),
        inv_std: primitive(inv_std),
        weight: primitive(weight),
        relu_out: relu.then(|| primitive(out.clone())),
    };
    let step = NormStep.prepare::<NoCheckpointing>([x_node, w_node, b_node]).compute_bound().stateful();
    let out = match step {
        OpsKind::Tracked(prep) => prep.finish(state, primitive(out)),
        OpsKind::UnTracked(prep) => prep.finish(primitive(out)),
    };
    (Tensor::from_primitive::<Ad>(out), BatchStatistics { mean, variance })
}

/// See [`super::batch_norm_eval`].
pub(super) fn eval(
    x: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    mean: Tensor<1>,
    variance: Tensor<1>,
    eps: f64,
    relu: bool,
) -> Tensor<4> {
    let dtype = x.dtype();
    let factor = (variance + eps).sqrt().recip() * weight;
    let mut out = (in_f32(x) - spread(mean)) * spread(factor) + spread(bias);
    if relu {
        out = activation::relu(out);
    }
    in_dtype(out, dtype)
}

#[derive(Clone, Debug)]
struct DeviceNormState {
    x: Primitive,
    mean: Primitive,
    inv_std: Primitive,
    weight: Primitive,
    /// The gradient is 0 where this is 0.
    relu_out: Option<Primitive>,
}

#[derive(Debug)]
struct NormStep;

impl Backward<Cube, 3> for NormStep {
    type State = DeviceNormState;

    /// With `n` values a channel and `xhat = (x - mean) * inv_std`:
    /// `dx = weight * inv_std * (dy - sum(dy) / n - xhat * sum(dy * xhat) / n)` (Ioffe and Szegedy 2015).
    fn backward(self, ops: Ops<DeviceNormState, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let DeviceNormState { x, mean, inv_std, weight, relu_out } = ops.state;
        let [mean, inv_std, weight] = [mean, inv_std, weight].map(tensor::<1>);
        let mut dy = in_f32(tensor::<4>(grads.consume::<Cube>(&ops.node)));
        if let Some(out) = relu_out {
            dy = dy.mask_fill(tensor::<4>(out).equal_elem(0.0), 0.0);
        }
        let x = tensor::<4>(x);
        let dtype = x.dtype();
        let xhat = (in_f32(x) - spread(mean)) * spread(inv_std.clone());
        let [batch, _, height, width] = xhat.dims();
        let n = (batch * height * width) as f32;
        let (db, dw) = (channel_sum(dy.clone()), channel_sum(dy.clone() * xhat.clone()));
        let [x_node, w_node, b_node] = ops.parents;
        if let Some(node) = b_node {
            grads.register::<Cube>(node.id, primitive(db.clone()));
        }
        if let Some(node) = w_node {
            grads.register::<Cube>(node.id, primitive(dw.clone()));
        }
        if let Some(node) = x_node {
            let dx = (dy - spread(db / n) - xhat * spread(dw / n)) * spread(weight * inv_std);
            grads.register::<Cube>(node.id, primitive(in_dtype(dx, dtype)));
        }
    }
}

/// `[batch, channels, h, w] -> [channels]`
fn channel_sum(x: Tensor<4>) -> Tensor<1> {
    let [batch, channels, height, width] = x.dims();
    x.reshape([batch, channels, height * width]).sum_dim(2).sum_dim(0).reshape([channels])
}

fn channel_mean(x: Tensor<4>) -> Tensor<1> {
    let [batch, _, height, width] = x.dims();
    channel_sum(x) / (batch * height * width) as f32
}

/// `[channels] -> [1, channels, 1, 1]`
fn spread(x: Tensor<1>) -> Tensor<4> {
    let [channels] = x.dims();
    x.reshape([1, channels, 1, 1])
}

fn tensor<const D: usize>(primitive: Primitive) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(primitive)
}

fn primitive<const D: usize>(tensor: Tensor<D>) -> Primitive {
    tensor.try_into_primitive::<Cube>().expect("the caller looked")
}

/// A tensor with autodiff as its inner tensor and the guard of its node.
fn parts<const D: usize>(tensor: Tensor<D>) -> (Tensor<D>, NodeGuard) {
    let (primitive, node) = tensor.try_into_primitive::<Ad>().expect("the caller looked").into_parts();
    (Tensor::from_primitive::<Cube>(primitive), node)
}

#[cfg(all(test, feature = "wgpu"))]
mod on_wgpu {
    use super::super::{add_relu, batch_norm_eval, batch_norm_train, conv2d, max_pool2d};
    use burn::tensor::{Device, Tensor, TensorData};
    use ddp::device::testing::wgpu;

    fn numbers<const D: usize>(dims: [usize; D], seed: f32, device: &Device) -> Tensor<D> {
        let n = dims.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.73 + seed).sin()).collect();
        Tensor::from_data(TensorData::new(values, dims), device)
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    #[track_caller]
    fn close(what: &str, host: &[f32], device: &[f32]) {
        assert_eq!(host.len(), device.len(), "{what}");
        let gap = host.iter().zip(device).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(gap < 2e-5, "{what}: {gap:e}");
    }

    /// A small residual block and its gradients: every operation of `ops` in one graph.
    fn block(device: &Device) -> Vec<(&'static str, Vec<f32>)> {
        let device = device.clone().autodiff();
        let x = numbers([3, 2, 6, 6], 0.1, &device).require_grad();
        let w = numbers([4, 2, 3, 3], 0.2, &device).require_grad();
        let skip = numbers([4, 2, 1, 1], 0.3, &device).require_grad();
        let (gamma, beta) =
            (numbers([4], 0.4, &device).require_grad(), numbers([4], 0.5, &device).require_grad());
        let bias = numbers([4], 0.6, &device).require_grad();
        let y = conv2d(x.clone(), w.clone(), None, 1, 1);
        let (y, statistics) = batch_norm_train(y, gamma.clone(), beta.clone(), 1e-5, true);
        let y = add_relu(y, conv2d(x.clone(), skip.clone(), Some(bias.clone()), 1, 0));
        let y = max_pool2d(y, 3, 2, 1);
        let weights = numbers([3, 4, 3, 3], 0.7, &device);
        let grads = (y.clone() * weights).sum().backward();
        let grad = |t: Tensor<4>| values(t.grad(&grads).unwrap());
        let grad1 = |t: Tensor<1>| values(t.grad(&grads).unwrap());
        vec![
            ("output", values(y.inner())),
            ("mean", values(statistics.mean)),
            ("variance", values(statistics.variance)),
            ("gradient of the input", grad(x)),
            ("gradient of the weight", grad(w)),
            ("gradient of the skip's weight", grad(skip)),
            ("gradient of the norm's weight", grad1(gamma)),
            ("gradient of the norm's bias", grad1(beta)),
            ("gradient of the bias", grad1(bias)),
        ]
    }

    #[test]
    fn residual_block_equals_the_host() {
        let Some(device) = wgpu() else { return };
        for ((what, host), (_, device)) in block(&Device::flex()).into_iter().zip(block(&device)) {
            close(what, &host, &device);
        }
    }

    #[test]
    fn batch_norm_eval_equals_the_host() {
        let Some(device) = wgpu() else { return };
        let run = |device: &Device| {
            let of = |seed| numbers([4], seed, device);
            let variance = of(0.4) * of(0.4) + 0.5;
            values(batch_norm_eval(
                numbers([2, 4, 3, 5], 0.9, device),
                of(0.1),
                of(0.2),
                of(0.3),
                variance,
                1e-5,
                true,
            ))
        };
        close("output", &run(&Device::flex()), &run(&device));
    }
}
