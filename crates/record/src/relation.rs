//! The comparisons of `--assert` and of `ddp-run runs list --filter`.

/// How a number compares with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `<`
    Below,
}

impl Relation {
    /// Signs of two characters come first: `>=` begins with `>`.
    const ALL: [(&str, Self); 4] =
        [(">=", Self::AtLeast), ("<=", Self::AtMost), (">", Self::Above), ("<", Self::Below)];

    /// The relation whose sign `text` begins with, and what follows it.
    pub fn before(text: &str) -> Option<(Self, &str)> {
        Self::ALL.into_iter().find_map(|(sign, relation)| Some((relation, text.strip_prefix(sign)?)))
    }

    /// As it is typed.
    pub fn sign(self) -> &'static str {
        Self::ALL.iter().find(|(_, relation)| *relation == self).map_or("", |(sign, _)| sign)
    }

    /// NaN is in no relation.
    pub fn holds<T: PartialOrd>(self, value: T, bound: T) -> bool {
        match self {
            Self::AtLeast => value >= bound,
            Self::AtMost => value <= bound,
            Self::Above => value > bound,
            Self::Below => value < bound,
        }
    }
}
