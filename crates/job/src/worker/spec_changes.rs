//! The changes in the spec of a run that continues, key by key: those that it refuses, and those that it lists. A
//! checkpoint's spec is `job.toml` in its run's folder; its optimizer is described in the checkpoint itself.

use super::handoff::JobHandoff;
use super::start_state::newest_step;
use crate::plan::Plan;
use crate::plan::changes::{Change, NAMED, between, lines};
use base::display;
use base::error::{Error, Result};
use base::files;
use checkpoint::{Loaded, RunState};
use data::Encoding;
use record::history;
use spec::{Values, values};
use std::path::{Path, PathBuf};

/// The spec of this start as a whole, to be compared with another one.
#[derive(Clone, Copy)]
pub struct OwnSpec<'a>(&'a Plan);

impl<'a> OwnSpec<'a> {
    /// The spec that `plan` was resolved from.
    pub fn new(plan: &'a Plan) -> Self {
        Self(plan)
    }

    /// `[optimizer]`, as a checkpoint describes it.
    pub fn optimizer(self) -> serde_json::Map<String, serde_json::Value> {
        self.0.table("optimizer")
    }

    /// The name of the communication hook.
    pub fn hook(self) -> Option<&'a str> {
        self.0.comm_hook.as_ref().map(|hook| hook.name())
    }

    /// The keys of the communication hook by their dotted paths.
    pub fn hook_keys(self) -> Values {
        let of_hook = self.0.values.iter().filter(|value| value.key.starts_with(HOOK_KEYS));
        of_hook.map(|value| (value.key.clone(), value.value.to_string())).collect()
    }

    /// The keys of the communication hook that had other values `before`, if results may depend on them, with both values.
    pub fn changed_hook_keys(self, before: &Values) -> Vec<String> {
        let now = self.hook_keys();
        // A newer program may have more keys; their defaults mean what there was before.
        let is_new = |change: &Change<'_>| change.before.is_none() && !self.0.is_set(change.key);
        let changes = self.0.changes(before, &now);
        let word = |change: &Change<'_>| format!("{} = {}", display::name(change.key), change.values());
        changes.iter().filter(|change| !is_new(change)).map(word).collect()
    }
}

/// The prefix of the keys of a communication hook.
const HOOK_KEYS: &str = "distributed.hook.";

/// Checks that a start that continues the run of its folder, because the run has the same name, has the spec of that run.
/// `--resume PATH` names the checkpoint, and a start that a launcher repeats (`history::begun`) was accepted before.
///
/// # Errors
/// Exit code 78: keys that results depend on differ, and not only in the run's length.
pub fn continues_the_run(spec: OwnSpec<'_>, job: &JobHandoff) -> Result<()> {
    let run = job.provenance.as_ref().map(|start| &start.run);
    let begun = run.is_some_and(|run| history::begun(&job.out_dir, run));
    // Without a checkpoint nothing is continued: earlier files are archived.
    if job.accept_changes || job.resume != "auto" || begun || newest_step(job).is_none() {
        return Ok(());
    }
    // The start itself reports what can't be read.
    let Ok(before) = files::read_text(&job.out_dir.join("job.toml")) else { return Ok(()) };
    let changes = spec.0.not_the_run_of(&before);
    if changes.is_empty() {
        return Ok(());
    }
    let said = changes.iter().map(|(key, values)| (key.as_str(), values.clone()));
    let listed: String = lines(said).iter().map(|line| format!("\n  {line}")).collect();
    let message = format!("{} has a run with another spec{listed}", job.out_dir.display());
    Err(Error::spec(message).hint(
        "another `name` (`--set name=NAME`) or folder (`--out DIR`) starts a separate run; `--resume never` starts over here and \
         keeps the earlier run in a numbered folder; `--accept-changes` continues the run with the new values",
    ))
}

