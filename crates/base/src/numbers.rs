//! Formats numbers for people: short, and with a constant width from line to line where that matters.

/// `epoch 1/12`: people count epochs from 1.
pub fn epoch_of(epoch: u64, epochs: u64) -> String {
    format!("epoch {}", of_all(epoch.saturating_add(1), epochs))
}

/// More than any run has. As a total, it only means that something else ends the run, such as `[early_stop]`.
const ENDLESS: u64 = 1_000_000_000_000;

/// `3/12`; without a total that no run reaches.
pub fn of_all(n: u64, all: u64) -> String {
    if is_endless(all) { n.to_string() } else { format!("{n}/{all}") }
}

/// Whether no run reaches this total.
pub fn is_endless(total: u64) -> bool {
    total >= ENDLESS
}

/// Four significant digits, without an exponent for common magnitudes.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => value.to_string(),
        0.0 => "0".to_owned(),
        _ if !(1e-4..1e6).contains(&size) => format!("{value:.3e}"),
        _ => {
            let digits = (3 - size.log10().floor() as i32).max(0) as usize;
            format!("{value:.digits$}")
        }
    }
}

/// A learning rate: `0.1`, `5e-4`, `3.333e-5`.
pub fn exponent(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if (0.01..1000.0).contains(&value) {
        return significant(value).trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    power(value, 3)
}

/// With an exponent and at most this many digits behind the point: `5.57e34`.
pub fn power(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((digits, power)) => format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.')),
        None => text,
    }
}

/// A rate per second.
pub fn rate(per_second: f64) -> String {
    match per_second {
        _ if !per_second.is_finite() => "–".to_owned(),
        10.0.. => format!("{per_second:.0}"),
        _ => format!("{per_second:.2}"),
    }
}

/// A time in seconds, as `12.3 s` or `40 ms`; from ten minutes on in the format of [`clock`].
pub fn seconds(seconds: f64) -> String {
    match seconds {
        0.0..0.095 => format!("{:.0} ms", seconds * 1e3),
        600.0.. => clock(seconds),
        _ => format!("{seconds:.1} s"),
    }
}

/// `42s`, `3m07s`, `2h05m`, `3d04h`.
pub fn clock(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3600 % 24),
    }
}

/// The value of a metric, with or without its split: `99.1 %`, `0.1234`.
pub fn metric_words(name: &str, value: f64) -> String {
    match name.rsplit('.').next() {
        Some("accuracy" | "top5") => percent(value),
        _ => significant(value),
    }
}

/// `99.1 %`.
pub fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rates_are_short() {
        for (value, text) in
            [(0.1, "0.1"), (5e-4, "5e-4"), (0.0, "0"), (1.0 / 30000.0, "3.333e-5"), (1.0, "1")]
        {
            assert_eq!(exponent(value), text);
        }
    }
}
