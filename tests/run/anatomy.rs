//! Where the time of steps goes: `times` of step events, and `--profile`.

use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const SMOKE: &str = "configs/ci/smoke.toml";
const PARTS: [&str; 7] = ["data", "forward", "backward", "comm", "optimizer", "checkpoint", "other"];

/// Trains the spec with two processes and these flags.
fn trained(dir: &Path, name: &str, flags: &[&str]) -> (PathBuf, String) {
    let out = dir.join(name);
    let output = train(Path::new(SMOKE), &out, flags);
    assert_code(&output, 0);
    (out, stderr(&output))
}

/// The complete events of a trace.
fn spans(path: &Path) -> Vec<Value> {
    let trace = read_json(path);
    let events = trace["traceEvents"].as_array().expect("a list").clone();
    events.into_iter().filter(|event| event["ph"] == "X").collect()
}

/// Begin and end of a span.
fn bounds(span: &Value) -> (u64, u64) {
    let begin = span["ts"].as_u64().expect("a time");
    (begin, begin + span["dur"].as_u64().expect("a length"))
}

fn is_within(inner: &Value, outer: &Value) -> bool {
    let (inner_begin, inner_end) = bounds(inner);
    let (outer_begin, outer_end) = bounds(outer);
    inner["pid"] == outer["pid"] && outer_begin <= inner_begin && inner_end <= outer_end
}

#[test]
fn step_events_divide_the_time_of_each_rank() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (out, _) = trained(dir.path(), "two", &[]);
    let steps = step_events(&out);
    assert_eq!(steps.len(), 16);
    let end = events(&out).pop().expect("the end");
    let all = end["seconds"].as_f64().expect("a time");
    let seconds = |step: &Value, part: &str, rank: usize| {
        let ranks = step["times"][part].as_array().unwrap_or_else(|| panic!("no {part}: {step}"));
        assert_eq!(ranks.len(), 2, "{step}");
        ranks[rank].as_f64().filter(|seconds| *seconds >= 0.0).unwrap_or_else(|| panic!("{part}: {step}"))
    };
    for rank in 0..2 {
        let of = |part| steps.iter().map(|step| seconds(step, part, rank)).sum::<f64>();
        let total: f64 = PARTS.into_iter().map(of).sum();
        assert!(total > 0.0 && total <= all + 1e-3, "rank {rank}: {total} s of {all} s");
        for part in ["forward", "backward", "comm", "optimizer"] {
            assert!(of(part) > 0.0, "rank {rank}: {part}");
        }
    }
    let saves: f64 = steps.iter().map(|step| seconds(step, "checkpoint", 0)).sum();
    assert!(saves > 0.0, "three saves took no time");
    for step in &steps {
        assert!(step["overlap"].as_f64().is_some_and(|overlap| (0.0..=1.0).contains(&overlap)), "{step}");
    }
    // Times are at the end of an event, in front of its own.
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let line = text.lines().find(|line| line.contains("\"event\":\"step\"")).unwrap();
    let at = |key: &str| line.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {line}"));
    assert!(at("data_wait") < at("times") && at("times") < at("overlap"), "{line}");
    assert!(at("overlap") < line.rfind("\"time\":").unwrap(), "{line}");
}

#[test]
fn a_single_rank_has_times_and_no_overlap() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (out, _) = trained(dir.path(), "one", &["--nproc-per-node", "1", "--set", "metrics.log_every=4"]);
    let steps = step_events(&out);
    assert!(!steps.is_empty());
    for step in steps {
        assert_eq!(step["times"]["forward"].as_array().map(Vec::len), Some(1), "{step}");
        assert!(step.get("overlap").is_none(), "{step}");
    }
}

