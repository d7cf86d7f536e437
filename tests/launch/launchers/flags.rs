//! torchrun's command lines and variables, given to ddp-run itself: its own supervisor starts the ranks.

use super::trial::*;
use crate::common::*;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const SPEC: &str = "configs/ci/smoke.toml";

/// `ddp-run FLAGS`, with the folder of `trial`, and without a spec.
fn command(trial: &Trial, flags: &[&str]) -> Command {
    let mut command = ddp_run();
    command.arg("--out").arg(&trial.out).args(flags).env(TAG, &trial.out);
    command.env("DDP_RUN_SECRET", "a secret of these processes");
    command
}

#[track_caller]
fn done(output: &Output) {
    assert_code(output, 0);
}

#[test]
fn flags_precede_the_spec_and_may_have_underscores() {
    let _alone = alone();
    let trial = Trial::new();
    let flags = ["--nproc_per_node", "2", "--max_restarts=1", "-q", SPEC];
    done(&output_of(&mut command(&trial, &flags)));
    trial.assert_same_bits();
}

#[test]
fn a_spec_comes_from_standard_input() {
    let _alone = alone();
    let trial = Trial::new();
    let text = std::fs::read(SPEC).expect("the spec is there");
    let mut command = command(&trial, &["--nproc-per-node", "2", "--progress", "none", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    child.stdin.take().expect("piped").write_all(&text).expect("it reads");
    done(&finish_within(RUN_HUNG, child));
    trial.assert_same_bits();
    let mut check = ddp_run();
    check.args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = check.spawn().expect("the binary starts");
    child.stdin.take().expect("piped").write_all(b"name = 3\n").expect("it reads");
    let wrong = finish(child);
    assert_code(&wrong, 78);
    assert!(stderr(&wrong).contains("problems in <stdin>\n"), "{}", stderr(&wrong));
}

#[test]
fn help_is_a_subcommand() {
    let _alone = alone();
    let told = output_of(ddp_run().args(["help", "train"]));
    done(&told);
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(
        text.contains("Usage: ddp-run train [OPTIONS] <SPEC>") && text.contains("--standalone"),
        "{text}"
    );
}

#[test]
fn standalone_is_this_machine_whatever_the_environment_says() {
    let _alone = alone();
    let trial = Trial::new();
    let mut command = command(&trial, &["--standalone", "--nproc-per-node", "2", "--progress", "none", SPEC]);
    let elsewhere = [
        ("DDP_RUN_NNODES", "3"),
        ("DDP_RUN_RDZV_ENDPOINT", "no.such.host:1"),
        ("PET_NNODES", "2"),
        ("PET_NODE_RANK", "1"),
        ("PET_MASTER_ADDR", "no.such.host"),
        ("JOB_COMPLETION_INDEX", "1"),
    ];
    done(&output_of(command.envs(elsewhere)));
    trial.assert_same_bits();
}

#[test]
fn contradictions_and_unknown_values_are_refused_before_anything_starts() {
    let _alone = alone();
    type Case = (&'static [&'static str], &'static [(&'static str, &'static str)], &'static str);
    let cases: [Case; 12] = [
        (
            &["--standalone", "--nnodes", "2"],
            &[],
            "--standalone is a run on this machine alone, and --nnodes 2",
        ),
        (&["--standalone", "--rdzv_endpoint", "n0:1"], &[], "and --rdzv-endpoint n0:1 is not"),
        (&["--standalone"], &[("RANK", "0"), ("WORLD_SIZE", "2")], "--standalone starts all processes"),
        (
            &["--rdzv-endpoint", "n0:1", "--master-addr", "n0"],
            &[],
            "'--rdzv-endpoint <ENDPOINT>' cannot be used",
        ),
        (&["--rdzv-backend", "etcd-v2"], &[], "expected static or c10d"),
        (&["--rdzv-conf", "close_timeout=3"], &[], "keys are timeout, join_timeout"),
        (&["--tee", "2:1"], &[], "--tee names local rank 2, but this node has 2 processes"),
        (&["--tee", "0,1"], &[], "LOCAL_RANK:N"),
        (
            &["--tee", "3"],
            &[("RANK", "0"), ("WORLD_SIZE", "1")],
            "--tee is for processes that ddp-run starts",
        ),
        (&["--master-addr", "n0"], &[], "the number of nodes is not set"),
        (&[], &[("PET_RDZV_CONF", "a=1")], "PET_RDZV_CONF is `a=1`"),
        (&[], &[("PET_MAX_RESTARTS", "many")], "PET_MAX_RESTARTS is `many`"),
    ];
    for (flags, variables, words) in cases {
        let trial = Trial::new();
        let mut command = command(&trial, flags);
        let output = output_of(command.arg(SPEC).envs(variables.iter().copied()));
        assert_code(&output, 2);
        assert!(stderr(&output).contains(words), "{words}: {}", stderr(&output));
        assert!(!trial.out.exists(), "{words}");
    }
}

/// Flags on node 0, torchrun's variables on node 1; a node of another job is refused, and the run goes on without it.
#[test]
fn nodes_meet_at_the_master_and_jobs_with_other_ids_do_not_mix() {
    let _alone = alone();
    let (trial, held) = (Trial::new(), Port::new());
    let port = held.to_string();
    let launch = |flags: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new("env");
        command.envs(variables.iter().copied());
        trial.start(command, &trial.ddp_run(flags))
    };
    let node = |rank: &'static str, id: &'static str| {
        let flags =
            ["--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", &port];
        let rest = ["--nproc-per-node", "1", "--rdzv-id", id, "--rdzv-backend", "static"];
        let conf = ["--rdzv-conf", "timeout=600,last_call_timeout=1", "--max-restarts", "1"];
        launch(&[&flags[..], &rest, &conf].concat(), &[])
    };
    let mut first = node("0", "one");
    let mut stranger = node("1", "other");
    let refused = stranger.end(HUNG).unwrap_or_else(|| panic!("hangs:\n{}", stranger.told()));
    assert_eq!(refused.code(), Some(93), "{}", stranger.told());
    assert!(stranger.told().contains("--rdzv-id other, but node 0"), "{}", stranger.told());
    let by_variables = [
        ("PET_NNODES", "2"),
        ("PET_NODE_RANK", "1"),
        ("PET_MASTER_ADDR", "127.0.0.1"),
        ("PET_MASTER_PORT", port.as_str()),
        ("PET_NPROC_PER_NODE", "1"),
        ("PET_RDZV_ID", "one"),
        ("PET_RDZV_BACKEND", "c10d"),
        ("PET_RDZV_CONF", "join_timeout=600"),
        ("PET_MAX_RESTARTS", "1"),
    ];
    let mut second = launch(&[], &by_variables);
    for node in [&mut first, &mut second] {
        let status = node.end(RUN_HUNG).unwrap_or_else(|| panic!("hangs:\n{}", node.told()));
        assert!(status.success(), "{status}: {}", node.told());
    }
    trial.assert_same_bits();
}

