//! When a run saves. A save that falls on an epoch's end waits for the evaluation there, so that the checkpoint has it: nothing else
//! says how good exactly its weights are. A stop does not wait.

use super::flags::Flags;
use super::{Ended, Position, Trainer};
use crate::checkpoint::{Every, OnPreempt};
use crate::comm::Phase;
use crate::error::Result;
use std::time::Instant;

/// What a run remembers of its saves.
pub(super) struct Saves {
    started: Instant,
    begun: Instant,
    /// The step of the last one, or of the checkpoint that the run went on from, and whether it had its epoch's end behind it.
    pub last: Option<(u64, bool)>,
    /// One waits for the evaluation at the epoch's end.
    pub waiting: bool,
}

impl Saves {
    pub fn new(position: &Position) -> Self {
        let now = Instant::now();
        let last = (position.step > 0).then(|| key(position));
        Self { started: now, begun: now, last, waiting: false }
    }
}

/// Positions that differ in nothing else are one state.
fn key(position: &Position) -> (u64, bool) {
    (position.step, position.measured.is_some())
}

impl Trainer<'_> {
    /// Does what the ranks wish between two steps, in an epoch that ends after `micro_batches`.
    pub(super) fn act_on(&mut self, flags: Flags, micro_batches: u64) -> Result<Ended> {
        if flags.stop {
            if self.settings.on_preempt == OnPreempt::Save {
                self.save()?;
            }
            self.note(Phase::Finish);
            return Ok(Ended::Stopped);
        }
        // With a step in flight the model is ahead of the position; a step that is to be saved has landed.
        if self.in_flight.is_none() && (flags.save || self.saves_after(self.position.step)) {
            match self.position.micro >= micro_batches || self.spent() {
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

    /// Hands a checkpoint to the observer of rank 0, with the state of all ranks' hooks; the others go on at once. Nothing happens
    /// where the last one holds the same.
    pub(super) fn save(&mut self) -> Result<()> {
        self.note(Phase::Save);
        self.saves.begun = Instant::now();
        let key = key(&self.position);
        if self.saves.last.replace(key) == Some(key) {
            return Ok(());
        }
        let hook = self.reducer.hook_state()?;
        if self.group.rank() == 0 {
            let seconds = self.saves.started.elapsed().as_secs_f64();
            self.observer.save(&self.position, &*self.model, &self.updater, hook, seconds)?;
        }
        Ok(())
    }
}
