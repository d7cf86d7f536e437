//! Small networks: a linear layer, a multi-layer perceptron, and a plain convolutional network.

use super::layers::{Affine, Conv2d};
use super::ops::{Activation, dropout, max_pool2d};
use super::{Input, Net};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Tensor, activation::relu};
use ddp::device::is_host;

/// `torch.nn.Linear`, parameters `weight` and `bias`.
#[derive(Module, Debug)]
pub struct LinearNet {
    layer: Affine,
}

impl LinearNet {
    /// Maps `inputs` values to `outputs` values.
    pub fn new(inputs: usize, outputs: usize, device: &Device) -> Self {
        Self { layer: Affine::new(inputs, outputs, device) }
    }
}

impl Net for LinearNet {
    fn forward(&self, input: Input) -> Tensor<2> {
        self.layer.forward(input.rows())
    }
    fn rename(path: &str) -> String {
        path.trim_start_matches("layer.").to_owned()
    }
}

/// Linear layers with ReLU (and dropout) between them, named as in `nn.Sequential(Linear, ReLU, Linear, …)`.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Affine>,
    dropout: Dropout,
}

impl Mlp {
    /// `sizes`: inputs, hidden widths, outputs.
    pub fn new(sizes: &[usize], dropout: f64, device: &Device) -> Self {
        Self {
            layers: sizes.windows(2).map(|w| Affine::new(w[0], w[1], device)).collect(),
            dropout: DropoutConfig::new(dropout).init(),
        }
    }
}

impl Net for Mlp {
    fn forward(&self, input: Input) -> Tensor<2> {
        let mut x = input.rows();
        for (i, layer) in self.layers.iter().enumerate() {
            x = match i + 1 < self.layers.len() {
                true => dropout(layer.then(x, Activation::Relu), &self.dropout),
                false => layer.forward(x),
            };
        }
        x
    }
    /// `layers.1` is the module at index 2 of the Sequential.
    fn rename(path: &str) -> String {
        sequential(path, "layers.", "", 2)
    }
}

/// 3x3 convolutions, each with ReLU and 2x2 max pooling, then a hidden linear layer and the head. As in PyTorch:
/// `features = Sequential(Conv2d, ReLU, MaxPool2d, …)`, `classifier = Sequential(Flatten, Linear, ReLU, Dropout, Linear)`.
#[derive(Module, Debug)]
pub struct Cnn {
    convs: Vec<Conv2d>,
    hidden: Affine,
    head: Affine,
    dropout: Dropout,
}

/// The sizes of a [`Cnn`].
#[derive(Clone, Debug, PartialEq)]
pub struct CnnConfig {
    /// Channels, height, width.
    pub input: [usize; 3],
    /// Output channels of each convolution; each one halves height and width.
    pub channels: Vec<usize>,
    /// Width of the hidden linear layer.
    pub hidden: usize,
    /// Width of the head: number of classes or of target values.
    pub outputs: usize,
    /// Dropout probability before the head.
    pub dropout: f64,
}

impl CnnConfig {
    /// [`ModelSource::kept_values`](super::ModelSource::kept_values) of an image: the inputs of all layers but the first.
    pub fn kept_values(&self) -> usize {
        let [_, mut height, mut width] = self.input;
        let mut kept = self.hidden;
        for channels in &self.channels {
            (height, width) = (height / 2, width / 2);
            kept = kept.saturating_add(channels.saturating_mul(height * width));
        }
        kept
    }
}

impl Cnn {
    /// Builds the network on `device`, with PyTorch's default initial distributions.
    pub fn new(c: &CnnConfig, device: &Device) -> Self {
        let [mut inputs, mut height, mut width] = c.input;
        let mut convs = Vec::new();
        for &outputs in &c.channels {
            convs.push(Conv2d::new(inputs, outputs, 3, 1, device));
            (inputs, height, width) = (outputs, height / 2, width / 2);
        }
        Self {
            convs,
            hidden: Affine::new(inputs * height * width, c.hidden, device),
            head: Affine::new(c.hidden, c.outputs, device),
            dropout: DropoutConfig::new(c.dropout).init(),
        }
    }
}

impl Net for Cnn {
    fn forward(&self, input: Input) -> Tensor<2> {
        let mut x = input.float::<4>();
        for conv in &self.convs {
            let z = conv.forward(x);
            x = match is_host(&z.device()) {
                // The ReLU of the largest is the largest of the ReLUs, with the same gradients, at a quarter of the work.
                true => relu(max_pool2d(z, 2, 2, 0)),
                // Pooling on devices may leave a NaN out, and ReLU would hide what then stands for it.
                false => max_pool2d(relu(z), 2, 2, 0),
            };
        }
        let x = self.hidden.then(x.flatten(1, 3), Activation::Relu);
        self.head.forward(dropout(x, &self.dropout))
    }
    fn rename(path: &str) -> String {
        let path = sequential(path, "convs.", "features.", 3);
        path.replace("hidden.", "classifier.1.").replace("head.", "classifier.4.")
    }
}

/// Renames `{from}{i}.rest` to `{to}{i * stride}.rest`: maps a list of layers to indices in an `nn.Sequential`.
fn sequential(path: &str, from: &str, to: &str, stride: usize) -> String {
    let renamed = path.strip_prefix(from).and_then(|rest| {
        let (index, tail) = rest.split_once('.')?;
        let index: usize = index.parse().ok()?;
        Some(format!("{to}{}.{tail}", index * stride))
    });
    renamed.unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_an_nn_sequential() {
        assert_eq!(LinearNet::rename("layer.weight"), "weight");
        assert_eq!(Mlp::rename("layers.2.bias"), "4.bias");
        assert_eq!(Cnn::rename("convs.1.weight"), "features.3.weight");
        assert_eq!(Cnn::rename("head.bias"), "classifier.4.bias");
        assert_eq!(Cnn::rename("hidden.weight"), "classifier.1.weight");
    }
}
