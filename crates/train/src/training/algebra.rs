//! Divides an epoch into samples per rank, micro-batches and optimizer steps.

use super::Batching;
use serde::Serialize;

/// The sizes of an epoch. All but `global_batch` are `None` while the size of the data set is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchAlgebra {
    /// Samples of the training split, or of the rest of an epoch.
    pub train_samples: Option<usize>,
    /// Samples that each rank draws per epoch, padding included (PyTorch's `DistributedSampler.num_samples`).
    pub samples_per_rank: Option<usize>,
    /// Micro-batches per rank and epoch.
    pub micro_batches_per_epoch: Option<usize>,
    /// Optimizer steps per epoch.
    pub steps_per_epoch: Option<usize>,
    /// Samples that a full optimizer step averages over: batch size x processes x accumulation.
    pub global_batch: usize,
    /// Samples used a second time per epoch, so that all ranks have the same number.
    pub padded: Option<usize>,
    /// Samples left out of each epoch.
    pub dropped: Option<usize>,
}

impl BatchAlgebra {
    /// For `n` training samples. `drop_last` is both the sampler's (no padding; a few samples are left out so that all
    /// ranks have the same number) and the loader's (no short last batch): it leaves out the samples beyond whole
    /// `unit`s, so a run resumed with another number of ranks leaves out the same samples as before, and its last batch
    /// may be short instead. The last step of an epoch may accumulate fewer than `accumulate` batches.
    pub(super) fn new(batching: &Batching, n: usize, drop_last: bool) -> Self {
        let Batching { world, batch_size, accumulate, unit, kept } = *batching;
        let (world, batch_size, accumulate) = (world.max(1), batch_size.max(1), accumulate.max(1));
        // PyTorch rounds `(n - world) / world` up if `n` does not divide evenly; that equals `n / world` for n >= world.
        let per_rank = if drop_last { n / world } else { n.div_ceil(world) };
        let taken = if drop_last { (n - n % unit.max(1)) / world } else { per_rank };
        let micro_batches = taken.div_ceil(batch_size);
        let drawn = per_rank.saturating_mul(world);
        let used = if drop_last { taken.saturating_mul(world) } else { n };
        Self {
            train_samples: Some(n),
            samples_per_rank: Some(per_rank),
            micro_batches_per_epoch: Some(micro_batches),
            steps_per_epoch: Some(micro_batches.div_ceil(accumulate)),
            global_batch: Batching { world, batch_size, accumulate, unit, kept }.global_batch(),
            padded: Some(drawn.saturating_sub(n)),
            dropped: Some(n - used.min(n)),
        }
    }

    /// Samples that each rank trains on per epoch, padding included; 0 while unknown.
    pub fn taken_per_rank(&self, world: usize) -> usize {
        let all = self.train_samples.zip(self.padded).zip(self.dropped);
        all.map_or(0, |((n, padded), dropped)| (n + padded - dropped) / world.max(1))
    }

    /// Why batch norm can't train on a micro-batch of a run that ends after `max_steps`, if it sees `values` per channel of one
    /// sample.
    pub fn too_few_for_norms(
        &self,
        batching: &Batching,
        values: usize,
        max_steps: Option<u64>,
    ) -> Option<(String, &'static str)> {
        let (size, taken) = (batching.batch_size.max(1), self.taken_per_rank(batching.world));
        let last = taken % size;
        let (what, hint) = match (values * size, values * last) {
            (1, _) => ("a micro-batch", "use a larger `batch_size`"),
            (_, 1) if max_steps.is_none_or(|max| max >= self.steps_per_epoch()) => {
                let hint = "use another `batch_size` or number of processes, or leave it out with `drop_last = true` in `[dataset]`";
                ("the last micro-batch of an epoch", hint)
            }
            _ => return None,
        };
        let why = format!(
            "{what} has one sample on each rank, of which a batch norm sees one value per channel; it requires more"
        );
        Some((why, hint))
    }

    /// Samples of the last step of an epoch, if it has fewer than the others.
    pub fn short_step(&self) -> Option<usize> {
        let all = self.train_samples.zip(self.padded).zip(self.dropped);
        let rest = all.map(|((n, padded), dropped)| (n + padded - dropped) % self.global_batch.max(1));
        rest.filter(|rest| *rest > 0)
    }

    /// Micro-batches per rank and epoch; 0 while unknown.
    pub fn micro_batches(&self) -> u64 {
        self.micro_batches_per_epoch.unwrap_or(0) as u64
    }

