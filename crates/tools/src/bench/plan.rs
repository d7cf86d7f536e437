//! What is measured: every combination of transport, algorithm, element type and size is a row. Parses the lists of
//! the command line.

use super::units;
use base::error::{Error, Result};
use collectives::gloo::{AlgorithmChoice, Transport};
use collectives::{DType, ReduceOp};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// With more ranks, the checked values would not be exact in bf16 (see `pattern`).
pub const MAX_WORLD: usize = 64;
/// A larger size is taken for a typing error.
const MAX_SIZE: usize = 1 << 40;
/// More sizes are taken for an error in a range.
const MAX_SIZES: usize = 200;

/// What `ddp-run bench allreduce` measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of processes, from 2 to `MAX_WORLD` (64).
    pub world: usize,
    /// In bytes, ascending.
    pub sizes: Vec<usize>,
    /// Transports to measure; each combination with an algorithm has its own process group.
    pub transports: Vec<Transport>,
    /// All-reduce algorithms to measure.
    pub algorithms: Vec<AlgorithmChoice>,
    /// Element types to measure.
    pub dtypes: Vec<DType>,
    /// Reduction of every all-reduce; a mean requires float element types.
    pub op: ReduceOp,
    /// Seconds per row.
    pub budget: f64,
    /// Timeout of each collective, in seconds.
    pub timeout: f64,
}

/// One row, with everything that the ranks must agree on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub transport: Transport,
    pub algorithm: AlgorithmChoice,
    pub dtype: DType,
    /// Number of elements.
    pub count: usize,
}

impl Case {
    pub fn bytes(&self) -> usize {
        self.count * self.dtype.size()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = units::size(self.bytes());
        write!(f, "{size} of {}, algorithm {}, transport {}", self.dtype, self.algorithm, self.transport)
    }
}

impl Plan {
    /// Errors (exit 2): a plan that can't be measured.
    pub fn check(&self) -> Result<()> {
        if !(2..=MAX_WORLD).contains(&self.world) {
            return Err(Error::usage(format!(
                "--world {}: must be from 2 to {MAX_WORLD} processes",
                self.world
            )));
        }
        if self.op == ReduceOp::Mean
            && let Some(dtype) = self.dtypes.iter().find(|d| !d.is_float())
        {
            return Err(Error::usage(format!("--dtype {dtype}: a mean requires a float type"))
                .hint("`--op sum`, `--op max` and `--op min` take integers"));
        }
        for (flag, seconds) in [("--budget", self.budget), ("--timeout", self.timeout)] {
            if !(seconds > 0.0 && seconds <= 86_400.0) {
                return Err(Error::usage(format!("{flag} {seconds}: must be above 0 and at most 86400 s")));
            }
        }
        Ok(())
    }

    /// Each combination has its own process group.
    pub fn groups(&self) -> impl Iterator<Item = (Transport, AlgorithmChoice)> {
        self.transports.iter().flat_map(|t| self.algorithms.iter().map(|a| (*t, *a)))
    }

    /// The rows that one group measures, in order. A size is rounded down to a multiple of the element size, and is
    /// at least one element.
    pub fn cases(&self, transport: Transport, algorithm: AlgorithmChoice) -> Vec<Case> {
        let case = |dtype: DType, bytes: usize| {
            let count = (bytes / dtype.size()).max(1);
            Case { transport, algorithm, dtype, count }
        };
        let mut cases: Vec<Case> =
            self.dtypes.iter().flat_map(|d| self.sizes.iter().map(|s| case(*d, *s))).collect();
        cases.dedup();
        cases
    }

    /// All rows in the order of measurement.
    pub fn all_cases(&self) -> Vec<Case> {
        self.groups().flat_map(|(t, a)| self.cases(t, a)).collect()
    }

    /// Size of the largest row in bytes; 0 without rows.
    pub fn largest(&self) -> usize {
        self.all_cases().iter().map(Case::bytes).max().unwrap_or(0)
    }

    /// Measuring time of each row.
    pub fn budget(&self) -> Duration {
        Duration::from_secs_f64(self.budget)
    }

    /// Timeout of each collective.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }
}

