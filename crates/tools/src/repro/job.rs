//! The spec of a run that is started again: the recorded one, with other values of keys that results do not depend on.

use base::error::{Error, Result};
use std::path::Path;
use toml::{Table, Value};

/// A resolved spec that is edited key by key.
#[derive(Clone, Debug, PartialEq)]
pub struct EditedSpec(Table);

impl EditedSpec {
    /// Of the text in `file`.
    ///
    /// # Errors
    /// It is not TOML (exit 78).
    pub fn parse(file: &Path, text: &str) -> Result<Self> {
        text.parse().map(Self).map_err(|e| Error::spec(format!("{} is not TOML: {e}", file.display())))
    }

    /// With the values that `other` has of these dotted keys, or without them.
    pub fn with(&self, other: &Self, keys: &[&str]) -> Self {
        let mut job = self.clone();
        for key in keys {
            match other.get(key) {
                Some(value) => job.set(key, value.clone()),
                None => job.unset(key),
            };
        }
        job
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let mut parts = key.split('.');
        let first = self.0.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.as_table()?.get(part))
    }

    /// Without what tells others of the run, and what belongs to its launch on several nodes: it is started here, on one.
    pub fn on_its_own(mut self) -> Self {
        for key in
            ["observer", "metrics.sinks", "launch.nnodes", "launch.rdzv_endpoint", "launch.nproc_per_node"]
        {
            self.unset(key);
        }
        self.set("launch.requeue", false).set("launch.max_restarts", 0i64);
        self
    }

    /// Sets a dotted key.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let mut table = &mut self.0;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                table.insert(part.to_owned(), value.into());
                return self;
            }
            let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(next) = inner else { return self };
            table = next;
        }
        self
    }

    /// Removes a dotted key, or a table.
    pub fn unset(&mut self, key: &str) -> &mut Self {
        match key.rsplit_once('.') {
            None => drop(self.0.remove(key)),
            Some((table, key)) => {
                if let Some(Value::Table(table)) = self.0.get_mut(table) {
                    table.remove(key);
                }
            }
        }
        self
    }

    /// The spec as TOML text.
    pub fn text(&self) -> String {
        toml::to_string(&self.0).expect("a table of TOML values is always TOML")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "name = \"a\"\n[metrics]\nlog_every = 5\nsinks = [\"csv\"]\n[launch]\nnnodes = \"2\"\nrdzv_endpoint = \"a:1\"\n\
        [[observer]]\nname = \"mlflow\"\n";

    #[test]
    fn a_run_of_its_own_tells_nobody() {
        let parse = |text: &str| EditedSpec::parse(Path::new("job.toml"), text);
        let mut job = parse(SPEC).unwrap().on_its_own();
        job.set("checkpoint.keep_last", 0i64).set("epochs", 3i64).unset("no.such").unset("such");
        let read: Table = job.text().parse().unwrap();
        assert_eq!(read["metrics"], Value::Table("log_every = 5".parse().unwrap()));
        assert_eq!(read["launch"], Value::Table("requeue = false\nmax_restarts = 0".parse().unwrap()));
        assert_eq!((read.get("observer"), &read["epochs"]), (None, &Value::Integer(3)));
        assert_eq!(read["checkpoint"]["keep_last"].as_integer(), Some(0));
        assert_eq!(parse("[").unwrap_err().kind, base::error::ErrorKind::Spec);
        let other = parse("epochs = 9\nsave_every = 2\n[metrics]\nlog_every = 1\n").unwrap();
        let with = job.with(&other, &["save_every", "metrics.log_every", "checkpoint.keep_last"]);
        let read: Table = with.text().parse().unwrap();
        assert_eq!((&read["epochs"], &read["save_every"]), (&Value::Integer(3), &Value::Integer(2)));
        assert_eq!(
            (read["metrics"]["log_every"].as_integer(), read["checkpoint"].get("keep_last")),
            (Some(1), None)
        );
    }
}
