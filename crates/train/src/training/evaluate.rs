//! Exact evaluation over all ranks: each sample counts once, with any number of ranks.

use super::device_sums::BatchSums;
use super::feed::{DeviceBatch, Feed};
use super::judged::BatchJudged;
use super::passes::stream_key;
use super::{Details, Sums, Tally};
use crate::models::{Documents, Model};
use crate::tasks::{AnyTask, StepContext};
use base::error::Result;
use collectives::ProcessGroup;
use data::{Dataset, LoaderOptions};
use ddp::device::{drawn, is_host};
use sampler::{EvalBatches, EvalShard, Order};
use std::sync::Arc;

/// What an evaluation finds.
#[derive(Debug)]
pub struct EvaluationResult {
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
) -> Result<EvaluationResult> {
    let shard = EvalShard { len: dataset.len(), world: group.world_size(), rank: group.rank() };
    let mut sums = Sums::of_metrics(&task.metrics());
    let mut tally = Tally::new(details, &dataset.target());
    let rank = group.rank() as u64;
    let pass = EvaluationPass { model, task, dataset, options, group, stream: &|batch| (rank, batch) };
    pass.run(shard, tally.as_mut(), &mut |these| sums.add(&these))?;
    sums.all_reduce(&mut [], group)?;
    Ok(EvaluationResult { sums, tally: complete(tally, group)? })
}

/// The same with a result that does not depend on the number of ranks, bit for bit: ranks take whole batches, which are added in
/// their order. With few batches, some ranks have nothing to do.
pub fn evaluate_by_batches(
    model: &dyn Model,
    task: &dyn AnyTask,
    dataset: &Arc<dyn Dataset>,
    options: LoaderOptions,
    group: &dyn ProcessGroup,
    details: Details,
) -> Result<EvaluationResult> {
    let (world, rank, batch_size) = (group.world_size(), group.rank(), options.batch_size);
    let order = EvalBatches { len: dataset.len(), batch_size, world, rank };
    let none = Sums::of_metrics(&task.metrics());
    let mut tally = Tally::new(details, &dataset.target());
    let mut own: Vec<f64> = Vec::new();
    let stream = |batch: u64| (0, batch * world as u64 + rank as u64);
    let pass = EvaluationPass { model, task, dataset, options, group, stream: &stream };
    pass.run(order, tally.as_mut(), &mut |these| {
        let mut sums = none.clone();
        sums.add(&these);
        own.extend(sums.numbers().map(|number| *number));
    })?;
    let mut sums = none;
    let width = sums.numbers().count();
    // As many from each rank.
    let each = width * order.batch_count().div_ceil(world);
    own.resize(each, 0.0);
    let mut all = vec![0.0; each * world];
    if each > 0 {
        group.all_gather(own.as_slice().into(), all.as_mut_slice().into())?;
    }
    for batch in 0..order.batch_count() {
        let at = (batch % world) * each + (batch / world) * width;
        sums.numbers().zip(&all[at..at + width]).for_each(|(sum, number)| *sum += number);
    }
    Ok(EvaluationResult { sums, tally: complete(tally, group)? })
}

/// What the ranks found together, unless the outputs could not be judged.
fn complete(tally: Option<Tally>, group: &dyn ProcessGroup) -> Result<Option<Tally>> {
    let Some(mut tally) = tally else { return Ok(None) };
    tally.all_reduce(group)?;
    Ok(Some(tally).filter(Tally::has_samples))
}

/// One rank's forward passes over its part of a split.
struct EvaluationPass<'a> {
    model: &'a dyn Model,
    task: &'a dyn AnyTask,
    dataset: &'a Arc<dyn Dataset>,
    options: LoaderOptions,
    group: &'a dyn ProcessGroup,
    /// The rank and the number of the random stream of this rank's batch with a number.
    stream: &'a dyn Fn(u64) -> (u64, u64),
}

