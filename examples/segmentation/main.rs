//! Segmentation with a model, a data set, a loss and a metric of one's own: a small U-Net (Ronneberger et al., 2015) finds discs in noise. Run it
//! as ddp-run itself: `cargo run --release --example segmentation -- examples/segmentation/segmentation.toml`

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::interpolate::{Interpolate2d, Interpolate2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, PaddingConfig2d, Relu};
use burn::tensor::{Device, Tensor, activation::softmax};
use ddp_run::dataset::{FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, Splits};
use ddp_run::prelude::*;
use ddp_run::schemars::JsonSchema;
use ddp_run::task::Term;
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Two levels: down, up, and a connection across.
#[derive(Module, Debug)]
struct UNet {
    down: Conv2d,
    pool: MaxPool2d,
    bottom: Conv2d,
    dropout: Dropout,
    widen: Interpolate2d,
    up: Conv2d,
    head: Conv2d,
    relu: Relu,
}

/// The `[model]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct UNetConfig {
    /// Channels of the upper level; the lower one has twice as many.
    #[schemars(range(min = 1))]
    width: usize,
    /// Dropout on the lower level.
    #[schemars(range(min = 0.0, max = 0.9))]
    dropout: f64,
}

impl UNetConfig {
    fn init(&self, classes: usize, device: &Device) -> UNet {
        let conv = |from, to, side: usize| {
            let edge = side / 2;
            let padding = PaddingConfig2d::Explicit(edge, edge, edge, edge);
            Conv2dConfig::new([from, to], [side, side]).with_padding(padding).init(device)
        };
        let width = self.width;
        UNet {
            down: conv(1, width, 3),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            bottom: conv(width, 2 * width, 3),
            dropout: DropoutConfig::new(self.dropout).init(),
            widen: Interpolate2dConfig::new().with_scale_factor(Some([2.0, 2.0])).init(),
            up: conv(3 * width, width, 3),
            head: conv(width, classes, 1),
            relu: Relu::new(),
        }
    }
}

impl Net for UNet {
    /// One row per pixel.
    fn forward(&self, input: Input) -> Tensor<2> {
        let upper = self.relu.forward(self.down.forward(input.float::<4>()));
        let lower = self.relu.forward(self.bottom.forward(self.pool.forward(upper.clone())));
        let lower = self.widen.forward(self.dropout.forward(lower));
        let joined = Tensor::cat(vec![upper, lower], 1);
        let scores = self.head.forward(self.relu.forward(self.up.forward(joined)));
        let [batch, classes, height, width] = scores.dims();
        scores.permute([0, 2, 3, 1]).reshape([batch * height * width, classes])
    }
}

/// Soft Dice loss (Milletari et al., 2016) of class 1: `1 - (2 |A B| + s) / (|A| + |B| + s)`, over the micro-batch. Its fields are the
/// keys of `[loss]`.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Dice {
    /// Added to numerator and denominator.
    #[schemars(range(min = 0.0))]
    smooth: f64,
}

impl Loss for Dice {
    fn of(&self, outputs: Tensor<2>, target: Target) -> Tensor<1> {
        let found = softmax(outputs, 1).narrow(1, 1, 1);
        let rows = found.dims()[0];
        let there = target.flat_index().float().reshape([rows, 1]);
        let both = (found.clone() * there.clone()).sum();
        let all = found.sum() + there.sum();
        ((both * 2.0 + self.smooth) / (all + self.smooth)).neg() + 1.0
    }
}

/// Intersection over union of class 1, over all pixels of an epoch.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Iou {}

impl Metric for Iou {
    fn measure(&self, outputs: Tensor<2>, target: Target) -> [Term; 2] {
        let rows = outputs.dims()[0];
        let found = outputs.argmax(1).reshape([rows]);
        let there = target.flat_index();
        let both = (found.clone() * there.clone()).sum();
        let either = found.sum() + there.sum() - both.clone();
        [both.float().into(), either.float().into()]
    }
}

/// The `[dataset]` table's own keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct DiscsConfig {
    /// Training images; there is a quarter as many for validation.
    #[schemars(range(min = 4))]
    images: usize,
    /// Height and width, in pixels; even.
    #[schemars(range(min = 8))]
    side: usize,
}

impl DatasetSource for DiscsConfig {
    fn facts(&self) -> DataFacts {
        let Discs { side, .. } = self.split(0, 0);
        DataFacts {
            input: Some(FieldFacts { shape: vec![1, side, side], kind: FieldKind::Float }),
            target: Some(FieldFacts { shape: vec![side, side], kind: FieldKind::Index(2) }),
            train: Some(self.images),
            val: Some(self.images / 4),
            ..DataFacts::default()
        }
    }

    fn open(&self) -> Result<Splits> {
        let train = std::sync::Arc::new(self.split(0, self.images));
        let val = std::sync::Arc::new(self.split(self.images, self.images / 4));
        Ok(Splits { train, val: Some(val), test: None })
    }
}

impl DiscsConfig {
    fn split(&self, first: usize, len: usize) -> Discs {
        Discs { first, len, side: self.side }
    }
}

/// A bright disc in noise, and which pixels are in it.
struct Discs {
    first: usize,
    len: usize,
    side: usize,
}

impl Dataset for Discs {
    fn len(&self) -> usize {
        self.len
    }

    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![1, self.side, self.side], kind: FieldKind::Float }
    }

    fn target(&self) -> FieldFacts {
        FieldFacts { shape: vec![self.side, self.side], kind: FieldKind::Index(2) }
    }

    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Float(image), FieldMut::Index(mask)) = (to.input, to.target) else {
            return Err(Error::data("an image needs floats, and a mask indices"));
        };
        let mut random = noise(self.first as u64 + key.sample);
        let side = self.side as f32;
        let radius = side * (0.1 + 0.2 * random());
        let (x, y) = (side * random(), side * random());
        for (i, (pixel, inside)) in image.iter_mut().zip(mask).enumerate() {
            let (row, column) = ((i / self.side) as f32, (i % self.side) as f32);
            *inside = i64::from((row - y).hypot(column - x) < radius);
            *pixel = *inside as f32 + 2.0 * (random() - 0.5);
        }
        Ok(())
    }
}

/// Numbers in [0, 1) by a linear congruential generator (Knuth's MMIX).
fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 24) as f32
    }
}

fn main() {
    Registry::standard()
        .model("unet", |c: &UNetConfig, _, device: &Device| c.init(2, device))
        .dataset("discs", |c: DiscsConfig| c)
        .loss::<Dice>("dice")
        .metric::<Iou>("iou")
        .run()
}
