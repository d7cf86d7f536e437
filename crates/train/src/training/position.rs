//! A run's position: what `state.json` needs besides tensors.

use super::early_stop::EarlyStopState;
use super::{BatchAlgebra, Batching, LossScale, Sums};
use crate::optim::schedule::Plateau;
use serde::{Deserialize, Serialize};

/// Metrics at the end of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSums {
    /// The epoch's sums, over the steps that led to these weights.
    pub train: Sums,
    /// The evaluation of these weights, if one was due.
    pub val: Option<Sums>,
}

/// The counters of a run. Equal on all ranks.
///
/// An epoch's order is one permutation of the samples, and each micro-batch takes the next `world * batch_size` of it.
/// The finished part of an epoch is therefore always a prefix, from which a run can resume with any number of
/// processes: each sample of the epoch is used once, whatever changed in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Completed epochs; also the index of the current one.
    pub epoch: u64,
    /// Samples of the current epoch, a prefix of its order, that were done when the batching last changed.
    pub start: u64,
    /// Micro-batches of the current epoch completed since `start`.
    pub micro: u64,
    /// Optimizer steps completed in the current epoch.
    pub step_in_epoch: u64,
    /// Optimizer steps completed.
    pub step: u64,
    /// Micro-batches completed over all epochs; numbers the random streams.
    pub micro_total: u64,
    /// Samples trained on by all ranks, padding included.
    pub samples: u64,
    /// Sums of the current epoch so far, over all ranks.
    pub epoch_sums: Sums,
    /// Sums since the last step line of `metrics.jsonl`, so that a resumed run writes the same lines as an
    /// uninterrupted one.
    pub window: Sums,
    /// Metrics of exactly these weights, at the end of an epoch or where `max_steps` cut it short; cleared by the next
    /// step.
    pub measured: Option<MeasuredSums>,
    /// The parameters in the order that fills the gradient buckets, learnt in the first step with several ranks. The
    /// order of summation, and so the bits of a resumed run, depend on it.
    pub bucket_order: Option<Vec<usize>>,
    /// With `precision = "f16"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Steps that the loss scales of earlier parts of the run skipped, before another precision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// With `[early_stop]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EarlyStopState>,
    /// With the schedule `reduce-on-plateau`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plateau: Option<Plateau>,
    /// With `[ema]`: how often the average of the weights was updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema: Option<u64>,
    /// Composition of micro-batches and steps.
    pub batching: Batching,
    /// Their composition at the start of the run; learning-rate schedules count in these steps.
    pub first: Batching,
}

impl Position {
    /// The position at the start of a run.
    pub fn new(batching: Batching) -> Self {
        Self { batching, first: batching, ..Self::default() }
    }

    /// The sizes of the epoch's part from `start` on.
    pub fn rest_algebra(&self, samples: usize, drop_last: bool) -> BatchAlgebra {
        self.batching.algebra(samples.saturating_sub(self.start as usize), drop_last)
    }

    /// Whether an epoch of this many samples contains this position.
    pub fn fits(&self, samples: usize, drop_last: bool) -> bool {
        self.start <= samples as u64 && self.micro <= self.rest_algebra(samples, drop_last).micro_batches()
    }

    /// Continues with another batching after the completed samples. An epoch whose last micro-batch is done stays done.
    pub fn regroup(&mut self, batching: Batching, samples: usize, drop_last: bool) {
        if self.micro > 0 && batching != self.batching {
            self.start = if self.epoch_is_done(samples, drop_last) { samples as u64 } else { self.seen() };
            self.micro = 0;
        }
        self.batching = batching;
    }

    /// Completed samples of the current epoch, a prefix of its order.
    pub fn seen(&self) -> u64 {
        self.start + self.micro * self.batching.micro_batch() as u64
    }

    /// Whether all micro-batches of the current epoch are done; it is not closed yet.
    pub fn epoch_is_done(&self, samples: usize, drop_last: bool) -> bool {
        self.micro >= self.rest_algebra(samples, drop_last).micro_batches()
    }

    /// Optimizer steps left in a run of this many epochs.
    pub fn steps_left(&self, epochs: u64, samples: usize, drop_last: bool) -> u64 {
        let Some(later) = epochs.checked_sub(self.epoch + 1) else { return 0 };
        let micro = self.rest_algebra(samples, drop_last).micro_batches().saturating_sub(self.micro);
        let steps = micro.div_ceil(self.batching.accumulate.max(1) as u64);
        let per_epoch = self.batching.algebra(samples, drop_last).steps_per_epoch();
        later.saturating_mul(per_epoch).saturating_add(steps)
    }

