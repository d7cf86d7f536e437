//! Ranks that someone starts one by one: PyTorch's three ways to meet, and what is refused.

use super::trial::*;
use crate::common::*;
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Output};

/// Starts both ranks; the variables are those of rank 0 and of rank 1.
fn ranks(trial: &Trial, flags: &[&str], variables: &[(&str, &str)]) -> Vec<Started> {
    let start = |rank: &str| {
        let mut command = Command::new("env");
        command.env("RANK", rank).env("WORLD_SIZE", "2").envs(variables.iter().copied());
        trial.start(command, &trial.ddp_run(flags))
    };
    vec![start("1"), start("0")]
}

#[track_caller]
fn train_alike(flags: &[&str], variables: &[(&str, &str)]) {
    let trial = Trial::new();
    let mut ranks = ranks(&trial, &[flags, &["--set", "distributed.init_timeout=60"]].concat(), variables);
    for rank in &mut ranks {
        let status = rank.end(RUN_HUNG);
        assert!(status.is_some_and(|s| s.success()), "{status:?}: {}", rank.told());
    }
    trial.assert_same_bits();
}

#[test]
fn ranks_connect_by_the_environment_by_tcp_and_by_a_file() {
    let _alone = alone();
    let port = Port::new();
    train_alike(&[], &[("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port.to_string())]);
    // The flag counts, not the variables.
    let tcp = format!("tcp://localhost:{port}");
    train_alike(&["--rdzv-endpoint", &tcp], &[("MASTER_ADDR", "no.such.host"), ("MASTER_PORT", "1")]);
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meet");
    // Left over from a run: nobody listens there any more.
    std::fs::write(&path, format!("127.0.0.1:{port}\n")).expect("writable");
    let file = format!("file://{}", path.display());
    train_alike(&["--rdzv-endpoint", &file], &[("LOCAL_WORLD_SIZE", "2")]);
    train_alike(&["--set", &format!("launch.rdzv_endpoint={file:?}")], &[("LOCAL_WORLD_SIZE", "2")]);
    assert_eq!(std::fs::read_dir(&dir).expect("a folder").count(), 0, "the file is left");
    // One on each of two machines, as far as they know: they meet at this machine's own address.
    train_alike(&["--rdzv-endpoint", &file], &[]);
}

/// A signal reaches one rank after the other: the first to stop is gone when another still waits for it, or is not.
#[test]
fn a_rank_that_is_asked_to_stop_before_training_stops_whether_or_not_its_peer_has_left() {
    let _alone = alone();
    // Before the folder has a run, and in the first step.
    for (phase, first_has_left) in [("data", true), ("forward", true), ("forward", false)] {
        let (trial, port) = (Trial::new(), Port::new());
        let (port, fault) = (port.to_string(), format!("stop:rank=1,phase={phase}"));
        let variables = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &*port), ("DDP_RUN_FAULT", &*fault)];
        let mut ranks = ranks(&trial, &["--set", "distributed.init_timeout=60"], &variables);
        let held = held(&trial.out);
        let waiting = processes(&trial.out).into_iter().find(|pid| *pid != held).expect("rank 0");
        kill(waiting, Signal::TERM);
        if first_has_left {
            kill(held, Signal::KILL);
        }
        let second = &mut ranks[1];
        let code = second.end(RUN_HUNG).and_then(|status| status.code());
        assert_eq!(code, Some(75), "{phase}: {}", second.told());
        assert!(!trial.out.join("logs/failure-rank-0.json").exists(), "{phase}: nothing has failed");
        if phase == "forward" {
            let end = events(&trial.out).pop().unwrap();
            assert_eq!((&end["reason"], &end["exit_code"]), (&"stopped".into(), &75.into()));
        }
    }
}

/// Everything is recorded when rank 0 loses its peer.
#[test]
fn the_recorded_end_is_that_of_the_exit_code() {
    let _alone = alone();
    let (trial, port) = (Trial::new(), Port::new().to_string());
    let mut variables = vec![
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &*port),
        ("DDP_RUN_FAULT", "stop:rank=1,phase=finish"),
    ];
    let start = |variables: &[_]| ranks(&trial, &["--set", "distributed.init_timeout=60"], variables);
    let mut first = start(&variables);
    let held = held(&trial.out);
    let ends = || {
        let ends = events(&trial.out).into_iter().filter(|event| event["event"] == "end");
        ends.map(|end| end["exit_code"].as_u64()).collect::<Vec<_>>()
    };
    assert!(within(HUNG, || ends() == [Some(0)]), "{}", first[1].told());
    kill(held, Signal::KILL);
    let code = first[1].end(RUN_HUNG).and_then(|status| status.code());
    assert_eq!(code, Some(91), "{}", first[1].told());
    assert_eq!(ends(), [Some(91)]);
    variables.pop();
    for rank in &mut start(&variables) {
        assert!(rank.end(RUN_HUNG).is_some_and(|status| status.success()), "{}", rank.told());
    }
}

