//! The clock of learning-rate schedules. It counts completed samples in optimizer steps of the run's first batching, so
//! that a rate belongs to a sample of the run however steps are composed; and it reaches its end when the run ends, by
//! epochs or by `max_steps`.

use super::{Position, TrainSettings};

/// Position in the learning-rate schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleClock {
    pub done: u64,
    pub steps_per_epoch: u64,
    pub total: u64,
}

impl Position {
    /// The clock of a run of `epochs` over `samples`, or of `max_steps` if that is shorter. If the batching never
    /// changed, `done` equals `step`.
    pub fn clock(
        &self,
        samples: usize,
        drop_last: bool,
        epochs: u64,
        max_steps: Option<u64>,
    ) -> ScheduleClock {
        let first = self.first.algebra(samples, drop_last);
        let steps_per_epoch = first.steps_per_epoch();
        let in_epoch = match self.epoch_is_done(samples, drop_last) {
            true => steps_per_epoch,
            false => (self.seen() / first.global_batch.max(1) as u64).min(steps_per_epoch),
        };
        let done = self.epoch * steps_per_epoch + in_epoch;
        let by_epochs = epochs.saturating_mul(steps_per_epoch);
        let Some(max) = max_steps else { return ScheduleClock { done, steps_per_epoch, total: by_epochs } };
        let total = by_epochs.min(max);
        let share =
            |done: u64, of: u64| (u128::from(done) * u128::from(total) / u128::from(of.max(1))) as u64;
        // Use whichever end is closer.
        let done = share(self.step, max).max(share(done, by_epochs));
        ScheduleClock { done, steps_per_epoch, total }
    }
}

impl TrainSettings {
    /// The clock at a position, in a run whose epochs have `samples`.
    pub(super) fn clock(&self, position: &Position, samples: usize) -> ScheduleClock {
        position.clock(samples, self.loader.drop_last, self.epochs, self.train.max_steps)
    }

    /// The learning rate of the step after `position`, from a base rate. The schedule ends with the
    /// run.
    pub(super) fn rate(&self, base: f64, position: &Position, samples: usize) -> f64 {
        let ScheduleClock { done, steps_per_epoch, total } = self.clock(position, samples);
        let base = self.schedule.base_lr(base, position.plateau.as_ref());
        self.schedule.lr(base, done, steps_per_epoch, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{Batching, Sums};
    use proptest::prelude::*;

    /// Takes an optimizer step, or closes an epoch that is complete or cut short.
    fn go_on(position: &mut Position, n: usize, drop_last: bool, max: Option<u64>) {
        let left = position.rest_algebra(n, drop_last).micro_batches() - position.micro;
        if left == 0 || max.is_some_and(|max| position.step >= max) {
            return position.close(left == 0, None);
        }
        position.advance(left.min(position.batching.accumulate as u64), &Sums::default());
    }

    proptest! {
        #[test]
        fn the_clock_counts_steps_if_the_batching_is_unchanged(
            n in 1usize..200, world in 1usize..6, batch in 1usize..9, accumulate in 1usize..5, drop_last: bool,
            steps in 0u64..400, max in proptest::option::of(1u64..300),
        ) {
            let mut position = Position::new(Batching::new(world, batch, accumulate));
            let per_epoch = position.batching.algebra(n, drop_last).steps_per_epoch();
            prop_assume!(per_epoch > 0);
            let end = (20 * per_epoch).min(max.unwrap_or(u64::MAX));
            for _ in 0..steps {
                go_on(&mut position, n, drop_last, max);
                let clock = position.clock(n, drop_last, 20, max);
                if position.step <= end {
                    prop_assert_eq!(clock, ScheduleClock { done: position.step, steps_per_epoch: per_epoch, total: end });
                }
            }
        }

        /// A change of the batching does not move the clock, and the run has one end.
        #[test]
        fn the_clock_survives_changes_of_the_batching(
            n in 30usize..200, drop_last: bool, max in proptest::option::of(1u64..60),
            changes in proptest::collection::vec((1usize..5, 1usize..5, 1usize..4, 1u64..20), 1..6),
        ) {
            let (world, batch, accumulate, _) = changes[0];
            let mut position = Position::new(Batching::new(world, batch, accumulate));
            let clock = |position: &Position| position.clock(n, drop_last, 3, max);
            let mut before = clock(&position);
            for (world, batch, accumulate, steps) in changes {
                if position.is_over(3, max) {
                    break;
                }
                position.regroup(Batching::new(world, batch, accumulate), n, drop_last);
                // The rest of an epoch may be less than a batch, which is then left out.
                prop_assert!(clock(&position) == before || drop_last && clock(&position).done > before.done);
                before = clock(&position);
                for _ in 0..steps {
                    if position.is_over(3, max) {
                        break;
                    }
                    go_on(&mut position, n, drop_last, max);
                    prop_assert!(clock(&position).done >= before.done);
                    before = clock(&position);
                }
            }
            while !position.is_over(3, max) {
                go_on(&mut position, n, drop_last, max);
            }
            let clock = clock(&position);
            prop_assert_eq!(clock.done, clock.total);
        }
    }
}