    /// Epochs of a run that only `max_steps` ends, from here on with this batching.
    pub fn epochs_of(&self, max_steps: Option<u64>, samples: usize, drop_last: bool) -> u64 {
        let Some(max_steps) = max_steps else { return u64::MAX };
        let left = max_steps.saturating_sub(self.step);
        let in_epoch = self.steps_left(self.epoch + 1, samples, drop_last);
        let per_epoch = self.batching.algebra(samples, drop_last).steps_per_epoch().max(1);
        let current = u64::from(left > 0 || self.step_in_epoch > 0);
        (self.epoch + current).saturating_add(left.saturating_sub(in_epoch).div_ceil(per_epoch))
    }

    /// Whether a run of this many epochs or steps is complete, including the metrics of an epoch that `max_steps` cuts
    /// short.
    pub fn is_over(&self, epochs: u64, max_steps: Option<u64>) -> bool {
        let reached_max_steps = max_steps.is_some_and(|max| self.step >= max);
        self.epoch >= epochs || reached_max_steps && (self.step_in_epoch == 0 || self.measured.is_some())
    }

    /// Updates of the parameters: steps, but for those that a loss scale skipped.
    pub fn updates(&self) -> u64 {
        self.step.saturating_sub(self.skipped + self.loss_scale.map_or(0, |scale| scale.skipped))
    }

    /// What the loss is multiplied by: the loss scale, if there is one.
    pub(super) fn loss_factor(&self) -> f64 {
        self.loss_scale.map_or(1.0, |scale| scale.scale)
    }

