//! Words for an accepted range: "from 1 to 4096", "of at least 1", "above 0 and below 1".

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

/// Words for `range`, with a leading space, or nothing when it is unbounded.
pub fn words<T: Display>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Unbounded, Bound::Unbounded) => String::new(),
        (Bound::Included(a), Bound::Included(b)) => format!(" from {a} to {b}"),
        (Bound::Included(a), Bound::Unbounded) => format!(" of at least {a}"),
        (Bound::Excluded(a), Bound::Unbounded) => format!(" above {a}"),
        (Bound::Unbounded, Bound::Included(b)) => format!(" of at most {b}"),
        (Bound::Unbounded, Bound::Excluded(b)) => format!(" below {b}"),
        (Bound::Included(a), Bound::Excluded(b)) => format!(" of at least {a} and below {b}"),
        (Bound::Excluded(a), Bound::Included(b)) => format!(" above {a} and at most {b}"),
        (Bound::Excluded(a), Bound::Excluded(b)) => format!(" above {a} and below {b}"),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn describes_ranges_in_words() {
        assert_eq!(words(&(1..=4096)), " from 1 to 4096");
        assert_eq!(words(&(1..)), " of at least 1");
        assert_eq!(words(&(0..)), " of at least 0");
        assert_eq!(words(&(..=0.0)), " of at most 0");
        assert_eq!(words(&(0..=7)), " from 0 to 7");
        assert_eq!(words(&(0.0..1.0)), " of at least 0 and below 1");
        assert_eq!(words::<f64>(&(..)), "");
    }
}
