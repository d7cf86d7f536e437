//! How often a run saves.

use spec::{Period, Syntax, duration, number_and_unit, syntax};
use std::fmt;
use std::time::Duration;

/// How often a checkpoint is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After this many epochs.
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
    /// After this much time since the last save.
    Time(Duration),
    /// No periodic saves.
    Never,
}

impl Default for Every {
    fn default() -> Self {
        Every::Epochs(1)
    }
}

impl Syntax for Every {
    const EXPECTED: &'static str =
        "a number of epochs of at least 1, \"500 steps\", \"2 epochs\", \"10 min\", \"30 s\" or \"never\"";
    const TYPES: &'static [&'static str] = &["integer", "string"];
    const WORDS: &'static [&'static str] = &["never"];
    const LEAST: Option<u32> = Some(1);

    fn read(value: &toml::Value) -> Option<Self> {
        let text = match value {
            toml::Value::Integer(n) => return u64::try_from(*n).ok().filter(|n| *n > 0).map(Every::Epochs),
            toml::Value::String(text) => text.trim(),
            _ => return None,
        };
        if text == "never" {
            return Some(Every::Never);
        }
        let (count, unit) = number_and_unit(text)?;
        let whole = || (count.fract() == 0.0 && (1.0..9e15).contains(&count)).then_some(count as u64);
        match unit {
            "epoch" | "epochs" => whole().map(Every::Epochs),
            "step" | "steps" => whole().map(Every::Steps),
            _ => duration(text).filter(|d| !d.is_zero()).map(Every::Time),
        }
    }

    fn write(&self) -> toml::Value {
        match self {
            Every::Epochs(n) => toml::Value::Integer(*n as i64),
            Every::Steps(n) => toml::Value::String(format!("{n} steps")),
            Every::Time(d) => toml::Value::String(Period(*d).to_string()),
            Every::Never => toml::Value::String("never".to_owned()),
        }
    }
}

syntax!(Every);

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Every::Epochs(1) => f.write_str("every epoch"),
            Every::Epochs(n) => write!(f, "every {n} epochs"),
            Every::Steps(1) => f.write_str("every step"),
            Every::Steps(n) => write!(f, "every {n} steps"),
            Every::Time(d) => write!(f, "every {}", Period(*d)),
            Every::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(text: &str) -> Option<Every> {
        Every::read(&toml::Value::String(text.to_owned()))
    }

    #[test]
    fn parses_every() {
        assert_eq!(Every::read(&toml::Value::Integer(2)), Some(Every::Epochs(2)));
        assert_eq!(Every::read(&toml::Value::Integer(0)), None);
        assert_eq!(every("500 steps"), Some(Every::Steps(500)));
        assert_eq!(every("1epoch"), Some(Every::Epochs(1)));
        assert_eq!(every("10 min"), Some(Every::Time(Duration::from_secs(600))));
        assert_eq!(every("never"), Some(Every::Never));
        for wrong in ["", "steps", "0 steps", "1.5 epochs", "-1 min", "0 s", "5", "5 parsecs", "1e400 s"] {
            assert_eq!(every(wrong), None, "{wrong}");
        }
        for written in [Every::Epochs(3), Every::Steps(7), Every::Time(Duration::from_secs(90)), Every::Never]
        {
            assert_eq!(Every::read(&written.write()), Some(written));
        }
    }
}
