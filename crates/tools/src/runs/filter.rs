//! `--filter "val.accuracy>=0.9"` and `--sort -val.accuracy`.

use super::facts::Fact;
use super::folder::{RunFolder, RunStatus};
use record::Relation;
use spec::closest;
use std::cmp::Ordering;
use std::str::FromStr;

/// A condition that a run meets or does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The fact, metric or spec key that is tested: `state`, `val.accuracy`, `optimizer.lr`.
    pub key: String,
    test: Test,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Is,
    IsNot,
    Contains,
    Lacks,
    Compares(Relation),
}

impl Test {
    /// The test whose sign `text` begins with, and what follows it. Longer signs come first.
    fn before(text: &str) -> Option<(Self, &str)> {
        let signs = [
            ("==", Self::Is),
            ("!=", Self::IsNot),
            ("!~", Self::Lacks),
            ("=", Self::Is),
            ("~", Self::Contains),
        ];
        let plain = signs.into_iter().find_map(|(sign, test)| Some((test, text.strip_prefix(sign)?)));
        plain.or_else(|| Relation::before(text).map(|(relation, rest)| (Self::Compares(relation), rest)))
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let expected =
            "expected KEY=VALUE (or !=, >=, <=, >, <, ~, !~), as in \"state=done\" or \"val.accuracy>=0.9\"";
        let at =
            typed.find(['<', '>', '=', '!', '~']).ok_or(format!("there is no comparison; {expected}"))?;
        let key = typed[..at].trim();
        let read = Test::before(&typed[at..]);
        let (test, value) = read.ok_or_else(|| format!("`!` alone compares nothing; {expected}"))?;
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(format!("`{key}` is not a key; {expected}"));
        }
        let value = value.trim();
        if value.is_empty() || value.starts_with(['<', '>', '=', '!', '~']) {
            let sign = typed[at..].trim();
            return Err(format!("`{sign}` is not a comparison and a value; {expected}"));
        }
        let value = super::folder::plain(value);
        if key == "state" && matches!(test, Test::Is | Test::IsNot) && !RunStatus::WORDS.contains(&value) {
            return Err(format!("`{value}` is not a state: a run is {}", RunStatus::WORDS.join(", ")));
        }
        Ok(Self { key: key.to_owned(), test, value: value.to_owned() })
    }
}

impl Filter {
    /// The warning about a key that is a number in all `runs` that have it, if the value to compare it with is not.
    pub(super) fn unfit(&self, runs: &[RunFolder]) -> Option<String> {
        let compares = matches!(self.test, Test::Is | Test::IsNot | Test::Compares(_));
        let mut facts = runs.iter().filter_map(|run| run.fact(&self.key)).peekable();
        let unfit = compares && self.value.parse::<f64>().is_err() && facts.peek().is_some();
        (unfit && facts.all(|fact| matches!(fact, Fact::Number(_))))
            .then(|| format!("`{}` is a number, and `{}` is none", self.key, self.value))
    }

    /// A run without the key meets only a condition that excludes a value.
    pub fn holds(&self, run: &RunFolder) -> bool {
        let Some(fact) = run.fact(&self.key) else { return matches!(self.test, Test::IsNot | Test::Lacks) };
        let bound = self.value.parse::<f64>();
        let is = || match (&fact, &bound) {
            (Fact::Number(number), Ok(bound)) => number == bound,
            (fact, _) => fact.text() == self.value,
        };
        match self.test {
            Test::Is => is(),
            Test::IsNot => !is(),
            Test::Contains => fact.text().contains(&self.value),
            Test::Lacks => !fact.text().contains(&self.value),
            Test::Compares(relation) => match (&fact, bound) {
                (Fact::Number(number), Ok(bound)) => relation.holds(*number, bound),
                // Times are ordered as texts are.
                (Fact::Text(text), _) => relation.holds(text.as_str(), self.value.as_str()),
                (Fact::Number(_), Err(_)) => false,
            },
        }
    }
}

/// `KEY`, or `-KEY` from the largest to the smallest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortBy {
    /// The fact, metric or spec key to sort by, without the `-`.
    pub key: String,
    /// Whether the largest value comes first.
    pub descending: bool,
}

impl SortBy {
    /// The last start first.
    pub fn newest_first() -> Self {
        Self { key: "started".to_owned(), descending: true }
    }

    /// Runs without the key come last; runs that are equal stay in their order.
    pub fn apply(&self, runs: &mut [RunFolder]) {
        runs.sort_by(|a, b| match (a.fact(&self.key), b.fact(&self.key)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) if self.descending => order(&b, &a),
            (Some(a), Some(b)) => order(&a, &b),
        });
    }
}

impl FromStr for SortBy {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let key = typed.strip_prefix('-').unwrap_or(typed);
        match key.is_empty() {
            true => Err("expected KEY or -KEY, as in \"-val.accuracy\"".to_owned()),
            false => Ok(Self { key: key.to_owned(), descending: key.len() < typed.len() }),
        }
    }
}

/// Numbers before texts.
fn order(a: &Fact, b: &Fact) -> Ordering {
    match (a, b) {
        (Fact::Number(a), Fact::Number(b)) => a.total_cmp(b),
        (Fact::Text(a), Fact::Text(b)) => a.cmp(b),
        (Fact::Number(_), Fact::Text(_)) => Ordering::Less,
        (Fact::Text(_), Fact::Number(_)) => Ordering::Greater,
    }
}

/// The warning about a key that none of the runs has.
pub(super) fn unknown(key: &str, runs: &[RunFolder]) -> Option<String> {
    if runs.is_empty()
        || runs.iter().any(|run| run.fact(key).is_some() || run.keys().any(|known| known == key))
    {
        return None;
    }
    let near = closest(key, runs.iter().flat_map(RunFolder::keys));
    let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Some(format!("no run has `{key}`{near}"))
}
