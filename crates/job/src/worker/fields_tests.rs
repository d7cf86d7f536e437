//! Runs whose samples have further fields.

use super::testing::{TestRun, close};
use crate::registry::Registry;
use base::error::{Error, ErrorKind, Result};
use burn::tensor::{Int, Tensor};
use data::{
    DataFacts, Dataset, DatasetSource, FieldFacts, FieldKind, FieldMut, Fingerprint, Sample, SampleKey,
    SampleMut, Splits, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use train::models::{AnyNet, Input};
use train::tasks::{Batch, MetricFacts, StepContext, StepOutput, Task};
use train::training::TrainingEnd;

/// Four numbers of which only some count: `mask`; their sum; and how many they are: `count`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default)]
struct Masked {
    /// All numbers count.
    whole: bool,
    /// Without further fields.
    plain: bool,
    /// The mask of the validation samples has this length.
    val_mask: usize,
    /// The name of the mask.
    mask: String,
    samples: usize,
}

impl Default for Masked {
    fn default() -> Self {
        Self { whole: false, plain: false, val_mask: 4, mask: "mask".to_owned(), samples: 64 }
    }
}

impl DatasetSource for Masked {
    fn facts(&self) -> DataFacts {
        DataFacts { fields: self.fields(), ..DataFacts::default() }
    }
    fn open(&self) -> Result<Splits> {
        let val = Masked { samples: 16, ..self.clone() };
        let train = Masked { val_mask: 4, ..self.clone() };
        Ok(Splits { train: Arc::new(train), val: Some(Arc::new(val)), test: None })
    }
}

impl Dataset for Masked {
    fn len(&self) -> usize {
        self.samples
    }
    fn input(&self) -> FieldFacts {
        FieldFacts { shape: vec![4], kind: FieldKind::Float }
    }
    fn target(&self) -> FieldFacts {
        FieldFacts { shape: vec![1], kind: FieldKind::Float }
    }
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        let mask = FieldFacts { shape: vec![self.val_mask], kind: FieldKind::Float };
        let count = FieldFacts { shape: vec![], kind: FieldKind::Index(5) };
        let both = [(self.mask.clone(), mask), ("count".to_owned(), count)];
        both.into_iter().filter(|_| !self.plain).collect()
    }
    fn write(&self, key: SampleKey, mut to: SampleMut<'_>) -> Result<()> {
        let (FieldMut::Float(input), FieldMut::Float(target)) = (to.input, to.target) else { panic!() };
        let i = key.sample as usize + self.samples;
        input.iter_mut().enumerate().for_each(|(k, x)| *x = ((i * (k + 3)) as f32).sin());
        let counts = |k: usize| self.whole || (i >> k) & 1 == 0;
        let mask: Vec<f32> = (0..4).map(|k| f32::from(u8::from(counts(k)))).collect();
        target[0] = input.iter().zip(&mask).map(|(x, m)| x * m).sum();
        if self.plain {
            return Ok(());
        }
        let (FieldMut::Float(to_mask), FieldMut::Index(count)) =
            (to.fields.take(&self.mask)?, to.fields.take("count")?)
        else {
            panic!()
        };
        to_mask.copy_from_slice(&mask);
        count[0] = mask.iter().filter(|m| **m > 0.0).count() as i64;
        Ok(())
    }
}

struct MaskedBatch {
    input: Tensor<2>,
    target: Tensor<2>,
    mask: Tensor<2>,
    count: Tensor<1, Int>,
}

impl TryFrom<Batch> for MaskedBatch {
    type Error = Error;

    fn try_from(batch: Batch) -> Result<Self> {
        let (mask, count) = (batch.field("mask")?.float(), batch.field("count")?.index());
        Ok(Self { input: batch.input.rows(), target: batch.target.rows(), mask, count })
    }
}

/// Squared errors of a linear model of the numbers that count.
#[derive(Deserialize, JsonSchema)]
struct OfMasked {}

impl Task for OfMasked {
    type Model = AnyNet;
    type Batch = MaskedBatch;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("part")]
    }

    fn step(&self, model: &AnyNet, batch: MaskedBatch, _: &StepContext<'_>) -> Result<StepOutput> {
        let rows = batch.input.dims()[0];
        let part = batch.count.sum().float();
        let error = model.forward(Input::from_tensor(batch.input * batch.mask)) - batch.target;
        Ok(StepOutput::new((error.clone() * error).mean(), rows).metric("part", part, 4 * rows))
    }
}

/// Removes the mask in training.
#[derive(Deserialize, JsonSchema)]
struct Unmask {}

impl Transform for Unmask {
    fn apply(&self, mut sample: Sample<'_>) -> Result<()> {
        assert!(sample.fields.names().eq(["count", "mask"]));
        let FieldMut::Float(mask) = sample.fields.take("mask")? else { panic!() };
        let FieldMut::Index(count) = sample.fields.take("count")? else { panic!() };
        assert_eq!(mask.iter().sum::<f32>(), count[0] as f32);
        mask.fill(1.0);
        let (FieldMut::Float(input), FieldMut::Float(target)) = (sample.input, sample.target) else {
            panic!()
        };
        (count[0], target[0]) = (4, input.iter().sum());
        Ok(())
    }
}

