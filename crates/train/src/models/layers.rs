//! Layers whose state has PyTorch's names and layouts, so that a checkpoint is a state dict without conversion.
//!
//! Burn's own `nn::Linear` stores its weight as `[in, out]`, and its norms name their parameters gamma and beta. Models
//! built from those work too, because the state dict is translated (see `state.rs`). Initial values follow PyTorch's
//! defaults. Parameters are lazy: building a layer allocates nothing until it is first used.

use super::Documents;
use super::ops::{self, Activation, batch_norm_eval, batch_norm_train, conv2d, layer_norm, linear, rms_norm};
use base::error::Error;
use base::panics::end_with;
use burn::module::{Initializer, Module, Param, RunningState};
use burn::nn::Dropout;
use burn::tensor::{Device, Int, Tensor};
use ddp::module::{in_dtype, in_f32};

/// `torch.nn.Linear`: weight `[out, in]`, bias `[out]`.
#[derive(Module, Debug)]
pub struct Affine {
    pub weight: Param<Tensor<2>>,
    pub bias: Option<Param<Tensor<1>>>,
}

/// PyTorch's default for weights and biases: uniform within 1/sqrt(fan_in).
fn torch_uniform(fan_in: usize) -> Initializer {
    let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
    Initializer::Uniform { min: -bound, max: bound }
}

impl Affine {
    /// With the default initial values of `torch.nn.Linear(inputs, outputs)`.
    pub fn new(inputs: usize, outputs: usize, device: &Device) -> Self {
        let init = torch_uniform(inputs);
        Self { weight: init.init([outputs, inputs], device), bias: Some(init.init([outputs], device)) }
    }

    /// Weights from N(0, std), bias zero or absent (initial values of GPT-2).
    pub fn normal(inputs: usize, outputs: usize, std: f64, bias: bool, device: &Device) -> Self {
        Self {
            weight: Initializer::Normal { mean: 0.0, std }.init([outputs, inputs], device),
            bias: bias.then(|| Initializer::Zeros.init([outputs], device)),
        }
    }

    /// Weights uniform within sqrt(6 / (inputs + outputs)) (`xavier_uniform_`), biases as `bias` draws them.
    pub fn xavier(inputs: usize, outputs: usize, bias: Initializer, device: &Device) -> Self {
        let bound = (6.0 / (inputs + outputs) as f64).sqrt();
        Self {
            weight: Initializer::Uniform { min: -bound, max: bound }.init([outputs, inputs], device),
            bias: Some(bias.init([outputs], device)),
        }
    }

    /// `[rows, in] -> [rows, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.then(x, Activation::None)
    }

    /// The layer and an activation.
    pub fn then(&self, x: Tensor<2>, activation: Activation) -> Tensor<2> {
        linear(x, self.weight.val(), self.bias.as_ref().map(|b| b.val()), None, activation)
    }

    /// `residual + dropout(forward(x))`; `residual` is `[rows, out]`.
    pub fn add_to(&self, residual: Tensor<2>, x: Tensor<2>, dropout: &Dropout) -> Tensor<2> {
        if dropout.prob > 0.0 && x.device().is_autodiff() {
            return residual + ops::dropout(self.forward(x), dropout);
        }
        self.onto(residual, x)
    }

    /// `residual + forward(x)`; `residual` is `[rows, out]`.
    pub fn onto(&self, residual: Tensor<2>, x: Tensor<2>) -> Tensor<2> {
        let bias = self.bias.as_ref().map(|b| b.val());
        linear(x, self.weight.val(), bias, Some(residual), Activation::None)
    }
}

/// The linear layer of GPT-2 in transformers: in its state dict, the weight is `[in, out]`. Here it is `[out, in]`.
#[derive(Module, Debug)]
pub struct Conv1D {
    pub weight: Param<Tensor<2>>,
    pub bias: Param<Tensor<1>>,
}

impl Conv1D {
    /// Weights from N(0, std), bias zero.
    pub fn normal(inputs: usize, outputs: usize, std: f64, device: &Device) -> Self {
        let Affine { weight, bias } = Affine::normal(inputs, outputs, std, true, device);
        Self { weight, bias: bias.expect("it has been asked for") }
    }

