//! The module's public interface: specs with custom components are resolved, printed, exported and hashed.

mod output;
mod reading;
mod rejecting;
mod tasks;

use super::{Plan, WorldRequest};
use crate::registry::Registry;
use collectives::{CommError, ProcessGroup};
use data::{DataFacts, DatasetKind, DatasetSource, FieldFacts, FieldKind, Splits};
use ddp::CommHook;
use reading::{KeyedHook, Still};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Diagnostics, Fields, JobTree, Override};
use std::sync::Arc;
use train::models::{ModelKind, ModelSource, Role, TensorFacts};

/// 1000 samples in 10 classes unless the spec says otherwise; can't be opened.
#[derive(Debug, Clone)]
struct Stub(DataFacts);

struct StubKind;

#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct StubKeys {
    #[default = 1000]
    samples: usize,
    #[default = 10]
    classes: usize,
    #[default = true]
    known: bool,
    val: Option<usize>,
    #[default = "data"]
    #[schemars(extend("x-changes-results" = false))]
    #[allow(dead_code, reason = "nothing is opened")]
    root: String,
}

impl DatasetKind for StubKind {
    fn configure(&self, fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
        let StubKeys { samples, classes, known, val, .. } = fields.config();
        let kind = if classes == 0 { FieldKind::Float } else { FieldKind::Index(classes) };
        Arc::new(Stub(DataFacts {
            input: Some(FieldFacts { shape: vec![4], kind: FieldKind::Float }),
            target: known.then_some(FieldFacts { shape: vec![], kind }),
            train: known.then_some(samples),
            val,
            ..DataFacts::default()
        }))
    }
}

impl DatasetSource for Stub {
    fn facts(&self) -> DataFacts {
        self.0.clone()
    }
    fn prepare(&self, _say: &mut dyn FnMut(&str)) -> base::error::Result<()> {
        unreachable!("a plan opens nothing")
    }
    fn open(&self) -> base::error::Result<Splits> {
        unreachable!("a plan opens nothing")
    }
}

/// Weights of 4 x 10 and 10 values, and a buffer of 3.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct StubModel {
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[allow(dead_code, reason = "nothing is built")]
    dropout: f64,
}

impl ModelKind for StubModel {
    fn configure(&self, fields: &mut Fields<'_>, _facts: &DataFacts) -> Arc<dyn ModelSource> {
        Arc::new(fields.config::<StubModel>())
    }
}

impl ModelSource for StubModel {
    fn tensors(&self) -> Option<Vec<TensorFacts>> {
        let tensor = |name: &str, shape: &[usize], role| TensorFacts {
            name: name.to_owned(),
            shape: shape.to_vec(),
            role,
            aliases: Vec::new(),
        };
        let parameter = Role::Parameter;
        Some(vec![
            tensor("w", &[10, 4], parameter),
            tensor("b", &[10], parameter),
            tensor("mean", &[3], Role::Statistic),
        ])
    }
    fn tensors_for(&self, _: &DataFacts) -> base::error::Result<Vec<TensorFacts>> {
        Ok(self.tensors().unwrap_or_default())
    }
    fn build(
        &self,
        _: &DataFacts,
        _: u64,
        _: &ddp::device::Compute,
    ) -> base::error::Result<Box<dyn train::models::Model>> {
        unreachable!("a plan builds nothing")
    }
}

struct StubHook;

impl CommHook for StubHook {
    fn average(&mut self, _: usize, _: &mut [f32], _: &dyn ProcessGroup) -> Result<(), CommError> {
        unreachable!("a plan averages nothing")
    }
}

const JOB: &str = r#"
name = "job"
batch_size = 8
[model]
name = "stub"
[dataset]
name = "stub"
[optimizer]
name = "adamw"
"#;

fn resolve_for(text: &str, sets: &[&str], world: WorldRequest) -> Result<Plan, Diagnostics> {
    let registry = Registry::standard()
        .add_model("stub", StubModel::default())
        .add_dataset("stub", StubKind)
        .optimizer::<Still>("still")
        .comm_hook("mine", || StubHook)
        .comm_hook_with("keyed", |_: &KeyedHook| StubHook);
    let edits: Vec<Override> = sets.iter().map(|s| Override::Set((*s).to_owned())).collect();
    Plan::resolve(&JobTree::parse("job.toml", text, &edits), &registry, world)
}

fn resolve(sets: &[&str]) -> Plan {
    resolve_for(JOB, sets, WorldRequest::default()).unwrap_or_else(|d| panic!("{d}"))
}

/// The messages for a job with these edits.
fn refused(sets: &[&str]) -> Vec<String> {
    match resolve_for(JOB, sets, WorldRequest::default()) {
        Ok(_) => Vec::new(),
        Err(d) => d.problems().iter().map(|p| p.message.clone()).collect(),
    }
}
