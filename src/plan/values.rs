//! Values of a spec that have a syntax of their own.

use super::units;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// How often a checkpoint is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    Epochs(u64),
    /// Optimizer steps.
    Steps(u64),
    Time(Duration),
    Never,
}

impl Every {
    pub(super) const EXPECTED: &str =
        "a number of epochs of at least 1, \"500 steps\", \"2 epochs\", \"10 min\", \"30 s\" or \"never\"";

    pub(super) fn read(value: &toml::Value) -> Option<Self> {
        let text = match value {
            toml::Value::Integer(n) => return u64::try_from(*n).ok().filter(|n| *n > 0).map(Every::Epochs),
            toml::Value::String(text) => text.trim(),
            _ => return None,
        };
        if text == "never" {
            return Some(Every::Never);
        }
        let (count, unit) = units::number_and_unit(text)?;
        let whole = || (count.fract() == 0.0 && (1.0..9e15).contains(&count)).then_some(count as u64);
        match unit {
            "epoch" | "epochs" => whole().map(Every::Epochs),
            "step" | "steps" => whole().map(Every::Steps),
            _ => units::duration(text).filter(|d| !d.is_zero()).map(Every::Time),
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Every::Epochs(1) => f.write_str("every epoch"),
            Every::Epochs(n) => write!(f, "every {n} epochs"),
            Every::Steps(1) => f.write_str("every step"),
            Every::Steps(n) => write!(f, "every {n} steps"),
            Every::Time(d) => write!(f, "every {}", units::show_duration(*d)),
            Every::Never => f.write_str("never"),
        }
    }
}

impl Serialize for Every {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Which engine moves gradients between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// NCCL on CUDA devices, else gloo.
    Auto,
    Gloo,
    Nccl,
    Mpi,
}

impl Backend {
    pub(super) const CHOICES: [(&str, Backend); 4] =
        [("auto", Backend::Auto), ("gloo", Backend::Gloo), ("nccl", Backend::Nccl), ("mpi", Backend::Mpi)];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Gloo => "gloo",
            Backend::Nccl => "nccl",
            Backend::Mpi => "mpi",
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
    fn every_is_read() {
        assert_eq!(Every::read(&toml::Value::Integer(2)), Some(Every::Epochs(2)));
        assert_eq!(Every::read(&toml::Value::Integer(0)), None);
        assert_eq!(every("500 steps"), Some(Every::Steps(500)));
        assert_eq!(every("1epoch"), Some(Every::Epochs(1)));
        assert_eq!(every("10 min"), Some(Every::Time(Duration::from_secs(600))));
        assert_eq!(every("never"), Some(Every::Never));
        for wrong in ["", "steps", "0 steps", "1.5 epochs", "-1 min", "0 s", "5", "5 parsecs", "1e400 s"] {
            assert_eq!(every(wrong), None, "{wrong}");
        }
    }
}
