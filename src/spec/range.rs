//! Words for an accepted range: "from 1 to 4096", "of at least 1", "above 0 and below 1".

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

/// Words for `range`, with a leading space; empty if it is unbounded. `least` and `most` are the bounds of the type;
/// the upper one is not mentioned.
pub(super) fn words<T: Display + PartialOrd>(
    range: &impl RangeBounds<T>,
    least: Option<T>,
    most: Option<T>,
) -> String {
    let low = match (range.start_bound(), &least) {
        (Bound::Unbounded, Some(least)) => Bound::Included(least),
        (bound, _) => bound,
    };
    let high = match range.end_bound() {
        Bound::Included(x) if most.as_ref().is_some_and(|m| x >= m) => Bound::Unbounded,
        bound => bound,
    };
    match (low, high) {
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
    fn ranges_read_as_people_say_them() {
        assert_eq!(words(&(1..=4096usize), Some(0), Some(usize::MAX)), " from 1 to 4096");
        assert_eq!(words(&(1usize..), Some(0), None), " of at least 1");
        assert_eq!(words(&(0usize..), Some(0), None), " of at least 0");
        assert_eq!(words(&(..), Some(0usize), None), " of at least 0");
        assert_eq!(words(&(..=0.0), None, None), " of at most 0");
        assert_eq!(words(&(..=7usize), Some(0), None), " from 0 to 7");
        assert_eq!(words(&(0.0..1.0), None, None), " of at least 0 and below 1");
        assert_eq!(words(&(..), None::<f64>, None), "");
    }
}
