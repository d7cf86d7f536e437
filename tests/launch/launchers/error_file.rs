//! torchrun's error file, of ranks that are started as torchrun starts them.

use super::trial::*;
use crate::common::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What torchrun's summary shows of a file, by the rules of `ProcessFailure` and `ChildFailedError`.
#[track_caller]
fn shown(path: &Path) -> String {
    let data = read_json(path);
    let extra = &data["message"]["extraInfo"];
    let seconds: u64 = extra["timestamp"].as_str().expect("text").parse().expect("whole seconds");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(seconds <= now && now - seconds < 86_400, "{seconds} at {now}");
    assert!(data["message"]["message"].is_string(), "{data}");
    extra["py_callstack"].as_str().expect("text").to_owned()
}

#[test]
fn a_rank_that_loses_its_peer_names_it() {
    let _alone = alone();
    let (trial, port) = (Trial::new(), Port::new());
    let file = |rank: usize| -> PathBuf { trial.out.with_file_name(format!("error-{rank}.json")) };
    let mut ranks = [0, 1].map(|rank: usize| {
        let mut command = Command::new("env");
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("TORCHELASTIC_RUN_ID", "none");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("TORCHELASTIC_ERROR_FILE", file(rank));
        command.env("DDP_RUN_FAULT", "kill:rank=1,phase=forward,step=3");
        trial.start(command, &trial.ddp_run(&ENDLESS))
    });
    for rank in &mut ranks {
        assert!(rank.end(RUN_HUNG).is_some(), "hangs:\n{}", rank.told());
    }
    let text = shown(&file(0));
    assert!(text.starts_with("rank 0: rank 1 disconnected") && text.contains("\nat step 3"), "{text}");
    assert!(!file(1).exists(), "a killed process writes nothing");
}

#[test]
fn an_error_before_the_rendezvous_is_there_too() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let (file, spec) = (dir.path().join("error.json"), write_spec(dir.path(), "name = 3\n"));
    let mut command = train_command(&spec, &dir.path().join("run"), &[]);
    command.env("RANK", "0").env("WORLD_SIZE", "1").env("TORCHELASTIC_ERROR_FILE", &file);
    assert_code(&output_of(&mut command), 78);
    let text = shown(&file);
    assert!(text.contains("job.toml\n") && text.contains("expected a string, found 3"), "{text}");
}

/// The supervisor knows that rank 1 was killed; rank 0 only lost it.
#[test]
fn a_supervisor_writes_the_root_cause_and_nothing_after_a_restart_that_helped() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("error.json");
    let train = |out: &str, restarts: &str| {
        let flags = ["--nproc-per-node", "2", "--max-restarts", restarts];
        let mut command = train_command(Path::new("configs/ci/smoke.toml"), &dir.path().join(out), &flags);
        command.env("DDP_RUN_FAULT", "kill:rank=1,phase=forward,step=2,generation=1");
        output_of(command.env("TORCHELASTIC_ERROR_FILE", &file))
    };
    assert_code(&train("helped", "1"), 0);
    assert!(!file.exists(), "the run succeeded");
    std::fs::write(&file, "").expect("writable");
    assert_code(&train("killed", "0"), 90);
    let text = shown(&file);
    assert!(text.contains("rank 1 of 2") && text.contains("signal 9"), "{text}");
}

#[test]
fn a_bad_command_line_is_there_too() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("error.json");
    let mut command = ddp_run();
    command.args(["train", "job.toml", "--no-such-flag"]).env("TORCHELASTIC_ERROR_FILE", &file);
    assert_code(&output_of(&mut command), 2);
    assert!(shown(&file).contains("--no-such-flag"));
}
