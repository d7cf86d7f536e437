//! The value of `--nnodes`: the number of nodes of a run.

use spec::{Syntax, syntax};
use std::fmt;
use std::str::FromStr;

/// The number of nodes that a run may have: `N`, or torchrun's `MIN:MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// At least 1.
    pub min: usize,
    /// At least `min`.
    pub max: usize,
}

/// A larger number is taken for a typing error.
const MAX_NODES: usize = 1 << 16;

impl NodeRange {
    /// A single node.
    pub const ONE: Self = Self { min: 1, max: 1 };

    /// A fixed number of nodes, at least 1.
    pub const fn exactly(nodes: usize) -> Self {
        Self { min: nodes, max: nodes }
    }

    /// Nodes may join and leave.
    pub const fn is_elastic(&self) -> bool {
        self.min < self.max
    }
}

impl FromStr for NodeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |t: &str| t.trim().parse::<usize>().ok().filter(|n| (1..=MAX_NODES).contains(n));
        let range = match text.split_once(':') {
            Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| Self { min, max }),
            None => number(text).map(Self::exactly),
        };
        range.filter(|r| r.min <= r.max).ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

impl Syntax for NodeRange {
    const EXPECTED: &'static str = "a number of nodes from 1 to 65536, or a range of them, \"MIN:MAX\"";
    const TYPES: &'static [&'static str] = &["integer", "string"];
    const LEAST: Option<u32> = Some(1);

    fn read(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::Integer(i) => i.to_string().parse().ok(),
            toml::Value::String(s) if s.contains(':') => s.parse().ok(),
            _ => None,
        }
    }

    fn write(&self) -> toml::Value {
        match self.is_elastic() {
            true => toml::Value::String(self.to_string()),
            false => toml::Value::Integer(self.max as i64),
        }
    }
}

syntax!(NodeRange);

impl fmt::Display for NodeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_elastic() {
            true => write!(f, "{}:{}", self.min, self.max),
            false => write!(f, "{}", self.min),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_a_number_or_a_range() {
        assert_eq!("4".parse(), Ok(NodeRange::exactly(4)));
        assert_eq!("1:4".parse(), Ok(NodeRange { min: 1, max: 4 }));
        assert!(!NodeRange::exactly(4).is_elastic());
        for wrong in ["0", "4:1", "1:", ":2", "a", "", "1:2:3", "70000", "-1"] {
            assert!(wrong.parse::<NodeRange>().is_err(), "{wrong}");
        }
        for text in ["1", "2:8"] {
            assert_eq!(text.parse::<NodeRange>().map(|r| r.to_string()), Ok(text.to_owned()));
        }
    }
}
