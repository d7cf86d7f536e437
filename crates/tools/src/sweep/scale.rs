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
        // `[]` and `[16]` before `[16, 8]`.
        parts.push((word.trim_end_matches(']'), digits.parse().unwrap_or(0)));
        text = rest;
    }
    parts
}

/// Interquartile ranges beyond which a number is an outlier.
const FAR: f64 = 3.0;

/// A scale for numbers, by their logarithm where they span more than two orders of magnitude.
pub struct Scale {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

impl Scale {
    /// That of all finite numbers.
    pub fn new(numbers: &[Option<f64>]) -> Self {
        let known = numbers.iter().copied().flatten().filter(|number| number.is_finite());
        let (low, high) =
            known.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        Self { low, high, log: low > 0.0 && high / low > 100.0 }
    }

    /// That of the numbers without those that are worse than most by more than [`FAR`] interquartile ranges, and whether there are such.
    pub fn of_most(numbers: &[Option<f64>], prefers_larger: bool) -> (Self, bool) {
        let all = Self::new(numbers);
        let badness = |x: f64| if prefers_larger { -all.scaled(x) } else { all.scaled(x) };
        let known = numbers.iter().copied().flatten().filter(|number| number.is_finite());
        let mut known: Vec<f64> = known.collect();
        known.sort_by(|a, b| badness(*a).total_cmp(&badness(*b)));
        let count = known.len();
        let quartile = |n: usize| known.get(n * count.saturating_sub(1) / 4).map_or(0.0, |x| badness(*x));
        let (first, third) = (quartile(1), quartile(3));
        known.retain(|x| first == third || badness(*x) - third <= FAR * (third - first));
        let far = known.len() < count;
        (Self::new(&known.into_iter().map(Some).collect::<Vec<_>>()), far)
    }

    fn scaled(&self, x: f64) -> f64 {
        if self.log { x.ln() } else { x }
    }

    /// From 0, the smallest, to 1, the largest; a number beyond the scale is at its end.
    pub fn place(&self, x: f64) -> f64 {
        let x = x.max(self.low).min(self.high);
        let span = self.scaled(self.high) - self.scaled(self.low);
        if span > 0.0 { (self.scaled(x) - self.scaled(self.low)) / span } else { 0.5 }
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
        let layers = ["[]", "[8]", "[16]", "[16, 8]"];
        assert_eq!(ordered(["[16, 8]", "[16]", "[]", "[8]"].into_iter()), layers);
    }

    #[test]
    fn a_scale_of_most_ends_before_what_is_far_worse() {
        let ends = |numbers: &[f64], prefers_larger| {
            let numbers: Vec<Option<f64>> = numbers.iter().copied().map(Some).collect();
            let (scale, far) = Scale::of_most(&numbers, prefers_larger);
            (scale.low, scale.high, far)
        };
        assert_eq!(ends(&[0.3, 1e30, 0.1, 0.2], false), (0.1, 0.3, true));
        assert_eq!(ends(&[0.3, 1e30, 0.1, 0.2], true), (0.1, 1e30, false), "the best is no outlier");
        assert_eq!(ends(&[0.9, -1e30, 0.7, 0.8, 0.6], true), (0.6, 0.9, true));
        assert_eq!(ends(&[1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0], false), (1e-5, 1.0, false));
        assert_eq!(ends(&[1.0, 1.0, 1.0, 1.0, 2.0], false), (1.0, 2.0, false));
        let (scale, _) = Scale::of_most(&[0.9, -5.0, 0.7, 0.8, 0.001].map(Some), true);
        assert_eq!((scale.place(-1e9), scale.place(0.9)), (0.0, 1.0));
    }
}
