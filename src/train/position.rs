//! Where a run stands: what `state.json` needs besides tensors.

use super::{Batching, LossScale, Sums};
use crate::plan::BatchAlgebra;
use serde::{Deserialize, Serialize};

/// What was measured of a run at the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The epoch's sums, over the steps that led to these weights.
    pub train: Sums,
    /// The evaluation of these weights, where one was due.
    pub val: Option<Sums>,
}

/// The counters of a run. Equal on all ranks.
///
/// An epoch's order is one permutation of the samples, and each micro-batch takes the next `world * batch_size` of it. So what
/// is done of an epoch is always a prefix, and a run goes on after it with any number of processes: each sample of the
/// epoch is seen once, whatever changed in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs completed, which is the number of the current one.
    pub epoch: u64,
    /// Samples of the current epoch, a prefix of its order, that were done when the batching last changed.
    #[serde(default)]
    pub start: u64,
    /// Micro-batches of the current epoch that are done since `start`.
    pub micro: u64,
    /// Optimizer steps of the current epoch that are done.
    pub step_in_epoch: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// Micro-batches done, over all epochs: numbers the random streams.
    pub micro_total: u64,
    /// Samples trained on by all ranks together, padding included.
    pub samples: u64,
    /// Sums of the current epoch so far, over all ranks.
    pub epoch_sums: Sums,
    /// Sums since the last step line of `metrics.jsonl`, so that a resumed run writes the lines it would have written.
    pub window: Sums,
    /// At the end of an epoch, of exactly these weights: the next step takes it back.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// The parameters in the order that fills the gradient buckets, learnt in the first step of several ranks: the order of
    /// summation, and so a resumed run's bits, follow from it.
    #[serde(default)]
    pub bucket_order: Option<Vec<usize>>,
    /// Of a run in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// What `micro` and steps are made of.
    #[serde(default)]
    pub batching: Batching,
}

impl Position {
    /// The start of a run.
    pub fn new(batching: Batching) -> Self {
        Self {
            epoch: 0,
            start: 0,
            micro: 0,
            step_in_epoch: 0,
            step: 0,
            micro_total: 0,
            samples: 0,
            epoch_sums: Sums::default(),
            window: Sums::default(),
            measured: None,
            bucket_order: None,
            loss_scale: None,
            batching,
        }
    }

    /// An epoch of `samples` in the current batching.
    pub fn epoch_algebra(&self, samples: usize, drop_last: bool) -> BatchAlgebra {
        let Batching { world, batch_size, accumulate, .. } = self.batching;
        BatchAlgebra::of(samples, world, batch_size, accumulate, drop_last)
    }

    /// The part of the epoch from `start` on.
    pub fn rest_algebra(&self, samples: usize, drop_last: bool) -> BatchAlgebra {
        self.epoch_algebra(samples.saturating_sub(self.start as usize), drop_last)
    }

    /// Goes on in other units after the samples that are done. An epoch whose last micro-batch is done stays done.
    pub fn regroup(&mut self, batching: Batching, samples: usize, drop_last: bool) {
        let Batching { world, batch_size, .. } = self.batching;
        if self.micro > 0 && batching != self.batching {
            let done = self.micro >= self.rest_algebra(samples, drop_last).micro_batches();
            let taken = self.start + self.micro * (world * batch_size) as u64;
            self.start = if done { samples as u64 } else { taken };
            self.micro = 0;
        }
        self.batching = batching;
    }

    /// The optimizer steps that the current batching would have taken to come this far: what learning-rate schedules count in.
    /// `step`, unless the global batch has changed; then a schedule still spans the run's epochs, without a jump.
    pub fn schedule_step(&self, epoch: &BatchAlgebra) -> u64 {
        let before = self.start.div_ceil(epoch.global_batch.max(1) as u64);
        let since = self.micro.div_ceil(self.batching.accumulate.max(1) as u64);
        self.epoch * epoch.steps_per_epoch() + (before + since).min(epoch.steps_per_epoch())
    }

    pub(super) fn advance(&mut self, micro_batches: u64, sums: &Sums) {
        self.count(micro_batches);
        self.samples += sums.samples as u64;
        self.epoch_sums.add(sums);
        self.window.add(sums);
    }

    /// Counts an optimizer step whose sums are not known yet.
    pub(super) fn count(&mut self, micro_batches: u64) {
        self.micro += micro_batches;
        self.micro_total += micro_batches;
        self.step_in_epoch += 1;
        self.step += 1;
        self.measured = None;
    }