    fn as_affine(&self) -> Affine {
        Affine { weight: self.weight.clone(), bias: Some(self.bias.clone()) }
    }

    /// [`Affine::then`].
    pub fn then(&self, x: Tensor<2>, activation: Activation) -> Tensor<2> {
        self.as_affine().then(x, activation)
    }

    /// [`Affine::add_to`].
    pub fn add_to(&self, residual: Tensor<2>, x: Tensor<2>, dropout: &Dropout) -> Tensor<2> {
        self.as_affine().add_to(residual, x, dropout)
    }
}

/// `torch.nn.Conv2d`: weight `[out, in, k, k]`.
#[derive(Module, Debug)]
pub struct Conv2d {
    pub weight: Param<Tensor<4>>,
    pub bias: Option<Param<Tensor<1>>>,
    stride: usize,
    padding: usize,
}

impl Conv2d {
    /// With the default initial values of `torch.nn.Conv2d`, with bias.
    pub fn new(inputs: usize, outputs: usize, kernel: usize, padding: usize, device: &Device) -> Self {
        let init = torch_uniform(inputs * kernel * kernel);
        Self {
            weight: init.init([outputs, inputs, kernel, kernel], device),
            bias: Some(init.init([outputs], device)),
            stride: 1,
            padding,
        }
    }

    /// Without bias, weights from N(0, sqrt(2 / fan_out)) as in torchvision's ResNet (`kaiming_normal_`, mode fan_out).
    pub fn residual(inputs: usize, outputs: usize, kernel: usize, stride: usize, device: &Device) -> Self {
        let std = (2.0 / (outputs * kernel * kernel) as f64).sqrt();
        Self {
            weight: Initializer::Normal { mean: 0.0, std }.init([outputs, inputs, kernel, kernel], device),
            bias: None,
            stride,
            padding: kernel / 2,
        }
    }

    /// `[batch, in, h, w] -> [batch, out, h', w']`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        conv2d(x, self.weight.val(), self.bias.as_ref().map(|b| b.val()), self.stride, self.padding)
    }
}

/// `torch.nn.BatchNorm2d` with its defaults (eps 1e-5, momentum 0.1, unbiased running variance).
#[derive(Module, Debug)]
pub struct BatchNorm2d {
    pub weight: Param<Tensor<1>>,
    pub bias: Param<Tensor<1>>,
    pub running_mean: RunningState<Tensor<1>>,
    pub running_var: RunningState<Tensor<1>>,
}

const BN_EPS: f64 = 1e-5;
const BN_MOMENTUM: f64 = 0.1;

impl BatchNorm2d {
    pub fn new(channels: usize, device: &Device) -> Self {
        Self {
            weight: Initializer::Ones.init([channels], device),
            bias: Initializer::Zeros.init([channels], device),
            running_mean: RunningState::new(Tensor::zeros([channels], device)),
            running_var: RunningState::new(Tensor::ones([channels], device)),
        }
    }

    /// On an autodiff device normalises by the batch statistics and updates the running ones, otherwise normalises by the
    /// running ones; followed by a ReLU if `relu`. One value per channel has no variance: training on it ends with an error,
    /// as in PyTorch.
    pub fn forward(&self, x: Tensor<4>, relu: bool) -> Tensor<4> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        let device = x.device();
        if !device.is_autodiff() {
            let (mean, variance) = (self.running_mean.value(), self.running_var.value());
            return batch_norm_eval(x, weight, bias, mean, variance, BN_EPS, relu);
        }
        let [batch, channels, height, width] = x.dims();
        if batch * height * width < 2 {
            let shape = format!("[{batch}, {channels}, {height}, {width}]");
            let what =
                format!("batch norm expects more than one value per channel in training, found {shape}");
            let hint = "use another `batch_size`, or `drop_last = true` in `[dataset]`";
            end_with(Error::spec(what).hint(hint));
        }
        let count = (batch * height * width) as f32;
        let (out, statistics) = batch_norm_train(x, weight, bias, BN_EPS, relu);
        let unbiased = statistics.variance * (count / (count - 1.0));
        track(&self.running_mean, Tensor::from_inner(statistics.mean));
        track(&self.running_var, Tensor::from_inner(unbiased));
        out
    }
}