/// Parses `4,1K,64M`, `min:max` (doubling) and `min:max:factor`, mixed; ascending without duplicates.
pub fn parse_sizes(text: &str) -> Result<Vec<usize>, String> {
    let mut sizes = Vec::new();
    for item in text.split(',') {
        let parts: Vec<&str> = item.split(':').collect();
        match parts[..] {
            [one] => sizes.push(parse_size(one)?),
            [min, max] => range(&mut sizes, item, parse_size(min)?, parse_size(max)?, 2)?,
            [min, max, factor] => {
                let factor = factor.trim().parse().ok().filter(|f| *f >= 2);
                let factor =
                    factor.ok_or_else(|| format!("the factor of `{item}` must be a whole number from 2"))?;
                range(&mut sizes, item, parse_size(min)?, parse_size(max)?, factor)?;
            }
            _ => return Err(format!("`{item}` is neither a size nor a range min:max:factor")),
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.len() {
        0..=MAX_SIZES => Ok(sizes),
        n => Err(format!("{n} sizes are too many (at most {MAX_SIZES})")),
    }
}

fn range(out: &mut Vec<usize>, item: &str, min: usize, max: usize, factor: usize) -> Result<(), String> {
    if min > max {
        return Err(format!("the range `{item}` starts above its end"));
    }
    out.extend(std::iter::successors(Some(min), |s| s.checked_mul(factor)).take_while(|s| *s <= max));
    Ok(())
}

/// Parses `4`, `1K`, `64M`, `2G`: bytes, in powers of 1024.
fn parse_size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1usize),
    };
    let whole = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<usize>().ok()).flatten();
    match whole.and_then(|n| n.checked_mul(unit)) {
        Some(0) => Err("a size is at least 1 byte".into()),
        Some(n) if n <= MAX_SIZE => Ok(n),
        Some(_) => Err(format!("{text} is too large")),
        None => Err(format!("`{text}` is not a size: use bytes, or K, M, G as in 64K")),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn plan() -> Plan {
        Plan {
            world: 2,
            sizes: vec![4, 1024],
            transports: vec![Transport::Tcp],
            algorithms: vec![AlgorithmChoice::Auto, AlgorithmChoice::Ring],
            dtypes: vec![DType::F32],
            op: ReduceOp::Mean,
            budget: 0.01,
            timeout: 10.0,
        }
    }

    #[test]
    fn sizes_and_ranges_are_sorted_and_deduplicated() {
        assert_eq!(parse_sizes("1M, 4,1K,4").unwrap(), [4, 1 << 10, 1 << 20]);
        assert_eq!(parse_sizes("1K:256K:4").unwrap(), [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18]);
        assert_eq!(parse_sizes("3:20").unwrap(), [3, 6, 12]);
        assert_eq!(parse_sizes("4,1k:1k,1g").unwrap(), [4, 1 << 10, 1 << 30]);
    }

    #[test]
    fn rejects_invalid_sizes() {
        for (text, part) in [
            ("", "not a size"),
            ("4,,8", "not a size"),
            ("0", "at least 1 byte"),
            ("0:8", "at least 1 byte"),
            ("-4", "not a size"),
            ("+4", "not a size"),
            ("1.5K", "not a size"),
            ("K", "not a size"),
            ("4Ki", "not a size"),
            ("4ü", "not a size"),
            ("8:4", "starts above"),
            ("1:8:1", "factor"),
            ("1:8:x", "factor"),
            ("1:2:3:4", "nor a range"),
            ("99999999999999999999", "not a size"),
            ("9999999999G", "too large"),
        ] {
            let error = parse_sizes(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn rejects_too_few_processes_and_a_mean_of_integers() {
        for world in [0, 1, MAX_WORLD + 1] {
            let error = Plan { world, ..plan() }.check().unwrap_err();
            assert!(error.message.contains(&format!("--world {world}")), "{error}");
        }
        assert!(Plan { dtypes: vec![DType::F32, DType::I64], ..plan() }.check().is_err());
        assert!(Plan { dtypes: vec![DType::I64], op: ReduceOp::Sum, ..plan() }.check().is_ok());
        assert!(Plan { budget: f64::NAN, ..plan() }.check().is_err());
        assert!(Plan { timeout: 0.0, ..plan() }.check().is_err());
    }

    #[test]
    fn every_combination_is_a_row() {
        let plan = Plan { dtypes: vec![DType::F64, DType::BF16], sizes: vec![1, 4, 11], ..plan() };
        let cases = plan.all_cases();
        let bytes: Vec<usize> = cases.iter().map(Case::bytes).collect();
        assert_eq!(bytes, [8, 2, 4, 10, 8, 2, 4, 10], "equal neighbours are one row");
        assert_eq!(plan.largest(), 10);
    }
}
