//! Parts that do not fit cause an error about the spec (exit 78), before anything is written.

use super::compute::compute;
use super::parts::RankParts;
use super::{norms, testing};
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use base::error::{ErrorKind, Result};
use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use data::DataFacts;
use ddp::device::ComputeDevice;
use spec::JobTree;
use std::path::Path;
use train::models::{Input, Net};
use train::training::{Batching, Position, TrainingEnd};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Config {
    inputs: usize,
    outputs: usize,
    rows: usize,
}

/// Possible errors in a user's model.
#[derive(Module, Debug)]
struct Own {
    layer: Linear,
    rows: usize,
}

impl Net for Own {
    fn forward(&self, input: Input) -> Tensor<2> {
        let output = self.layer.forward(input.rows());
        if self.rows > 0 { output.narrow(0, 0, self.rows) } else { output }
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct TableConfig {
    tokens: usize,
}

/// A row of scores for each token.
#[derive(Module, Debug)]
struct Table {
    embedding: Embedding,
}

impl Net for Table {
    fn forward(&self, input: Input) -> Tensor<2> {
        self.embedding.forward(input.index()).flatten(0, 1)
    }
}

fn own(config: &Config, _: &DataFacts, device: &Device) -> Own {
    assert!(config.outputs < 100, "a hundred outputs are too many");
    Own { layer: LinearConfig::new(config.inputs, config.outputs).init(device), rows: config.rows }
}

/// The plan for a model and a data set, with a folder for its run.
fn plan(model: &str, dataset: &str, dir: &Path) -> Result<Plan> {
    std::fs::write(dir.join("rows.csv"), "a,b,y\n1,2,0\n3,4,1\n5,6,2\n7,8,0\n9,1,1\n").unwrap();
    let csv = format!("name = \"csv\"\npath = {:?}\ntarget = \"y\"\nval_split = 0.0\n", dir.join("rows.csv"));
    let dataset = dataset.replace("CSV", &csv);
    let spec = format!(
        "name = \"x\"\nbatch_size = 4\n[model]\n{model}\n[dataset]\n{dataset}\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n"
    );
    let registry =
        Registry::standard().model("own", own).model("table", |config: &TableConfig, _, device| Table {
            embedding: EmbeddingConfig::new(config.tokens, 5).init(device),
        });
    Ok(Plan::resolve(&JobTree::parse("x.toml", &spec, &[]), &registry, WorldRequest::new(1))?)
}

fn trained(plan: Result<Plan>, out_dir: &Path) -> Result<TrainingEnd> {
    testing::trained(&plan?, out_dir, u64::MAX)
}

#[test]
fn mismatches_are_reported_before_anything_is_written() {
    let classes = "CSV\ntask = \"classification\"";
    let own = |inputs: usize, outputs: usize, rows: usize| {
        format!("name = \"own\"\ninputs = {inputs}\noutputs = {outputs}\nrows = {rows}")
    };
    for (model, dataset, expected) in [
        (own(2, 3, 0), "CSV", "model `own` returns 3 outputs per sample; the data set's targets have 1"),
        (own(2, 1, 3), "CSV", "model `own` returns 3 rows of outputs for 4 samples"),
        (own(2, 2, 0), classes, "model `own` returns 2 outputs per target; the data set has 3 classes"),
        (own(2, 5, 0), classes, "model `own` returns 5 outputs per target; the data set has 3 classes"),
        (
            own(7, 1, 0),
            "CSV",
            "model `own` does not accept 4 samples of shape [2] (floats) from data set `csv`: ",
        ),
        (
            own(2, 100, 0),
            "CSV",
            "cannot build the model for this data set: a hundred outputs are too many (at ",
        ),
        (
            "name = \"mlp\"\nnum_classes = 2".into(),
            classes,
            "model.num_classes: the data set requires 3, found 2",
        ),
        (
            "name = \"mlp\"\nnum_classes = 5".into(),
            classes,
            "model.num_classes: the data set requires 3, found 5",
        ),
        ("name = \"mlp\"\nnum_classes = 2".into(), "CSV", "the data set requires 1, found 2"),
        (
            "name = \"linear\"\nin_features = 7".into(),
            "CSV",
            "model.in_features: the data set requires 2, found 7",
        ),
        ("name = \"mlp\"".into(), "CSV\nfeatures = []", "the inputs of data set `csv` are empty (shape [0])"),
        ("name = \"cnn\"\nnum_classes = 3".into(), classes, "this model expects images"),
        (
            "name = \"gpt\"\nblock_size = 2\nvocab_size = 9".into(),
            classes,
            "does not accept 4 samples of shape [2] (floats)",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (plan, out) = (plan(&model, dataset, dir.path()), dir.path().join("run"));
        std::fs::create_dir(&out).unwrap();
        let error = trained(plan, &out).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Spec, "{error}");
        assert!(error.message.contains(expected), "{expected}\n{error}");
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0, "{expected}");
    }
}

#[test]
fn a_run_without_an_optimizer_step_is_refused_whatever_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let all_steps = |extra: &str| {
        let out = dir.path().join(extra.len().to_string());
        std::fs::create_dir(&out).unwrap();
        (trained(plan("name = \"linear\"", &format!("CSV\n{extra}"), dir.path()), &out), out)
    };
    // Four of five rows remain for training.
    assert_eq!(all_steps("drop_last = true").0.unwrap(), TrainingEnd::Done);
    let (refused, out) = all_steps("drop_last = true\nmax_train = 3");
    let error = refused.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Spec);
    let expected = "each of 1 ranks has 3 of the 3 training samples, less than a batch of 4";
    assert!(error.message.contains(expected), "{error}");
    assert_eq!(std::fs::read_dir(out).unwrap().count(), 0);
    assert_eq!(all_steps("drop_last = false\nmax_train = 3").0.unwrap(), TrainingEnd::Done);
}

