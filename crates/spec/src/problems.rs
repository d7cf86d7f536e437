//! What a reader of a table reports, each at its place.

use super::diagnostics::{Problem, ProblemKind};
use super::fields::Fields;
use super::source::Span;
use super::suggest::{closest, did_you_mean};
use super::tree::{Node, Value};

impl Fields<'_> {
    /// Reports a problem with `key`'s value, or with the table if the key is not set.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        let message = message.into();
        let inherited = self.inherited.as_ref().filter(|i| !self.has(key) && i.values.contains_key(key));
        let message = match inherited {
            Some(inherited) => format!("`{key}` in {}: {message}", inherited.from),
            None => message,
        };
        self.problem_at(&[key], message);
    }

    /// As [`Self::problem`], with what to do about it.
    pub fn problem_with_hint(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        let problem = Problem::new(self.locate(&[key]), message);
        self.push(Problem { hint: Some(hint.into()), kind: ProblemKind::Judgement, ..problem });
    }

    /// Reports a problem with a nested value: `path` consists of keys of tables and indices of lists, from this table.
    /// The problem points at the deepest part that exists.
    pub fn problem_at(&mut self, path: &[&str], message: impl Into<String>) {
        self.push(Problem { kind: ProblemKind::Judgement, ..Problem::new(self.locate(path), message) });
    }

    /// Reports that the word at `path` is not one of `names`: `what` (`unknown augmentation`), and the closest of them.
    pub fn unknown_word_at(&mut self, path: &[&str], what: &str, typed: &str, names: &[&str]) {
        let message = format!("{what}{}", did_you_mean(typed, names.iter().copied()));
        let meant = closest(typed, names.iter().copied()).map(|best| format!("\"{best}\""));
        self.push(Problem {
            meant,
            kind: ProblemKind::Judgement,
            ..Problem::new(self.locate(path), message)
        });
    }

    /// Reports a problem with the key itself: it must not be set here.
    pub fn problem_with_key(&mut self, key: &str, message: impl Into<String>) {
        self.problem_with_key_at(&[key], message);
    }

    /// Reports those of `keys` that are set: they have no effect here, for the reason `why` (`without …`).
    pub fn misplaced(&mut self, keys: &[&str], why: &str) {
        for key in keys {
            if self.has(key) {
                self.problem_with_key(key, format!("has no effect {why}"));
            }
        }
    }

    /// As [`Fields::problem_with_key`], for a key of a nested table.
    pub fn problem_with_key_at(&mut self, path: &[&str], message: impl Into<String>) {
        let span = match path.split_last() {
            Some((key, tables)) => {
                let table =
                    tables.iter().try_fold(self.table, |table, key| match table?.get(key)?.node.value {
                        Value::Table(ref inner) => Some(Some(inner)),
                        _ => None,
                    });
                table.flatten().and_then(|t| t.get(key)).map_or_else(|| self.locate(path), |e| e.key_span)
            }
            None => self.header,
        };
        self.push(Problem { kind: ProblemKind::Judgement, ..Problem::new(span, message) });
    }

    pub(super) fn push(&self, problem: Problem) {
        self.out.problems.borrow_mut().push(problem);
    }

    pub(super) fn missing(&self, key: &str) {
        if !self.has(key) {
            let message = match self.table {
                Some(_) => format!("missing key `{key}`"),
                None => format!("missing key `{}`", self.join(key)),
            };
            self.missing_message(key, message);
        }
    }

    pub(super) fn missing_message(&self, key: &str, message: String) {
        if !self.muted {
            let problem = Problem { kind: ProblemKind::Absence, ..Problem::new(self.header, message) };
            self.out.missing.borrow_mut().push((self.path().to_owned(), key.to_owned(), problem));
        }
    }

    fn locate(&self, path: &[&str]) -> Span {
        let Some((first, rest)) = path.split_first() else { return self.header };
        let Some(entry) = self.entry(first) else { return self.header };
        let mut span =
            if matches!(entry.node.value, Value::Table(_)) { entry.header } else { entry.node.span };
        let mut value = &entry.node.value;
        for key in rest {
            let next: Option<&Node> = match value {
                Value::Table(table) => table.get(key).map(|e| &e.node),
                Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get(i)),
                _ => None,
            };
            let Some(node) = next else { break };
            span = node.span;
            value = &node.value;
        }
        span
    }
}
