//! The spec is valid, and its job learns.

use ddp_run::serde_json::Value;
use std::process::Command;

/// The program, started in the folder of the spec.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_my-job"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

#[test]
fn the_spec_is_valid() {
    let output = program()
        .args(["check", "job.toml"])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_model_learns() {
    let out = std::env::temp_dir().join(format!("my-job-test-{}", std::process::id()));
    let output = program()
        .args(["train", "job.toml", "--progress", "none", "--out"])
        .arg(&out)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // A line per event: the last evaluation tells how good the model has become.
    let metrics = std::fs::read_to_string(out.join("metrics.jsonl")).expect("a run has metrics");
    let mut events = metrics
        .lines()
        .map(|line| line.parse::<Value>().expect("JSON"));
    let last = events
        .rfind(|event| event["event"] == "epoch")
        .expect("an epoch");
    let accuracy = last["val"]["accuracy"].as_f64().expect("an accuracy");
    assert!(accuracy > 0.9, "{last}");
    std::fs::remove_dir_all(&out).expect("it can be removed");
}
