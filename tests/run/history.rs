//! A used folder: what is written over, by whom, and what is kept.
#![cfg(target_os = "linux")]

use crate::common::*;
use ddp_run::testing::{FolderLock, RunId};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// 32 steps, saved every 4 and evaluated twice.
const SPEC: &str = "name = \"history\"\nseed = 5\nepochs = 2\nbatch_size = 8\nsave_every = \"4 steps\"\n\
    [model]\nname = \"mlp\"\nhidden = [8]\n[dataset]\nname = \"random\"\nsamples = 160\nfeatures = 4\nval_split = 0.2\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-2\n[metrics]\nlog_every = 1\n\
    [checkpoint]\nkeep_last = 2\nkeep_best = 0\nasync = false\n[launch]\nnproc_per_node = 1\nthreads = 1\n";

struct Run {
    dir: tempfile::TempDir,
    spec: PathBuf,
    out: PathBuf,
}

impl Run {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { spec: write_spec(dir.path(), SPEC), out: dir.path().join("run"), dir }
    }

    #[track_caller]
    fn train(&self, flags: &[&str], code: i32) -> Output {
        let output = train(&self.spec, &self.out, flags);
        assert_code(&output, code);
        output
    }

    fn beside(&self, number: u32) -> PathBuf {
        self.dir.path().join(format!("run.{number}"))
    }

    /// Rank 0 of 1 of a launcher's run.
    fn launched(&self, run: &str, restarts: &str, flags: &[&str]) -> Command {
        let mut command = train_command(&self.spec, &self.out, flags);
        command.env("RANK", "0").env("WORLD_SIZE", "1").env("DDP_RUN_SECRET", "a secret of this process");
        command.env("TORCHELASTIC_RUN_ID", run).env("TORCHELASTIC_RESTART_COUNT", restarts);
        command
    }
}

fn steps(out: &Path) -> Vec<u64> {
    let names =
        fs::read_dir(out.join("checkpoints")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<u64> = names.filter_map(|n| n.strip_prefix("step-")?.parse().ok()).collect();
    steps.sort();
    steps
}

fn resumed_at(out: &Path) -> Vec<u64> {
    events(out).iter().filter(|e| e["event"] == "resume").filter_map(|e| e["step"].as_u64()).collect()
}

/// Every file of a folder but logs and the lock.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = contents(folder);
    found.retain(|path, _| !path.ends_with(".lock") && !path.parent().is_some_and(|p| p.ends_with("logs")));
    found
}

#[test]
fn resuming_an_older_checkpoint_archives_later_ones() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "checkpoint.keep_last=0"], 0);
    let whole = results(&run.out);
    let back = run.out.join("checkpoints/step-00000008").display().to_string();
    let mut killed = train_command(&run.spec, &run.out, &["--resume", &back]);
    let killed = output_of(killed.env("DDP_RUN_FAULT", "kill:rank=0,phase=forward,step=18"));
    assert_code(&killed, 90);
    assert!(stderr(&killed).contains("files from after step 8 were moved to"), "{}", stderr(&killed));
    assert_eq!(steps(&run.beside(1)), [12, 16, 20, 24, 28, 32]);
    assert_eq!(results(&run.beside(1)), whole);
    assert_eq!(steps(&run.out), [12, 16], "the new branch's own, by its retention");
    let continues = run.train(&[], 0);
    assert!(stderr(&continues).contains("resumes at step 16"), "{}", stderr(&continues));
    assert_eq!((results(&run.out), resumed_at(&run.out)), (whole, vec![8, 16]));
    assert_eq!(steps(&run.out), [28, 32]);
    // The other branch is a run folder, and complete.
    let other = train(&run.spec, &run.beside(1), &[]);
    assert!(stderr(&other).contains("the run is complete"), "{}", stderr(&other));
}

