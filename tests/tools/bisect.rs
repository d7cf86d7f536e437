//! `ddp-run bisect` of real runs: the first step and tensor that differ, by digests and by replays, and what it says otherwise.
#![cfg(target_os = "linux")]

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Eight steps, saved after each fourth one, with digests of each second one. The rate falls from the fifth step on.
const SPEC: &str = "name = \"bisected\"\nseed = 3\nepochs = 2\nbatch_size = 4\nsave_every = \"4 steps\"\n\
    [model]\nname = \"mlp\"\nhidden = [16]\n\
    [dataset]\nname = \"random\"\nsamples = 160\nfeatures = 8\nval_split = 0.2\n\
    [train]\nmax_steps = 8\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-2\n\
    [metrics]\nlog_every = 1\ndigests = \"2 steps\"\n\
    [checkpoint]\nkeep_last = 0\n\
    [launch]\nthreads = 1\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_spec(dir.path(), SPEC);
        Self(dir)
    }

    #[track_caller]
    fn train(&self, name: &str, flags: &[&str]) -> PathBuf {
        let out = self.0.path().join(name);
        let output =
            train(&self.0.path().join("job.toml"), &out, &[&["--nproc-per-node", "2"], flags].concat());
        assert_code(&output, 0);
        out
    }

    /// What it says as JSON, and as text; both have this exit code.
    #[track_caller]
    fn bisect(&self, a: &Path, b: &Path, flags: &[&str], code: i32) -> (Value, String) {
        let before = [contents(a), contents(b)];
        let ask = |more: &[&str]| {
            let output = output_of(ddp_run().arg("bisect").arg(a).arg(b).args(flags).args(more));
            assert_code(&output, code);
            stdout(&output)
        };
        let (json, text) = (ask(&["--format", "json"]), ask(&[]));
        assert!([contents(a), contents(b)] == before, "the runs' folders have changed");
        (parse_json(json), text)
    }
}

#[test]
fn equal_runs_are_identical() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.train(name, &[]));
    let (json, text) = place.bisect(&a, &b, &[], 0);
    assert_eq!((&json["result"], &json["equal_until"]), (&"identical".into(), &8.into()));
    assert!(text.contains("are the same up to step 8"), "{text}");
    // Their specs end there.
    let (json, text) = place.bisect(&a, &b, &["--until", "99"], 0);
    assert_eq!((&json["result"], &json["equal_until"]), (&"identical".into(), &8.into()), "{text}");
}

#[test]
fn a_rate_that_falls_is_found_at_its_step_by_replays() {
    let place = Place::new();
    let schedule = "scheduler={name=\"multistep\", milestones=[1000]}";
    let a = place.train("a", &["--set", schedule]);
    let b = place
        .train("b", &["--set", "scheduler={name=\"multistep\", milestones=[5], gamma=0.5, unit=\"step\"}"]);
    let (json, text) = place.bisect(&a, &b, &[], 3);
    // Digests tell that it is step 5 or 6, and replays from the checkpoint of step 4 which.
    assert_eq!((&json["result"], &json["exact"]), (&"differ".into(), &true.into()), "{text}");
    assert_eq!(json["replayed_from"], 4, "{text}");
    assert_eq!(json["tensor"]["group"], "parameter", "{text}");
    assert_eq!(json["step"], 6, "{text}");
    assert!(text.contains("the specs differ in keys that change results"), "{text}");
    let (json, _) = place.bisect(&a, &b, &["--no-replay"], 3);
    assert_eq!((&json["step"], &json["exact"], &json["equal_until"]), (&6.into(), &false.into(), &4.into()));
}

#[test]
fn another_seed_differs_in_the_input_of_the_first_step() {
    let place = Place::new();
    let (a, b) = (place.train("a", &[]), place.train("b", &["--set", "seed=4"]));
    let (json, text) = place.bisect(&a, &b, &[], 3);
    assert_eq!((&json["step"], &json["tensor"]["group"]), (&1.into(), &"input".into()), "{text}");
    assert_eq!(json["spec"][0]["key"], "seed");
}

/// A flipped bit is not repeated by the replay.
#[test]
fn a_flipped_bit_is_no_part_of_the_spec() {
    let place = Place::new();
    let a = place.train("a", &[]);
    let b = place.0.path().join("b");
    let mut command = train_command(&place.0.path().join("job.toml"), &b, &["--nproc-per-node", "2"]);
    let output = output_of(command.env("DDP_RUN_FAULT", "flip:rank=1,phase=forward,step=5"));
    assert_code(&output, 0);
    let (json, text) = place.bisect(&a, &b, &[], 3);
    assert_eq!((&json["result"], &json["step"]), (&"unrepeatable".into(), &6.into()), "{text}");
    // Rank 1 had wrong parameters, so all ranks had wrong gradients.
    assert_eq!(json["tensor"]["group"], "gradient", "{text}");
    assert_eq!(
        (&json["unlike_replay"]["a"], &json["unlike_replay"]["b"]),
        (&Value::Null, &6.into()),
        "{text}"
    );
}