/// A line for each changed key, with both values and what the change means; empty if the earlier spec is unknown.
pub fn since(spec: OwnSpec<'_>, loaded: &Loaded, job_toml: &str) -> Vec<String> {
    let [mut before, mut now] = of_specs(&loaded.path, job_toml).unwrap_or_default();
    if let Some(optimizers) = of_optimizers(spec, &loaded.state) {
        for (all, own) in [&mut before, &mut now].into_iter().zip(optimizers) {
            all.retain(|key, _| !key.starts_with("optimizer."));
            all.extend(own);
        }
    }
    let changes = spec.0.changes(&before, &now);
    lines(changes.iter().map(|c| (c.key, format!("{}; {}", c.values(), meaning(c.key)))))
}

/// The spec of an evaluation, compared with that of its checkpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EvaluatedAs {
    /// The changes that give the same weights another meaning: of the data, of the model and of the metrics.
    pub warning: Option<String>,
    /// Whether it names other data. Keys of user-defined data sets do not count: what they mean is not known.
    pub on_other_data: bool,
}

/// Keys of `[dataset]` that name the data.
const NAMES: [&str; 12] = [
    "name",
    "root",
    "path",
    "url",
    "config",
    "table",
    "train",
    "val",
    "test",
    "images",
    "val_images",
    "test_images",
];

/// Keys of `[dataset]` that only training uses.
const OF_TRAINING: [&str; 2] = ["shuffle", "drop_last"];

impl EvaluatedAs {
    /// `known` is the encoding that the checkpoint has and the evaluation uses.
    pub fn new(spec: OwnSpec<'_>, loaded: &Loaded, known: Option<&Encoding>) -> Self {
        let Some([mut before, mut now]) = of_specs(&loaded.path, &spec.0.to_toml()) else {
            return Self::default();
        };
        let tables = ["dataset", "transform", "model", "task", "loss", "metric"];
        let encoded = known.map_or(&[][..], Encoding::keys);
        let draws = |key: &String| ["val_split", "max_train", "max_val"].iter().any(|of| key.ends_with(of));
        // Beside a table of the validation split, without a limit, nothing is drawn.
        let drawn =
            [&before, &now].iter().any(|all| !all.contains_key("dataset.val") || all.keys().any(draws));
        let is_unused = |key: &str| {
            let of_dataset = key.strip_prefix("dataset.").and_then(|key| key.split('.').next());
            of_dataset.is_some_and(|key| {
                encoded.contains(&key) || OF_TRAINING.contains(&key) || !drawn && key == "split_seed"
            })
        };
        for all in [&mut before, &mut now] {
            all.retain(|key, _| {
                let table = key.split('.').next().unwrap_or(key);
                (key == "train.loss" || tables.contains(&table)) && !is_unused(key)
            });
        }
        let names = |change: &Change<'_>| {
            let name = change.key.strip_prefix("dataset.").is_some_and(|key| NAMES.contains(&key));
            name && change.before.map(place) != change.now.map(place)
        };
        let warning = in_words(spec, &before, &now).map(|changed| {
            format!("the spec has changed since checkpoint {} was made: {changed}", loaded.path.display())
        });
        Self { warning, on_other_data: between(&before, &now).iter().any(names) }
    }
}

/// A value that may be a path, so that two names of a file are equal.
fn place(value: &str) -> PathBuf {
    let path = Path::new(value.trim_matches(['"', '\'']));
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// `optimizer.lr = 0.1, now 0.2; …` for keys of the optimizer; `None` without changes.
pub fn of_optimizer(spec: OwnSpec<'_>, state: &RunState) -> Option<String> {
    let [before, now] = of_optimizers(spec, state)?;
    in_words(spec, &before, &now)
}

fn of_specs(checkpoint: &Path, job_toml: &str) -> Option<[Values; 2]> {
    let before = files::read_text(&checkpoint.parent()?.parent()?.join("job.toml")).ok()?;
    Some([values(&before)?, values(job_toml)?])
}

fn of_optimizers(spec: OwnSpec<'_>, state: &RunState) -> Option<[Values; 2]> {
    let values = |table: &serde_json::Map<String, serde_json::Value>| {
        table.iter().map(|(key, value)| (format!("optimizer.{key}"), value.to_string())).collect()
    };
    Some([values(state.optimizer.as_object()?), values(&spec.optimizer())])
}

/// What a change of this key means for a run that continues.
fn meaning(key: &str) -> &'static str {
    match key.split('.').next().unwrap_or(key) {
        "seed" => "samples come in another order: those of a begun epoch may repeat or be missed",
        "epochs" => "schedules over the whole run have another length",
        "dataset" => "as many samples of a begun epoch as before are done",
        "model" => "the weights are the checkpoint's",
        "optimizer" => "from the next step; its state is kept where it fits",
        _ => "from the next step",
    }
}