impl EvaluationPass<'_> {
    /// Passes the sums of each batch to `add`, in order.
    fn run(
        self,
        order: impl Order + 'static,
        mut tally: Option<&mut Tally>,
        add: &mut dyn FnMut(Sums),
    ) -> Result<()> {
        let Self { model, task, dataset, options, group, stream } = self;
        let evaluator = model.evaluator();
        let context = StepContext::new(false, group);
        let device = evaluator.device();
        let host = is_host(&device);
        let judges = tally.is_some();
        let mut feed = Feed::new(dataset.clone(), order, options, &device, host)?;
        let mut finish = |(these, judged): (BatchSums, Option<BatchJudged>)| -> Result<()> {
            add(these.read()?);
            if let (Some(tally), Some(judged)) = (&mut tally, judged) {
                tally.add(&judged.read()?);
            }
            Ok(())
        };
        // On a device, the next batch is enqueued before the sums of the previous one are read.
        let mut before: Option<(BatchSums, Option<BatchJudged>)> = None;
        let mut number = 0;
        while let Some(batch) = feed.next() {
            let DeviceBatch { batch: sent, host: batch } = batch?;
            // A task may draw: it then finds the same in each evaluation of the same weights, also of a resumed run.
            let (rank, batch_number) = stream(number);
            drawn(&device, stream_key(options.seed, rank, batch_number), || ());
            number += 1;
            let target = sent.target.clone();
            let documents = sent.input.given_documents();
            let output = task.step(evaluator.net(), sent, &context)?;
            documents.as_ref().map_or(Ok(()), Documents::require_use)?;
            let judged = match judges {
                true => BatchJudged::new(&output.measured, &target, &batch, host)?,
                false => None,
            };
            let these = BatchSums::new(output, &target, &batch, host)?.fetch()?;
            feed.recycle(batch);
            if let Some(before) = before.replace((these, judged)) {
                finish(before)?;
            }
        }
        before.map_or(Ok(()), finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{AnyNet, LinearNet, NetModel};
    use crate::tasks::{Batch, MetricFacts, StepOutput};
    use burn::tensor::{Device, Distribution};
    use collectives::SoloGroup;
    use data::{FieldFacts, FieldKind, SampleKey, SampleMut};
    use ddp::device::Compute;

    type Evaluate = fn(
        &dyn Model,
        &dyn AnyTask,
        &Arc<dyn Dataset>,
        LoaderOptions,
        &dyn ProcessGroup,
        Details,
    ) -> Result<EvaluationResult>;

    struct Ten;

    impl Dataset for Ten {
        fn len(&self) -> usize {
            10
        }
        fn input(&self) -> FieldFacts {
            FieldFacts { shape: vec![2], kind: FieldKind::Float }
        }
        fn target(&self) -> FieldFacts {
            FieldFacts { shape: vec![], kind: FieldKind::Float }
        }
        fn write(&self, _: SampleKey, _: SampleMut<'_>) -> Result<()> {
            Ok(())
        }
    }

    /// Its loss is noise.
    struct Drawing;

    impl AnyTask for Drawing {
        fn metrics(&self) -> Vec<MetricFacts> {
            Vec::new()
        }
        fn step(&self, _: &AnyNet, batch: Batch, _: &StepContext<'_>) -> Result<StepOutput> {
            let rows = batch.input.rows();
            Ok(StepOutput::new(rows.random_like(Distribution::Default).mean(), rows.dims()[0]))
        }
    }

    #[test]
    fn what_a_task_draws_depends_on_the_batch_alone() {
        let model = NetModel::new(&Compute::host(), 1, |device| Ok(LinearNet::new(2, 1, device))).unwrap();
        let dataset: Arc<dyn Dataset> = Arc::new(Ten);
        let options =
            LoaderOptions { batch_size: 4, seed: 3, epoch: 0, start_batch: 0, workers: 0, prefetch: 1 };
        let loss = |seed, by: Evaluate| {
            let (group, details) = (SoloGroup::default(), Details::default());
            let evaluated =
                drawn(&Device::flex(), seed, || by(&model, &Drawing, &dataset, options, &group, details));
            evaluated.unwrap().sums.mean_loss()
        };
        let whole = loss(1, evaluate);
        assert_eq!(loss(2, evaluate), whole);
        // Ranks have whole batches here, of which one rank has all.
        assert_eq!(loss(3, evaluate_by_batches), whole);
    }
}
