//! Dynamic loss scaling for `precision = "f16"`, as in `torch.amp.GradScaler`: the loss is multiplied by a scale so
//! that small gradients do not underflow in f16. A step whose gradients overflow is skipped and halves the scale; 2000
//! finite steps in a row double it.

use serde::{Deserialize, Serialize};

const START: f64 = 65536.0;
const GOOD_STEPS: u32 = 2000;
/// If gradients overflow at this scale, scaling is not the cause.
const LEAST: f64 = 1.0;

/// Part of a run's position: equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    /// Factor of the loss, a power of two, at least 1.
    pub scale: f64,
    good_steps: u32,
    /// Steps skipped so far, which optimizers do not count.
    pub skipped: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: START, good_steps: 0, skipped: 0 }
    }
}

impl LossScale {
    /// Updates the scale after a step. Returns whether the step counts, or `None` if gradients overflow at the smallest
    /// scale.
    pub fn after(&mut self, finite: bool) -> Option<bool> {
        if finite {
            self.good_steps += 1;
            if self.good_steps == GOOD_STEPS {
                *self = Self { scale: self.scale * 2.0, good_steps: 0, ..*self };
            }
            return Some(true);
        }
        if self.scale <= LEAST {
            return None;
        }
        *self = Self { scale: (self.scale / 2.0).max(LEAST), good_steps: 0, skipped: self.skipped + 1 };
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{Batching, Position};

    #[test]
    fn another_precision_has_gradients_of_another_size() {
        let continued = |before, scaled| {
            let mut position = Position { loss_scale: before, ..Position::new(Batching::new(1, 1, 1)) };
            let factor = position.continue_scaled(scaled);
            (position.loss_scale, factor)
        };
        let saved = Some(LossScale { scale: 1024.0, good_steps: 7, skipped: 6 });
        assert_eq!(continued(saved, true), (saved, 1.0));
        assert_eq!(continued(saved, false), (None, 1.0 / 1024.0));
        assert_eq!(continued(None, true), (Some(LossScale::default()), 65536.0));
        assert_eq!(continued(None, false), (None, 1.0));
    }

    /// Optimizers correct their bias by the updates that there were.
    #[test]
    fn skipped_steps_are_no_updates_in_another_precision_either() {
        let mut position = Position::new(Batching::new(1, 1, 1));
        position.step = 10;
        for (scaled, skips, updates) in
            [(true, 3, 7), (false, 0, 7), (true, 2, 5), (true, 1, 4), (false, 0, 4)]
        {
            position.continue_scaled(scaled);
            position.loss_scale.iter_mut().for_each(|scale| scale.skipped += skips);
            let saved = serde_json::to_string(&position).unwrap();
            position = serde_json::from_str(&saved).unwrap();
            assert_eq!(position.updates(), updates, "{saved}");
        }
    }

    #[test]
    fn overflows_halve_the_scale_and_2000_good_steps_double_it() {
        let mut scale = LossScale::default();
        assert_eq!((scale.after(false), scale.scale), (Some(false), 32768.0));
        for _ in 0..1999 {
            assert_eq!((scale.after(true), scale.scale), (Some(true), 32768.0));
        }
        assert_eq!((scale.after(true), scale.scale), (Some(true), 65536.0));
        for _ in 0..1999 {
            scale.after(true);
        }
        scale.after(false);
        assert_eq!(
            (scale.after(true), scale.scale),
            (Some(true), 32768.0),
            "an overflow starts the count anew"
        );
    }

    #[test]
    fn overflow_at_the_smallest_scale_is_an_error() {
        let mut scale = LossScale { scale: 1.5, good_steps: 0, skipped: 0 };
        assert_eq!((scale.after(false), scale.scale), (Some(false), 1.0));
        assert_eq!(scale.after(false), None);
    }
}
