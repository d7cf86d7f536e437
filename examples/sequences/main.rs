//! Samples with a further field: sequences of different lengths, padded, with a mask of what is real. A task reads the batch in a type of its
//! own. Run it as ddp-run itself: `cargo run --release --example sequences -- examples/sequences/sequences.toml`

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};
use ddp_run::dataset::{FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, Splits};
use ddp_run::prelude::*;
use ddp_run::schemars::JsonSchema;
use ddp_run::task::MetricFacts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Symbols of a sequence.
const SYMBOLS: usize = 10;

/// The mean embedding of the real symbols, and a linear layer.
#[derive(Module, Debug)]
struct Bag {
    embedding: Embedding,
    head: Linear,
}

impl Net for Bag {}

impl Bag {
    /// Symbols and mask `[batch, length]`; returns `[batch, 2]`.
    fn forward(&self, symbols: Tensor<2, Int>, mask: Tensor<2>) -> Tensor<2> {
        let lengths = mask.clone().sum_dim(1);
        let embedded = self.embedding.forward(symbols) * mask.unsqueeze_dim::<3>(2);
        self.head.forward(embedded.sum_dim(1).squeeze_dim::<2>(1) / lengths)
    }
}

/// The `[model]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct BagConfig {
    /// Size of the embeddings.
    #[schemars(range(min = 1))]
    width: usize,
}

/// A batch as the task reads it.
struct Sequences {
    symbols: Tensor<2, Int>,
    mask: Tensor<2>,
    classes: Tensor<1, Int>,
}

impl TryFrom<Batch> for Sequences {
    type Error = Error;

    fn try_from(batch: Batch) -> Result<Self> {
        Ok(Self {
            mask: batch.field("mask")?.float(),
            symbols: batch.input.index(),
            classes: batch.target.flat_index(),
        })
    }
}

/// Cross-entropy. It has no keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Classify {}

impl Task for Classify {
    type Model = Bag;
    type Batch = Sequences;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("accuracy")]
    }

    fn step(&self, model: &Bag, batch: Sequences, _: &StepContext<'_>) -> Result<StepOutput> {
        let Sequences { symbols, mask, classes } = batch;
        let outputs = model.forward(symbols, mask);
        let rows = outputs.dims()[0];
        let loss = CrossEntropyLossConfig::new().init(&outputs.device());
        let loss = loss.forward(outputs.clone(), classes.clone());
        let correct = outputs.argmax(1).reshape([rows]).equal(classes).int().sum().float();
        Ok(StepOutput::new(loss, rows).metric("accuracy", correct, rows))
    }
}

/// The `[dataset]` table's own keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct PaddedConfig {
    /// Training sequences; there is a quarter as many for validation.
    #[schemars(range(min = 4))]
    sequences: usize,
    /// Length of the longest.
    #[schemars(range(min = 2))]
    length: usize,
}

impl DatasetSource for PaddedConfig {
    fn open(&self) -> Result<Splits> {
        let split = |first, len| Arc::new(Padded { first, len, length: self.length });
        let (train, val) = (split(0, self.sequences), split(self.sequences, self.sequences / 4));
        Ok(Splits { train, val: Some(val), test: None })
    }
}

/// Random symbols, whose class is whether the real ones are large on average. What follows them is random, too.
struct Padded {
    first: usize,
    len: usize,
    length: usize,
}

impl Dataset for Padded {
    fn len(&self) -> usize {
        self.len
    }

    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![self.length], kind: FieldKind::Index(SYMBOLS) }
    }

    fn target(&self) -> FieldFacts {
        FieldFacts { shape: vec![], kind: FieldKind::Index(2) }
    }

    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        let mask = FieldFacts { shape: vec![self.length], kind: FieldKind::Float };
        BTreeMap::from([("mask".to_owned(), mask)])
    }

    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Index(symbols), FieldMut::Index(class), FieldMut::Float(mask)) =
            (to.input, to.target, to.fields.take("mask")?)
        else {
            return Err(Error::data("symbols and classes are indices, and a mask needs floats"));
        };
        let mut random = integers(self.first as u64 + key.sample);
        let real = 1 + random(self.length);
        for (i, (symbol, there)) in symbols.iter_mut().zip(mask).enumerate() {
            *symbol = random(SYMBOLS) as i64;
            *there = if i < real { 1.0 } else { 0.0 };
        }
        let sum: i64 = symbols[..real].iter().sum();
        class[0] = i64::from(2 * sum > (real * (SYMBOLS - 1)) as i64);
        Ok(())
    }
}

/// Integers below `n` by a linear congruential generator (Knuth's MMIX).
fn integers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    }
}

fn main() {
    Registry::standard()
        .model("bag", |c: &BagConfig, _, device: &Device| Bag {
            embedding: EmbeddingConfig::new(SYMBOLS, c.width).init(device),
            head: LinearConfig::new(c.width, 2).init(device),
        })
        .dataset("padded", |c: PaddedConfig| c)
        .task::<Classify>("classify")
        .run()
}
