//! What differs between two specs, key by key.

use super::Plan;
use base::display;
use spec::{Origin, Values, values};
use std::collections::BTreeSet;
use train::tasks::StandardTask;
use unicode_width::UnicodeWidthStr;

/// Maximum number of keys in a message.
pub const NAMED: usize = 8;

/// A key whose value differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Dotted path of the key, as in `optimizer.lr`.
    pub key: &'a str,
    /// `None` if it is not given.
    pub before: Option<&'a str>,
    /// `None` if it is not given.
    pub now: Option<&'a str>,
}

impl Change<'_> {
    /// `0.1, now 0.2`
    pub fn values(&self) -> String {
        let text = |of: Option<&str>| of.map_or_else(|| "not given".to_owned(), display::name);
        format!("{}, now {}", text(self.before), text(self.now))
    }

    /// Whether this is a change of `task.name` to or from a user-defined task. Named or not, the standard one has the same results.
    fn is_of_own_task(&self) -> bool {
        let is_standard = |value: &str| StandardTask::parse(value.trim_matches(['"', '\''])).is_some();
        [self.before, self.now].into_iter().flatten().any(|value| !is_standard(value))
    }

    /// Whether it only makes the run longer or shorter.
    fn is_of_length(&self) -> bool {
        matches!(self.key, "epochs" | "train.max_steps") || table_of(self.key) == "early_stop"
    }
}

/// Longer values are cut where they only serve to be compared and shown.
const LONGEST_VALUE: usize = 200;

impl Plan {
    /// See [`Plan::keys_of_results`]: long values are cut.
    pub(super) fn hashed_keys(&self) -> Values {
        let of_results = self.values.iter().filter(|value| self.changes_results(&value.key));
        let text = |value: &toml::Value| {
            let text = value.to_string();
            match text.len() > LONGEST_VALUE {
                true => {
                    format!("{}… ({} bytes)", &text[..text.floor_char_boundary(LONGEST_VALUE)], text.len())
                }
                false => text,
            }
        };
        of_results.map(|value| (value.key.clone(), text(&value.value))).collect()
    }

    /// The changes between `before` and `now` of keys on which results may depend.
    pub fn changes<'a>(&self, before: &'a Values, now: &'a Values) -> Vec<Change<'a>> {
        let mut all = between(before, now);
        all.retain(|change| match change.key {
            "task.name" => self.task.own().is_some() || change.is_of_own_task(),
            key => self.changes_results(key),
        });
        all
    }

    /// The changes since `job_toml`, the resolved spec of a run, if any of them makes this another run: results depend on it, and it
    /// changes more than the run's length. A default of a key that the program did not have yet is not a change.
    pub fn not_the_run_of(&self, job_toml: &str) -> Vec<(String, String)> {
        let own = self.to_toml();
        let (Some(before), Some(now)) = (values(job_toml), values(&own)) else { return Vec::new() };
        let is_default = |key: &str| self.values.iter().any(|v| v.key == key && v.origin == Origin::Default);
        let had_table = |table: &str| table.is_empty() || before.keys().any(|key| table_of(key) == table);
        let is_new = |c: &Change<'_>| c.before.is_none() && is_default(c.key) && had_table(table_of(c.key));
        let mut changes = self.changes(&before, &now);
        changes.retain(|change| !is_new(change));
        match changes.iter().all(Change::is_of_length) {
            true => Vec::new(),
            false => changes.iter().map(|change| (change.key.to_owned(), change.values())).collect(),
        }
    }
}

/// `optimizer` of `optimizer.lr`; empty for a key of the top level.
fn table_of(key: &str) -> &str {
    key.rsplit_once('.').map_or("", |(table, _)| table)
}

/// All keys that differ, in alphabetical order.
pub fn between<'a>(before: &'a Values, now: &'a Values) -> Vec<Change<'a>> {
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let change = |key: &'a String| {
        let [before, now] = [before, now].map(|of| of.get(key).map(String::as_str));
        (before != now).then_some(Change { key, before, now })
    };
    keys.into_iter().filter_map(change).collect()
}

