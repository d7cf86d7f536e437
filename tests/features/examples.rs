//! The programs of examples/ run their specs on two ranks, and go on where they ended.

use crate::common::server::{Answer, Server};
use crate::common::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A metric of each epoch's evaluation.
fn evaluated(out: &Path, name: &str) -> Vec<f64> {
    let events = events(out);
    let epochs = events.iter().filter(|e| e["event"] == "epoch");
    epochs.map(|e| e["val"][name].as_f64().unwrap_or_else(|| panic!("{e} has no {name}"))).collect()
}

/// Runs `spec`, a path without its ending in examples/.
fn runs(spec: &str, out: &Path, sets: &[&str]) {
    let (name, _) = spec.split_once('/').unwrap();
    let spec = PathBuf::from(format!("examples/{spec}.toml"));
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    assert_code(&output_of(&mut trains(program(&example(name)), &spec, out, &sets)), 0);
}

/// Returns the model and the optimizer after three epochs.
fn learns_and_resumes(spec: &str, metric: &str, sets: &[&str]) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    for (out, epochs) in [(&whole, "epochs=3"), (&parts, "epochs=1"), (&parts, "epochs=3")] {
        runs(spec, out, &[&[epochs], sets].concat());
    }
    let values = evaluated(&whole, metric);
    assert_eq!(values, evaluated(&parts, metric), "{spec}");
    assert!(values.len() == 3 && values[2] > values[0], "{spec}: {values:?}");
    assert!(bits(&whole) == bits(&parts), "{spec}: model or optimizer differ");
    bits(&whole)
}

/// As [`learns_and_resumes`], with a spec of examples/mynet/ that differs from mynet.toml in one component. `other` is another
/// value of its keys.
fn has_an_effect(spec: &str, other: &str) {
    let _alone = alone();
    let own = learns_and_resumes(spec, "accuracy", &[]);
    for (spec, sets) in [("mynet/mynet", &["epochs=3"][..]), (spec, &["epochs=3", other])] {
        let dir = tempfile::tempdir().unwrap();
        runs(spec, dir.path(), sets);
        assert!(bits(dir.path()) != own, "{spec} with {sets:?} leads to the same weights");
    }
}

#[test]
fn a_model_and_a_data_set() {
    let _alone = alone();
    learns_and_resumes("mynet/mynet", "accuracy", &[]);
}

#[test]
fn a_transform() {
    has_an_effect("mynet/transform", "transform=[{name=\"jitter\", width=0.02}]");
}

#[test]
fn an_optimizer() {
    has_an_effect("mynet/optimizer", "optimizer.lr=0.001");
}

#[test]
fn a_schedule() {
    has_an_effect("mynet/schedule", "scheduler.half=40");
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    runs("mynet/schedule", dir.path(), &["train.max_steps=161", "metrics.log_every=1"]);
    let steps: Vec<Value> = events(dir.path()).into_iter().filter(|e| e["event"] == "step").collect();
    // Up to the base rate in 80 steps, and down again.
    for (t, factor) in [(0, 0.2), (40, 0.6), (80, 1.0), (120, 0.6), (160, 0.2)] {
        let rate = steps[t]["lr"].as_f64().unwrap();
        assert!((rate / 0.003 - factor).abs() < 1e-12, "step {t}: {rate}");
    }
}

#[test]
fn a_hook_with_keys() {
    has_an_effect("mynet/hook", "distributed.hook.norm=0.25");
}

#[test]
fn an_observer() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // From the fourth on, it refuses.
    let mut answers = vec![Answer::Json(200, "{}".to_owned()); 3];
    answers.push(Answer::Status(503));
    let server = Server::script(answers);
    let url = server.url("here");
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mynet/mynet.toml");
    let text = format!("extends = {base:?}\nepochs = 2\n[[observer]]\nname = \"webhook\"\nurl = \"{url}\"\n");
    let spec = write_spec(dir.path(), &text);
    let webhook = |out: &Path| {
        let mut command = trains(program(&example("mynet")), &spec, out, &[]);
        for proxy in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(proxy);
        }
        output_of(&mut command)
    };
    assert_code(&webhook(&out), 0);
    let mut passed = events(&out);
    passed.retain(|event| event["event"] == "epoch" || event["event"] == "end");
    let posts: Vec<Value> =
        server.requests().iter().map(|post| serde_json::from_slice(&post.body).unwrap()).collect();
    assert_eq!(posts, passed);
    assert_eq!(posts.len(), 3);
    let output = webhook(&dir.path().join("again"));
    assert_code(&output, 0);
    assert!(stderr(&output).contains("warning: observer `webhook`: cannot post to"), "{}", stderr(&output));
}

#[test]
fn a_loss_and_a_metric() {
    let _alone = alone();
    let sets = ["dataset.images=128", "dataset.side=16"];
    let own = learns_and_resumes("segmentation/segmentation", "iou", &sets);
    // Burn's dropout draws the same after a resume.
    let dir = tempfile::tempdir().unwrap();
    runs("segmentation/segmentation", dir.path(), &[&sets[..], &["epochs=3", "model.dropout=0"]].concat());
    assert!(bits(dir.path()) != own, "the dropout has no effect");
}

#[test]
fn a_further_field() {
    let _alone = alone();
    learns_and_resumes("sequences/sequences", "accuracy", &[]);
}

/// Ranks have different numbers of shapes, and a metric is the same whatever they are divided into.
#[test]
fn a_model_with_two_heads() {
    let _alone = alone();
    learns_and_resumes("detection/detection", "iou", &["dataset.images=384"]);
    let dir = tempfile::tempdir().unwrap();
    runs("detection/detection", dir.path(), &["dataset.images=256", "epochs=2"]);
    let eval = |ranks: &str| -> Value {
        let mut command = program(&example("detection"));
        let output =
            output_of(command.arg("eval").arg(dir.path()).args(["--json", "--nproc-per-node", ranks]));
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (one, three) = (eval("1"), eval("3"));
    for metric in ["iou", "found"] {
        let value = |of: &Value| of[metric].as_f64().unwrap_or_else(|| panic!("{of} has no {metric}"));
        assert!((value(&one) - value(&three)).abs() < 1e-6, "{metric}: {one} and {three}");
        let last = *evaluated(dir.path(), metric).last().unwrap();
        assert!((value(&one) - last).abs() < 1e-6, "{metric}: {one}, and {last} during the run");
    }
}

/// `.ci/run` builds the example with the feature.
#[cfg(feature = "learner")]
#[test]
fn a_learner() {
    let _alone = alone();
    learns_and_resumes("learner/learner", "accuracy", &[]);
}

#[test]
fn a_task() {
    let _alone = alone();
    learns_and_resumes("contrastive/contrastive", "found", &[]);
}
