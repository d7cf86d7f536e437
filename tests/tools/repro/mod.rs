//! `ddp-run repro`: runs that are repeated to the bit, also after a resize, and runs whose records say otherwise.
#![cfg(target_os = "linux")]

mod starts;

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Two epochs of 16 steps on two processes, with a checkpoint after each fifth step.
const SPEC: &str = "name = \"repeated\"\nseed = 7\nepochs = 2\nbatch_size = 4\nsave_every = \"5 steps\"\n\
    [model]\nname = \"mlp\"\nhidden = [16]\ndropout = 0.2\n\
    [dataset]\nname = \"random\"\nsamples = 160\nfeatures = 8\nval_split = 0.2\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-2\n[scheduler]\nname = \"cosine\"\nunit = \"step\"\n\
    [metrics]\nlog_every = 1\n[launch]\nthreads = 1\nnproc_per_node = 2\n";

struct Run {
    dir: tempfile::TempDir,
    out: PathBuf,
}

impl Run {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        write_spec(dir.path(), SPEC);
        Self { out: dir.path().join("run"), dir }
    }

    #[track_caller]
    fn train(&self, flags: &[&str], variable: Option<(&str, &str)>, code: i32) {
        let mut command = train_command(&self.dir.path().join("job.toml"), &self.out, flags);
        command.envs(variable);
        assert_code(&output_of(&mut command), code);
    }

    fn repro(&self, flags: &[&str]) -> Output {
        output_of(ddp_run().arg("repro").arg(&self.out).args(flags))
    }

    /// What is found, as JSON. Nothing in the run's folder has changed then.
    #[track_caller]
    fn found(&self, flags: &[&str], code: i32) -> Value {
        let before = contents(&self.out);
        let output = self.repro(&[&["--format", "json"], flags].concat());
        assert_code(&output, code);
        assert!(contents(&self.out) == before, "the run's folder has changed");
        parse_json(output.stdout)
    }

    /// Replaces a text in a file of the run.
    #[track_caller]
    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.out.join(file);
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.contains(from), "{file} has no {from}: {text}");
        fs::write(path, text.replacen(from, to, 1)).expect("written");
    }
}

fn differing(found: &Value) -> Vec<&str> {
    let checks = found["checks"].as_array().expect("checks").iter();
    checks.filter(|check| check["differs"] == true).filter_map(|check| check["what"].as_str()).collect()
}

#[test]
fn a_run_is_repeated_to_the_bit() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], None, 0);
    let found = run.found(&[], 0);
    assert_eq!(found["identical"], true, "{found:#}");
    assert_eq!(differing(&found), [""; 0], "{found:#}");
    let compared = &found["compared"];
    assert_eq!([&compared["step_events"], &compared["epoch_events"]], [32, 2], "{found:#}");
    // The newest three, and the best.
    assert!(compared["checkpoints"].as_array().is_some_and(|all| all.len() >= 3), "{found:#}");
    assert_eq!((&found["folder"], &found["until"]), (&Value::Null, &Value::Null));

    let found = run.found(&["--steps", "7"], 0);
    assert_eq!((&found["until"], &found["compared"]["last_step"]), (&Value::from(7), &Value::from(7)));
    assert_eq!(found["compared"]["step_events"], 7);
    let text = stdout(&run.repro(&["--steps", "7"]));
    assert!(text.contains("\nrepeats steps 1 to 7 with 2 processes\n"), "{text}");
    assert!(text.contains("identical to the bit: 7 step events, 0 epoch events, "), "{text}");

    let out = run.dir.path().join("again");
    let found = run.found(&["--steps", "5", "--out", out.to_str().expect("plain")], 0);
    assert_eq!(found["folder"], out.join("run").to_str().expect("plain"));
    assert!(out.join("run/checkpoints/step-00000005").is_dir());
    // It is not empty any more.
    assert_code(&run.repro(&["--out", out.to_str().expect("plain")]), 2);
    assert_code(&run.repro(&["--out", run.out.join("x").to_str().expect("plain")]), 2);
}

#[test]
fn the_first_step_that_differs_is_named() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], None, 0);
    // Another machine, by what it recorded: no proof of anything.
    let recorded = read_json(run.out.join("run.json"));
    let cpu = recorded["host"]["cpu"].as_str().expect("a name").to_owned();
    run.edit("run.json", &format!("\"cpu\": \"{cpu}\""), "\"cpu\": \"a slide rule\"");
    let found = run.found(&[], 0);
    assert_eq!((differing(&found), &found["identical"]), (vec!["cpu"], &Value::from(true)));
    assert_eq!(run.found(&["--checks-only"], 1)["identical"], Value::Null);

    let tenth = |event: &&Value| event["event"] == "step" && event["step"] == 10;
    let loss = events(&run.out).iter().find(tenth).expect("step 10")["loss"].to_string();
    run.edit(
        "metrics.jsonl",
        &format!("\"step\":10,\"epoch\":0,\"loss\":{loss}"),
        "\"step\":10,\"epoch\":0,\"loss\":0.5",
    );
    let found = run.found(&[], 1);
    let first = &found["compared"]["first_difference"];
    assert_eq!((&first["step"], &first["what"]), (&Value::from(10), &Value::from("loss")), "{found:#}");
    assert_eq!([&first["recorded"], &first["now"]], ["0.5", loss.as_str()]);
    let kept = PathBuf::from(found["folder"].as_str().expect("it is kept"));
    fs::remove_dir_all(kept.parent().expect("the repetition's folder")).expect("removed");
    // Before that, nothing differs.
    assert_eq!(run.found(&["--steps", "9"], 0)["identical"], true);
    let told = stdout(&run.repro(&[]));
    assert!(
        told.contains("differs first at step 10: loss is ") && told.contains("may be the cause: cpu\n"),
        "{told}"
    );
    let kept =
        told.lines().find_map(|line| line.trim().strip_prefix("the repetition is in ")).expect("it is kept");
    fs::remove_dir_all(Path::new(kept).parent().expect("the repetition's folder")).expect("removed");
}

