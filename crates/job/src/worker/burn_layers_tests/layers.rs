//! A model for each layer of `burn::nn`, by name: the layer between two linear ones.

use crate::worker::testing::Fixed;
use burn::module::Module;
use burn::nn::activation::*;
use burn::nn::attention::*;
use burn::nn::conv::*;
use burn::nn::norm::*;
use burn::nn::pool::*;
use burn::nn::transformer::*;
use burn::nn::*;
use burn::tensor::activation::{sigmoid, tanh};
use burn::tensor::module::adaptive_avg_pool1d;
use burn::tensor::{Device, Tensor};
use train::models::{Input, Net};

/// An image of one channel, or a sequence of four vectors.
const SIDE: usize = 4;

/// `before`, the layer, and a head over four means of its outputs, whatever their number.
#[derive(Module, Debug)]
pub struct Between {
    before: Linear,
    layer: Layer,
    head: Linear,
}

/// Offsets and mask come from convolutions of their own, as usual.
#[derive(Module, Debug)]
struct Deformed {
    offset: Conv2d,
    mask: Conv2d,
    conv: DeformConv2d,
}

/// What has no parameters.
#[derive(Module, Debug)]
struct Shapes {
    response: LocalResponseNorm,
    unfold: Unfold4d,
    fold: Fold4d,
    enlarge: interpolate::Interpolate2d,
    unshuffle: PixelUnshuffle,
    shuffle: PixelShuffle,
    average: AvgPool2d,
    pool: MaxPool2d,
    adaptive: AdaptiveAvgPool2d,
    deep: AdaptiveAvgPool3d,
    longer: interpolate::Interpolate1d,
    largest: MaxPool1d,
    mean: AvgPool1d,
    last: AdaptiveAvgPool1d,
    position: PositionalEncoding,
    rotary: RotaryEncoding,
}

/// The same, where a value has no neighbours, and distances of two halves.
#[derive(Module, Debug)]
struct Values {
    silu: SiLU,
    mish: Mish,
    hard: Hardtanh,
    shrunk: Tanhshrink,
    relu6: Relu6,
    threshold: Threshold,
    log: LogSigmoid,
    gated: GLU,
    similar: CosineSimilarity,
    far: PairwiseDistance,
}

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "as a user writes it")]
enum Layer {
    Conv1d(Conv1d),
    Conv2d(Conv2d),
    Conv3d(Conv3d),
    ConvTranspose1d(ConvTranspose1d),
    ConvTranspose2d(ConvTranspose2d),
    ConvTranspose3d(ConvTranspose3d),
    Deformed(Deformed),
    Norm(Normalization),
    Rnn(Rnn),
    BiRnn(BiRnn),
    Gru(Gru),
    BiGru(BiGru),
    Lstm(Lstm),
    BiLstm(BiLstm),
    Attention(MultiHeadAttention),
    CrossAttention(CrossAttention),
    Encoder(TransformerEncoder),
    Decoder(TransformerDecoder),
    FeedForward(PositionWiseFeedForward),
    Embedding(Embedding),
    Linear(Linear),
    Activations(Vec<Activation>),
    Shapes(Shapes),
    Values(Values),
}

