//! Trees derived from others: a part of a spec, or the same spec with more edits. Positions still refer to the texts.

use super::load::JobTree;
use super::overrides::{self, Override};
use super::tree::Value;
use std::sync::Arc;

impl JobTree {
    /// Only this key of the top level.
    pub fn only(&self, key: &str) -> JobTree {
        let mut tree = self.clone();
        tree.root.entries.retain(|entry| entry.key == key);
        tree
    }

    /// All but this key of the top level.
    pub fn without(&self, key: &str) -> JobTree {
        let mut tree = self.clone();
        tree.root.entries.retain(|entry| entry.key != key);
        tree
    }

    /// With these edits after those that were made. Their problems are kept as those of [`JobTree::load`] are.
    pub fn edited(&self, edits: &[Override]) -> JobTree {
        let mut tree = self.clone();
        let mut sources = tree.sources.to_vec();
        let problems = overrides::apply(&mut tree.root, edits, &mut sources);
        tree.sources = Arc::new(sources);
        tree.shaky |= !problems.is_empty();
        tree.early.extend(problems);
        tree
    }

    /// What is set, as one spec without bases.
    pub fn to_toml(&self) -> String {
        let root = Value::Table(self.root.clone()).to_toml();
        toml::to_string_pretty(&root).expect("a table of TOML values is always TOML")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_parts_and_takes_further_edits() {
        let text =
            "name = \"a\"\n[sweep]\nparallel = 2\n[optimizer]\nlr = 0.1\n[[scheduler]]\nname = \"step\"\n";
        let tree = JobTree::parse("job.toml", text, &[]);
        assert_eq!(tree.only("sweep").to_toml(), "[sweep]\nparallel = 2\n");
        let edited = tree.without("sweep").edited(&[Override::Set("optimizer.lr=0.2".to_owned())]);
        let table: toml::Table = edited.to_toml().parse().expect("it is TOML");
        let expected = "name = \"a\"\n[optimizer]\nlr = 0.2\n[[scheduler]]\nname = \"step\"\n";
        assert_eq!(table, expected.parse().expect("it is TOML"));
        assert!(tree.edited(&[Override::Set("optimizer".to_owned())]).read(|_| ()).is_err());
    }
}
