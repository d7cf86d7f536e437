//! Evaluates a checkpoint's model on one split of the data, in one process.

use super::metrics::{self, Reported};
use super::{compute, facts_of, fit, open_data, spec_changes, state};
use crate::checkpoint::Loaded;
use crate::comm::ProcessGroup;
use crate::data::{Dataset, Fingerprint, Splits};
use crate::device::ComputeDevice;
use crate::error::{Error, Result};
use crate::named::named;
use crate::plan::Plan;
use crate::train::Details;
use serde_json::{Map, Value, json};
use std::sync::Arc;

named! {
    /// The split to evaluate.
    #[derive(clap::ValueEnum)]
    pub enum Split {
        Train = "train",
        Val = "val",
        Test = "test",
    }
}

impl Split {
    fn of(self, splits: &Splits) -> Option<&Arc<dyn Dataset>> {
        match self {
            Split::Train => Some(&splits.train),
            Split::Val => splits.val.as_ref(),
            Split::Test => splits.test.as_ref(),
        }
    }
}

fn no_split(plan: &Plan, split: Split, splits: &Splits) -> Error {
    let there = Split::ALL.into_iter().filter(|split| split.of(splits).is_some());
    let there: Vec<String> = there.map(|split| format!("`{split}`")).collect();
    let more = match split {
        Split::Val => "; `[dataset] val_split` splits one off the training samples",
        _ => "",
    };
    Error::data(format!("data set `{}` has no split `{split}`", plan.dataset.name))
        .hint(format!("it has {}{more}", there.join(" and ")))
}

/// The metrics of an evaluation, by name.
pub struct Evaluation {
    pub metrics: Vec<(String, f64)>,
    pub samples: u64,
    /// How the data and the spec differ from those of the checkpoint.
    pub warnings: Vec<String>,
}

impl Evaluation {
    /// The metrics by name, and `n`, the number of samples.
    pub fn json(&self) -> Map<String, Value> {
        let metrics = self.metrics.iter().map(|(name, value)| (name.clone(), json!(value)));
        metrics.chain([("n".to_owned(), json!(self.samples))]).collect()
    }
}

/// Evaluates `loaded` on `split`: its averaged weights if there are some and they are wanted.
pub fn evaluate(
    plan: &Plan,
    loaded: &Loaded,
    split: Split,
    averaged: bool,
    device: ComputeDevice,
    group: Arc<dyn ProcessGroup>,
) -> Result<Evaluation> {
    let splits = open_data(plan, &*group, 0)?;
    let (facts, saved) = (facts_of(&splits), state::saved(loaded)?);
    let changed = saved.data.differs(&Fingerprint::of(&splits), ", now ");
    let data = changed.map(|what| {
        format!("the data set has changed since this checkpoint was made: {what}. What is measured on the data, such as the scale of columns, is measured anew")
    });
    let spec = spec_changes::of_meaning(plan, loaded);
    let on = compute(device, plan.precision)?;
    let mut model = plan.model.source.build(&facts, plan.seed, &on)?;
    fit::model(plan, &*splits.train, &*model)?;
    let weights = loaded.weights(averaged);
    state::restore_model(plan, loaded, &saved, device, weights, &mut *model)?;
    let dataset = split.of(&splits).ok_or_else(|| no_split(plan, split, &splits))?;
    let options = plan.loader.options(plan.batch_size, plan.seed);
    let evaluated =
        crate::train::evaluate(&*model, &*plan.task.build(), dataset, options, &*group, Details::default())?;
    let found = metrics::evaluation(&evaluated.sums, Reported::of(&plan.task, plan.metrics.top5, &facts));
    Ok(Evaluation { warnings: data.into_iter().chain(spec).collect(), ..found })
}