/// The layer of a name.
fn layer(name: &str, device: &Device) -> Layer {
    let edge = PaddingConfig2d::Explicit(1, 1, 1, 1);
    match name {
        "conv1d" => Layer::Conv1d(Conv1dConfig::new(SIDE, 3, 3).init(device)),
        "conv2d" => {
            Layer::Conv2d(Conv2dConfig::new([4, 6], [2, 2]).with_groups(2).with_padding(edge).init(device))
        }
        "conv3d" => Layer::Conv3d(Conv3dConfig::new([1, 2], [2, 2, 2]).init(device)),
        "conv-transpose1d" => {
            Layer::ConvTranspose1d(ConvTranspose1dConfig::new([SIDE, 3], 2).with_stride(2).init(device))
        }
        "conv-transpose2d" => Layer::ConvTranspose2d(ConvTranspose2dConfig::new([4, 2], [2, 2]).init(device)),
        "conv-transpose3d" => {
            Layer::ConvTranspose3d(ConvTranspose3dConfig::new([1, 2], [2, 2, 2]).init(device))
        }
        "deform-conv2d" => Layer::Deformed(Deformed {
            offset: Conv2dConfig::new([1, 18], [3, 3]).with_padding(edge.clone()).init(device),
            mask: Conv2dConfig::new([1, 9], [3, 3]).with_padding(edge.clone()).init(device),
            conv: DeformConv2dConfig::new([1, 2], [3, 3]).with_padding(edge).init(device),
        }),
        "batch-norm" => Layer::Norm(NormalizationConfig::Batch(BatchNormConfig::new(SIDE)).init(device)),
        "group-norm" => Layer::Norm(NormalizationConfig::Group(GroupNormConfig::new(2, SIDE)).init(device)),
        "instance-norm" => {
            Layer::Norm(NormalizationConfig::Instance(InstanceNormConfig::new(SIDE)).init(device))
        }
        "layer-norm" => Layer::Norm(NormalizationConfig::Layer(LayerNormConfig::new(SIDE)).init(device)),
        "rms-norm" => Layer::Norm(NormalizationConfig::Rms(RmsNormConfig::new(SIDE)).init(device)),
        "rnn" => Layer::Rnn(RnnConfig::new(SIDE, 3, true).init(device)),
        "bi-rnn" => Layer::BiRnn(BiRnnConfig::new(SIDE, 3, true).init(device)),
        "gru" => Layer::Gru(gru::GruConfig::new(SIDE, 3, true).with_reset_after(false).init(device)),
        "bi-gru" => Layer::BiGru(gru::BiGruConfig::new(SIDE, 3, true).init(device)),
        "lstm" => Layer::Lstm(LstmConfig::new(SIDE, 3, true).with_input_forget(true).init(device)),
        "bi-lstm" => Layer::BiLstm(BiLstmConfig::new(SIDE, 3, true).init(device)),
        "attention" => {
            Layer::Attention(MultiHeadAttentionConfig::new(SIDE, 2).with_dropout(0.0).init(device))
        }
        "cross-attention" => Layer::CrossAttention(
            CrossAttentionConfig::new(SIDE, SIDE, 2, 1, 2).with_dropout(0.0).init(device),
        ),
        "encoder" => {
            Layer::Encoder(TransformerEncoderConfig::new(SIDE, 6, 2, 2).with_dropout(0.0).init(device))
        }
        "decoder" => {
            Layer::Decoder(TransformerDecoderConfig::new(SIDE, 6, 2, 2).with_dropout(0.0).init(device))
        }
        "feed-forward" => {
            Layer::FeedForward(PositionWiseFeedForwardConfig::new(SIDE, 6).with_dropout(0.0).init(device))
        }
        "swiglu-inside" => Layer::FeedForward(
            PositionWiseFeedForwardConfig::new(SIDE, 6)
                .with_dropout(0.0)
                .with_activation(SwiGluConfig::new(6, 6).into())
                .init(device),
        ),
        "embedding" => Layer::Embedding(EmbeddingConfig::new(2, 3).init(device)),
        "linear" => Layer::Linear(LinearConfig::new(SIDE, 3).with_layout(LinearLayout::Col).init(device)),
        "prelu" => activations(&[PReluConfig::new().with_num_parameters(SIDE).into()], device),
        "swiglu" => activations(&[SwiGluConfig::new(SIDE, 3).with_bias(true).into()], device),
        "activations" => activations(&without_parameters(), device),
        "shapes" => Layer::Shapes(shapes(device)),
        "values" => Layer::Values(Values {
            silu: SiLU::new(),
            mish: Mish::new(),
            hard: HardtanhConfig::new().with_max_val(9.0).init(),
            shrunk: Tanhshrink::new(),
            relu6: Relu6::new(),
            threshold: ThresholdConfig::new(0.1, 0.1).init(),
            log: LogSigmoid::new(),
            gated: GLU::new(2),
            similar: CosineSimilarityConfig::new().init(),
            far: PairwiseDistanceConfig::new().init(),
        }),
        _ => unreachable!("{name}"),
    }
}

