//! Shows a schedule that depends on it (`reduce-on-plateau`) what an epoch has measured.

use super::early_stop::value;
use super::{Sums, Trainer};

impl Trainer<'_> {
    /// At the end of an epoch, before its position is closed.
    pub(super) fn schedule_sees(&mut self, train: &Sums, val: Option<&Sums>) {
        let clock = self.clock(&self.position);
        let schedule = &self.settings.schedule;
        let Some(rule) = schedule.on_plateau() else {
            self.position.plateau = None;
            return;
        };
        let mut bases = self.updater.rates(|base| base);
        bases.push(self.settings.lr);
        if schedule.in_last_segment(clock.done, clock.steps_per_epoch)
            && let Some(value) = value(rule.metric, train, val)
        {
            self.position.plateau = Some(rule.after(self.position.plateau.take(), value, &bases));
        }
    }
}
