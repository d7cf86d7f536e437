//! A stop at a chosen step, for `ddp-run repro`: the run saves and ends there, with the plan of the whole run. `train.max_steps` would
//! change the plan, and with it the schedule.

use base::error::{Error, Result};
use collectives::StepPhase;

/// Names the number of optimizer steps after which the run stops as if it were asked to.
pub const STOP_AT: &str = "DDP_RUN_STOP_AT";

/// After which optimizer step a rank requests a stop, if at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopAt(Option<u64>);

impl StopAt {
    /// What the environment (`get`) asks for.
    ///
    /// # Errors
    /// The value is not a number (exit 2).
    pub fn from_env(get: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let Some(text) = get(STOP_AT).filter(|text| !text.is_empty()) else { return Ok(Self(None)) };
        let wrong = |e| Error::usage(format!("{STOP_AT} is `{text}`: {e}")).hint("it is a number of steps");
        text.parse().map(|step| Self(Some(step))).map_err(wrong)
    }

    /// Asked in a step, before it counts: whether it is that step, or a later one.
    pub fn is_due(self, place: StepPhase) -> bool {
        self.0.is_some_and(|step| place.step + 1 >= step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::Phase;

    fn read(text: &str) -> Result<StopAt> {
        StopAt::from_env(&|name| (name == STOP_AT).then(|| text.to_owned()))
    }

    #[test]
    fn a_stop_is_due_in_its_step_and_later() {
        let due = |at: StopAt, step| at.is_due(StepPhase { step, phase: Phase::Sync });
        let fifth = read("5").unwrap();
        assert_eq!([3, 4, 5].map(|step| due(fifth, step)), [false, true, true]);
        assert!(!due(read("").unwrap(), u64::MAX - 1) && !due(StopAt::default(), 7));
        assert_eq!(read("soon").unwrap_err().kind, base::error::ErrorKind::Usage);
    }
}