/// `running = (1 - momentum) * running + momentum * batch`.
fn track(running: &RunningState<Tensor<1>>, batch: Tensor<1>) {
    let old = running.value_sync();
    running.update(old * (1.0 - BN_MOMENTUM) + batch * BN_MOMENTUM);
}

/// `torch.nn.LayerNorm` over the last dimension.
#[derive(Module, Debug)]
pub struct LayerNorm {
    pub weight: Param<Tensor<1>>,
    pub bias: Param<Tensor<1>>,
    eps: f64,
}

impl LayerNorm {
    /// With PyTorch's default `eps`.
    pub fn new(width: usize, device: &Device) -> Self {
        Self::with_eps(width, 1e-5, device)
    }

    pub fn with_eps(width: usize, eps: f64, device: &Device) -> Self {
        Self {
            weight: Initializer::Ones.init([width], device),
            bias: Initializer::Zeros.init([width], device),
            eps,
        }
    }

    /// Computed in f32; the result has the type of `x`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dtype = x.dtype();
        let out = layer_norm(in_f32(x), self.weight.val(), self.bias.val(), self.eps);
        in_dtype(out, dtype)
    }
}

/// `torch.nn.RMSNorm` over the last dimension.
#[derive(Module, Debug)]
pub struct RmsNorm {
    pub weight: Param<Tensor<1>>,
    eps: f64,
}

impl RmsNorm {
    pub fn new(width: usize, eps: f64, device: &Device) -> Self {
        Self { weight: Initializer::Ones.init([width], device), eps }
    }

    /// Computed in f32; the result has the type of `x`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dtype = x.dtype();
        in_dtype(rms_norm(in_f32(x), self.weight.val(), self.eps), dtype)
    }
}

/// `torch.nn.Embedding`: weight `[rows, width]`.
#[derive(Module, Debug)]
pub struct Embedding {
    pub weight: Param<Tensor<2>>,
}

impl Embedding {
    /// From N(0, std).
    pub fn new(rows: usize, width: usize, std: f64, device: &Device) -> Self {
        Self { weight: Initializer::Normal { mean: 0.0, std }.init([rows, width], device) }
    }

    /// `[batch, time] -> [batch, time, width]`.
    pub fn forward(&self, index: Tensor<2, Int>) -> Tensor<3> {
        ops::embedding(self.weight.val(), index)
    }

    /// As learnt positions: those of sequences of `time` tokens, `[batch, time, width]` if they consist of documents, else `[1, time, width]`.
    pub fn of_positions(&self, time: usize, documents: Option<&Documents>) -> Tensor<3> {
        let weight = self.weight.val();
        match documents {
            Some(documents) => {
                let index = documents.position_tensor(&weight.device());
                ops::embedding(weight, index)
            }
            None => weight.narrow(0, 0, time).unsqueeze::<3>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::panics::catch_model_panic;

    #[test]
    fn batch_norm_refuses_one_value_per_channel_as_pytorch_does() {
        let device = Device::flex();
        let norm = BatchNorm2d::new(3, &device.clone().autodiff());
        let trained = |dims: [usize; 4]| {
            catch_model_panic(|| norm.forward(Tensor::zeros(dims, &device.clone().autodiff()), false).dims())
        };
        let why = "batch norm expects more than one value per channel in training, found [1, 3, 1, 1]";
        assert_eq!(trained([1, 3, 1, 1]).unwrap_err(), why);
        for dims in [[2, 3, 1, 1], [1, 3, 1, 2]] {
            assert_eq!(trained(dims), Ok(dims));
        }
        // An evaluation uses the running statistics.
        let evaluated = norm.valid().forward(Tensor::zeros([1, 3, 1, 1], &device), false);
        assert_eq!(evaluated.dims(), [1, 3, 1, 1]);
    }
}