fn registry() -> Registry {
    Registry::standard()
        .dataset("masked", |c: Masked| c)
        .task::<OfMasked>("of-masked")
        .transform::<Unmask>("unmask")
}

const SPEC: &str = "name = \"run\"\nseed = 3\nepochs = 3\nbatch_size = 8\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"masked\"\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n[metrics]\nlog_every = 1\n\
    [task]\nname = \"of-masked\"\n";

fn run(spec: &str, sets: &[&str], world: usize) -> TestRun {
    let run = TestRun::with(registry(), spec);
    assert_eq!(run.train(world, sets).unwrap(), TrainingEnd::Done);
    run
}

#[test]
fn two_ranks_train_by_further_fields_as_one_does() {
    let (one, two) = (run(SPEC, &[], 1), run(SPEC, &["batch_size=4"], 2));
    for name in ["loss", "part"] {
        let (one, two) = (one.measured(name), two.measured(name));
        assert!(close(&one, &two), "{name}: {one:?} and {two:?}");
    }
    let losses = one.measured("loss");
    assert!(losses[2][1] < 0.5 * losses[0][1], "it learns: {losses:?}");
    // Half of the numbers of 64 consecutive samples count.
    assert_eq!(one.measured("part")[0][0], 0.5);
    // Without the mask there would be something left to learn.
    let unmasked = run(SPEC, &["dataset.mask=\"mask\"", "dataset.whole=true"], 1).measured("loss");
    assert!(!close(&unmasked, &losses));
}

#[test]
fn a_resumed_run_has_the_same_bits() {
    let sets = ["train.accumulate=2", "batch_size=2", "dataset.workers=2"];
    let (whole, parts) = (run(SPEC, &sets, 2), TestRun::with(registry(), SPEC));
    parts.in_parts(2, &sets, &[3, 9]);
    for name in ["loss", "part"] {
        assert_eq!(whole.measured(name), parts.measured(name), "{name}");
    }
    assert!(whole.bits() == parts.bits());
}

#[test]
fn own_transforms_change_further_fields() {
    let spec = format!("{SPEC}[[transform]]\nname = \"unmask\"\n");
    let sets = ["train.eval_every=0"];
    let (unmasked, whole) = (run(&spec, &sets, 1), run(SPEC, &["dataset.whole=true", sets[0]], 1));
    assert!(unmasked.bits() == whole.bits());
    assert!(unmasked.bits() != run(SPEC, &sets, 1).bits());
}

#[test]
fn what_is_standard_ignores_further_fields() {
    let standard = SPEC.replace("[task]\nname = \"of-masked\"\n", "[train]\nloss = \"mse\"\n");
    let (with, without) = (run(&standard, &[], 1), run(&standard, &["dataset.plain=true"], 1));
    assert!(with.bits() == without.bits());
    assert_eq!(with.measured("mae"), without.measured("mae"));
}

#[test]
fn fields_that_do_not_fit_end_before_the_run() {
    let refused = |sets: &[&str]| {
        let e = TestRun::with(registry(), SPEC).train(1, sets).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Spec);
        e.message
    };
    assert_eq!(
        refused(&["dataset.mask=\"masks\""]),
        "the samples have no field `mask`: besides `input` and `target` there are `count`, `masks`"
    );
    assert_eq!(
        refused(&["dataset.plain=true"]),
        "the samples have no field `mask`: there are only `input` and `target`"
    );
    assert_eq!(
        refused(&["dataset.val_mask=3"]),
        "the validation samples of data set `masked` have the further fields `count` of shape [] (indices), `mask` of shape \
         [3] (floats), those of training `count` of shape [] (indices), `mask` of shape [4] (floats)"
    );
    assert_eq!(
        refused(&["dataset.mask=\"target\""]),
        "data set `masked` has a further field `target`, which is a reserved name"
    );
    // The task takes a mask per number, and there is one index per sample.
    let message = refused(&["dataset.mask=\"count\""]);
    assert!(message.starts_with("the samples have no field `mask`: besides"), "{message}");
}

#[test]
fn a_plan_names_further_fields() {
    let plan = |sets: &[&str]| TestRun::with(registry(), SPEC).plan(1, sets);
    let text = plan(&[]).text();
    assert!(text.contains("count: one of 5 classes; mask: [4] numbers"), "{text}");
    let json = |sets: &[&str]| plan(sets).json()["data"].clone();
    assert_eq!(json(&[])["fields"]["mask"]["shape"], serde_json::json!([4]));
    assert_eq!(json(&["dataset.plain=true"]).get("fields"), None);
}

#[test]
fn fingerprints_cover_further_fields() {
    let of = |set: Masked| {
        let set: Arc<dyn Dataset> = Arc::new(set);
        Fingerprint::new(&Splits { train: set, val: None, test: None })
    };
    let usual = of(Masked::default());
    assert_eq!(usual, of(Masked::default()));
    for other in [
        Masked { plain: true, ..Masked::default() },
        Masked { val_mask: 5, ..Masked::default() },
        Masked { mask: "m".to_owned(), ..Masked::default() },
    ] {
        assert_ne!(usual.content, of(other).content);
    }
}
