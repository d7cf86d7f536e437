//! The value of `--profile`: which steps are recorded.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Steps of a start that come before those that are counted: they touch memory for the first time and compile kernels.
const WARM_UP: u64 = 2;

/// `--profile`: the steps whose spans are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileSteps {
    /// This many steps of a start, after two others.
    Count(u64),
    /// The steps with these numbers, from 1; both are included.
    #[allow(missing_docs, reason = "the variant describes them")]
    Range { first: u64, last: u64 },
}

impl ProfileSteps {
    /// Whether step number `step` of the run, the `nth` of this start, is recorded; both count from 1.
    pub fn contains(self, step: u64, nth: u64) -> bool {
        match self {
            Self::Count(count) => nth > WARM_UP && nth <= WARM_UP + count,
            Self::Range { first, last } => (first..=last).contains(&step),
        }
    }

    /// That no step of a run was recorded, and why.
    pub fn none(self) -> String {
        match self {
            Self::Count(_) => {
                format!("this start had no step after its first {WARM_UP}, which are not recorded")
            }
            Self::Range { .. } => format!("this start had no step of `--profile {self}`"),
        }
    }

    /// Whether it is the last one.
    pub fn ends_with(self, step: u64, nth: u64) -> bool {
        match self {
            Self::Count(count) => nth == WARM_UP + count,
            Self::Range { last, .. } => step == last,
        }
    }
}

impl Default for ProfileSteps {
    fn default() -> Self {
        Self::Count(10)
    }
}

impl fmt::Display for ProfileSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Range { first, last } => write!(f, "{first}..{last}"),
        }
    }
}

impl FromStr for ProfileSteps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A rank's part has some kilobytes a step, and is in memory until it is written.
        const LIMIT: u64 = 10_000;
        let wrong =
            || format!("`{text}` is neither a number of steps, as in `20`, nor a range, as in `100..120`");
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(wrong);
        let (steps, count) = match text.split_once("..") {
            None => number(text).map(|count| (Self::Count(count), count))?,
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                let count = last.checked_sub(first).ok_or_else(wrong)?.saturating_add(1);
                (Self::Range { first, last }, count)
            }
        };
        if count > LIMIT { Err(format!("at most {LIMIT} steps can be recorded")) } else { Ok(steps) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_after_a_warm_up_and_ranges_include_both_ends() {
        let of = |text: &str, before: u64| -> Vec<u64> {
            let steps: ProfileSteps = text.parse().unwrap();
            (1..40).filter(|nth| steps.contains(before + nth, *nth)).map(|nth| before + nth).collect()
        };
        assert_eq!(of("3", 0), [3, 4, 5]);
        assert_eq!(of("3", 100), [103, 104, 105]);
        assert_eq!(of("10..12", 0), [10, 11, 12]);
        // Of a run that resumes within the range, and after it.
        assert_eq!(of("10..12", 10), [11, 12]);
        assert_eq!(of("10..12", 12), [0; 0]);
        assert!(ProfileSteps::default().ends_with(112, 12) && !ProfileSteps::default().ends_with(12, 11));
    }

    #[test]
    fn texts_are_read_and_written() {
        for text in ["20", "1..1", "100..120"] {
            let steps = text.parse::<ProfileSteps>().unwrap();
            assert_eq!(steps.to_string(), text);
            assert_eq!(steps.none().contains(text), text.contains(".."));
        }
        for wrong in ["", "0", "x", "-3", "3..", "..3", "5..4", "0..3", "1...3", "job.toml"] {
            let e = wrong.parse::<ProfileSteps>().unwrap_err();
            assert!(e.contains("`20`") && e.contains("`100..120`"), "{wrong}: {e}");
        }
        assert!("20000".parse::<ProfileSteps>().unwrap_err().contains("at most"));
        assert!("1..18446744073709551615".parse::<ProfileSteps>().is_err());
    }
}
