//! `sweep.json`: the sweep's children and how far they are, replaced as a whole with each change.

use super::expand::Point;
use super::schedule::{Child, ChildState};
use base::display;
use base::error::{Error, IoContext, Result};
use base::files;
use job::plan::Plan;
use job::plan::changes::{between, lines};
use serde::{Deserialize, Serialize};
use spec::{Values, values};
use std::collections::BTreeMap;
use std::path::Path;

/// The file in the sweep's folder.
pub const FILE: &str = crate::runs::SWEEP;
/// The spec without `[sweep]` and bases, which the children run.
pub const SPEC: &str = "spec.toml";

/// What identifies a sweep, and its children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// The program's version.
    pub ddp_run: String,
    /// The spec as typed.
    pub spec: String,
    /// The hash of the first child's spec.
    pub hash: String,
    pub metric: String,
    pub prefers_larger: bool,
    /// With successive halving: the length of each rung.
    pub rungs: Vec<String>,
    /// What sweeps with the same children have in common: the settings that choose them, and the first child's values that change results.
    pub identity: BTreeMap<String, String>,
    pub children: Vec<Record>,
}

/// A child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The name of its folder.
    pub name: String,
    /// The values of the keys that the sweep varies, as `--set` takes them.
    pub set: BTreeMap<String, String>,
    /// The hash of its spec.
    pub hash: String,
    pub processes: usize,
    pub state: ChildState,
    pub rung: usize,
    /// The best value of the metric so far, at the end of each rung.
    pub values: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    /// The child that it continued a copy of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub continues: Option<String>,
}

impl Record {
    pub fn new(name: String, point: &Point, plan: &Plan) -> Self {
        Self {
            name,
            set: point.iter().cloned().collect(),
            hash: plan.hash.clone(),
            processes: plan.world.nproc_per_node,
            state: ChildState::Waiting,
            rung: 0,
            values: Vec::new(),
            exit_code: None,
            continues: None,
        }
    }

    pub fn take(&mut self, child: &Child) {
        (self.state, self.rung, self.exit_code) = (child.state, child.rung, child.exit_code);
        self.values.clone_from(&child.values);
    }

    pub fn child(&self, behind: Option<usize>) -> Child {
        Child {
            state: self.state,
            rung: self.rung,
            values: self.values.clone(),
            exit_code: self.exit_code,
            behind,
        }
    }
}

/// The values of a plan that change results.
pub fn results(plan: &Plan) -> Values {
    values(&plan.results_toml()).unwrap_or_default()
}

impl File {
    /// The file in a sweep's folder; `None` if there is none.
    ///
    /// # Errors
    /// Exit code 74: it can't be read, or is damaged.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_text(&path).doing("read", &path)?;
        let wrong = |why: String| {
            Error::io(format!("{} is not the file of a sweep: {why}", path.display()))
                .hint("`--out DIR` starts a sweep elsewhere")
        };
        let file: Self = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        // A child has a value for each rung, so this many are allocated.
        match file.children.iter().find(|child| child.rung > file.rungs.len()) {
            Some(child) => {
                Err(wrong(format!("child {} is on rung {}", display::name(&child.name), child.rung)))
            }
            None => Ok(Some(file)),
        }
    }

    pub fn write(&self, folder: &Path) -> Result<()> {
        files::replace_json(&folder.join(FILE), self)
    }

    /// Takes over how far the children of `before` are, the same sweep.
    ///
    /// # Errors
    /// Exit code 78: it is another sweep; the message says what differs.
    pub fn continues(&mut self, before: &Self, folder: &Path) -> Result<()> {
        let changes = between(&before.identity, &self.identity);
        let of_children = self.children.iter().zip(&before.children).find_map(|(now, then)| {
            let all = |of: &Record| (of.name.clone(), of.set.clone(), of.hash.clone(), of.processes);
            (all(now) != all(then)).then(|| (now.name.clone(), difference(then, now)))
        });
        let numbers = (self.children.len() != before.children.len()).then(|| {
            ("children".to_owned(), format!("{}, now {}", before.children.len(), self.children.len()))
        });
        let mut said: Vec<(String, String)> =
            changes.iter().map(|change| (change.key.to_owned(), change.values())).collect();
        if said.is_empty() {
            said.extend(numbers.into_iter().chain(of_children));
        }
        if said.is_empty() {
            for (now, then) in self.children.iter_mut().zip(&before.children) {
                now.clone_from(then);
            }
            return Ok(());
        }
        let said = lines(said.iter().map(|(key, text)| (key.as_str(), text.clone())));
        let said: String = said.iter().map(|line| format!("\n  {line}")).collect();
        Err(Error::spec(format!("{} has another sweep{said}", folder.display())).hint(
            "`--out DIR` starts a new sweep; with the same settings and spec as before, this one continues",
        ))
    }
}

