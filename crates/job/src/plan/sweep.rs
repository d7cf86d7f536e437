//! `[sweep]`: the runs that `ddp-run sweep` starts. Every other command checks the table and ignores it.

use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Syntax, syntax};
use toml::Value;

/// `[sweep]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct SweepConfig {
    /// Keys of the spec, each with the list of its values. Every combination is a run.
    pub grid: Option<Grid>,
    /// Keys of the spec, each with the distribution of its values: `"uniform(0, 0.5)"`, `"log-uniform(1e-4, 1e-1)"` or
    /// `"choice(sgd, adamw)"`. Bounds that are both integers give integers.
    pub sample: Option<Space>,
    /// Samples to draw; each is run with every combination of `grid`. Without `sample`: combinations to choose from `grid`.
    #[schemars(range(min = 1, max = 10_000))]
    pub random: Option<u64>,
    /// Seed of the random samples.
    pub seed: u64,
    /// Metric that ranks the runs, as for `checkpoint.best`, which it sets. Default: `checkpoint.best`.
    pub metric: Option<String>,
    /// Successive halving: all runs begin with this many epochs.
    #[schemars(range(min = 1))]
    pub min_epochs: Option<u64>,
    /// Successive halving: all runs begin with this many optimizer steps.
    #[schemars(range(min = 1))]
    pub min_steps: Option<u64>,
    /// Successive halving: the best of so many runs continues, for so many times as long.
    #[default = 3]
    #[schemars(range(min = 2, max = 1000))]
    pub eta: u64,
    /// Runs at the same time, which share the cores, or the CUDA devices.
    #[default = 1]
    #[schemars(range(min = 1, max = 4096))]
    pub parallel: usize,
    /// Stop all runs when one fails.
    pub fail_fast: bool,
}

/// Keys with the values that each of them takes, as TOML.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid(pub Vec<(String, Vec<String>)>);

impl Syntax for Grid {
    const EXPECTED: &'static str =
        "a table of keys, each with a list of its values, as in `optimizer.lr = [1e-3, 3e-4]`";
    const TYPES: &'static [&'static str] = &["object"];

    fn read(value: &Value) -> Option<Self> {
        let leaf = |value: &Value| match value {
            Value::Array(items) if !items.is_empty() => Some(items.iter().map(Value::to_string).collect()),
            _ => None,
        };
        leaves(value.as_table()?, &leaf).map(Self)
    }

    fn write(&self) -> Value {
        let list = |values: &Vec<String>| Value::Array(values.iter().map(|text| as_toml(text)).collect());
        Value::Table(self.0.iter().map(|(key, values)| (key.clone(), list(values))).collect())
    }
}

syntax!(Grid);

/// Keys with the distributions of their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space(pub Vec<(String, Distribution)>);

impl Syntax for Space {
    const EXPECTED: &'static str =
        "a table of keys, each with a distribution, as in `optimizer.lr = \"log-uniform(1e-4, 1e-1)\"`";
    const TYPES: &'static [&'static str] = &["object"];

    fn read(value: &Value) -> Option<Self> {
        let leaf = |value: &Value| Distribution::parse(value.as_str()?).ok();
        leaves(value.as_table()?, &leaf).map(Self)
    }

    fn write(&self) -> Value {
        let text = |of: &Distribution| Value::String(of.to_string());
        Value::Table(self.0.iter().map(|(key, of)| (key.clone(), text(of))).collect())
    }
}

syntax!(Space);

/// The values below a table by their dotted keys, in the order of the text; `None` if one is not what `read` takes.
fn leaves<T>(table: &toml::Table, read: &dyn Fn(&Value) -> Option<T>) -> Option<Vec<(String, T)>> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                let below = leaves(inner, read)?;
                found.extend(below.into_iter().map(|(path, leaf)| (format!("{key}.{path}"), leaf)));
            }
            value => found.push((key.clone(), read(value)?)),
        }
    }
    (!found.is_empty()).then_some(found)
}

/// A value as `--set` takes it.
pub fn as_toml(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// How the values of a key are distributed.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Uniform in the range.
    Uniform(Range),
    /// The logarithm is uniform.
    LogUniform(Range),
    /// Each with the same probability, as TOML.
    Choice(Vec<String>),
}

/// From `low` to `high`.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Smallest value; finite and below `high`.
    pub low: f64,
    /// Largest value; finite.
    pub high: f64,
    /// Only integers; `high` is one of them.
    pub whole: bool,
}

