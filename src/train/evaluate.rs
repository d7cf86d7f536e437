//! Exact evaluation over all ranks: each sample counts once, with any number of ranks.

use super::device_sums::BatchSums;
use super::feed::{DeviceBatch, Feed};
use super::{Loss, Sums};
use crate::comm::{ProcessGroup, ReduceOp};
use crate::data::{Dataset, EvalShard, LoaderOptions};
use crate::device::is_host;
use crate::error::Result;
use crate::models::Model;
use std::sync::Arc;

/// Evaluates `dataset` over all ranks of `group`: every rank takes each world-th sample, without padding. The result is
/// equal on all ranks; `samples` is the size of the data set.
pub fn evaluate(
    model: &dyn Model,
    loss: Loss,
    dataset: &Arc<dyn Dataset>,
    options: LoaderOptions,
    group: &dyn ProcessGroup,
) -> Result<Sums> {
    let shard = EvalShard { len: dataset.len(), world: group.world_size(), rank: group.rank() };
    let evaluator = model.evaluator();
    let (device, mut sums) = (evaluator.device(), Sums::default());
    let host = is_host(&device);
    let mut feed = Feed::new(dataset.clone(), shard, options, &device, host)?;
    // On a device, the next batch is enqueued before the sums of the previous one are read.
    let mut before: Option<BatchSums> = None;
    while let Some(batch) = feed.next() {
        let DeviceBatch { input, target, host: batch } = batch?;
        let output = evaluator.forward(input);
        let value = loss.of(output.clone(), target.clone());
        let these = BatchSums::new(value, output, &target, &batch, host)?.fetch()?;
        feed.recycle(batch);
        if let Some(before) = before.replace(these) {
            sums.add(&before.read()?);
        }
    }
    if let Some(last) = before {
        sums.add(&last.read()?);
    }
    let mut totals = sums.to_array();
    group.all_reduce(totals.as_mut_slice().into(), ReduceOp::Sum)?;
    Ok(Sums::from_array(totals))
}
