//! Formats counts and bytes for people.

/// `42.6 MiB`.
pub fn show_bytes(bytes: u64) -> String {
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
    fn formats_counts_and_bytes() {
        assert_eq!(show_count(11_173_962), "11,173,962");
        assert_eq!(show_count(999), "999");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(44_695_848), "42.6 MiB");
        assert_eq!(show_bytes(1 << 20), "1.0 MiB");
    }
}
