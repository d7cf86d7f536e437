//! A vision transformer with torchvision's structure, initial values and tensor names (Dosovitskiy et al. 2020,
//! arXiv:2010.11929; `torchvision.models.VisionTransformer`). torchvision cuts the patches' initial weights off at 2 and -2,
//! which makes no difference for patches of more than four values.

use super::layers::{Affine, LayerNorm};
use super::ops::{self, Activation, Mask, Sees, attention, dropout, linear};
use super::{Input, Net};
use burn::module::{Initializer, Module, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Tensor};
use spec::choice;

choice! {
    /// Named sizes: those of torchvision, of DeiT (Touvron et al. 2020, arXiv:2012.12877), and one for small images.
    VitPreset:
    /// Patches of 4 pixels, 6 layers, 3 heads, width 192: for images of about 32 pixels.
    Cifar = "cifar",
    /// Patches of 16 pixels, 12 layers, 3 heads, width 192 (DeiT-Ti).
    Ti16 = "ti_16",
    /// Patches of 16 pixels, 12 layers, 6 heads, width 384 (DeiT-S).
    S16 = "s_16",
    /// Patches of 16 pixels, 12 layers, 12 heads, width 768.
    B16 = "b_16",
    /// Patches of 32 pixels, 12 layers, 12 heads, width 768.
    B32 = "b_32",
    /// Patches of 16 pixels, 24 layers, 16 heads, width 1024.
    L16 = "l_16",
    /// Patches of 32 pixels, 24 layers, 16 heads, width 1024.
    L32 = "l_32",
    /// Patches of 14 pixels, 32 layers, 16 heads, width 1280.
    H14 = "h_14",
}

impl VitPreset {
    /// Side of a patch, layers, heads, width. The MLPs are four times as wide.
    pub fn sizes(self) -> [usize; 4] {
        match self {
            Self::Cifar => [4, 6, 3, 192],
            Self::Ti16 => [16, 12, 3, 192],
            Self::S16 => [16, 12, 6, 384],
            Self::B16 => [16, 12, 12, 768],
            Self::B32 => [32, 12, 12, 768],
            Self::L16 => [16, 24, 16, 1024],
            Self::L32 => [32, 24, 16, 1024],
            Self::H14 => [14, 32, 16, 1280],
        }
    }
}

/// The sizes of a vision transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VitConfig {
    /// Channels, height and width of an image; height and width are multiples of the patch's side.
    pub image: [usize; 3],
    /// Side of a square patch, in pixels.
    pub patch_size: usize,
    /// Number of encoder blocks.
    pub num_layers: usize,
    /// Attention heads per block; divides `hidden_dim`.
    pub num_heads: usize,
    /// Width of tokens and of the residual stream.
    pub hidden_dim: usize,
    /// Width of the hidden layer in each block's MLP.
    pub mlp_dim: usize,
    /// Number of logits.
    pub num_classes: usize,
    /// Dropout probability of embeddings and of the blocks' residual branches and hidden layers.
    pub dropout: f64,
    /// Dropout probability of attention weights.
    pub attention_dropout: f64,
    /// Added to the variance in the norms.
    pub eps: f64,
}

impl VitConfig {
    /// [`ModelSource::kept_values`](super::ModelSource::kept_values) of an image: in each block the inputs of its norms, its attention and its linear
    /// layers, and the slopes of GELU.
    pub fn kept_values(&self) -> usize {
        let [_, height, width] = self.image;
        let tokens = (height / self.patch_size) * (width / self.patch_size) + 1;
        (self.num_layers * (8 * self.hidden_dim + 2 * self.mlp_dim)).saturating_mul(tokens)
    }
}

/// torchvision's layer norms.
pub(super) const EPS: f64 = 1e-6;

/// The convolution whose stride is its kernel: a linear layer on each patch.
#[derive(Module, Debug)]
struct Patches {
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
}

impl Patches {
    /// `[batch, channels, height, width]` to `[batch, patches, hidden]`.
    fn forward(&self, x: Tensor<4>) -> Tensor<3> {
        let [hidden, channels, side, _] = self.weight.dims();
        let [batch, _, height, width] = x.dims();
        let (rows, columns) = (height / side, width / side);
        let inputs = channels * side * side;
        let x = x.reshape([batch, channels, rows, side, columns, side]);
        let x = x.permute([0, 2, 4, 1, 3, 5]).reshape([batch * rows * columns, inputs]);
        let weight = self.weight.val().reshape([hidden, inputs]);
        let y = linear(x, weight, Some(self.bias.val()), None, Activation::None);
        y.reshape([batch, rows * columns, hidden])
    }
}

/// `torch.nn.MultiheadAttention` of a sequence with itself.
#[derive(Module, Debug)]
struct SelfAttention {
    in_proj: Affine,
    out_proj: Affine,
    dropout: Dropout,
    heads: usize,
}

#[derive(Module, Debug)]
struct Mlp {
    first: Affine,
    second: Affine,
}

