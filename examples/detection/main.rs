//! A model with two heads: a small detector finds squares and discs in noise, in one pass over the cells of a grid (YOLO's scheme; Redmon et al.,
//! 2016). A data set with boxes beside the classes, and a task with a loss for each head. Run it as ddp-run itself:
//! `cargo run --release --example detection -- examples/detection/detection.toml`

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{PaddingConfig2d, Relu};
use burn::tensor::{Device, Int, Tensor, activation::log_softmax, activation::sigmoid};
use ddp_run::dataset::{FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, Splits};
use ddp_run::prelude::*;
use ddp_run::schemars::JsonSchema;
use ddp_run::task::MetricFacts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Cells in a row of the grid.
const GRID: usize = 4;
/// Pixels in a row of a cell: what three poolings leave one of.
const PIXELS: usize = 8;
/// Pixels in a row of an image.
const SIDE: usize = GRID * PIXELS;
/// What a cell may hold: nothing, a square or a disc.
const KINDS: usize = 3;

/// Three convolutions, and a head for what is in each cell and one for where.
#[derive(Module, Debug)]
struct Detector {
    trunk: Vec<Conv2d>,
    pool: MaxPool2d,
    relu: Relu,
    kinds: Conv2d,
    boxes: Conv2d,
}

/// A row for each cell of each image.
struct Found {
    /// Scores `[cells, KINDS]`.
    kinds: Tensor<2>,
    /// `[cells, 4]`: centre from the cell's corner, width and height, in cells.
    boxes: Tensor<2>,
}

/// The model returns what its task takes: it has no forward pass that returns rows of one kind.
impl Net for Detector {}

impl Detector {
    fn forward(&self, images: Tensor<4>) -> Found {
        let convolved = |x, conv: &Conv2d| self.pool.forward(self.relu.forward(conv.forward(x)));
        let features = self.trunk.iter().fold(images, convolved);
        let rows = |map: Tensor<4>| {
            let [batch, outputs, height, width] = map.dims();
            map.permute([0, 2, 3, 1]).reshape([batch * height * width, outputs])
        };
        Found {
            kinds: rows(self.kinds.forward(features.clone())),
            // No shape is larger than two cells.
            boxes: sigmoid(rows(self.boxes.forward(features))) * 2.0,
        }
    }
}

/// The `[model]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct DetectorConfig {
    /// Channels of the first convolution; each one has twice as many as that before it.
    #[schemars(range(min = 1))]
    width: usize,
}

impl DetectorConfig {
    fn init(&self, device: &Device) -> Detector {
        let conv = |from, to, side: usize| {
            let edge = side / 2;
            let padding = PaddingConfig2d::Explicit(edge, edge, edge, edge);
            Conv2dConfig::new([from, to], [side, side]).with_padding(padding).init(device)
        };
        let width = self.width;
        Detector {
            trunk: vec![conv(1, width, 3), conv(width, 2 * width, 3), conv(2 * width, 4 * width, 3)],
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            relu: Relu::new(),
            kinds: conv(4 * width, KINDS, 1),
            boxes: conv(4 * width, 4, 1),
        }
    }
}

/// A batch as the task reads it, with a row for each cell.
struct Scenes {
    images: Tensor<4>,
    kinds: Tensor<1, Int>,
    boxes: Tensor<2>,
}

impl TryFrom<Batch> for Scenes {
    type Error = Error;

    fn try_from(batch: Batch) -> Result<Self> {
        let boxes: Tensor<3> = batch.field("boxes")?.float();
        Ok(Self { boxes: boxes.flatten(0, 1), images: batch.input.float(), kinds: batch.target.flat_index() })
    }
}

/// Cross-entropy of the kinds in all cells, and the distance of the boxes in those that hold something. Its fields are the keys of `[task]`.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Detect {
    /// Weight of the boxes beside the kinds.
    #[schemars(range(min = 0.0))]
    box_weight: f64,
}