fn activations(all: &[ActivationConfig], device: &Device) -> Layer {
    Layer::Activations(all.iter().map(|one| one.init(device)).collect())
}

/// In an order that lets something of each value through.
fn without_parameters() -> Vec<ActivationConfig> {
    use ActivationConfig::*;
    vec![
        Identity,
        LeakyRelu(LeakyReluConfig::new()),
        Elu(EluConfig::new()),
        Celu(CeluConfig::new()),
        Selu,
        HardSwish,
        Gelu,
        GeluApproximate,
        Tanh,
        Softsign,
        Softplus(SoftplusConfig::new()),
        HardShrink(HardShrinkConfig::new().with_lambda(0.01)),
        SoftShrink(SoftShrinkConfig::new().with_lambda(0.01)),
        ThresholdedRelu(ThresholdedReluConfig::new().with_alpha(0.01)),
        Relu,
        HardSigmoid(HardSigmoidConfig::new()),
        Sigmoid,
    ]
}

fn shapes(device: &Device) -> Shapes {
    Shapes {
        response: LocalResponseNormConfig::new(1).init(),
        unfold: Unfold4dConfig::new([2, 2]).init(),
        fold: Fold4dConfig::new([SIDE, SIDE], [2, 2]).init(),
        enlarge: interpolate::Interpolate2dConfig::new().with_output_size(Some([8, 8])).init(),
        unshuffle: PixelUnshuffleConfig::new(2).init(),
        shuffle: PixelShuffleConfig::new(2).init(),
        average: AvgPool2dConfig::new([2, 2]).with_strides([1, 1]).init(),
        pool: MaxPool2dConfig::new([2, 2]).with_strides([1, 1]).init(),
        adaptive: AdaptiveAvgPool2dConfig::new([SIDE, SIDE]).init(),
        deep: AdaptiveAvgPool3dConfig::new([2, 2, SIDE]).init(),
        longer: interpolate::Interpolate1dConfig::new().with_output_size(Some(9)).init(),
        largest: MaxPool1dConfig::new(2).with_stride(1).init(),
        mean: AvgPool1dConfig::new(2).with_stride(1).init(),
        last: AdaptiveAvgPool1dConfig::new(SIDE).init(),
        position: PositionalEncodingConfig::new(SIDE).with_max_sequence_size(SIDE).init(device),
        rotary: RotaryEncodingConfig::new(SIDE, SIDE).init(device),
    }
}

impl Deformed {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let (offset, mask) = (self.offset.forward(x.clone()), sigmoid(self.mask.forward(x.clone())));
        self.conv.forward(x, offset, Some(mask))
    }
}

impl Shapes {
    fn forward(&self, x: Tensor<4>) -> Tensor<3> {
        let x = self.fold.forward(self.unfold.forward(self.response.forward(x)));
        let x = self.shuffle.forward(self.unshuffle.forward(self.enlarge.forward(x)));
        let x = self.adaptive.forward(self.pool.forward(self.average.forward(x)));
        let batch = x.dims()[0];
        let x = self.deep.forward(x.reshape([batch, 1, 2, 2, SIDE])).reshape([batch, SIDE, SIDE]);
        let x = self.last.forward(self.mean.forward(self.largest.forward(self.longer.forward(x))));
        self.rotary.forward(self.position.forward(x))
    }
}

impl Values {
    fn forward(&self, x: Tensor<3>) -> Tensor<2> {
        let x = self.silu.forward(self.mish.forward(x)) * 2.0;
        let x = x.clone() + self.shrunk.forward(self.hard.forward(x));
        let x = self.log.forward(self.threshold.forward(self.relu6.forward(x + 0.5)));
        let x: Tensor<2> = self.gated.forward(x).flatten(1, 2);
        let (a, b) = (x.clone().narrow(1, 0, SIDE), x.clone().narrow(1, SIDE, SIDE));
        let (similar, far) = (self.similar.forward(a.clone(), b.clone()), self.far.forward(a, b));
        Tensor::cat(vec![x, similar.unsqueeze_dim(1), far.unsqueeze_dim(1)], 1)
    }
}