/// With data whose size is not known before.
#[test]
fn a_batch_norm_of_one_value_per_channel_is_found_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan("name = \"resnet18\"", "name = \"shapes\"\ntrain = 32", dir.path()).unwrap();
    let (parts, facts) = (RankParts::new(&plan), &plan.dataset.facts);
    let on = compute(ComputeDevice::Cpu, parts.precision).unwrap();
    let mut model = parts.model.source.build(facts, 1, &on).unwrap();
    let shapes = plan.dataset.source.open().unwrap().train;
    let mut of = |batching| norms::check(&parts, facts, &*shapes, &Position::new(batching), &mut *model);
    assert_eq!(of(Batching::new(1, 4, 1)).map_err(|e| e.message), Ok(()));
    let error = of(Batching::new(1, 31, 1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Spec);
    assert!(error.message.contains("one sample on each rank") && error.hint.is_some(), "{error}");
    assert!(of(Batching::new(2, 5, 1)).is_err() && of(Batching::new(2, 3, 1)).is_err());
    assert!(of(Batching::new(3, 5, 1)).is_err(), "with the padding");
    assert!(of(Batching::new(4, 4, 1)).is_ok());
}

/// A batch of the smallest indices fits every table.
#[test]
fn a_table_that_is_too_small_for_the_vocabulary_is_found_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "abcde".repeat(20)).unwrap();
    let dataset = format!("name = \"text\"\npath = {text:?}\nblock_size = 4");
    let run = |tokens: usize| {
        let out = dir.path().join(tokens.to_string());
        std::fs::create_dir(&out).unwrap();
        trained(plan(&format!("name = \"table\"\ntokens = {tokens}"), &dataset, dir.path()), &out)
    };
    let error = run(4).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Spec);
    let told = "model `table` does not accept 4 samples of shape [4] (indices) from data set `text`: ";
    assert!(error.message.contains(told), "{error}");
    assert_eq!(run(5).unwrap(), TrainingEnd::Done);
    // Five scores for four tokens.
    std::fs::write(&text, "abcd".repeat(20)).unwrap();
    assert_eq!(run(6).unwrap(), TrainingEnd::Done);
}