    /// Gives the position a loss scale or none, as the run's precision has it. Returns how many times as large as before the gradients
    /// are.
    pub(super) fn continue_scaled(&mut self, scaled: bool) -> f64 {
        let before = self.loss_factor();
        match (self.loss_scale, scaled) {
            (None, true) => self.loss_scale = Some(LossScale::default()),
            (Some(scale), false) => {
                self.skipped += scale.skipped;
                self.loss_scale = None;
            }
            _ => {}
        }
        self.loss_factor() / before
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

    /// Records the metrics at the end of an epoch. One that is not `whole` was cut short by `max_steps` and continues
    /// from here if there are more steps.
    pub(super) fn close(&mut self, whole: bool, val: Option<Sums>) {
        self.measured = Some(MeasuredSums { train: self.epoch_sums.clone(), val });
        if whole {
            self.epoch += 1;
            (self.start, self.micro, self.step_in_epoch) = (0, 0, 0);
            self.epoch_sums = Sums::default();
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::OnResize;
    use proptest::prelude::*;
    use sampler::{DistributedSampler, Order};

    /// The samples of an epoch on all ranks, step by step, from the position on, for `steps` optimizer steps or to the end.
    fn seen(position: &mut Position, n: usize, drop_last: bool, steps: u64) -> Vec<Vec<u64>> {
        let Batching { world, batch_size, accumulate, .. } = position.batching;
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                let start = position.start as usize;
                DistributedSampler { len: n, world, rank, start, shuffle: true, drop_last, seed: 5 }.epoch(3)
            })
            .collect();
        let rest = position.rest_algebra(n, drop_last);
        let mut indices = Vec::new();
        for _ in 0..steps {
            let count = (accumulate as u64).min(rest.micro_batches() - position.micro);
            if count == 0 {
                break;
            }
            let from = position.micro as usize * batch_size;
            let to = (from + count as usize * batch_size).min(rest.taken_per_rank(world));
            indices.push((from..to).flat_map(|at| ranks.iter().map(move |rank| rank.get(at))).collect());
            position.advance(count, &Sums::default());
        }
        indices
    }

    /// For each part of a run: world size, batch size, accumulation, steps, and whether it keeps the global batch.
    fn changes() -> impl Strategy<Value = Vec<(usize, usize, usize, u64, bool)>> {
        prop::collection::vec((1usize..7, 1usize..6, 1usize..4, 0u64..9, any::<bool>()), 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Over any changes of processes, batch size and accumulation, at any step boundary.
        #[test]
        fn every_index_of_an_epoch_is_used_once_plus_padding(
            n in 1usize..120, drop_last: bool, changes in changes(),
        ) {
            let (world, batch, accumulate, ..) = changes[0];
            let mut position = Position::new(Batching::new(world, batch, accumulate));
            let (mut all, mut padded, mut dropped) = (Vec::new(), 0, 0);
            for (i, &(world, batch, accumulate, steps, keep)) in changes.iter().enumerate() {
                let next = match keep {
                    true => position.batching.on(world, accumulate, OnResize::KeepGlobalBatch),
                    false => Batching::new(world, batch, accumulate),
                };
                position.regroup(next, n, drop_last);
                let steps = if i + 1 == changes.len() { u64::MAX } else { steps };
                all.extend(seen(&mut position, n, drop_last, steps).concat());
                let rest = position.rest_algebra(n, drop_last);
                if position.micro == rest.micro_batches() && position.start < n as u64 {
                    (padded, dropped) = (rest.padded.unwrap(), rest.dropped.unwrap());
                }
            }
            prop_assert_eq!(position.micro, position.rest_algebra(n, drop_last).micro_batches());
            prop_assert_eq!(all.len(), n + padded - dropped);
            // In the order of the epoch, whose first samples are the padding.
            let alone = DistributedSampler { len: n, world: 1, rank: 0, start: 0, shuffle: true, drop_last, seed: 5 };
            let order = alone.epoch(3);
            let expected: Vec<u64> = (0..all.len()).map(|at| order.get(at % n)).collect();
            prop_assert_eq!(all, expected);
        }

        /// If the number of processes divides the global batch and the samples, each step has the same samples as
        /// without the change.
        #[test]
        fn a_kept_global_batch_has_the_same_samples_to_the_end_of_the_epoch(
            parts in 1usize..30, batch in 1usize..4, accumulate in 1usize..4, drop_last: bool, steps in 0u64..12,
            worlds in prop::sample::select(vec![(1usize, 2usize), (2, 1), (2, 4), (4, 2), (4, 1), (3, 1), (1, 3)]),
        ) {
            let divides = (worlds.0 * accumulate).is_multiple_of(worlds.1);
            let accumulate = if divides { accumulate } else { accumulate * worlds.1 };
            let first = Batching::new(worlds.0, batch, accumulate);
            let n = parts * worlds.0 * worlds.1;
            let all = first.algebra(n, drop_last);
            prop_assume!((n - all.dropped.unwrap()).is_multiple_of(worlds.1));
            let mut whole = Position::new(first);
            let mut resized = Position::new(first);
            let mut got = seen(&mut resized, n, drop_last, steps);
            resized.regroup(first.on(worlds.1, accumulate, OnResize::KeepGlobalBatch), n, drop_last);
            got.extend(seen(&mut resized, n, drop_last, u64::MAX));
            let sorted = |mut steps: Vec<Vec<u64>>| {
                steps.iter_mut().for_each(|step| step.sort_unstable());
                steps
            };
            prop_assert_eq!(sorted(got), sorted(seen(&mut whole, n, drop_last, u64::MAX)));
        }
    }

    #[test]
    fn a_run_of_steps_has_as_many_epochs_as_they_take() {
        // Seven steps each.
        let of = |epoch, in_epoch, max| {
            let position = Position {
                epoch,
                micro: in_epoch,
                step_in_epoch: in_epoch,
                step: 7 * epoch + in_epoch,
                ..Position::new(Batching::new(1, 8, 1))
            };
            position.epochs_of(Some(max), 50, false)
        };
        assert_eq!([of(0, 0, 1), of(0, 0, 7), of(0, 0, 8), of(0, 0, 1000)], [1, 1, 2, 143]);
        assert_eq!([of(3, 2, 23), of(3, 2, 28), of(3, 2, 29), of(4, 0, 28)], [4, 4, 5, 4]);
        let other = Position { batching: Batching::new(2, 8, 1), ..Position::new(Batching::new(1, 8, 1)) };
        assert_eq!(other.epochs_of(Some(1000), 50, false), 250, "of four steps from here on");
    }

    #[test]
    fn the_next_step_clears_measured_metrics() {
        let sums = |loss| Sums { loss, rows: 1.0, ..Sums::default() };
        let mut position = Position::new(Batching::new(1, 8, 1));
        position.advance(1, &sums(3.0));
        position.close(true, Some(sums(2.0)));
        assert_eq!(position.measured, Some(MeasuredSums { train: sums(3.0), val: Some(sums(2.0)) }));
        position.advance(1, &sums(1.0));
        assert_eq!(position.measured, None);
        position.close(true, None);
        assert_eq!(position.measured, Some(MeasuredSums { train: sums(1.0), val: None }));
    }

    #[test]
    fn an_epoch_cut_short_by_max_steps_can_continue() {
        let mut position = Position::new(Batching::new(1, 8, 1));
        position.advance(1, &Sums { loss: 3.0, rows: 1.0, ..Sums::default() });
        let open = position.clone();
        assert!(!position.is_over(2, Some(1)), "it is not measured yet");
        position.close(false, None);
        assert!(position.is_over(2, Some(1)) && !position.is_over(2, Some(2)) && !position.is_over(2, None));
        assert_eq!(Position { measured: None, ..position }, open);
    }

    #[test]
    fn a_completed_epoch_stays_completed_after_regrouping() {
        let mut position = Position::new(Batching::new(4, 8, 1));
        position.micro = position.batching.algebra(100, true).micro_batches();
        assert_eq!(position.micro, 3);
        position.regroup(Batching::new(1, 1, 1), 100, true);
        assert_eq!((position.start, position.micro), (100, 0));
        assert_eq!(position.rest_algebra(100, true).micro_batches(), 0);
        assert!(position.epoch_is_done(100, true));
    }
}