#[test]
fn under_a_launcher_resume_never_starts_over_once() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], 0);
    let (whole, never) = (results(&run.out), ["--resume", "never"]);
    let mut killed = run.launched("one", "0", &never);
    let killed = output_of(killed.env("DDP_RUN_FAULT", "kill:rank=0,phase=forward,step=10"));
    assert_eq!(killed.status.code(), None, "{}", stderr(&killed));
    assert_eq!(results(&run.beside(1)), whole);
    assert_eq!(steps(&run.out), [4, 8]);
    assert_code(&output_of(&mut run.launched("one", "1", &never)), 0);
    assert_eq!((results(&run.out), resumed_at(&run.out)), (whole, vec![8]));
    assert!(!run.beside(2).exists(), "it started over again");
    // Another run of the launcher's.
    assert_code(&output_of(&mut run.launched("two", "0", &never)), 0);
    assert_eq!(resumed_at(&run.beside(2)), [8]);
    assert_eq!(resumed_at(&run.out), [0; 0]);
}

#[test]
fn a_spec_cannot_use_an_archived_folder_of_another_run() {
    let _alone = alone();
    let run = Run::new();
    let kept = run.dir.path().join("runs/toy.1");
    let start = |name: &str| {
        let spec = write_spec(run.dir.path(), &SPEC.replacen("\"history\"", &format!("\"{name}\""), 1));
        output_of(ddp_run().arg(&spec).args(["--progress", "none"]).current_dir(run.dir.path()))
    };
    assert_code(&start("toy"), 0);
    fs::rename(run.dir.path().join("runs/toy"), &kept).unwrap();
    let before = content(&kept);
    let refused = start("toy.1");
    assert_code(&refused, 78);
    assert!(stderr(&refused).contains("runs/toy.1 contains a run of `toy`"), "{}", stderr(&refused));
    assert!(content(&kept) == before);
}

#[test]
fn a_folder_belongs_to_one_run_under_any_launcher() {
    let _alone = alone();
    let run = Run::new();
    let other = RunId { job: "another".into(), attempt: 1, start: "another".into() };
    let _lock = FolderLock::take(&run.out, &other, HUNG, &|| false).unwrap();
    for output in [output_of(&mut run.launched("one", "0", &[])), train(&run.spec, &run.out, &[])] {
        assert_code(&output, 74);
        let told = stderr(&output);
        assert!(told.contains("another run is writing to") && told.contains("run another"), "{told}");
    }
    assert!(content(&run.out).is_empty(), "{:?}", content(&run.out).keys());
    // Nothing of theirs is among the logs of the run that writes.
    assert!(!run.out.join("logs").exists());
}

#[test]
fn rejected_and_complete_starts_change_nothing() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], 0);
    let before = content(run.dir.path());
    let complete = run.train(&[], 0);
    assert!(stderr(&complete).contains("the run is complete"), "{}", stderr(&complete));
    assert!(content(run.dir.path()) == before, "a complete run was changed");
    let other = ["--set", "model.hidden=[4]", "--set", "epochs=3"];
    let refused = run.train(&other, 78);
    assert!(stderr(&refused).contains("has a run with another spec"), "{}", stderr(&refused));
    let unfit = run.train(&[&other[..], &["--accept-changes"]].concat(), 74);
    assert!(stderr(&unfit).contains("does not fit the spec"), "{}", stderr(&unfit));
    assert!(content(run.dir.path()) == before, "a refused resume has changed something");
    let failed =
        train(&run.spec, &run.out, &["--resume", "never", "--set", "model.pretrained=\"/nonexistent.pt\""]);
    assert!(!failed.status.success(), "{}", stderr(&failed));
    assert!(content(run.dir.path()) == before, "a failed start has changed something");
    // With more to be done it goes on.
    run.train(&["--set", "epochs=3"], 0);
    assert_eq!(resumed_at(&run.out), [32]);
}

