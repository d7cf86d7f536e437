//! `ddp-run rehearse`: real faults on a real spec.
#![cfg(target_os = "linux")]

use crate::common::*;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

const SPEC: &str = "name = \"rehearsed\"\nseed = 7\nepochs = 50\nbatch_size = 4\n\
    [model]\nname = \"mlp\"\nhidden = [16]\n\
    [dataset]\nname = \"random\"\nsamples = 160\nfeatures = 8\nval_split = 0.2\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-2\n[checkpoint]\ngrace = 60\n[launch]\nthreads = 1\nshutdown_timeout = 60\nnproc_per_node = 2\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        write_spec(dir.path(), SPEC);
        Self(dir)
    }

    fn rehearse(&self, flags: &[&str]) -> Output {
        output_of(ddp_run().arg("rehearse").arg(self.0.path().join("job.toml")).args(flags))
    }

    #[track_caller]
    fn found(&self, flags: &[&str]) -> Value {
        let output = self.rehearse(&[&["--format", "json"], flags].concat());
        assert_code(&output, 0);
        parse_json(output.stdout)
    }
}

#[track_caller]
fn trial<'a>(found: &'a Value, fault: &str) -> &'a Value {
    let mut trials = found["trials"].as_array().expect("trials").iter();
    trials.find(|trial| trial["fault"] == fault).unwrap_or_else(|| panic!("no {fault}: {found:#}"))
}

#[test]
fn one_fault_of_a_kind_is_survived() {
    let _alone = alone();
    let place = Place::new();
    let found = place.found(&["--quick"]);
    assert_eq!(found["survived"], true, "{found:#}");
    let trials = found["trials"].as_array().expect("trials");
    assert!(trials.len() == 8 && trials.iter().all(|trial| trial["verdict"] == "survived"), "{found:#}");
    // A stop saves the step that is under way. The disk is full at the save of step 4; that of step 2 may not have been complete.
    for (fault, repeated, codes) in [
        ("stop request (SIGTERM)", [0, 0], [Some(75), Some(0)]),
        ("full disk at a checkpoint", [2, 4], [Some(74), Some(0)]),
    ] {
        let trial = trial(&found, fault);
        assert!(trial["steps_repeated"].as_u64().is_some_and(|n| repeated.contains(&n)), "{trial:#}");
        assert_eq!(trial["exit_codes"], serde_json::json!(codes), "{trial:#}");
        assert!(trial["seconds"].as_f64().is_some(), "{trial:#}");
    }
    let killed = trial(&found, "kill rank 1 in forward");
    let repeated = killed["steps_repeated"].as_u64();
    // The save of step 2 may not have been complete.
    assert!(repeated == Some(1) || repeated == Some(3), "{killed:#}");
    assert_eq!(found["stop"]["grace"], 60.0);
    // Nothing is left behind, and no process.
    assert_eq!(found["folder"], Value::Null);
    assert!(!place.0.path().join("runs").exists());
}

#[test]
fn a_lost_node_comes_back() {
    let _alone = alone();
    let place = Place::new();
    let out = place.0.path().join("trials");
    let flags = ["--quick", "--phases", "save", "--nproc-per-node", "1", "--nnodes", "2"];
    let found = place.found(&[&flags[..], &["--out", out.to_str().expect("plain")]].concat());
    let lost = trial(&found, "lose a node, which comes back");
    assert_eq!(
        (&lost["verdict"], &lost["exit_codes"]),
        (&Value::from("survived"), &serde_json::json!([0, 0])),
        "{found:#}"
    );
    // It is rehearsed with one process a node.
    assert_eq!((&found["world"], &found["nodes"]), (&Value::from(1), &Value::from(2)));
    assert!(out.join("whole/metrics.jsonl").is_file() && out.join("trial-1/checkpoints").is_dir());
    assert_code(&place.rehearse(&["--out", out.to_str().expect("plain")]), 2);
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let _alone = alone();
    let place = Place::new();
    let temporary = place.0.path().join("tmp");
    std::fs::create_dir(&temporary).expect("created");
    let mut command = ddp_run();
    command.arg("rehearse").arg(place.0.path().join("job.toml"));
    command.env("TMPDIR", &temporary).env(TAG, place.0.path());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("it starts");
    let plays = |folder: std::fs::DirEntry| folder.path().join("trial-2/logs").exists();
    wait_for("a trial", HUNG, || std::fs::read_dir(&temporary).expect("a folder").flatten().any(plays));
    kill(child.id(), rustix::process::Signal::TERM);
    let output = finish(child);
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}", stderr(&output));
    // A worker that was being started ends with its supervisor, a moment later.
    wait_for("all processes to end", HUNG, || processes(place.0.path()).is_empty());
    assert_eq!(std::fs::read_dir(&temporary).expect("a folder").count(), 0);
}

#[test]
fn a_spec_that_fails_by_itself_is_not_rehearsed() {
    let _alone = alone();
    let place = Place::new();
    let output = place.rehearse(&["--quick", "--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e30"]);
    assert_code(&output, 92);
    assert!(stderr(&output).contains("the undisturbed run failed"), "{}", stderr(&output));
    assert_code(&place.rehearse(&["--phases", "nowhere"]), 2);
}