#[test]
fn runs_that_began_with_one_checkpoint_are_replayed_from_it() {
    let place = Place::new();
    let origin = place.train("origin", &["--set", "train.max_steps=4"]);
    let from = origin.join("checkpoints/step-00000004");
    let fork = |name, flags: &[&str]| {
        place.train(name, &[&["--resume", from.to_str().unwrap()][..], flags].concat())
    };
    let (a, b) = (fork("a", &[]), fork("b", &["--set", "optimizer.lr=2e-2"]));
    let (json, text) = place.bisect(&a, &b, &[], 3);
    assert_eq!((&json["step"], &json["exact"], &json["replayed_from"]), (&5.into(), &true.into(), &4.into()));
    assert_eq!(json["tensor"]["group"], "parameter", "{text}");
    // Against the run that they are forks of, too.
    let whole = place.train("whole", &[]);
    assert_eq!(place.bisect(&whole, &b, &[], 3).0["step"], 5);
    fs::remove_dir_all(&from).unwrap();
    let (json, text) = place.bisect(&a, &b, &[], 3);
    assert_eq!((&json["step"], &json["exact"]), (&6.into(), &false.into()), "{text}");
    assert!(json["not_replayed"].as_str().unwrap().contains("step-00000004, which is gone"), "{text}");
}

#[test]
fn a_run_whose_number_of_ranks_changed_is_replayed_with_both() {
    let place = Place::new();
    let resized = |name, schedule: &str| {
        let out = place.train(name, &["--set", schedule, "--set", "train.max_steps=4"]);
        let flags = ["--nproc-per-node", "3", "--set", schedule];
        assert_code(&train(&place.0.path().join("job.toml"), &out, &flags), 0);
        // So that both are replayed from the beginning.
        fs::remove_dir_all(out.join("checkpoints/step-00000004")).unwrap();
        out
    };
    let a = resized("a", "scheduler={name=\"multistep\", milestones=[1000], unit=\"step\"}");
    let b = resized("b", "scheduler={name=\"multistep\", milestones=[7], unit=\"step\"}");
    let (json, text) = place.bisect(&a, &b, &[], 3);
    assert_eq!((&json["exact"], &json["replayed_from"]), (&true.into(), &0.into()), "{text}");
    assert_eq!(json["unlike_replay"], serde_json::json!({ "a": null, "b": null }), "{text}");
    assert_eq!((&json["step"], &json["tensor"]["group"]), (&8.into(), &"parameter".into()), "{text}");
}

/// A pause that changes no results, then steps behind it, and then another rate: each part is replayed with the spec that it had.
#[test]
fn a_run_that_went_on_behind_a_pause_is_replayed_with_all_its_specs() {
    let place = Place::new();
    let run = |name: &str, lr: &str| {
        let steps = ["--set", "train.max_steps=24"];
        let out = place.train(name, &[&steps[..], &["--set", "train.stop_after=1"]].concat());
        let flags = [&["--nproc-per-node", "2"], &steps[..]].concat();
        let mut stopped = train_command(&place.0.path().join("job.toml"), &out, &flags);
        assert_code(&output_of(stopped.env("DDP_RUN_STOP_AT", "20")), 75);
        place.train(name, &[&steps[..], &["--set", lr, "--accept-changes"]].concat());
        // So that both are replayed from the beginning.
        for step in [4, 8, 12, 16, 20] {
            fs::remove_dir_all(out.join(format!("checkpoints/step-{step:08}"))).unwrap();
        }
        out
    };
    let (a, b) = (run("a", "optimizer.lr=2e-2"), run("b", "optimizer.lr=3e-2"));
    let (json, text) = place.bisect(&a, &b, &[], 3);
    assert_eq!((&json["exact"], &json["replayed_from"]), (&true.into(), &0.into()), "{text}");
    assert_eq!(json["unlike_replay"], serde_json::json!({ "a": null, "b": null }), "{text}");
    assert_eq!((&json["step"], &json["tensor"]["group"]), (&21.into(), &"parameter".into()), "{text}");
}

#[test]
fn without_anything_in_common_it_says_so_and_replays_on_request() {
    let place = Place::new();
    let without = ["--set", "metrics.digests=never", "--set", "save_every=never"];
    let a = place.train("a", &without);
    let b = place.train("b", &[&without[..], &["--set", "optimizer.lr=2e-2"]].concat());
    let output = output_of(ddp_run().arg("bisect").arg(&a).arg(&b));
    assert_code(&output, 2);
    assert!(
        stderr(&output).contains("neither digests of the same step nor checkpoints"),
        "{}",
        stderr(&output)
    );
    let (json, text) = place.bisect(&a, &b, &["--until", "2"], 3);
    assert_eq!((&json["step"], &json["tensor"]["group"]), (&1.into(), &"parameter".into()), "{text}");
    let (json, _) = place.bisect(&a, &a, &["--until", "3"], 0);
    assert_eq!((&json["result"], &json["equal_until"]), (&"identical".into(), &3.into()));
}