/// Also in the folder of the spec itself, and under a launcher of ranks.
#[test]
fn files_that_no_run_has_written_stay() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("exp1");
    fs::create_dir(&out).unwrap();
    let spec = out.join("job.toml");
    fs::write(&spec, format!("# my notes\n{SPEC}")).unwrap();
    let run = Run { spec, out, dir };
    let mut names = vec!["job.toml"];
    for name in ["metrics.jsonl", "report.html", "run.json", "logs/rank-0.log"] {
        fs::create_dir_all(run.out.join(name).parent().unwrap()).unwrap();
        fs::write(run.out.join(name), "{\"mine\": 1}\n").unwrap();
        names.push(name);
    }
    let before = content(&run.out);
    let log = || fs::read_to_string(run.out.join("logs/rank-0.log")).unwrap();
    let refuses = |name: &str, flags: &[&str]| {
        for output in [train(&run.spec, &run.out, flags), output_of(&mut run.launched("one", "0", flags))] {
            assert_code(&output, 74);
            let named = format!("{} was not written by a run, and ", run.out.join(name).display());
            assert!(stderr(&output).contains(&named), "{}", stderr(&output));
        }
    };
    refuses("metrics.jsonl", &[]);
    refuses("metrics.jsonl", &["--resume", "never"]);
    assert!(content(&run.out) == before && log() == "{\"mine\": 1}\n");
    // Each of them alone.
    for name in names {
        let only = run.dir.path().join("only");
        fs::create_dir_all(only.join(name).parent().unwrap()).unwrap();
        fs::copy(run.out.join(name), only.join(name)).unwrap();
        let output = train(&run.spec, &only, &[]);
        assert_code(&output, 74);
        assert!(
            stderr(&output).contains(&format!("only/{name} was not written by a run")),
            "{}",
            stderr(&output)
        );
        assert!(!only.join(".lock").exists());
        fs::remove_dir_all(only).unwrap();
    }
    // The folder of a run is its own, and another spec in it is not.
    let own = run.dir.path().join("own");
    assert_code(&train(&run.spec, &own, &[]), 0);
    assert_code(&train(&own.join("job.toml"), &own, &["--resume", "never"]), 0);
    fs::copy(&run.spec, own.join("job.toml")).unwrap();
    assert_code(&train(&run.spec, &own, &[]), 74);
    assert_code(&train(&run.spec, Path::new("/"), &[]), 2);
}

/// A name in use continues that run only with its spec.
#[test]
fn a_changed_spec_is_another_run_unless_it_is_accepted() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "train.max_steps=12"], 0);
    let before = content(run.dir.path());
    let changed = ["--set", "optimizer.lr=2e-2", "--set", "seed=6", "--set", "train.max_steps=12"];
    let told = stderr(&run.train(&changed, 78));
    let listed = format!(
        "error: {} has a run with another spec\n  optimizer.lr  0.01, now 0.02\n  seed          5, now 6\n",
        run.out.display()
    );
    assert!(told.contains(&listed), "{told}");
    for way in ["--set name=", "--out DIR", "--resume never", "--accept-changes"] {
        assert!(told.contains(way), "{way} is not in {told}");
    }
    assert!(content(run.dir.path()) == before, "a refused start has changed something");
    // The same under a launcher of ranks.
    let launched = output_of(&mut run.launched("one", "0", &changed));
    assert_code(&launched, 78);
    assert!(stderr(&launched).contains("has a run with another spec"), "{}", stderr(&launched));
    assert!(content(run.dir.path()) == before, "a refused start has changed something");
    // Longer is no change, and neither is what a checkpoint by its path is continued with.
    run.train(&["--set", "train.max_steps=16"], 0);
    assert_eq!(resumed_at(&run.out), [12]);
    let back = run.out.join("checkpoints/step-00000016").display().to_string();
    let continues = ["--set", "optimizer.lr=2e-2", "--set", "train.max_steps=20"];
    run.train(&[&continues[..], &["--resume", &back]].concat(), 0);
    // What was accepted is the run's spec from then on.
    run.train(&["--set", "optimizer.lr=2e-2", "--set", "train.max_steps=24"], 0);
    assert_eq!(resumed_at(&run.out), [12, 16, 20]);
    let accepted = run.train(&["--set", "train.max_steps=28", "--accept-changes"], 0);
    assert!(stderr(&accepted).contains("optimizer.lr     0.02, now 0.01; "), "{}", stderr(&accepted));
    run.train(&["--resume", "never", "--set", "seed=6", "--set", "train.max_steps=12"], 0);
    assert_eq!(steps(&run.beside(1)).last(), Some(&28));
    assert_eq!(resumed_at(&run.out), [0; 0]);
}

