//! Shows a schedule that depends on it (`reduce-on-plateau`) what an epoch has measured.

use super::early_stop::value;
use super::{Position, Sums, TrainSettings};
use crate::optim::schedule::Plateau;

impl TrainSettings {
    /// The state of the schedule after an epoch of `samples` with these sums, at its `position`,
    /// which is not closed yet. `rates` are the optimizer's base rates.
    pub(super) fn plateau_after(
        &self,
        position: &Position,
        samples: usize,
        mut rates: Vec<f64>,
        train: &Sums,
        val: Option<&Sums>,
    ) -> Option<Plateau> {
        let rule = self.schedule.on_plateau()?;
        rates.push(self.lr);
        let (clock, before) = (self.clock(position, samples), position.plateau.clone());
        if self.schedule.in_last_segment(clock.done, clock.steps_per_epoch)
            && let Some(value) = value(rule.metric, train, val)
        {
            return Some(rule.after(before, value, &rates));
        }
        before
    }
}