impl Layer {
    /// `[batch, SIDE, SIDE]` to `[batch, outputs]`.
    fn forward(&self, x: Tensor<3>) -> Tensor<2> {
        let batch = x.dims()[0];
        let image = || x.clone().reshape([batch, 1, SIDE, SIDE]);
        let channels = || x.clone().reshape([batch, 4, 2, 2]);
        let cube = || x.clone().reshape([batch, 1, 2, 2, SIDE]);
        match self {
            Self::Conv1d(layer) => layer.forward(x).flatten(1, 2),
            Self::Conv2d(layer) => layer.forward(channels()).flatten(1, 3),
            Self::Conv3d(layer) => layer.forward(cube()).flatten(1, 4),
            Self::ConvTranspose1d(layer) => layer.forward(x).flatten(1, 2),
            Self::ConvTranspose2d(layer) => layer.forward(channels()).flatten(1, 3),
            Self::ConvTranspose3d(layer) => layer.forward(cube()).flatten(1, 4),
            Self::Deformed(layer) => layer.forward(image()).flatten(1, 3),
            Self::Norm(layer) => layer.forward(x).flatten(1, 2),
            Self::Rnn(layer) => layer.forward(x, None).0.flatten(1, 2),
            Self::BiRnn(layer) => layer.forward(x, None).0.flatten(1, 2),
            Self::Gru(layer) => layer.forward(x, None).flatten(1, 2),
            Self::BiGru(layer) => layer.forward(x, None).0.flatten(1, 2),
            Self::Lstm(layer) => layer.forward(x, None).0.flatten(1, 2),
            Self::BiLstm(layer) => layer.forward(x, None).0.flatten(1, 2),
            Self::Attention(layer) => layer.forward(MhaInput::self_attn(x)).context.flatten(1, 2),
            Self::CrossAttention(layer) => layer.forward(x.clone(), x.swap_dims(1, 2), None).flatten(1, 2),
            Self::Encoder(layer) => layer.forward(TransformerEncoderInput::new(x)).flatten(1, 2),
            Self::Decoder(layer) => {
                let memory = x.clone().swap_dims(1, 2);
                layer.forward(TransformerDecoderInput::new(x, memory)).flatten(1, 2)
            }
            Self::FeedForward(layer) => layer.forward(x).flatten(1, 2),
            Self::Embedding(layer) => {
                let rows: Tensor<2> = x.flatten(1, 2);
                let tokens = rows.clone().greater_elem(0.0).int();
                (layer.forward(tokens) * rows.unsqueeze_dim(2)).flatten(1, 2)
            }
            Self::Linear(layer) => layer.forward(x).flatten(1, 2),
            Self::Activations(all) => all.iter().fold(x, |x, one| one.forward(x)).flatten(1, 2),
            Self::Shapes(layer) => layer.forward(image()).flatten(1, 2),
            Self::Values(layer) => layer.forward(x),
        }
    }
}

impl Between {
    pub fn new(name: &str, device: &Device) -> Self {
        let inputs = SIDE * SIDE;
        let net = Self {
            before: LinearConfig::new(inputs, inputs).init(device),
            layer: layer(name, device),
            head: LinearConfig::new(SIDE, 1).init(device),
        };
        net.map(&mut Fixed)
    }
}

impl Net for Between {
    fn forward(&self, input: Input) -> Tensor<2> {
        let x = self.before.forward(input.rows());
        let batch = x.dims()[0];
        let outputs = tanh(self.layer.forward(x.reshape([batch, SIDE, SIDE])));
        let means = adaptive_avg_pool1d(outputs.unsqueeze_dim(1), SIDE);
        self.head.forward(means.reshape([batch, SIDE]))
    }
}
