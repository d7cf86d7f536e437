//! When a run saves. A save at the end of an epoch waits for the evaluation, so that the checkpoint contains the
//! metrics of exactly its weights. A stop does not wait.

use super::flags::Flags;
use super::{Ended, Position, RunTensors, Sums, Trainer, early_stop};
use base::error::Result;
use checkpoint::Score;
use checkpoint::{Every, OnPreempt, RankBy};
use collectives::Phase;
use std::time::Instant;

/// State of a run's saves.
pub(super) struct Saves {
    started: Instant,
    begun: Instant,
    /// The step of the last save, or of the checkpoint that the run resumed from, and whether it includes the metrics
    /// of the epoch's end.
    pub last: Option<(u64, bool)>,
    /// A save is waiting for the evaluation at the end of the epoch.
    pub waiting: bool,
    /// The best so far of what ranks checkpoints.
    best: Option<Score>,
}

impl Saves {
    pub fn new(position: &Position, best: Option<Score>) -> Self {
        let now = Instant::now();
        let last = (position.step > 0).then(|| key(position));
        Self { started: now, begun: now, last, waiting: false, best }
    }

    /// Whether an epoch with these sums is the best so far by a metric.
    pub fn is_best(&mut self, by: Option<RankBy>, train: &Sums, val: Option<&Sums>) -> bool {
        let score = by.and_then(|by| {
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

impl Trainer<'_> {
    /// Carries out the ranks' requests between two steps, in an epoch of `micro_batches`.
    pub(super) fn act_on(&mut self, flags: Flags, micro_batches: u64) -> Result<Ended> {
        if flags.stop {
            if self.settings.on_preempt == OnPreempt::Save {
                self.save()?;
            }
            self.report_phase(Phase::Finish);
            return Ok(Ended::Stopped);
        }
        // With a step in flight the model is ahead of the position; a step that is to be saved has landed before.
        if self.in_flight.is_none() && (flags.save || self.saves_after(self.position.step)) {
            match self.position.micro >= micro_batches || self.reached_max_steps() {
                true => self.saves.waiting = true,
                false => self.save()?,
            }
        }
        Ok(Ended::Done)
    }

    pub(super) fn timed_save_due(&self) -> bool {
        match self.settings.save_every {
            Every::Time(interval) => self.group.rank() == 0 && self.saves.begun.elapsed() >= interval,
            _ => false,
        }
    }

    pub(super) fn saves_after(&self, step: u64) -> bool {
        matches!(self.settings.save_every, Every::Steps(n) if step.is_multiple_of(n))
    }

    /// Passes a checkpoint to rank 0's observer, with the state of all ranks' hooks; the other ranks continue at once.
    /// Does nothing if the last save is of the same state.
    pub(super) fn save(&mut self) -> Result<()> {
        self.report_phase(Phase::Save);
        let done = self.pass_checkpoint();
        self.end_phase();
        done
    }

    fn pass_checkpoint(&mut self) -> Result<()> {
        self.saves.begun = Instant::now();
        let key = key(&self.position);
        if self.saves.last.replace(key) == Some(key) {
            return Ok(());
        }
        self.check_replicas_before_save()?;
        let hook = self.reducer.hook_state()?;
        if self.group.rank() == 0 {
            let seconds = self.saves.started.elapsed().as_secs_f64();
            let (model, updater, average) = (&*self.model, &self.updater, self.average.as_ref());
            let tensors = RunTensors { model, updater, average };
            self.observer.save(&self.position, tensors, hook, seconds)?;
        }
        Ok(())
    }
}
