//! The values of keys and of the metric, in their order and on a scale.

pub fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// The values of a key, each once: numbers by their size, words as people order them, `[8]` before `[16]`.
pub fn ordered<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut values: Vec<&str> = texts.collect();
    values.sort_unstable();
    values.dedup();
    match values.iter().map(|text| number(text)).collect::<Option<Vec<f64>>>() {
        Some(_) => values.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0))),
        None => values.sort_by_cached_key(|text| words_and_numbers(text)),
    }
    values
}

/// The words of a text, each with the number behind it.
fn words_and_numbers(mut text: &str) -> Vec<(&str, u64)> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (word, rest) = text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()));
        let (digits, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        parts.push((word, digits.parse().unwrap_or(0)));
        text = rest;
    }
    parts
}

/// A scale for numbers, by their logarithm where they span more than two orders of magnitude.
pub struct Scale {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

impl Scale {
    /// That of all finite numbers.
    pub fn of(numbers: &[Option<f64>]) -> Self {
        let known = numbers.iter().copied().flatten().filter(|number| number.is_finite());
        let (low, high) =
            known.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        Self { low, high, log: low > 0.0 && high / low > 100.0 }
    }

    /// From 0, the smallest, to 1, the largest.
    pub fn place(&self, x: f64) -> f64 {
        let scaled = |x: f64| if self.log { x.ln() } else { x };
        let span = scaled(self.high) - scaled(self.low);
        if span > 0.0 { (scaled(x) - scaled(self.low)) / span } else { 0.5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_by_their_size_and_words_by_the_numbers_in_them() {
        let widths = ["[8]", "[16]", "[64, 8]", "[64, 16]"];
        assert_eq!(ordered(["[64, 16]", "[16]", "[8]", "[64, 8]", "[8]"].into_iter()), widths);
        assert_eq!(ordered(["1e-2", "0.5", "1e-3"].into_iter()), ["1e-3", "1e-2", "0.5"]);
    }
}
