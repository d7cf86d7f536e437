//! Exact evaluation over all ranks: each sample counts once, with any number of ranks.

use super::Sums;
use super::device_sums::BatchSums;
use super::feed::{DeviceBatch, Feed};
use crate::comm::ProcessGroup;
use crate::data::{Dataset, EvalShard, LoaderOptions};
use crate::device::is_host;
use crate::error::Result;
use crate::models::Model;
use crate::tasks::{AnyTask, StepContext};
use std::sync::Arc;

/// Evaluates `dataset` over all ranks of `group`: every rank takes each world-th sample, without padding. The result is
/// equal on all ranks; `samples` is the size of the data set.
pub fn evaluate(
    model: &dyn Model,
    task: &dyn AnyTask,
    dataset: &Arc<dyn Dataset>,
    options: LoaderOptions,
    group: &dyn ProcessGroup,
) -> Result<Sums> {
    let shard = EvalShard { len: dataset.len(), world: group.world_size(), rank: group.rank() };
    let evaluator = model.evaluator();
    let context = StepContext::new(false, group);
    let mut sums = Sums::of_metrics(&task.metrics());
    let device = evaluator.device();
    let host = is_host(&device);
    let mut feed = Feed::new(dataset.clone(), shard, options, &device, host)?;
    // On a device, the next batch is enqueued before the sums of the previous one are read.
    let mut before: Option<BatchSums> = None;
    while let Some(batch) = feed.next() {
        let DeviceBatch { batch: sent, host: batch } = batch?;
        let target = sent.target.clone();
        let output = task.step(evaluator.net(), sent, &context)?;
        let these = BatchSums::new(output, &target, &batch, host)?.fetch()?;
        feed.recycle(batch);
        if let Some(before) = before.replace(these) {
            sums.add(&before.read()?);
        }
    }
    if let Some(last) = before {
        sums.add(&last.read()?);
    }
    sums.all_reduce(&mut [], group)?;
    Ok(sums)
}