    pub(super) fn next_epoch(&mut self, val: Option<Sums>) {
        self.epoch += 1;
        self.start = 0;
        self.micro = 0;
        self.step_in_epoch = 0;
        let train = std::mem::take(&mut self.epoch_sums);
        self.measured = Some(Measured { train, val });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DistributedSampler;
    use proptest::prelude::*;

    /// What all ranks see of an epoch, from the position on, in `steps` optimizer steps or to the end.
    fn seen(position: &mut Position, n: usize, drop_last: bool, steps: u64) -> Vec<u64> {
        let Batching { world, batch_size, accumulate, .. } = position.batching;
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                let start = position.start as usize;
                DistributedSampler { len: n, world, rank, start, shuffle: true, drop_last, seed: 5 }.epoch(3)
            })
            .collect();
        let micro_batches = position.rest_algebra(n, drop_last).micro_batches();
        let mut indices = Vec::new();
        for _ in 0..steps {
            let count = (accumulate as u64).min(micro_batches - position.micro);
            if count == 0 {
                break;
            }
            let from = position.micro as usize * batch_size;
            let to = (from + count as usize * batch_size).min(ranks[0].len());
            indices.extend((from..to).flat_map(|at| ranks.iter().map(move |rank| rank.get(at) as u64)));
            position.advance(count, &Sums::default());
        }
        indices
    }

    fn changes() -> impl Strategy<Value = Vec<(usize, usize, usize, u64)>> {
        prop::collection::vec((1usize..7, 1usize..6, 1usize..4, 0u64..9), 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Over any changes of processes, batch size and accumulation, at any step boundaries.
        #[test]
        fn each_index_of_an_epoch_is_seen_once_plus_the_declared_padding_at_its_end(
            n in 1usize..120, drop_last: bool, changes in changes(),
        ) {
            let (world, batch, accumulate, _) = changes[0];
            let mut position = Position::new(Batching::of(world, batch, accumulate));
            let (mut all, mut padded, mut dropped) = (Vec::new(), 0, 0);
            for (i, &(world, batch, accumulate, steps)) in changes.iter().enumerate() {
                position.regroup(Batching::of(world, batch, accumulate), n, drop_last);
                let steps = if i + 1 == changes.len() { u64::MAX } else { steps };
                all.extend(seen(&mut position, n, drop_last, steps));
                let rest = position.rest_algebra(n, drop_last);
                if position.micro == rest.micro_batches() && position.start < n as u64 {
                    (padded, dropped) = (rest.padded.unwrap(), rest.dropped.unwrap());
                }
            }
            prop_assert_eq!(position.micro, position.rest_algebra(n, drop_last).micro_batches());
            prop_assert_eq!(all.len(), n + padded - dropped);
            // In the order of the epoch, whose start is the padding.
            let alone = DistributedSampler { len: n, world: 1, rank: 0, start: 0, shuffle: true, drop_last, seed: 5 };
            let order = alone.epoch(3);
            let expected: Vec<u64> = (0..all.len()).map(|at| order.get(at % n) as u64).collect();
            prop_assert_eq!(all, expected);
        }

        #[test]
        fn a_schedule_counts_the_steps_done_where_nothing_changed(
            n in 1usize..200, world in 1usize..6, batch in 1usize..9, accumulate in 1usize..5, drop_last: bool, steps in 0u64..400,
        ) {
            let mut position = Position::new(Batching::of(world, batch, accumulate));
            let whole = position.epoch_algebra(n, drop_last);
            prop_assume!(whole.steps_per_epoch() > 0);
            for _ in 0..steps {
                let left = whole.micro_batches() - position.micro;
                position.advance(left.min(accumulate as u64), &Sums::default());
                prop_assert_eq!(position.schedule_step(&whole), position.step);
                if position.micro == whole.micro_batches() {
                    position.next_epoch(None);
                    prop_assert_eq!(position.schedule_step(&whole), position.step);
                }
            }
        }
    }

    #[test]
    fn what_was_measured_is_of_these_weights_only() {
        let sums = |loss| Sums { loss, rows: 1.0, ..Sums::default() };
        let mut position = Position::new(Batching::of(1, 8, 1));
        position.advance(1, &sums(3.0));
        position.next_epoch(Some(sums(2.0)));
        assert_eq!(position.measured, Some(Measured { train: sums(3.0), val: Some(sums(2.0)) }));
        position.advance(1, &sums(1.0));
        assert_eq!(position.measured, None);
        position.next_epoch(None);
        assert_eq!(position.measured, Some(Measured { train: sums(1.0), val: None }));
    }

    #[test]
    fn an_epoch_that_is_done_stays_done_whatever_was_dropped_of_it() {
        let mut position = Position::new(Batching::of(4, 8, 1));
        position.micro = position.epoch_algebra(100, true).micro_batches();
        assert_eq!(position.micro, 3);
        position.regroup(Batching::of(1, 1, 1), 100, true);
        assert_eq!((position.start, position.micro), (100, 0));
        assert_eq!(position.rest_algebra(100, true).micro_batches(), 0);
        // Half a global batch more does not count as a step that is not there.
        let whole = position.epoch_algebra(100, true);
        assert_eq!(position.schedule_step(&whole), whole.steps_per_epoch());
    }
}
