//! When a run saves. A save at the end of an epoch waits for the evaluation, so that the checkpoint
//! contains the metrics of exactly its weights. A stop does not wait.

use super::{Position, Sums, TrainSettings, early_stop};
use checkpoint::{Every, RankBy, Score};
use std::time::Instant;

/// The saves of a run.
pub(super) struct Saves {
    every: Every,
    /// What ranks checkpoints, if the best are kept.
    by: Option<RankBy>,
    /// Rank 0, whose clock says when a save by time is due.
    has_clock: bool,
    started: Instant,
    begun: Instant,
    /// The step of the last save, or of the checkpoint that the run resumed from, and whether it
    /// includes the metrics of the epoch's end.
    last: Option<(u64, bool)>,
    /// A save waits for the evaluation at the end of the epoch.
    waiting: bool,
    /// The best so far of what ranks checkpoints.
    best: Option<Score>,
}

impl Saves {
    pub fn new(settings: &TrainSettings, rank: usize, position: &Position, best: Option<Score>) -> Self {
        let now = Instant::now();
        Self {
            every: settings.save_every,
            by: settings.best,
            has_clock: rank == 0,
            started: now,
            begun: now,
            last: (position.step > 0).then(|| key(position)),
            waiting: false,
            best,
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Whether this rank requests a save because of the time since the last one.
    pub fn is_due_by_time(&self) -> bool {
        matches!(self.every, Every::Time(interval) if self.has_clock && self.begun.elapsed() >= interval)
    }

    /// Whether the state after step number `step` is to be saved.
    pub fn is_due_after(&self, step: u64) -> bool {
        matches!(self.every, Every::Steps(n) if step.is_multiple_of(n))
    }

    /// A save that is due after the last step of an epoch is made at its end.
    pub fn wait_for_evaluation(&mut self) {
        self.waiting = true;
    }

    /// Begins a save; `false` if the last one is of the same state.
    pub fn begin(&mut self, position: &Position) -> bool {
        self.begun = Instant::now();
        let key = key(position);
        self.last.replace(key) != Some(key)
    }

    /// Whether the end of an epoch with these sums is to be saved, before its position is closed.
    /// One that is not `whole` was cut short by `max_steps`.
    pub fn is_due_at_end(
        &mut self,
        position: &Position,
        whole: bool,
        train: &Sums,
        val: Option<&Sums>,
    ) -> bool {
        let completed = position.epoch + 1;
        let regular = matches!(self.every, Every::Epochs(n) if whole && completed.is_multiple_of(n));
        // If this step was saved before its evaluation, it is saved again with the result.
        let again = self.last == Some((position.step, false));
        let best = self.is_best(train, val);
        std::mem::take(&mut self.waiting) || again || regular || best
    }

    /// Whether an epoch with these sums is the best so far.
    fn is_best(&mut self, train: &Sums, val: Option<&Sums>) -> bool {
        let score = self.by.and_then(|by| {
            let value = early_stop::value(by, train, val)?;
            Score::new(value, by.prefers_larger(), val.map(Sums::mean_loss))
        });
        let best = score.filter(|score| self.best.is_none_or(|best| score.beats(best)));
        self.best = best.or(self.best);
        best.is_some()
    }
}

/// Positions with the same key are the same state.
fn key(position: &Position) -> (u64, bool) {
    (position.step, position.measured.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::Batching;

    fn saves(every: Every) -> Saves {
        let now = Instant::now();
        let (last, best) = (None, None);
        Saves { every, by: None, has_clock: true, started: now, begun: now, last, waiting: false, best }
    }

    /// After step `step` of epoch `epoch`.
    fn position(epoch: u64, step: u64) -> Position {
        Position { epoch, step, ..Position::new(Batching::new(1, 8, 1)) }
    }

    #[test]
    fn the_same_state_is_saved_once_and_again_with_its_metrics() {
        let mut saves = saves(Every::Never);
        let (mut here, sums) = (position(0, 4), Sums::default());
        assert!(saves.begin(&here) && !saves.begin(&here));
        assert!(saves.is_due_at_end(&here, false, &sums, None), "it was saved without its metrics");
        here.close(false, None);
        assert!(saves.begin(&here) && !saves.begin(&here));
        assert!(!saves.is_due_at_end(&position(0, 5), true, &sums, None));
    }

    #[test]
    fn epochs_count_when_they_are_whole_and_a_save_that_waits_is_made_once() {
        let (mut saves, sums) = (saves(Every::Epochs(2)), Sums::default());
        let mut due = |epoch, whole| saves.is_due_at_end(&position(epoch, 9), whole, &sums, None);
        assert_eq!([due(0, true), due(1, false), due(1, true), due(2, true)], [false, false, true, false]);
        saves.wait_for_evaluation();
        let mut due = || saves.is_due_at_end(&position(2, 9), true, &sums, None);
        assert_eq!([due(), due()], [true, false]);
    }

    #[test]
    fn only_the_rank_with_the_clock_saves_by_time() {
        let timed = saves(Every::Time(std::time::Duration::ZERO));
        assert!(timed.is_due_by_time() && !Saves { has_clock: false, ..timed }.is_due_by_time());
        let steps = saves(Every::Steps(3));
        assert_eq!([2, 3, 4, 6].map(|step| steps.is_due_after(step)), [false, true, false, true]);
    }
}