#[test]
fn a_profile_has_the_phases_and_collectives_of_both_ranks() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (out, said) = trained(dir.path(), "profiled", &["--profile", "5"]);
    assert!(said.contains("profile.json"), "{said}");
    let spans = spans(&out.join("profile.json"));
    for rank in 0..2 {
        let own: Vec<&Value> = spans.iter().filter(|span| span["pid"] == rank).collect();
        let named = |name: &str| own.iter().filter(|span| span["name"] == name).copied().collect::<Vec<_>>();
        let steps = named("step");
        let numbers: Vec<_> = steps.iter().map(|step| step["args"]["step"].as_u64()).collect();
        assert_eq!(numbers, [3, 4, 5, 6, 7].map(Some), "rank {rank}");
        for name in ["forward", "backward", "sync", "update", "all_reduce"] {
            let inner = named(name);
            assert!(inner.len() >= steps.len(), "rank {rank}: {} of {name}", inner.len());
            for span in inner {
                assert!(steps.iter().any(|step| is_within(span, step)), "in no step: {span}");
            }
        }
        let call = named("all_reduce")[0];
        assert!(call["args"]["bytes"].is_u64() && call["args"]["algorithm"].is_string(), "{call}");
        // What happens on a thread is nested or apart.
        for (at, a) in own.iter().enumerate() {
            let of_thread = own[at + 1..].iter().filter(|b| a["tid"] == b["tid"]);
            for b in of_thread {
                let apart = bounds(a).1 <= bounds(b).0 || bounds(b).1 <= bounds(a).0;
                assert!(apart || is_within(a, b) || is_within(b, a), "{a}\n{b}");
            }
        }
    }
    assert_eq!(spans.iter().map(bounds).map(|(begin, _)| begin).min(), Some(0));
}

#[test]
fn a_profile_has_what_was_recorded_before_a_restart() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("restarted");
    // Attempt 2 begins at step 10 and records none of these steps.
    let flags = ["--profile", "3..6", "--max-restarts", "1", "--set", "checkpoint.async=false"];
    let mut command = train_command(Path::new(SMOKE), &out, &flags);
    command.env("DDP_RUN_FAULT", "stop:rank=1,phase=forward,step=12,generation=1");
    let run = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
    let rank_1 = held(&out);
    let written = || (0..2).all(|rank| out.join(format!("profile/rank-{rank}.json")).exists());
    wait_for("what both ranks recorded", HUNG, written);
    kill(rank_1, Signal::KILL);
    assert_code(&finish_within(RUN_HUNG, run), 0);
    let spans = spans(&out.join("profile.json"));
    for rank in 0..2 {
        let steps = spans.iter().filter(|span| span["name"] == "step" && span["pid"] == rank);
        let numbers: Vec<_> = steps.map(|step| step["args"]["step"].as_u64()).collect();
        assert_eq!(numbers, [3, 4, 5, 6].map(Some), "rank {rank}");
    }
    // A start of its own has a profile of its own, or none.
    let (_, said) = trained(dir.path(), "restarted", &["--set", "epochs=3", "--profile", "3..6"]);
    assert!(said.contains("there is no profile: this start had no step of `--profile 3..6`"), "{said}");
}

#[test]
fn results_depend_neither_on_a_profile_nor_on_how_often_times_are_exchanged() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (plain, _) = trained(dir.path(), "plain", &[]);
    let (profiled, _) = trained(dir.path(), "profiled", &["--profile", "1..16"]);
    let (seldom, _) = trained(dir.path(), "seldom", &["--set", "metrics.log_every=5"]);
    assert_eq!(spans(&profiled.join("profile.json")).iter().filter(|s| s["name"] == "step").count(), 32);
    assert_eq!(bits(&plain), bits(&profiled));
    assert_eq!(bits(&plain), bits(&seldom));
    assert_eq!(results(&plain), results(&profiled));
}

#[test]
fn a_profile_that_cannot_be_written_is_a_warning() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    // A folder without a run would be refused: the file is not a run's.
    trained(dir.path(), "run", &["--set", "train.max_steps=2"]);
    std::fs::write(dir.path().join("run/profile"), "in the way").unwrap();
    let (out, said) = trained(dir.path(), "run", &["--profile"]);
    assert!(said.contains("warning: the profile of rank 0 is lost"), "{said}");
    assert_eq!(said.matches("the profile of rank 0").count(), 1, "once: {said}");
    assert!(!said.contains("there is no profile"), "a wrong reason: {said}");
    assert!(!out.join("profile.json").exists());
    assert_eq!(events(&out).last().unwrap()["reason"], "done");
}