impl Distribution {
    /// `uniform(LOW, HIGH)`, `log-uniform(LOW, HIGH)` or `choice(A, B, …)`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected `uniform(LOW, HIGH)`, `log-uniform(LOW, HIGH)` or `choice(A, B, …)`";
        let parts = text.trim().strip_suffix(')').and_then(|text| text.split_once('('));
        let (kind, inner) = parts.ok_or(EXPECTED)?;
        let inner = list(inner)?;
        match kind.trim() {
            "uniform" => Range::parse(&inner).map(Self::Uniform),
            "log-uniform" => {
                let range = Range::parse(&inner)?;
                match range.low > 0.0 {
                    true => Ok(Self::LogUniform(range)),
                    false => Err("the bounds of `log-uniform` are above 0".to_owned()),
                }
            }
            "choice" => Ok(Self::Choice(inner)),
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

impl Range {
    fn parse(bounds: &[String]) -> Result<Self, String> {
        let [low, high] = bounds else {
            return Err(format!("a range has two bounds, not {}", bounds.len()));
        };
        let number = |text: &String| {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("`{text}` is not a number"))
        };
        let whole = [low, high].iter().all(|text| text.parse::<i64>().is_ok());
        let range = Self { low: number(low)?, high: number(high)?, whole };
        match range.low < range.high {
            true => Ok(range),
            false => Err(format!("the lower bound {low} is not below the upper bound {high}")),
        }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform(range) => write!(f, "uniform({range})"),
            Self::LogUniform(range) => write!(f, "log-uniform({range})"),
            Self::Choice(values) => write!(f, "choice({})", values.join(", ")),
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.whole {
            true => write!(f, "{}, {}", self.low as i64, self.high as i64),
            // With a point or an exponent, so that it is read as the same range.
            false => write!(f, "{:?}, {:?}", self.low, self.high),
        }
    }
}

/// The values of a list without brackets around it, as in `1e-3,3e-4`. Commas in quotes and brackets belong to a value.
///
/// # Errors
/// A value is missing, or quotes or brackets do not match.
pub fn list(text: &str) -> Result<Vec<String>, String> {
    let (mut values, mut value) = (Vec::new(), String::new());
    let (mut depth, mut quote) = (0usize, None);
    for c in text.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(c),
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => {
                depth = depth.checked_sub(1).ok_or_else(|| format!("`{c}` closes nothing in `{text}`"))?;
            }
            (',', None) if depth == 0 => {
                values.push(std::mem::take(&mut value).trim().to_owned());
                continue;
            }
            _ => {}
        }
        value.push(c);
    }
    if depth > 0 || quote.is_some() {
        return Err(format!("quotes or brackets are open at the end of `{text}`"));
    }
    values.push(value.trim().to_owned());
    match values.iter().any(String::is_empty) {
        true => Err(format!("a value is missing in `{text}`")),
        false => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::resolved;
    use crate::registry::Registry;

    const SPEC: &str = "name = \"run\"\nbatch_size = 8\n[model]\nname = \"linear\"\n\
        [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\n[optimizer]\nname = \"sgd\"\nlr = 0.05\n";

    #[test]
    fn the_table_is_read_and_changes_neither_hash_nor_other_values() {
        let with = format!(
            "{SPEC}[sweep]\nrandom = 4\n[sweep.grid]\noptimizer.lr = [1e-3, 3e-4]\n\"seed\" = [1, 2]\n\
             model.name = [\"linear\"]\n[sweep.sample]\nbatch_size = \"uniform(4, 16)\"\n"
        );
        let registry = Registry::standard();
        let plan = |text: &str| resolved(&registry, text, &[], 1).unwrap_or_else(|e| panic!("{e}"));
        let (plain, swept) = (plan(SPEC), plan(&with));
        assert_eq!(plain.hash, swept.hash);
        assert!(plain.values.iter().all(|value| !value.key.starts_with("sweep")));
        assert!(plain.sweep.is_none());
        assert!(
            plain.not_the_run_of(&swept.to_toml()).is_empty()
                && swept.not_the_run_of(&plain.to_toml()).is_empty()
        );
        let config = swept.sweep.clone().expect("it is there");
        let grid = config.grid.expect("it is set");
        assert_eq!(grid.0[0], ("optimizer.lr".to_owned(), vec!["0.001".to_owned(), "0.0003".to_owned()]));
        assert_eq!(grid.0[2], ("model.name".to_owned(), vec!["\"linear\"".to_owned()]));
        assert_eq!((config.random, config.eta, config.parallel), (Some(4), 3, 1));
        // What is resolved is read as the same, but for the order: TOML has the keys of a table before its tables.
        let mut sorted = swept.sweep.clone();
        sorted
            .iter_mut()
            .flat_map(|config| &mut config.grid)
            .for_each(|grid| grid.0.sort_by_key(|(key, _)| key.contains('.')));
        assert_eq!(plan(&swept.to_toml()).sweep, sorted);
        assert!(!swept.usage_toml().contains("sweep"));
        for (wrong, why) in [
            ("sweep.grid.seed=1", "a list of its values"),
            ("sweep.grid.seed=[]", "a list of its values"),
            ("sweep.sample.seed=\"gauss(1, 2)\"", "a distribution"),
            ("sweep.eta=1", "1000"),
            ("sweep.pralel=1", "parallel"),
        ] {
            let problems = resolved(&registry, &with, &[wrong], 1).expect_err(wrong).to_string();
            assert!(problems.contains(why), "{wrong}: {problems}");
        }
    }

    #[test]
    fn distributions_have_a_syntax() {
        for text in [
            "uniform(0.0, 0.5)",
            "uniform(4, 16)",
            "log-uniform(0.0001, 0.1)",
            "choice(sgd, \"a, b\", [1, 2])",
        ] {
            let read = Distribution::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(read.to_string(), text);
        }
        let bounds = Range { low: 1.0, high: 2.0, whole: true };
        assert_eq!(Distribution::parse(" uniform( 1,2 ) "), Ok(Distribution::Uniform(bounds)));
        for wrong in [
            "uniform",
            "uniform(1)",
            "uniform(2, 1)",
            "uniform(a, 2)",
            "log-uniform(0, 1)",
            "choice()",
            "normal(0, 1)",
        ] {
            assert!(Distribution::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_are_split_at_commas_outside_of_quotes_and_brackets() {
        assert_eq!(list("1e-3, 3e-4"), Ok(vec!["1e-3".to_owned(), "3e-4".to_owned()]));
        assert_eq!(list("[8, 8],[16]"), Ok(vec!["[8, 8]".to_owned(), "[16]".to_owned()]));
        assert_eq!(list("\"a,b\""), Ok(vec!["\"a,b\"".to_owned()]));
        for wrong in ["", "1,,2", "1,", "[1", "1]", "\"a"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
