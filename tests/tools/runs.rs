//! `ddp-run runs`: what is listed of real runs, and what is removed.
#![cfg(target_os = "linux")]

use crate::common::*;
use ddp_run::testing::{FolderLock, RunId};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// 32 steps in two epochs, saved and evaluated after each.
const SPEC: &str = "name = \"first\"\nseed = 5\nepochs = 2\nbatch_size = 8\n\
    [model]\nname = \"mlp\"\nhidden = [8]\n[dataset]\nname = \"random\"\nsamples = 160\nfeatures = 4\nval_split = 0.2\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-2\n[launch]\nnproc_per_node = 1\nthreads = 1\n";

/// A folder in which runs are started, so that theirs are in `runs`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_spec(dir.path(), SPEC);
        Self(dir)
    }

    fn ddp_run(&self, arguments: &[&str]) -> Output {
        output_of(ddp_run().args(arguments).current_dir(self.0.path()))
    }

    #[track_caller]
    fn train(&self, arguments: &[&str], code: i32) -> String {
        let output = self.ddp_run(&[&["train", "job.toml", "--progress", "none"], arguments].concat());
        assert_code(&output, code);
        stderr(&output)
    }

    #[track_caller]
    fn runs(&self, arguments: &[&str]) -> String {
        let output = self.ddp_run(&[&["runs"], arguments].concat());
        assert_code(&output, 0);
        stdout(&output)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        parse_json(self.runs(&[arguments, &["--format", "json"]].concat()))
    }

    /// The folders that `runs list` lists, in its order.
    #[track_caller]
    fn listed(&self, arguments: &[&str]) -> Vec<String> {
        let all = self.json(&[&["list"], arguments].concat());
        all.as_array().unwrap().iter().map(|run| run["folder"].as_str().unwrap().to_owned()).collect()
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }
}

#[test]
fn runs_are_listed_shown_and_compared() {
    let _alone = alone();
    let place = Place::new();
    assert_eq!(place.runs(&["list"]), "no runs\n");
    place.train(&[], 0);
    place.train(&["--set", "name=second", "--set", "optimizer.lr=1e-3"], 0);
    assert_eq!(place.listed(&["--sort", "name"]), ["runs/first", "runs/second"]);
    assert_eq!(place.listed(&["--sort", "name", "--reverse"]), ["runs/second", "runs/first"]);
    assert_eq!(place.listed(&["--sort", "-optimizer.lr", "--limit", "1"]), ["runs/first"]);
    assert_eq!(place.listed(&["--filter", "state=done", "--filter", "optimizer.lr<0.01"]), ["runs/second"]);
    assert_eq!(place.listed(&["--filter", "state!=done"]), [""; 0]);
    let table = place.runs(&["list", "--filter", "val.loss>0"]);
    assert!(table.starts_with("RUN     STATE  val.loss") && table.lines().count() == 3, "{table}");

    let shown = place.json(&["show", "first"]);
    let epochs: Vec<Value> =
        results(&place.path("runs/first")).into_iter().filter(|e| e["event"] == "epoch").collect();
    assert_eq!(shown["metrics"]["val.loss"], epochs[1]["val"]["loss"]);
    let losses = epochs.iter().map(|epoch| epoch["val"]["loss"].as_f64().unwrap());
    assert_eq!(shown["best"]["value"].as_f64(), losses.reduce(f64::min));
    let facts =
        ["epoch", "epochs", "step", "world", "exit_code", "starts"].map(|key| shown[key].as_u64().unwrap());
    assert_eq!(facts, [2, 2, 32, 1, 0, 1]);
    assert!(shown["bytes"].as_u64().unwrap() > 1000 && shown["seconds"].as_f64().unwrap() > 0.0, "{shown}");
    assert_eq!(shown["spec"]["model.hidden"], serde_json::json!([8]));
    let text = place.runs(&["show", "runs/first"]);
    assert!(
        text.starts_with("runs/first (first)\n  state ") && text.contains("ddp-run eval runs/first"),
        "{text}"
    );

    let difference = place.json(&["diff", "first", "second"]);
    let keys: Vec<&Value> = difference["spec"].as_array().unwrap().iter().map(|row| &row["key"]).collect();
    assert_eq!(keys, ["name", "optimizer.lr"]);
    let text = place.runs(&["diff", "first", "second"]);
    assert!(text.contains("optimizer.lr  0.01     0.001\n"), "{text}");
    let text = place.runs(&["compare", "first", "second", "first"]);
    assert!(
        text.contains("state ") && text.contains("\nval.loss ") && !text.contains("batch_size"),
        "{text}"
    );
    let unknown = place.ddp_run(&["runs", "show", "frist"]);
    assert_code(&unknown, 2);
    assert!(stderr(&unknown).contains("did you mean `first`?"), "{}", stderr(&unknown));
}