#[test]
fn the_plan_says_which_variable_a_value_comes_from() {
    let _alone = alone();
    let plan = |flags: &[&str], variables: &[(&str, &str)]| {
        let output = output_of(ddp_run().args(["plan", SPEC]).args(flags).envs(variables.iter().copied()));
        done(&output);
        stdout(&output)
    };
    #[track_caller]
    fn row(text: &str, key: &str, words: [&str; 2]) {
        let row = text.lines().find(|line| line.trim_start().starts_with(&format!("{key} ")));
        let found: Vec<&str> =
            row.unwrap_or_else(|| panic!("{key}: {text}")).split_whitespace().skip(1).collect();
        assert_eq!(found, words, "{key}");
    }
    let variables = [("PET_NPROC_PER_NODE", "3"), ("PET_MAX_RESTARTS", "4"), ("PET_RDZV_CONF", "timeout=77")];
    let text = plan(&[], &variables);
    row(&text, "nproc_per_node", ["3", "PET_NPROC_PER_NODE"]);
    row(&text, "max_restarts", ["4", "PET_MAX_RESTARTS"]);
    assert!(text.lines().any(|l| l.contains("init_timeout") && l.ends_with("PET_RDZV_CONF")), "{text}");
    let text = plan(&["--nproc-per-node", "5", "--standalone"], &variables);
    row(&text, "nproc_per_node", ["5", "--nproc-per-node"]);
    row(&text, "nnodes", ["1", "--standalone"]);
    let told = output_of(ddp_run().arg("env").envs(variables));
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(text.contains("PET_RDZV_CONF") && text.contains("timeout=77"), "{text}");
}