/// A line for each of the first keys, with its note in a separate column, and how many more there are.
pub fn lines<'a>(said: impl IntoIterator<Item = (&'a str, String)>) -> Vec<String> {
    let all: Vec<(String, String)> = said.into_iter().map(|(key, text)| (display::name(key), text)).collect();
    let named = &all[..all.len().min(NAMED)];
    let width = named.iter().map(|(key, _)| key.width()).max().unwrap_or(0);
    let line = |(key, text): &(String, String)| format!("{key}{}  {text}", " ".repeat(width - key.width()));
    let more = (all.len() > named.len()).then(|| format!("and {} more", all.len() - named.len()));
    named.iter().map(line).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::resolved;
    use crate::registry::Registry;

    const SPEC: &str = "name = \"run\"\nseed = 3\nepochs = 6\nbatch_size = 8\n[model]\nname = \"linear\"\n\
        [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\n\
        [optimizer]\nname = \"sgd\"\nlr = 0.05\n";

    fn plan(sets: &[&str]) -> Plan {
        resolved(&Registry::standard(), SPEC, sets, 1).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The changes that make a start with `now` another run than one with `before`.
    fn changed(before: &[&str], now: &[&str]) -> Vec<String> {
        let changes = plan(now).not_the_run_of(&plan(before).to_toml());
        changes.into_iter().map(|(key, values)| format!("{key}: {values}")).collect()
    }

    #[test]
    fn another_run_has_other_keys_that_change_results() {
        assert_eq!(changed(&[], &[]), [""; 0]);
        assert_eq!(changed(&[], &["optimizer.lr=0.1", "name=other"]), ["optimizer.lr: 0.05, now 0.1"]);
        // Neither how it is launched and saved, nor its length.
        assert_eq!(changed(&[], &["launch.max_restarts=2", "save_every=\"5 steps\""]), [""; 0]);
        let longer = ["epochs=9", "train.max_steps=70", "early_stop.patience=3"];
        assert_eq!(changed(&[], &longer), [""; 0]);
        assert_eq!(changed(&longer, &[]), [""; 0]);
        // With another one, the length is listed as well.
        assert_eq!(changed(&[], &["epochs=9", "seed=4"]), ["epochs: 6, now 9", "seed: 3, now 4"]);
        let averaged = changed(&[], &["ema.decay=0.9"]);
        assert!(
            averaged.iter().any(|line| line.starts_with("ema.decay: not given, now 0.9")),
            "{averaged:?}"
        );
    }

    /// A newer program has more keys, and a run continues with it.
    #[test]
    fn the_default_of_a_key_that_is_new_is_no_change() {
        let plan = plan(&[]);
        let older = |text: &str| {
            let kept = plan.to_toml();
            let kept: Vec<&str> = kept.lines().filter(|line| !line.starts_with(text)).collect();
            plan.not_the_run_of(&kept.join("\n"))
        };
        assert_eq!(older("precision ="), []);
        // This one the spec sets.
        assert_eq!(older("seed ="), [("seed".to_owned(), "not given, now 3".to_owned())]);
        assert_eq!(plan.not_the_run_of("no spec"), []);
    }

    #[test]
    fn keys_stand_in_a_column_and_many_are_counted() {
        let said = [("seed", "1, now 2".to_owned()), ("optimizer.lr", "a".to_owned())];
        assert_eq!(lines(said), ["seed          1, now 2", "optimizer.lr  a"]);
        let keys: Vec<String> = (0..NAMED + 2).map(|i| format!("k{i}")).collect();
        let many = lines(keys.iter().map(|key| (key.as_str(), String::new())));
        assert_eq!((many.len(), many.last().map(String::as_str)), (NAMED + 1, Some("and 2 more")));
    }
}
