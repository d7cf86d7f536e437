//! Durations and byte counts, read and written as people do.

use std::time::Duration;

pub(super) const DURATION: &str = "a number of seconds, or a time such as \"30 s\", \"10 min\" or \"2 h\"";

/// Longer than any job; keeps arithmetic on deadlines from overflowing.
const MAX_SECONDS: f64 = 1e9;

/// `10 min` as (10, "min").
pub(super) fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

/// A time with its unit: ms, s, min or h.
pub(crate) fn duration(text: &str) -> Option<Duration> {
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

/// A duration above zero: seconds, or a text with a unit.
pub(super) fn read_duration(value: &toml::Value) -> Option<Duration> {
    match value {
        toml::Value::Integer(i) => from_seconds(*i as f64),
        toml::Value::Float(x) => from_seconds(*x),
        toml::Value::String(text) => duration(text),
        _ => None,
    }
    .filter(|d| !d.is_zero())
}

fn from_seconds(seconds: f64) -> Option<Duration> {
    (0.0..=MAX_SECONDS).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

pub(super) fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 3600.0 && seconds % 3600.0 == 0.0 {
        format!("{} h", seconds / 3600.0)
    } else if seconds >= 60.0 && seconds % 60.0 == 0.0 {
        format!("{} min", seconds / 60.0)
    } else if seconds < 1.0 {
        format!("{} ms", seconds * 1000.0)
    } else {
        format!("{seconds} s")
    }
}

/// `42.6 MiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `11,173,962`.
pub(super) fn show_count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
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
        assert_eq!(read_duration(&toml::Value::Float(f64::NAN)), None);
        assert_eq!(read_duration(&toml::Value::Integer(0)), None);
        assert_eq!(show_duration(Duration::from_secs(600)), "10 min");
        assert_eq!(show_duration(Duration::from_secs(90)), "90 s");
    }

    #[test]
    fn counts_and_bytes() {
        assert_eq!(show_count(11_173_962), "11,173,962");
        assert_eq!(show_count(999), "999");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(44_695_848), "42.6 MiB");
        assert_eq!(show_bytes(1 << 20), "1.0 MiB");
    }
}