#[test]
fn output_goes_where_the_flags_say() {
    let _alone = alone();
    let run = |flags: &[&str]| {
        let trial = Trial::new();
        let mut command = command(&trial, &["--nproc-per-node", "2"]);
        let output = output_of(command.args(flags).arg(SPEC));
        done(&output);
        (stderr(&output), trial)
    };
    // The end of a run is only told, not logged.
    let (end, plain) = ("done: ", ["--progress", "plain"]);
    let (told, trial) = run(&[&plain[..], &["--tee", "0:3"]].concat());
    assert!(told.contains(&format!("[rank 0]: {end}")) && trial.log(0).contains(end), "{told}");
    for hidden in [["-r", "0:3"], ["--local_ranks_filter", "1"]] {
        let (told, trial) = run(&[&plain[..], &hidden].concat());
        assert!(!told.contains(end) && trial.log(0).contains(end), "{told}");
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let (told, trial) = run(&["-q", "--log-dir", &dir.path().display().to_string()]);
    assert_eq!(told, "", "-q leaves nothing to say");
    assert!(!trial.out.join("logs").exists(), "the logs are elsewhere");
    for rank in [0, 1] {
        let path = dir.path().join(format!("ci-smoke/rank-{rank}.log"));
        let log = std::fs::read_to_string(path).expect("the log is there");
        assert!(log.contains("=== ddp-run") && !log.contains("INFO"), "{log}");
    }
}

/// What is printed anyway is not there twice.
#[test]
fn verbose_shows_events_of_the_ranks_that_are_shown() {
    let _alone = alone();
    let run = |flags: &[&str]| {
        let trial = Trial::new();
        let output = output_of(command(&trial, &["--nproc-per-node", "2"]).args(flags).arg(SPEC));
        done(&output);
        stderr(&output)
    };
    let events = |told: &str| told.lines().filter(|line| line.contains(" INFO ")).count();
    let plain = ["--progress", "plain"];
    let (usual, verbose) = (run(&plain), run(&[&plain[..], &["-v"]].concat()));
    assert_eq!(events(&usual), 0, "{usual}");
    assert!(verbose.contains(" INFO ") && verbose.contains("saved checkpoints/step-"), "{verbose}");
    assert_eq!(verbose.matches("train loss").count(), usual.matches("train loss").count(), "{verbose}");
    let both = run(&[&plain[..], &["-v", "--tee", "3"]].concat());
    assert!(both.lines().any(|line| line.starts_with("[rank 1]: ") && line.contains(" INFO ")), "{both}");
}

#[test]
fn rust_log_shows_spans_with_fields() {
    let _alone = alone();
    let trial = Trial::new();
    let flags = ["--nproc-per-node", "2", "--progress", "none", "--log-format", "json", SPEC];
    let mut command = command(&trial, &flags);
    done(&output_of(command.env("RUST_LOG", "info,ddp_run=trace")));
    let lines: Vec<serde_json::Value> = trial.log(1).lines().map(|line| parse_json(line)).collect();
    assert!(lines[0]["message"].as_str().is_some_and(|m| m.starts_with("begins: ddp-run")), "{}", lines[0]);
    let closed = |name: &str| {
        let of = |line: &&serde_json::Value| line["message"] == "close" && line["span"]["name"] == name;
        lines.iter().find(of).unwrap_or_else(|| panic!("no span `{name}`:\n{}", trial.log(1)))
    };
    assert_eq!(closed("run")["span"]["world_size"], 2);
    assert_eq!(closed("epoch")["span"]["epoch"], 0);
    assert_eq!(closed("step")["span"]["step"], 0);
    assert!(closed("phase")["span"]["phase"].is_string());
    let collective = &closed("collective")["span"];
    assert_eq!(collective["rank"], 1);
    assert!(collective["bytes"].is_u64() && collective["operation"].is_string(), "{collective}");
    let names = |line: &serde_json::Value| {
        let spans = line["spans"].as_array().cloned().unwrap_or_default();
        spans.iter().filter_map(|s| s["name"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    // A closing span is shown with those around it.
    assert!(names(closed("phase")).starts_with(&["run".into(), "epoch".into(), "step".into()]), "{lines:?}");
    // Without the variable there are none.
    let usual = Trial::new();
    done(&output_of(&mut self::command(&usual, &flags)));
    assert!(
        usual.log(1).contains("\"level\":\"INFO\"") && !usual.log(1).contains("\"close\""),
        "{}",
        usual.log(1)
    );
}