/// A run that failed, one that was killed and started over, and one that is damaged.
#[test]
fn the_state_of_a_run_is_that_of_its_last_start() {
    let _alone = alone();
    let place = Place::new();
    let state = |name: &str| place.json(&["show", name])["state"].as_str().unwrap().to_owned();
    let mut killed = ddp_run();
    killed.args(["train", "job.toml", "--progress", "none", "--set", "epochs=3"]).current_dir(place.0.path());
    // A save begins when the one before has ended: in step 36, that of step 16 is complete.
    assert_code(&output_of(killed.env("DDP_RUN_FAULT", "kill:rank=0,phase=forward,step=36")), 90);
    assert_eq!(state("first"), "failed");
    let shown = place.json(&["show", "first"]);
    assert_eq!(shown["exit_code"], 90);
    assert_eq!(shown["checkpoints"][0], "step-00000016", "{shown}");
    assert!(shown["reason"].as_str().unwrap().contains("was killed by signal 9"), "{shown}");
    // The next command is one that resumes the run.
    let text = place.runs(&["show", "first"]);
    let next = text.lines().find_map(|line| line.trim().strip_prefix("next ")).unwrap().trim();
    let words: Vec<&str> = next.split_whitespace().collect();
    assert_eq!(words[..2], ["ddp-run", "train"]);
    assert_code(&place.ddp_run(&[&words[1..], &["--progress", "none"]].concat()), 0);
    let shown = place.json(&["show", "first"]);
    assert_eq!((shown["state"].as_str(), shown["starts"].as_u64()), (Some("done"), Some(2)));
    assert!(place.runs(&["show", "first"]).contains("resume  "));
    // Starting over archives it.
    place.train(&["--resume", "never", "--set", "epochs=1"], 0);
    assert_eq!(place.listed(&[]), ["runs/first"]);
    assert_eq!(place.listed(&["--archived", "--sort", "folder"]), ["runs/first", "runs/first.1"]);
    let held = RunId { job: "a test".into(), attempt: 1, start: "a test".into() };
    let held = FolderLock::take(&place.path("runs/first"), &held, HUNG, &|| false).unwrap();
    assert_eq!(state("first"), "running");
    drop(held);
    fs::write(place.path("runs/first/run.json"), "{").unwrap();
    let table = place.runs(&["list"]);
    assert!(table.contains("first: run.json: "), "{table}");
}

/// Files of a folder, by their names.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn runs_are_removed_when_that_is_agreed_to() {
    let _alone = alone();
    let place = Place::new();
    place.train(&[], 0);
    place.train(&["--set", "name=second"], 0);
    let run = place.path("runs/second");
    let refused = |arguments: &[&str], code: i32, why: &str| {
        let output = place.ddp_run(&[&["runs", "rm"], arguments].concat());
        assert_code(&output, code);
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert_eq!(names(&place.path("runs")), ["first", "second"]);
    };
    refused(&["second"], 2, "nothing is removed without a terminal to ask on");
    refused(&["second", "runs", "--yes"], 2, "runs is not a run folder");
    refused(&["runs/second/checkpoints", "--yes"], 2, "is not a run folder");
    let held = RunId { job: "a test".into(), attempt: 1, start: "a test".into() };
    let held = FolderLock::take(&run, &held, HUNG, &|| false).unwrap();
    refused(&["first", "second", "--yes"], 2, "runs/second is running");
    drop(held);
    let told = place.runs(&["rm", "second", "--dry-run"]);
    assert!(told.starts_with("would remove runs/second\n") && run.join("run.json").exists(), "{told}");

    let best = place.json(&["show", "second"])["best"]["checkpoint"].as_str().unwrap().to_owned();
    assert_eq!(names(&run.join("checkpoints")).iter().filter(|name| name.starts_with("step-")).count(), 2);
    let told = place.runs(&["rm", "second", "--keep-best", "--yes"]);
    assert!(told.starts_with(&format!("removed the checkpoints of runs/second but {best}\n")), "{told}");
    let left = names(&run.join("checkpoints"));
    assert_eq!(left.into_iter().filter(|name| name.starts_with("step-")).collect::<Vec<_>>(), [best]);
    assert_code(&place.ddp_run(&["eval", "runs/second", "--checkpoint", "best"]), 0);

    let told = place.runs(&["rm", "second", "runs/second", "-y"]);
    assert!(told.starts_with("removed runs/second\n") && told.ends_with(" are free\n"), "{told}");
    assert_eq!(names(&place.path("runs")), ["first"]);
}

/// A volume for checkpoints, as in a pod: what is on it goes, and the mount point can't.
#[test]
fn a_mount_point_in_a_run_that_is_removed_stays() {
    let _alone = alone();
    let unshares = |flags: &&str| {
        program(Path::new("unshare")).arg(flags).arg("true").status().is_ok_and(|s| s.success())
    };
    let Some(flags) = ["-m", "-rm"].into_iter().find(unshares) else {
        return println!("skipped: this user can make no mounts");
    };
    let place = Place::new();
    place.train(&[], 0);
    let (run, volume) = (place.path("runs/first"), place.path("volume"));
    let own = run.join("checkpoints");
    fs::rename(&own, &volume).unwrap();
    fs::create_dir(&own).unwrap();
    let mut command = program(Path::new("unshare"));
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    command.args([flags, "sh", "-c", script, "sh"]).args([&volume, &own]);
    command.arg(env!("CARGO_BIN_EXE_ddp-run")).args(["runs", "rm", "first", "--yes"]);
    let output = output_of(command.current_dir(place.0.path()));
    assert_code(&output, 0);
    assert!(
        stderr(&output).contains("runs/first/checkpoints is a mount point: it stays"),
        "{}",
        stderr(&output)
    );
    assert_eq!((names(&run), names(&volume)), (vec!["checkpoints".to_owned()], vec![]));
    place.train(&[], 0);
}