/// What is missing from the record is not a difference, and is reported.
#[test]
fn what_the_record_lacks_is_told() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], None, 0);
    let metrics = fs::read_to_string(run.out.join("metrics.jsonl")).expect("it is there");
    let of = |step: u64| {
        let begin = format!("{{\"event\":\"step\",\"step\":{step},");
        metrics.lines().find(|line| line.starts_with(&begin)).expect("it is there").to_owned()
    };
    run.edit("metrics.jsonl", &format!("{}\n", of(10)), "");
    run.edit("metrics.jsonl", &of(11), &of(11)[..30]);
    let found = run.found(&[], 0);
    assert_eq!(found["compared"]["step_events"], 30, "{found:#}");
    let not_compared = &found["compared"]["not_compared"];
    assert_eq!(
        not_compared,
        &serde_json::json!([
            "2 step events of the repetition, the first at step 10: the recorded run has none there"
        ])
    );
    let edited = fs::read_to_string(run.out.join("metrics.jsonl")).expect("it is there");
    let line = edited.lines().position(|line| line == &of(11)[..30]).expect("it is there") + 1;
    let unread = format!("1 line of metrics.jsonl, the first is line {line}: no event");
    assert!(found["unknown"].as_array().is_some_and(|all| all.contains(&unread.into())), "{found:#}");
    // An earlier start whose spec is not kept can't be repeated; that is named.
    run.train(&["--set", "epochs=3"], None, 0);
    assert_eq!(differing(&run.found(&["--checks-only"], 0)), [""; 0]);
    fs::remove_dir_all(run.out.join("specs")).expect("removed");
    let told = stdout(&run.repro(&["--checks-only"]));
    assert!(told.contains("\n  spec  ") && told.contains("an earlier start had another one"), "{told}");
    run.edit("run.json", "\"world\": 2", "\"world\": 0");
    let output = run.repro(&[]);
    assert_code(&output, 74);
    assert!(stderr(&output).contains("records a start with 0 processes"), "{}", stderr(&output));
}

/// The command of a repetition that goes on until it is ended, and the folder for its temporary files, when it trains.
fn endless(run: &Run) -> (std::process::Child, PathBuf) {
    run.train(&["--set", "scheduler.name=constant"], None, 0);
    // A repetition that is as long as the recorded run, and then goes on.
    let specs =
        fs::read_dir(run.out.join("specs")).expect("a folder").map(|spec| spec.expect("a file").path());
    for spec in specs {
        run.edit(spec.to_str().expect("plain"), "epochs = 2", "epochs = 1000000");
    }
    let temporary = run.dir.path().join("tmp");
    fs::create_dir(&temporary).expect("created");
    let mut command = ddp_run();
    command.arg("repro").arg(&run.out).env("TMPDIR", &temporary).env(TAG, run.dir.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("it starts");
    let trains = |place: fs::DirEntry| place.path().join("run/metrics.jsonl").exists();
    wait_for("a repetition", HUNG, || fs::read_dir(&temporary).expect("a folder").flatten().any(trains));
    (child, temporary)
}

/// The next repetition removes what a killed one has left.
#[test]
fn a_killed_repetition_does_not_leave_its_folder_for_ever() {
    let _alone = alone();
    let run = Run::new();
    let (child, temporary) = endless(&run);
    kill(child.id(), rustix::process::Signal::KILL);
    finish(child);
    wait_for("the end of its run", HUNG, || processes(run.dir.path()).is_empty());
    let left = || fs::read_dir(&temporary).expect("a folder").count();
    assert_eq!(left(), 1);
    let mut next = ddp_run();
    next.arg("repro").arg(&run.out).args(["--steps", "3"]).env("TMPDIR", &temporary);
    assert_code(&output_of(&mut next), 0);
    assert_eq!(left(), 0);
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let _alone = alone();
    let run = Run::new();
    let (child, temporary) = endless(&run);
    kill(child.id(), rustix::process::Signal::TERM);
    let output = finish(child);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}", stderr(&output));
    assert_eq!(processes(run.dir.path()), [0; 0]);
    assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0);
}

#[test]
fn what_can_not_be_repeated_is_told() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], Some(("DDP_RUN_STOP_AT", "6")), 75);
    // A stopped run is repeated as far as it went.
    assert_eq!(run.found(&[], 0)["until"], 6);
    fs::remove_file(run.out.join("run.json")).expect("removed");
    let output = run.repro(&[]);
    assert_code(&output, 74);
    assert!(stderr(&output).contains("can't be repeated without run.json"), "{}", stderr(&output));
    assert_code(&output_of(ddp_run().args(["repro", "no-such-run"])), 2);
}