#[derive(Module, Debug)]
struct Block {
    ln_1: LayerNorm,
    self_attention: SelfAttention,
    ln_2: LayerNorm,
    mlp: Mlp,
    dropout: Dropout,
}

impl Block {
    fn new(c: &VitConfig, device: &Device) -> Self {
        let (width, inner) = (c.hidden_dim, c.mlp_dim);
        let mut out_proj = Affine::new(width, width, device);
        out_proj.bias = Some(Initializer::Zeros.init([width], device));
        let nearly_zero = Initializer::Normal { mean: 0.0, std: 1e-6 };
        Self {
            ln_1: LayerNorm::with_eps(width, c.eps, device),
            self_attention: SelfAttention {
                in_proj: Affine::xavier(width, 3 * width, Initializer::Zeros, device),
                out_proj,
                dropout: DropoutConfig::new(c.attention_dropout).init(),
                heads: c.num_heads,
            },
            ln_2: LayerNorm::with_eps(width, c.eps, device),
            mlp: Mlp {
                first: Affine::xavier(width, inner, nearly_zero.clone(), device),
                second: Affine::xavier(inner, width, nearly_zero, device),
            },
            dropout: DropoutConfig::new(c.dropout).init(),
        }
    }

    /// `[batch * time, width]` to the same shape.
    fn forward(&self, x: Tensor<2>, batch: usize) -> Tensor<2> {
        let SelfAttention { in_proj, out_proj, dropout: of_weights, heads } = &self.self_attention;
        let qkv = in_proj.forward(self.ln_1.forward(x.clone()));
        let x = out_proj.add_to(
            x,
            attention(qkv, batch, ops::Heads::equal(*heads), of_weights, &Mask::new(Sees::All)),
            &self.dropout,
        );
        let y = self.mlp.first.then(self.ln_2.forward(x.clone()), Activation::Gelu);
        self.mlp.second.add_to(x, dropout(y, &self.dropout), &self.dropout)
    }
}

#[derive(Module, Debug)]
struct Encoder {
    pos_embedding: Param<Tensor<3>>,
    layers: Vec<Block>,
    ln: LayerNorm,
}

#[derive(Module, Debug)]
struct Heads {
    head: Affine,
}

/// Maps images `[batch, channels, height, width]` to logits `[batch, classes]`.
#[derive(Module, Debug)]
pub struct Vit {
    class_token: Param<Tensor<3>>,
    conv_proj: Patches,
    encoder: Encoder,
    heads: Heads,
    dropout: Dropout,
}

impl Vit {
    /// Builds the network on `device`; the class token and the head start at zero.
    pub fn new(c: VitConfig, device: &Device) -> Self {
        let ([channels, height, width], side, hidden) = (c.image, c.patch_size, c.hidden_dim);
        let normal = |std| Initializer::Normal { mean: 0.0, std };
        let fan_in = (channels * side * side) as f64;
        let tokens = (height / side) * (width / side) + 1;
        let zeros = Initializer::Zeros;
        Self {
            class_token: zeros.init([1, 1, hidden], device),
            conv_proj: Patches {
                weight: normal((1.0 / fan_in).sqrt()).init([hidden, channels, side, side], device),
                bias: zeros.init([hidden], device),
            },
            encoder: Encoder {
                pos_embedding: normal(0.02).init([1, tokens, hidden], device),
                layers: (0..c.num_layers).map(|_| Block::new(&c, device)).collect(),
                ln: LayerNorm::with_eps(hidden, c.eps, device),
            },
            heads: Heads {
                head: Affine {
                    weight: zeros.init([c.num_classes, hidden], device),
                    bias: Some(zeros.init([c.num_classes], device)),
                },
            },
            dropout: DropoutConfig::new(c.dropout).init(),
        }
    }
}

impl Net for Vit {
    fn forward(&self, input: Input) -> Tensor<2> {
        let patches = self.conv_proj.forward(input.float::<4>());
        let [batch, count, hidden] = patches.dims();
        let tokens = count + 1;
        let class = self.class_token.val().expand([batch, 1, hidden]);
        let x = Tensor::cat(vec![class, patches], 1) + self.encoder.pos_embedding.val();
        let mut x = dropout(x, &self.dropout).reshape([batch * tokens, hidden]);
        for block in &self.encoder.layers {
            x = block.forward(x, batch);
        }
        // The head reads the class token only.
        let class = x.reshape([batch, tokens * hidden]).slice([0..batch, 0..hidden]);
        self.heads.head.forward(self.encoder.ln.forward(class))
    }

    fn rename(path: &str) -> String {
        path.replace("encoder.layers.", "encoder.layers.encoder_layer_")
            .replace("in_proj.", "in_proj_")
            .replace("mlp.first.", "mlp.0.")
            .replace("mlp.second.", "mlp.3.")
    }

    fn stays_f32(name: &str) -> bool {
        name.contains(".ln")
    }
}

#[cfg(test)]
#[path = "vit_tests.rs"]
mod tests;
