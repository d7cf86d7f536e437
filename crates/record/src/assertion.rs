//! `--assert "val.accuracy >= 0.9"`: a condition that a metric meets at the end.

use super::events::Event;
use super::relation::Relation;
use base::numbers::metric_words;
use std::fmt;
use std::str::FromStr;

/// A metric and the bound that it keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    /// With its split before it in `val.accuracy`.
    pub metric: String,
    relation: Relation,
    bound: f64,
}

impl FromStr for Assertion {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("{why}; expected METRIC >= NUMBER (or <=, >, <), as in \"val.accuracy >= 0.9\"")
        };
        let found = typed.find(['<', '>', '=']).ok_or_else(|| wrong("there is no comparison"))?;
        let (metric, rest) = (typed[..found].trim(), &typed[found..]);
        let read = Relation::before(rest).ok_or_else(|| wrong("it compares for equality"))?;
        let (relation, number) = (read.0, read.1.trim());
        let bound = number.parse().ok().filter(|bound: &f64| bound.is_finite());
        let bound = bound.ok_or_else(|| wrong(&format!("`{number}` is not a number")))?;
        if metric.is_empty() || metric.contains(char::is_whitespace) {
            return Err(wrong(&format!("`{metric}` is not the name of a metric")));
        }
        Ok(Self { metric: metric.to_owned(), relation, bound })
    }
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.metric, self.relation.sign(), self.bound)
    }
}

impl Assertion {
    /// Whether `value` keeps the bound. NaN keeps none.
    pub fn holds(&self, value: f64) -> bool {
        self.relation.holds(value, self.bound)
    }

    /// Whether it holds of `value`, and a line that says so: `val.accuracy >= 0.9 holds: 0.9934`.
    pub fn verdict(&self, value: f64) -> (bool, String) {
        let holds = self.holds(value);
        (holds, format!("{self} {}: {}", if holds { "holds" } else { "does not hold" }, self.words(value)))
    }

    /// The same of the last epoch that measured the metric.
    pub fn verdict_of(&self, events: &[Event]) -> (bool, String) {
        let measured = events.iter().rev().find_map(|event| match event {
            Event::Epoch(epoch) => Some((epoch, epoch.value(&self.metric)?)),
            _ => None,
        });
        match measured {
            Some((epoch, value)) => {
                let (holds, line) = self.verdict(value);
                (holds, format!("{line} after {}", base::display::count(epoch.epoch as usize + 1, "epoch")))
            }
            None => (false, format!("{self} does not hold: no epoch of the run has measured it")),
        }
    }

    /// As people read it, and in full where rounding hides on which side of the bound it is.
    fn words(&self, value: f64) -> String {
        let short = metric_words(&self.metric, value);
        match short.strip_suffix(" %") {
            _ if (value - self.bound).abs() < 1e-3 * self.bound.abs() => format!("{value}"),
            Some(_) => format!("{short} ({value:.4})"),
            None => short,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EpochEvent, Metrics, samples};

    fn epoch(epoch: u64, val: Option<f64>) -> Event {
        let val = val.map(|accuracy| Metrics::new(0.25).with("accuracy", accuracy));
        Event::Epoch(EpochEvent { val, ..samples::epoch(epoch, 0.0) })
    }

    #[test]
    fn reads_each_comparison_with_and_without_spaces() {
        let result = |typed: &str, below: bool, at: bool, above: bool| {
            let read: Assertion = typed.parse().unwrap();
            assert_eq!([-1.0, -0.5, 0.0].map(|v| read.holds(v)), [below, at, above], "{typed}");
            assert!(!read.holds(f64::NAN));
            assert_eq!(read.to_string().parse(), Ok(read));
        };
        result("val.r2>=-0.5", false, true, true);
        result(" val.r2 <= -5e-1 ", true, true, false);
        result("val.r2 > -.5", false, false, true);
        result("val.r2<-0.5", true, false, false);
    }

    #[test]
    fn what_is_no_comparison_is_refused_with_the_reason() {
        let result = |typed: &str| typed.parse::<Assertion>().unwrap_err();
        assert!(result("val.accuracy").starts_with("there is no comparison; expected METRIC >= NUMBER"));
        assert!(result("val.accuracy == 0.9").starts_with("it compares for equality"));
        assert!(result("val.accuracy >= 90 %").starts_with("`90 %` is not a number"));
        assert!(result("val.accuracy >= nan").starts_with("`nan` is not a number"));
        assert!(result(">= 1").starts_with("`` is not the name of a metric"));
        assert!(result("the loss < 1").starts_with("`the loss` is not the name of a metric"));
    }

    #[test]
    fn the_last_epoch_that_measured_the_metric_counts() {
        let events = [epoch(0, Some(0.95)), epoch(1, Some(0.875)), epoch(2, None)];
        let result = |typed: &str| typed.parse::<Assertion>().unwrap().verdict_of(&events);
        assert_eq!(
            result("val.accuracy >= 0.9"),
            (false, "val.accuracy >= 0.9 does not hold: 87.5 % (0.8750) after 2 epochs".to_owned())
        );
        assert_eq!(
            result("train.loss < 0.75"),
            (true, "train.loss < 0.75 holds: 0.5000 after 3 epochs".to_owned())
        );
        // Near the bound, all digits.
        assert_eq!(
            result("val.accuracy > 0.875"),
            (false, "val.accuracy > 0.875 does not hold: 0.875 after 2 epochs".to_owned())
        );
        assert_eq!(
            result("val.mae < 1"),
            (false, "val.mae < 1 does not hold: no epoch of the run has measured it".to_owned())
        );
    }
}
