//! Durations, in the form in which people write them.

use super::Syntax;
use super::schema::EXPECTED;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// Longer than any job; keeps deadline arithmetic from overflowing.
const MAX_SECONDS: f64 = 1e9;

/// A duration above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

impl Period {
    /// A period of whole seconds; `seconds` is above zero.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl Deref for Period {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl Syntax for Period {
    const EXPECTED: &'static str =
        "a number of seconds, or a time such as \"30 s\", \"10 min\" or \"2 h\", above 0 and at most 1e9 s";
    const TYPES: &'static [&'static str] = &["number", "string"];

    fn read(value: &toml::Value) -> Option<Self> {
        let duration = match value {
            toml::Value::Integer(i) => from_seconds(*i as f64),
            toml::Value::Float(x) => from_seconds(*x),
            toml::Value::String(text) => duration(text),
            _ => None,
        };
        duration.filter(|d| !d.is_zero()).map(Self)
    }

    fn schema() -> schemars::Schema {
        schemars::json_schema!({
            "type": Self::TYPES, "format": "duration", "exclusiveMinimum": 0, "maximum": MAX_SECONDS, EXPECTED: Self::EXPECTED
        })
    }

    fn write(&self) -> toml::Value {
        match self.subsec_nanos() {
            0 => toml::Value::Integer(self.as_secs() as i64),
            _ => toml::Value::Float(self.as_secs_f64()),
        }
    }
}

super::syntax!(Period);

/// `10 min` as (10, "min").
pub fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

/// A duration with its unit: ms, s, min or h.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "sec" | "second" | "seconds" => number,
        "min" | "minute" | "minutes" => number * 60.0,
        "h" | "hour" | "hours" => number * 3600.0,
        _ => return None,
    };
    from_seconds(seconds)
}

fn from_seconds(seconds: f64) -> Option<Duration> {
    (0.0..=MAX_SECONDS).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.as_secs_f64();
        if seconds >= 3600.0 && seconds % 3600.0 == 0.0 {
            write!(f, "{} h", seconds / 3600.0)
        } else if seconds >= 60.0 && seconds % 60.0 == 0.0 {
            write!(f, "{} min", seconds / 60.0)
        } else if seconds < 1.0 {
            write!(f, "{} ms", seconds * 1000.0)
        } else {
            write!(f, "{seconds} s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("30 s"), Some(Duration::from_secs(30)));
        assert_eq!(duration("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("10"), None);
        assert_eq!(duration("99999999999 h"), None);
        assert_eq!(Period::read(&toml::Value::Float(f64::NAN)), None);
        assert_eq!(Period::read(&toml::Value::Integer(0)), None);
        assert_eq!(Period::seconds(600).to_string(), "10 min");
        assert_eq!(Period::seconds(90).to_string(), "90 s");
        for period in [Period::seconds(90), Period(Duration::from_millis(1500))] {
            assert_eq!(Period::read(&period.write()), Some(period));
        }
    }
}