/// It was accepted when the run began, and the launcher repeats the same command.
#[test]
fn a_start_that_a_launcher_repeats_keeps_its_changes() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "train.max_steps=8"], 0);
    let changed = ["--set", "optimizer.lr=2e-2", "--accept-changes"];
    let mut killed = run.launched("one", "0", &changed);
    let killed = output_of(killed.env("DDP_RUN_FAULT", "kill:rank=0,phase=forward,step=14"));
    assert_eq!(killed.status.code(), None, "{}", stderr(&killed));
    assert_code(&output_of(&mut run.launched("one", "1", &["--set", "optimizer.lr=3e-2"])), 0);
    assert_eq!(resumed_at(&run.out), [8, 12]);
}

/// The folder is a link: it stays one, and the archive lies beside its target.
#[test]
fn a_finished_run_without_checkpoints_is_archived() {
    let _alone = alone();
    let run = Run::new();
    let target = run.dir.path().join("disk/target");
    fs::create_dir_all(&target).unwrap();
    std::os::unix::fs::symlink(&target, &run.out).unwrap();
    let never_saved = ["--set", "save_every=\"never\""];
    run.train(&never_saved, 0);
    let whole = results(&run.out);
    let again = run.train(&never_saved, 0);
    assert!(stderr(&again).contains("the previous run was moved to"), "{}", stderr(&again));
    assert_eq!(fs::read_link(&run.out).unwrap(), target);
    assert_eq!((results(&run.out), results(&target.with_extension("1"))), (whole.clone(), whole));
    // Of this run: its scalars, and the values that runs are compared by.
    assert_eq!(fs::read_dir(target.join("tensorboard")).unwrap().count(), 2);
}

/// A volume of its own, as in a pod: nothing can be moved out of it, and it can't be moved itself.
#[test]
fn checkpoints_on_a_mount_of_their_own_are_archived_there() {
    let _alone = alone();
    let unshares = |flags: &&str| {
        program(Path::new("unshare")).arg(flags).arg("true").status().is_ok_and(|s| s.success())
    };
    let Some(flags) = ["-m", "-rm"].into_iter().find(unshares) else {
        return println!("skipped: this user can make no mounts");
    };
    let run = Run::new();
    run.train(&["--set", "checkpoint.keep_last=0"], 0);
    let (own, volume) = (run.out.join("checkpoints"), run.dir.path().join("volume"));
    fs::rename(&own, &volume).unwrap();
    fs::create_dir(&own).unwrap();
    let mounted = |resume: &str| {
        let mut command = program(Path::new("unshare"));
        let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
        command
            .args([flags, "sh", "-c", script, "sh"])
            .args([&volume, &own])
            .arg(env!("CARGO_BIN_EXE_ddp-run"));
        assert_code(&output_of(&mut trains(command, &run.spec, &run.out, &["--resume", resume])), 0);
    };
    mounted(&own.join("step-00000024").display().to_string());
    let names = |folder: &str| {
        let entries = fs::read_dir(volume.join(folder)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("checkpoints.1"), ["step-00000028", "step-00000032"]);
    assert_eq!(fs::read_link(run.beside(1).join("checkpoints")).unwrap(), own.join("checkpoints.1"));
    mounted("never");
    assert_eq!(names("checkpoints.2"), ["step-00000028", "step-00000032"], "of the run that went on");
    assert!(fs::read_dir(&own).unwrap().next().is_none() && run.beside(2).join("metrics.jsonl").is_file());
}

#[test]
fn damaged_metrics_do_not_stop_a_run() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "train.max_steps=20"], 0);
    let path = run.out.join("metrics.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let cut: Vec<&str> = whole.lines().take_while(|line| !line.contains("\"step\":6,")).collect();
    let cut = format!("{}\na note\n", cut.join("\n"));
    fs::write(&path, &cut).unwrap();
    let told = stderr(&run.train(&[], 0));
    for what in [
        "metrics.jsonl ends at step 5, but the run resumes at step 20: the lines between are missing\n",
        "metrics.jsonl is not an event known to this version; it is kept and ignored\n",
    ] {
        assert!(told.contains(what), "{told}");
    }
    assert!(fs::read_to_string(&path).unwrap().starts_with(&cut));
    let steps = |e: serde_json::Value| e["step"].as_u64().filter(|_| e["event"] == "step");
    assert!(events(&run.out).into_iter().filter_map(steps).eq((1..=5).chain(21..=32)));
}
