//! Exact evaluation over all ranks: each sample counts once, with any number of ranks.

use super::device_sums::BatchSums;
use super::feed::{DeviceBatch, Feed};
use super::judged::BatchJudged;
use super::{Details, Sums, Tally};
use crate::comm::ProcessGroup;
use crate::data::{Dataset, EvalShard, LoaderOptions};
use crate::device::is_host;
use crate::error::Result;
use crate::models::Model;
use crate::tasks::{AnyTask, StepContext};
use std::sync::Arc;

/// What an evaluation finds.
#[derive(Debug)]
pub struct Evaluated {
    pub sums: Sums,
    /// `None` where no details are wanted, or samples do not have one class each.
    pub tally: Option<Tally>,
}

/// Evaluates `dataset` over all ranks of `group`: every rank takes each world-th sample, without padding. The result is
/// equal on all ranks; `samples` is the size of the data set.
pub fn evaluate(
    model: &dyn Model,
    task: &dyn AnyTask,
    dataset: &Arc<dyn Dataset>,
    options: LoaderOptions,
    group: &dyn ProcessGroup,
    details: Details,
) -> Result<Evaluated> {
    let shard = EvalShard { len: dataset.len(), world: group.world_size(), rank: group.rank() };
    let evaluator = model.evaluator();
    let context = StepContext::new(false, group);
    let mut sums = Sums::of_metrics(&task.metrics());
    let mut tally = Tally::new(details, &dataset.target());
    let judges = tally.is_some();
    let device = evaluator.device();
    let host = is_host(&device);
    let mut feed = Feed::new(dataset.clone(), shard, options, &device, host)?;
    // On a device, the next batch is enqueued before the sums of the previous one are read.
    let mut before: Option<(BatchSums, Option<BatchJudged>)> = None;
    let mut add = |(these, judged): (BatchSums, Option<BatchJudged>)| -> Result<()> {
        sums.add(&these.read()?);
        if let (Some(tally), Some(judged)) = (&mut tally, judged) {
            tally.add(&judged.read()?);
        }
        Ok(())
    };
    while let Some(batch) = feed.next() {
        let DeviceBatch { batch: sent, host: batch } = batch?;
        let target = sent.target.clone();
        let output = task.step(evaluator.net(), sent, &context)?;
        let judged = match judges {
            true => BatchJudged::new(&output.measured, &target, &batch, host)?,
            false => None,
        };
        let these = BatchSums::new(output, &target, &batch, host)?.fetch()?;
        feed.recycle(batch);
        if let Some(before) = before.replace((these, judged)) {
            add(before)?;
        }
    }
    if let Some(last) = before {
        add(last)?;
    }
    sums.all_reduce(&mut [], group)?;
    if let Some(tally) = &mut tally {
        tally.all_reduce(group)?;
    }
    Ok(Evaluated { sums, tally: tally.filter(Tally::has_samples) })
}
