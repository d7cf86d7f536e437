//! Formats sizes, times and rates.

/// `4 B`, `64 KiB`, `256 MiB`; exact.
pub fn size(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes} B"), |(shift, name)| format!("{} {name}", bytes >> shift))
}

/// Microseconds, with as many digits as are reproducible.
pub fn micros(us: f64) -> String {
    let digits = match us {
        ..10.0 => 2,
        10.0..1000.0 => 1,
        _ => 0,
    };
    format!("{us:.digits$}")
}

/// GB/s.
pub fn rate(gbs: f64) -> String {
    let digits = match gbs {
        ..0.1 => 4,
        0.1..10.0 => 3,
        10.0..100.0 => 2,
        _ => 1,
    };
    format!("{gbs:.digits$}")
}

/// A round number of GB/s for an axis: `20 MB/s`.
pub fn round_rate(gbs: f64) -> String {
    round(gbs * 1e9, [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "KB/s"), (1.0, "B/s")])
}

/// A round number of microseconds for an axis: `5 ms`.
pub fn round_time(us: f64) -> String {
    round(us * 1e3, [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")])
}

fn round(value: f64, units: [(f64, &str); 4]) -> String {
    // A computed power of ten may be slightly too small.
    let (unit, name) = units.into_iter().find(|(u, _)| value * 1.000_001 >= *u).unwrap_or(units[3]);
    format!("{} {name}", (value / unit * 100.0).round() / 100.0)
}

/// GB/s (10^9 bytes) for a number of bytes and microseconds.
pub fn gbs(bytes: usize, us: f64) -> f64 {
    bytes as f64 / us / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_and_use_the_largest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (4, "4 B"),
            (1500, "1500 B"),
            (1536, "1536 B"),
            (65536, "64 KiB"),
            (3 << 30, "3 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn axes_have_round_labels() {
        let rates = [20.0, 1.0, 0.5, 1e-3, 2e-5, 1e-9].map(round_rate);
        assert_eq!(rates, ["20 GB/s", "1 GB/s", "500 MB/s", "1 MB/s", "20 KB/s", "1 B/s"]);
        assert_eq!([0.2, 1.0, 1e3, 5e6].map(round_time), ["200 ns", "1 us", "1 ms", "5 s"]);
    }

    #[test]
    fn rates_use_decimal_gigabytes() {
        assert_eq!(gbs(1_000_000, 1000.0), 1.0);
        assert_eq!(
            (rate(0.00002), rate(1.47), rate(9.2), rate(12.345)),
            ("0.0000".into(), "1.470".into(), "9.200".into(), "12.35".into())
        );
        assert_eq!(
            (micros(0.314), micros(222.04), micros(32100.2)),
            ("0.31".into(), "222.0".into(), "32100".into())
        );
    }
}