/// What differs between the child of the same place in two sweeps.
fn difference(then: &Record, now: &Record) -> String {
    match () {
        () if now.name != then.name => format!("was {}", then.name),
        () if now.processes != then.processes => {
            format!("{} processes, now {}; `launch.nproc_per_node` fixes them", then.processes, now.processes)
        }
        () => "another spec".to_owned(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn file(children: &[(&str, ChildState, Option<f64>)]) -> File {
        let record = |(number, (lr, state, value)): (usize, &(&str, ChildState, Option<f64>))| Record {
            name: format!("{:02}_lr-{lr}", number + 1),
            set: BTreeMap::from([("optimizer.lr".to_owned(), (*lr).to_owned())]),
            hash: format!("hash of {lr}"),
            processes: 1,
            state: *state,
            rung: 0,
            values: vec![*value],
            exit_code: None,
            continues: None,
        };
        File {
            ddp_run: "0.1.0".into(),
            spec: "job.toml".into(),
            hash: "h".into(),
            metric: "val.loss".into(),
            prefers_larger: false,
            rungs: Vec::new(),
            identity: BTreeMap::from([
                ("sweep.grid".to_owned(), "lr".to_owned()),
                ("seed".to_owned(), "1".to_owned()),
            ]),
            children: children.iter().enumerate().map(record).collect(),
        }
    }

    #[test]
    fn the_same_sweep_continues_and_another_is_refused_with_what_differs() {
        let folder = tempfile::tempdir().unwrap();
        assert!(File::read(folder.path()).unwrap().is_none());
        let before = file(&[("0.1", ChildState::Done, Some(0.5)), ("0.2", ChildState::Waiting, None)]);
        before.write(folder.path()).unwrap();
        let before = File::read(folder.path()).unwrap().unwrap();
        let new = || file(&[("0.1", ChildState::Waiting, None), ("0.2", ChildState::Waiting, None)]);
        let mut same = new();
        same.continues(&before, folder.path()).unwrap();
        assert_eq!(same, before);

        let refused = |change: &dyn Fn(&mut File)| {
            let mut other = new();
            change(&mut other);
            other.continues(&before, folder.path()).unwrap_err().to_string()
        };
        let of_seed = refused(&|file| drop(file.identity.insert("seed".to_owned(), "2".to_owned())));
        assert!(of_seed.contains("seed  1, now 2") && of_seed.contains("--out DIR"), "{of_seed}");
        let fewer = refused(&|file| drop(file.children.pop()));
        assert!(fewer.contains("children  2, now 1"), "{fewer}");
        let processes = refused(&|file| file.children[1].processes = 2);
        assert!(processes.contains("02_lr-0.2  1 processes, now 2"), "{processes}");
        let name = refused(&|file| file.children[1].name = "02_lr-0.3".to_owned());
        assert!(name.contains("02_lr-0.3  was 02_lr-0.2"), "{name}");
    }

    #[test]
    fn a_damaged_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(File::read(folder.path()).unwrap_err().message.contains("is not the file of a sweep"));
        // As many values would be allocated.
        let mut forged = file(&[("0.1", ChildState::Waiting, None)]);
        forged.children[0].rung = usize::MAX;
        forged.write(folder.path()).unwrap();
        let error = File::read(folder.path()).unwrap_err();
        assert!(error.message.contains("child 01_lr-0.1 is on rung 18446744073709551615"), "{error}");
    }
}