#[test]
fn inconsistent_settings_are_rejected_before_anything_starts() {
    let _alone = alone();
    type Case = (&'static [&'static str], &'static [(&'static str, &'static str)], i32, &'static str);
    let cases: [Case; 10] = [
        (&["--nproc-per-node", "gpu", "--device", "cpu"], &[], 69, "this machine has no device"),
        (&["--node-rank", "1"], &[], 2, "the number of nodes is not set"),
        (&["--rdzv-endpoint", "n0:1"], &[], 2, "the number of nodes is not set"),
        (&[], &[("JOB_COMPLETION_INDEX", "0")], 2, "the number of nodes is not set"),
        (&[], &[("RANK", "0")], 2, "RANK is set, but WORLD_SIZE is not"),
        (&[], &[("WORLD_SIZE", "2")], 2, "WORLD_SIZE is set, but RANK is not"),
        (&[], &[("RANK", "0"), ("WORLD_SIZE", "2")], 2, "MASTER_ADDR is not"),
        (
            &[],
            &[("RANK", "0"), ("WORLD_SIZE", "2"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")],
            2,
            "contradict each other",
        ),
        (&["--node-rank", "1"], &[("RANK", "0"), ("WORLD_SIZE", "2")], 2, "--node-rank 1"),
        (&["--nnodes", "2", "--rdzv-endpoint", "n1"], &[], 2, "the rank of this node is not"),
    ];
    for (flags, variables, code, words) in cases {
        let trial = Trial::new();
        let mut command = ddp_run();
        command.args(["train", "configs/ci/smoke.toml", "--out"]).arg(&trial.out).args(flags);
        let output = output_of(command.envs(variables.iter().copied()));
        assert_code(&output, code);
        assert!(stderr(&output).contains(words), "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains("\nhint: "), "{}", stderr(&output));
        assert!(!trial.out.exists(), "{words}");
    }
}

/// The smoke test's run behind the shell's `limits`.
fn limited(limits: &str, flags: &[&str]) -> Output {
    let trial = Trial::new();
    let real = ddp_run();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits}; exec \"$@\""), "sh"]).arg(real.get_program());
    command.args(["train", "configs/ci/smoke.toml", "--out"]).arg(&trial.out).args(flags);
    real.get_envs().for_each(|(name, value)| match value {
        Some(value) => drop(command.env(name, value)),
        None => drop(command.env_remove(name)),
    });
    output_of(command.current_dir(env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn the_limit_of_open_files_is_raised_or_the_run_refused() {
    let _alone = alone();
    let refused = limited("ulimit -Sn 100; ulimit -Hn 100", &["--nproc-per-node", "64"]);
    assert_code(&refused, 69);
    // 64 for the rest, and three to each other rank.
    assert!(stderr(&refused).contains("253 open files"), "{}", stderr(&refused));
    assert_code(&limited("ulimit -Sn 12", &["--nproc-per-node", "2"]), 0);
}

#[test]
fn a_file_size_limit_is_an_error_that_is_not_retried() {
    let _alone = alone();
    // Of 512 or 1024 bytes: too small for the first file, and for a checkpoint.
    for (blocks, told) in [(1, "specs/"), (100, "checkpoint")] {
        let large = ["--set", "model.hidden=[8192]", "--max-restarts", "3"];
        let output = limited(&format!("ulimit -f {blocks}"), &large);
        assert_code(&output, 74);
        let words = stderr(&output);
        let mends = words.contains(told) && words.contains("File too large") && !words.contains("attempt 2");
        assert!(mends, "{words}");
    }
}

#[test]
fn a_rank_that_is_killed_while_it_ends_has_said_why_it_fails() {
    let _alone = alone();
    // The sink holds rank 0 up after its failed save, until the end of rank 1 has taken the run down.
    let program = "cat > /dev/null; while kill -0 $PPID; do sleep 0.1; done";
    let observer = format!("observer=[{{ name = \"exec\", command = [\"sh\", \"-c\", \"{program}\"] }}]");
    let flags =
        ["--nproc-per-node", "2", "--set", "model.hidden=[8192]", "--set", &observer, "--max-restarts", "1"];
    let output = limited("ulimit -f 100", &flags);
    assert_code(&output, 74);
    let words = stderr(&output);
    assert!(words.contains("File too large") && !words.contains("attempt 2"), "{words}");
}

/// The first line names the run's folder.
const LISTING: &str = "read -r start\n\
    folder=$(printf %s \"$start\" | sed 's/.*\"folder\":\"\\([^\"]*\\)\".*/\\1/')\n\
    cat > /dev/null\n\
    ls \"$folder/logs\" > \"$1.part\"\n\
    mv \"$1.part\" \"$1\"\n";

/// The last save fails on the side, after training. The sink reads to the end of its input, and lists what there is by then.
#[test]
fn a_failure_of_the_last_save_is_noted_before_the_sinks_end() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let (sink, seen) = (dir.path().join("sink.sh"), dir.path().join("seen"));
    std::fs::write(&sink, LISTING).expect("the scratch folder is writable");
    let observer = format!("observer=[{{ name = \"exec\", command = [\"sh\", {sink:?}, {seen:?}] }}]");
    let never = "save_every=\"100 epochs\"";
    let flags = ["--nproc-per-node", "2", "--set", "model.hidden=[8192]", "--set", never, "--set", &observer];
    let output = limited("ulimit -f 100", &flags);
    assert_code(&output, 74);
    wait_for("the sink", HUNG, || seen.exists());
    let there = std::fs::read_to_string(seen).expect("a list");
    assert!(there.contains("failure-rank-0.json"), "{there}\n{}", stderr(&output));
}

#[test]
fn file_errors_are_exit_74_and_a_single_rank_needs_no_secret() {
    let _alone = alone();
    let trial = Trial::new();
    let run = |out: &Path| {
        let mut command = ddp_run();
        command.args(["train", "configs/ci/smoke.toml", "--progress", "none", "--out"]).arg(out);
        command.env("RANK", "0").env("WORLD_SIZE", "1").env_remove("HOME").env_remove("XDG_CONFIG_HOME");
        output_of(&mut command)
    };
    assert_code(&run(&trial.out), 0);
    // Its parent is a file.
    let nowhere = run(&trial.out.join("run.json/run"));
    assert_code(&nowhere, 74);
    assert!(stderr(&nowhere).contains("cannot create"), "{}", stderr(&nowhere));
}

#[test]
fn env_shows_the_launcher_as_text_and_json() {
    let _alone = alone();
    let slurm = [
        ("SLURM_JOB_ID", "12"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NODELIST", "n[1-4]"),
    ];
    let told = output_of(ddp_run().arg("env").envs(slurm));
    assert_code(&told, 0);
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(text.contains("started by            Slurm: job 12.0, task 1 of 4\n"), "{text}");
    let told = output_of(ddp_run().args(["env", "--json"]));
    let json = parse_json(&told.stdout);
    assert_eq!(json["backends"]["gloo"]["available"], true, "{json}");
    assert_eq!(json["launcher"]["consistent"], true, "{json}");
}