impl Task for Detect {
    type Model = Detector;
    type Batch = Scenes;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("iou"), MetricFacts::larger_is_better("found")]
    }

    fn step(&self, model: &Detector, batch: Scenes, _: &StepContext<'_>) -> Result<StepOutput> {
        let Scenes { images, kinds, boxes } = batch;
        let (count, cells) = (images.dims()[0], kinds.dims()[0]);
        let found = model.forward(images);
        let labels = kinds.reshape([cells, 1]);
        let there = labels.clone().greater_elem(0).float();
        // A mean over images, of which every rank has as many. Means over shapes would weigh those of a rank with few of them more.
        let named = log_softmax(found.kinds.clone(), 1).gather(1, labels.clone()).sum().neg();
        let placed = ((found.boxes.clone() - boxes.clone()).abs() * there.clone()).sum();
        let loss = (named + placed * self.box_weight) / count as f64;

        let (labels, there) = (labels.inner(), there.inner());
        let overlap = iou(found.boxes.inner(), boxes.inner()) * there.clone();
        let named = found.kinds.inner().argmax(1).equal(labels).float();
        let right = (overlap.clone().greater_elem(0.5).float() * named).sum();
        // Both sums are over the shapes of all ranks, however they are spread.
        let shapes = there.sum();
        Ok(StepOutput::new(loss, count)
            .metric("iou", overlap.sum(), shapes.clone())
            .metric("found", right, shapes))
    }
}

/// Intersection over union of boxes `[rows, 4]`, row by row: `[rows, 1]`.
fn iou(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    let corners = |boxes: &Tensor<2>| {
        let (centre, half) = (boxes.clone().narrow(1, 0, 2), boxes.clone().narrow(1, 2, 2) / 2.0);
        (centre.clone() - half.clone(), centre + half)
    };
    let area = |sides: Tensor<2>| sides.clone().narrow(1, 0, 1) * sides.narrow(1, 1, 1);
    let ((low_a, high_a), (low_b, high_b)) = (corners(&a), corners(&b));
    let both = area((high_a.min_pair(high_b) - low_a.max_pair(low_b)).clamp_min(0.0));
    let either = area(a.narrow(1, 2, 2)) + area(b.narrow(1, 2, 2)) - both.clone();
    both / (either + 1e-6)
}

/// The `[dataset]` table's own keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct ScenesConfig {
    /// Training images; there is a quarter as many for validation.
    #[schemars(range(min = 4))]
    images: usize,
}

impl DatasetSource for ScenesConfig {
    fn open(&self) -> Result<Splits> {
        let train = Arc::new(SceneSet { first: 0, len: self.images });
        let val = Arc::new(SceneSet { first: self.images, len: self.images / 4 });
        Ok(Splits { train, val: Some(val), test: None })
    }
}

/// Bright squares and discs of different sizes in noise. A cell holds the shape whose centre is in it, if there is one.
struct SceneSet {
    first: usize,
    len: usize,
}

impl Dataset for SceneSet {
    fn len(&self) -> usize {
        self.len
    }

    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![1, SIDE, SIDE], kind: FieldKind::Float }
    }

    /// The kinds.
    fn target(&self) -> FieldFacts {
        FieldFacts { shape: vec![GRID * GRID], kind: FieldKind::Index(KINDS) }
    }

    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        let boxes = FieldFacts { shape: vec![GRID * GRID, 4], kind: FieldKind::Float };
        BTreeMap::from([("boxes".to_owned(), boxes)])
    }

    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Float(image), FieldMut::Index(kinds), FieldMut::Float(boxes)) =
            (to.input, to.target, to.fields.take("boxes")?)
        else {
            return Err(Error::data("an image and boxes need floats, and kinds indices"));
        };
        let mut random = noise(self.first as u64 + key.sample);
        image.fill_with(|| random() - 0.5);
        for (cell, (kind, place)) in kinds.iter_mut().zip(boxes.chunks_exact_mut(4)).enumerate() {
            *kind = if random() < 0.25 { 1 + i64::from(random() < 0.5) } else { 0 };
            let size = 0.6 + random();
            place.copy_from_slice(&[random(), random(), size, size]);
            if *kind == 0 {
                place.fill(0.0);
                continue;
            }
            let corner = [(cell % GRID) as f32, (cell / GRID) as f32];
            draw(image, *kind == 2, [corner[0] + place[0], corner[1] + place[1]], size / 2.0);
        }
        Ok(())
    }
}

/// Draws a disc or a square. Lengths are in cells.
fn draw(image: &mut [f32], disc: bool, centre: [f32; 2], radius: f32) {
    for (i, pixel) in image.iter_mut().enumerate() {
        let at = |pixel: usize| (pixel as f32 + 0.5) / PIXELS as f32;
        let (x, y) = (at(i % SIDE) - centre[0], at(i / SIDE) - centre[1]);
        let distance = if disc { x.hypot(y) } else { x.abs().max(y.abs()) };
        if distance < radius {
            *pixel = 1.0;
        }
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
        .model("detector", |c: &DetectorConfig, _, device: &Device| c.init(device))
        .dataset("scenes", |c: ScenesConfig| c)
        .task::<Detect>("detect")
        .run()
}
