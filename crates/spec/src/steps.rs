//! How often something happens, in optimizer steps.

use super::{Syntax, number_and_unit};
use std::fmt;
use std::num::NonZeroU64;

/// Every so many optimizer steps, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EverySteps(pub Option<NonZeroU64>);

impl EverySteps {
    /// Whether it happens after optimizer step number `step`, from 1.
    pub fn is_due(self, step: u64) -> bool {
        self.0.is_some_and(|steps| step.is_multiple_of(steps.get()))
    }

    /// It is off: no step is due.
    pub fn is_never(self) -> bool {
        self.0.is_none()
    }
}

impl Syntax for EverySteps {
    const EXPECTED: &'static str = "a number of steps such as \"1 step\" or \"100 steps\", or \"never\"";
    const TYPES: &'static [&'static str] = &["string"];
    const WORDS: &'static [&'static str] = &["never"];

    fn read(value: &toml::Value) -> Option<Self> {
        let text = value.as_str()?.trim();
        if text == "never" {
            return Some(Self(None));
        }
        let (count, unit) = number_and_unit(text)?;
        let whole = count.fract() == 0.0 && (1.0..9e15).contains(&count);
        (whole && matches!(unit, "step" | "steps")).then(|| Self(NonZeroU64::new(count as u64)))
    }

    fn write(&self) -> toml::Value {
        toml::Value::String(match self.0.map(NonZeroU64::get) {
            None => "never".to_owned(),
            Some(1) => "1 step".to_owned(),
            Some(n) => format!("{n} steps"),
        })
    }
}

super::syntax!(EverySteps);

impl fmt::Display for EverySteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.map(NonZeroU64::get) {
            None => f.write_str("never"),
            Some(1) => f.write_str("every step"),
            Some(n) => write!(f, "every {n} steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_steps_are_read_and_written() {
        let read = |text: &str| EverySteps::read(&toml::Value::String(text.to_owned()));
        let steps = |n| EverySteps(NonZeroU64::new(n));
        for (text, every) in [("100 steps", steps(100)), ("1 step", steps(1)), ("never", EverySteps(None))] {
            assert_eq!(read(text), Some(every));
            assert_eq!(every.write(), toml::Value::String(text.to_owned()));
        }
        for wrong in ["", "0 steps", "1.5 steps", "2 epochs", "10 s", "-1 steps", "steps"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(EverySteps::read(&toml::Value::Integer(5)), None);
    }

    #[test]
    fn it_is_due_at_multiples() {
        let due = |every: EverySteps| (1..=6).filter(|step| every.is_due(*step)).collect::<Vec<u64>>();
        assert_eq!(due(EverySteps(NonZeroU64::new(2))), [2, 4, 6]);
        assert_eq!(due(EverySteps(None)), [0u64; 0]);
    }
}
