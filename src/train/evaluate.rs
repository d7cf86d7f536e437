//! Exact evaluation over all ranks: each sample counts once, whatever the number of ranks.

use super::{Loss, Sums};
use crate::comm::{ProcessGroup, ReduceOp};
use crate::data::{Dataset, EvalShard, HostBatch, Loader, LoaderOptions};
use crate::error::Result;
use crate::models::{Evaluator, Input, Model};
use std::sync::Arc;

/// How evaluation reads its data.
#[derive(Clone, Copy, Debug)]
pub struct EvalOptions {
    pub batch_size: usize,
    pub workers: usize,
    pub prefetch: usize,
    pub seed: u64,
}

/// Evaluates `dataset` over all ranks of `group`: every rank takes each world-th sample, without padding. The result is
/// the same on all ranks; `samples` equals the data set's size.
pub fn evaluate(
    model: &dyn Model,
    loss: Loss,
    dataset: &Arc<dyn Dataset>,
    options: EvalOptions,
    group: &dyn ProcessGroup,
) -> Result<Sums> {
    let shard = EvalShard { len: dataset.len(), world: group.world_size(), rank: group.rank() };
    let evaluator = model.evaluator();
    let mut sums = Sums::default();
    let loader = Loader::new(
        dataset.clone(),
        shard,
        LoaderOptions {
            batch_size: options.batch_size,
            drop_last: false,
            seed: options.seed,
            epoch: 0,
            start_batch: 0,
            workers: options.workers,
            prefetch: options.prefetch,
        },
    )?;
    for batch in loader {
        sums.add(&batch_sums(&*evaluator, loss, &batch?));
    }
    let mut totals = sums.to_array();
    group.all_reduce(totals.as_mut_slice().into(), ReduceOp::Sum)?;
    Ok(Sums::from_array(totals))
}

fn batch_sums(evaluator: &dyn Evaluator, loss: Loss, batch: &HostBatch) -> Sums {
    let device = evaluator.device();
    let output = evaluator.forward(Input::from_host(&batch.input, batch.len, &device));
    let target = Input::from_host(&batch.target, batch.len, &device);
    let [_, width] = output.dims();
    let value = loss.of(output.clone(), target);
    Sums::of_batch(scalar(value), batch.len, &host(output), width, &batch.target.data)
}

/// The one value of a `[1]` tensor.
pub(super) fn scalar(tensor: burn::tensor::Tensor<1>) -> f64 {
    f64::from(host(tensor)[0])
}

/// A tensor's values on the host, row-major.
pub(super) fn host<const D: usize>(tensor: burn::tensor::Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().expect("outputs and losses are f32")
}