fn in_words(spec: OwnSpec<'_>, before: &Values, now: &Values) -> Option<String> {
    let word = |change: &Change<'_>| format!("{} = {}", display::name(change.key), change.values());
    let mut changed: Vec<String> = spec.0.changes(before, now).iter().map(word).collect();
    let more = changed.len().saturating_sub(NAMED);
    changed.truncate(NAMED);
    if more > 0 {
        changed.push(format!("and {more} more"));
    }
    (!changed.is_empty()).then(|| changed.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::testing::{SPEC, plan};
    use data::{Blanks, TableEncoding, TargetEncoding};

    #[test]
    fn reports_changed_keys_with_both_values() {
        let plan = plan(SPEC, &[], 1);
        let between =
            |before, now| in_words(OwnSpec::new(&plan), &values(before).unwrap(), &values(now).unwrap());
        let before = "name = \"a\"\nseed = 1\n[dataset]\nname = \"x\"\nshuffle = true\n[[scheduler]]\nname = \"step\"\n\
                      [launch]\nthreads = 1\n[checkpoint.map_location]\n\"cuda:0\" = \"cpu\"\n";
        let now = "name = \"b\"\nseed = 2\n[dataset]\nname = \"x\"\n[[scheduler]]\nname = \"linear\"\n\
                   [launch]\nthreads = 2\n";
        assert_eq!(
            between(before, now).as_deref(),
            Some(
                "dataset.shuffle = true, now not given; scheduler.0.name = \"step\", now \"linear\"; seed = 1, now 2"
            )
        );
        assert_eq!((between(before, before), values("no spec")), (None, None));
        let many: String = (0..20).map(|i| format!("k{i:02} = 1\n")).collect();
        assert!(between("", &many).unwrap().ends_with("; and 12 more"));
    }

    /// What the checkpoint's encoding decides is no change; other keys of data than its names do not make it other data.
    #[test]
    fn an_evaluation_lists_what_gives_the_weights_another_meaning() {
        let run = tempfile::tempdir().unwrap();
        let table = |path: &str, more: &str| {
            format!(
                "name = 'a'\nbatch_size = 4\nmodel.name = 'linear'\noptimizer.name = 'sgd'\n[dataset]\nname = 'csv'\n\
                 path = '{path}'\ntarget = 'y'\n{more}"
            )
        };
        let trained = plan(&table("t.csv", ""), &[], 1).to_toml();
        std::fs::write(run.path().join("job.toml"), trained).unwrap();
        let checkpoint = run.path().join("checkpoints/step-00000010");
        let loaded = Loaded { path: checkpoint, ..Loaded::default() };
        let known = Encoding::Table(TableEncoding {
            delimiter: ',',
            columns: Vec::new(),
            blanks: Blanks::Error,
            blank_marks: Vec::new(),
            target: TargetEncoding::Number { name: "y".to_owned(), mean: 0.0, std: 1.0 },
        });
        let found = |path: &str, more: &str, known: Option<&Encoding>| {
            let spec = plan(&table(path, more), &[], 1);
            let EvaluatedAs { warning, on_other_data } =
                EvaluatedAs::new(OwnSpec::new(&spec), &loaded, known);
            (warning.and_then(|text| Some(text.split_once(" was made: ")?.1.to_owned())), on_other_data)
        };
        assert_eq!(found("t.csv", "workers = 0", Some(&known)), (None, false));
        assert_eq!(found("held-out.csv", "standardise = false", Some(&known)), (None, true));
        let standardise = "dataset.standardise = true, now false".to_owned();
        assert_eq!(found("t.csv", "standardise = false", None), (Some(standardise), false));
        let blanks = "dataset.blanks = \"error\", now \"drop\"".to_owned();
        let both = "standardise = false\nblanks = 'drop'";
        assert_eq!(found("t.csv", both, Some(&known)), (Some(blanks), false));
        let absolute = std::path::absolute("t.csv").unwrap();
        assert_eq!(found(absolute.to_str().unwrap(), "", Some(&known)), (None, false));
        let unused = "shuffle = false\ndrop_last = true\nblank_marks = ['?']";
        assert_eq!(found("t.csv", unused, Some(&known)), (None, false));
        let seed = "dataset.split_seed = 42, now 7".to_owned();
        assert_eq!(found("t.csv", "split_seed = 7", Some(&known)), (Some(seed), false));
        let val = "dataset.val = not given, now \"v.csv\"; dataset.val_split = 0.1, now not given".to_owned();
        assert_eq!(found("t.csv", "val = 'v.csv'", Some(&known)), (Some(val), true));
    }

    #[test]
    fn a_name_in_use_is_refused_with_what_differs() {
        let dir = tempfile::tempdir().unwrap();
        let job =
            JobHandoff { out_dir: dir.path().to_owned(), resume: "auto".to_owned(), ..JobHandoff::default() };
        std::fs::write(dir.path().join("job.toml"), plan(SPEC, &[], 1).to_toml()).unwrap();
        let other = plan(SPEC, &["optimizer.lr=0.1"], 1);
        // Nothing is saved that could be continued.
        continues_the_run(OwnSpec::new(&other), &job).unwrap();
        std::fs::create_dir_all(dir.path().join("checkpoints/step-00000010")).unwrap();
        let error = continues_the_run(OwnSpec::new(&other), &job).unwrap_err();
        let message =
            format!("{} has a run with another spec\n  optimizer.lr  0.05, now 0.1", dir.path().display());
        assert_eq!((error.kind, error.message), (base::error::ErrorKind::Spec, message));
        let hint = error.hint.unwrap_or_default();
        for way in ["--set name=", "--out DIR", "--resume never", "--accept-changes"] {
            assert!(hint.contains(way), "{hint}");
        }
        for sets in [&[][..], &["epochs=9", "name=another", "launch.max_restarts=2"]] {
            continues_the_run(OwnSpec::new(&plan(SPEC, sets, 1)), &job).unwrap();
        }
        continues_the_run(OwnSpec::new(&other), &JobHandoff { accept_changes: true, ..job.clone() }).unwrap();
        for resume in ["never", "runs/another"] {
            continues_the_run(OwnSpec::new(&other), &JobHandoff { resume: resume.to_owned(), ..job.clone() })
                .unwrap();
        }
    }

    #[test]
    fn the_spec_of_a_checkpoint_is_that_of_its_folder() {
        let run = tempfile::tempdir().unwrap();
        let checkpoint = run.path().join("checkpoints/step-00000010");
        assert_eq!(of_specs(&checkpoint, "seed = 2\n"), None);
        std::fs::write(run.path().join("job.toml"), "seed = 1\n").unwrap();
        let plan = plan(SPEC, &[], 1);
        let [before, now] = of_specs(&checkpoint, "seed = 2\n").unwrap();
        assert_eq!(in_words(OwnSpec::new(&plan), &before, &now).as_deref(), Some("seed = 1, now 2"));
        let loaded = Loaded { path: checkpoint, ..Loaded::default() };
        assert_eq!(
            since(OwnSpec::new(&plan), &loaded, "epochs = 3\nseed = 2\n"),
            [
                "epochs  not given, now 3; schedules over the whole run have another length",
                "seed    1, now 2; samples come in another order: those of a begun epoch may repeat or be missed",
            ]
        );
        let many: String = (0..20).map(|i| format!("k{i:02} = 1\n")).collect();
        assert_eq!(
            since(OwnSpec::new(&plan), &loaded, &many).last().map(String::as_str),
            Some("and 13 more")
        );
    }
}