    /// Optimizer steps per epoch; 0 while unknown.
    pub fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch.unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn algebra_of(n: usize, world: usize, batch: usize, accumulate: usize, drop_last: bool) -> BatchAlgebra {
        Batching::new(world, batch, accumulate).algebra(n, drop_last)
    }

    #[test]
    fn the_tutorial_job_has_16_steps_on_4_ranks() {
        let algebra = algebra_of(2048, 4, 32, 1, false);
        assert_eq!((algebra.steps_per_epoch(), algebra.global_batch), (16, 128));
        assert_eq!((algebra.padded, algebra.dropped), (Some(0), Some(0)));
    }

    #[test]
    fn keeps_a_short_last_batch_and_pads_ranks() {
        let algebra = algebra_of(10, 4, 2, 1, false);
        assert_eq!(algebra.samples_per_rank, Some(3));
        assert_eq!(algebra.micro_batches(), 2);
        assert_eq!((algebra.padded, algebra.dropped), (Some(2), Some(0)));
    }

    #[test]
    fn drop_last_applies_to_sampler_and_loader() {
        let algebra = algebra_of(11, 4, 2, 1, true);
        assert_eq!(algebra.samples_per_rank, Some(2));
        assert_eq!((algebra.padded, algebra.dropped), (Some(0), Some(3)));
        let algebra = algebra_of(45_000, 2, 128, 1, true);
        assert_eq!((algebra.steps_per_epoch(), algebra.dropped), (175, Some(45_000 - 175 * 256)));
        assert_eq!(algebra_of(3, 4, 1, 1, true).steps_per_epoch(), 0);
    }

    #[test]
    fn the_last_step_of_an_epoch_may_be_short() {
        let algebra = algebra_of(100, 1, 10, 4, false);
        assert_eq!((algebra.steps_per_epoch(), algebra.short_step()), (3, Some(20)));
        assert_eq!(algebra_of(94, 2, 4, 1, false).short_step(), Some(6));
        assert_eq!(algebra_of(94, 2, 4, 1, true).short_step(), None);
    }

    #[test]
    fn a_batch_norm_requires_more_than_one_value_per_channel() {
        let found =
            |n: usize, world: usize, batch: usize, drop_last: bool, values: usize, max: Option<u64>| {
                let found = algebra_of(n, world, batch, 1, drop_last);
                found.too_few_for_norms(&Batching::new(world, batch, 1), values, max).is_some()
            };
        assert!(found(33, 1, 32, false, 1, None) && found(66, 2, 32, false, 1, None));
        assert!(!found(33, 1, 32, true, 1, None) && !found(33, 1, 31, false, 1, None));
        assert!(!found(33, 1, 32, false, 4, None) && !found(32, 1, 32, false, 1, None));
        assert!(found(32, 1, 1, true, 1, Some(1)) && !found(32, 1, 1, false, 4, None));
        assert!(!found(33, 1, 32, false, 1, Some(1)) && found(33, 1, 32, false, 1, Some(2)));
    }

    #[test]
    fn another_world_size_leaves_out_the_same_samples() {
        let two = algebra_of(94, 2, 4, 1, true);
        let one = Batching { unit: 8, ..Batching::new(1, 4, 2) }.algebra(94, true);
        assert_eq!((two.dropped, two.steps_per_epoch()), (Some(6), 11));
        assert_eq!((one.dropped, one.steps_per_epoch()), (Some(6), 11));
        // Three samples on each of four ranks are not a full batch, but part of the run's last step.
        let four = Batching { unit: 4, ..Batching::new(4, 4, 1) }.algebra(94, true);
        assert_eq!((four.dropped, four.micro_batches(), four.taken_per_rank(4)), (Some(2), 6, 23));
    }

    /// `DistributedSampler.__init__`, as written in PyTorch.
    fn pytorch_num_samples(n: usize, world: usize, drop_last: bool) -> usize {
        if drop_last && !n.is_multiple_of(world) {
            ((n as f64 - world as f64) / world as f64).ceil() as usize
        } else {
            (n as f64 / world as f64).ceil() as usize
        }
    }

    proptest! {
        #[test]
        fn samples_per_rank_equal_pytorch(n in 1usize..100_000, world in 1usize..300, drop_last: bool) {
            let algebra = algebra_of(n, world, 7, 1, drop_last);
            prop_assert_eq!(algebra.samples_per_rank, Some(pytorch_num_samples(n, world, drop_last)));
            prop_assert!(algebra.dropped.unwrap() <= n);
            prop_assert!(algebra.padded.unwrap() < world);
        }
    }
}
