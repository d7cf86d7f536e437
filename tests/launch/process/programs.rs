//! `ddp-run launch`: shell scripts, and a program of PyTorch, with torchrun's variables.

use super::roles::until;
use super::{assert_gone, folder, gone, pid};
use crate::common::{Port, RUN_HUNG, assert_code, ddp_run, finish, finish_within, output_of, stderr};
use crate::common::{alone, kill};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// `$0` is the folder, in which a file with the rank's process appears.
const PRELUDE: &str =
    "echo $$ > $0/.$RANK; mv $0/.$RANK $0/pid-$RANK; there() { until [ -s $0/$1 ]; do sleep 0.01; done; }; ";
/// The end of rank 0, as its supervisor sees it.
const RANK_0_ENDS: &str = "there pid-0; while kill -0 $(cat $0/pid-0) 2> /dev/null; do sleep 0.01; done; ";

/// `ddp-run launch` of a shell script.
fn launch(out: &Path, flags: &[&str], script: &str) -> Command {
    let mut command = ddp_run();
    command.args(["launch", "--log-dir"]).arg(out.join("logs")).args(flags).args(["--", "sh", "-c"]);
    command.arg(format!("{PRELUDE}{script}")).arg(out).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[track_caller]
fn run(out: &Path, flags: &[&str], script: &str) -> Output {
    finish(launch(out, flags, script).spawn().expect("the program starts"))
}

/// The environment that a worker has written to a file.
fn environment(file: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(file).expect("a worker wrote it");
    text.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[track_caller]
fn assert_variables(of: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(of.get(*name).map(String::as_str), Some(*value), "{name}");
    }
}

const ENV: &str = "env > $0/env-$RANK; readlink /proc/$$/fd/0 > $0/input-$RANK";

#[test]
fn a_program_finds_torchruns_variables() {
    let _alone = alone();
    let out = folder();
    let mut command = launch(out.path(), &["--nproc-per-node", "2", "--max-restarts", "3"], ENV);
    assert_code(&output_of(command.env("OMP_NUM_THREADS", "7").env("MASTER_PORT", "1")), 0);
    let of = [0, 1].map(|rank| environment(&out.path().join(format!("env-{rank}"))));
    for (rank, of) in ["0", "1"].into_iter().zip(&of) {
        assert_variables(
            of,
            &[
                ("RANK", rank),
                ("LOCAL_RANK", rank),
                ("ROLE_RANK", rank),
                ("WORLD_SIZE", "2"),
                ("LOCAL_WORLD_SIZE", "2"),
                ("ROLE_WORLD_SIZE", "2"),
                ("GROUP_RANK", "0"),
                ("GROUP_WORLD_SIZE", "1"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("TORCHELASTIC_RESTART_COUNT", "0"),
                ("TORCHELASTIC_MAX_RESTARTS", "3"),
                ("TORCHELASTIC_USE_AGENT_STORE", "False"),
                ("OMP_NUM_THREADS", "7"),
            ],
        );
        let error_file = Path::new(&of["TORCHELASTIC_ERROR_FILE"]);
        assert_eq!(error_file, out.path().join(format!("logs/error-rank-{rank}.json")));
        let input = fs::read_to_string(out.path().join(format!("input-{rank}"))).expect("written");
        assert_eq!(input.trim(), "/dev/null");
    }
    for name in ["MASTER_PORT", "TORCHELASTIC_RUN_ID", "DDP_RUN_SECRET"] {
        assert_eq!(of[0][name], of[1][name], "{name}");
    }
    assert!(of[0]["MASTER_PORT"].parse::<u16>().is_ok_and(|port| port > 1023), "{}", of[0]["MASTER_PORT"]);
    assert_eq!((of[0]["DDP_RUN_SECRET"].len(), of[0]["TORCHELASTIC_RUN_ID"].is_empty()), (64, false));
}

#[test]
fn two_nodes_share_an_address_a_run_and_a_secret() {
    let _alone = alone();
    let (out, port) = (folder(), Port::new());
    let endpoint = format!("127.0.0.1:{port}");
    let node = |rank: &str, nproc: &str| {
        let flags = ["--nnodes", "2", "--node-rank", rank, "--rdzv-endpoint", &endpoint];
        let flags = [&flags[..], &["--rdzv-id", "job-7", "--nproc-per-node", nproc]].concat();
        let mut command = launch(out.path(), &flags, ENV);
        command.env("DDP_RUN_SECRET", "a secret of these nodes").spawn().expect("the program starts")
    };
    let nodes = [node("0", "2"), node("1", "1")];
    for node in nodes {
        assert_code(&finish(node), 0);
    }
    let of = [0, 1, 2].map(|rank| environment(&out.path().join(format!("env-{rank}"))));
    for (of, group, local, size) in
        [(&of[0], "0", "0", "2"), (&of[1], "0", "1", "2"), (&of[2], "1", "0", "1")]
    {
        let on_node = [("GROUP_RANK", group), ("LOCAL_RANK", local), ("LOCAL_WORLD_SIZE", size)];
        assert_variables(of, &on_node);
        assert_variables(
            of,
            &[("GROUP_WORLD_SIZE", "2"), ("WORLD_SIZE", "3"), ("TORCHELASTIC_RUN_ID", "job-7")],
        );
    }
    for name in ["MASTER_ADDR", "MASTER_PORT", "DDP_RUN_SECRET"] {
        assert!(of.iter().all(|rank| rank[name] == of[0][name]), "{name}");
    }
    assert_ne!(of[0]["DDP_RUN_SECRET"], "a secret of these nodes");
}

#[test]
fn workers_meet_at_the_masters_address_whatever_the_supervisors_use() {
    let _alone = alone();
    let (out, port) = (folder(), Port::new());
    let secret = out.path().join("secret");
    fs::write(&secret, "a secret of these nodes").expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("set");
    let node = |rank: &str| {
        let mut command = launch(out.path(), &[], ENV);
        command.env("DDP_RUN_NNODES", "2").env("DDP_RUN_NODE_RANK", rank).env("DDP_RUN_PORT", "1");
        command.env("DDP_RUN_RDZV_ENDPOINT", format!("127.0.0.1:{port}")).env("PET_MAX_RESTARTS", "0");
        command.env("DDP_RUN_SECRET_FILE", &secret).spawn().expect("the program starts")
    };
    for node in [node("0"), node("1")] {
        assert_code(&finish(node), 0);
    }
    for rank in ["0", "1"] {
        let of = environment(&out.path().join(format!("env-{rank}")));
        assert_variables(&of, &[("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")]);
        for name in ["RDZV_ENDPOINT", "PORT", "SECRET_FILE", "NNODES", "NODE_RANK"] {
            assert_eq!(of.get(&format!("DDP_RUN_{name}")), None, "{name}");
        }
        assert_eq!((of.get("PET_MAX_RESTARTS"), of["DDP_RUN_SECRET"].len()), (None, 64));
    }
}

#[test]
fn error_files_have_whole_paths() {
    let _alone = alone();
    let out = folder();
    let mut command = ddp_run();
    command.current_dir(&out).args(["launch", "--log-dir", "logs", "--", "sh", "-c"]);
    let script = r#"cd /; echo '{"message": "ValueError: no"}' > $TORCHELASTIC_ERROR_FILE; exit 1"#;
    let output = output_of(command.arg(script));
    assert_code(&output, 90);
    assert!(stderr(&output).contains("exited with 1: ValueError: no"), "{}", stderr(&output));
}

#[test]
fn a_program_that_stops_unasked_has_failed() {
    let _alone = alone();
    let out = folder();
    let script = "echo $TORCHELASTIC_RESTART_COUNT; exit 75";
    let output = run(out.path(), &["--max-restarts", "1"], script);
    assert_code(&output, 90);
    let said = stderr(&output);
    assert!(
        said.contains("rank 0 of 1 (") && said.contains("exited with 75, but nothing had asked"),
        "{said}"
    );
    assert!(!said.contains("stopped on request"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n", "attempts");
}

#[test]
fn the_culprit_is_named_with_its_exit_code_and_log() {
    let _alone = alone();
    let out = folder();
    let script = format!(
        "[ $RANK = 0 ] && exit 0; {RANK_0_ENDS} [ $RANK = 2 ] && exec sleep 1000
        there pid-2; echo last words >&2; exit 3"
    );
    let output = run(out.path(), &["--nproc-per-node", "3"], &script);
    assert_code(&output, 90);
    let said = stderr(&output);
    assert!(said.contains("error: rank 1 of 3 (local rank 1, pid "), "{said}");
    assert!(said.contains("exited with 3\n") && said.contains("\n    last words\n"), "{said}");
    assert!(said.contains("rank 0 had finished; rank 2 exited when told to"), "{said}");
    assert_gone(out.path(), &["pid-0", "pid-1", "pid-2"]);
}

#[test]
fn a_killed_rank_is_the_culprit_whatever_failed_before_its_end_was_known() {
    let _alone = alone();
    let out = folder();
    let script = format!(
        "[ $RANK = 0 ] && {{ there ready; exit 1; }}
        trap '' TERM; echo 1 > $0/ready; {RANK_0_ENDS} kill -KILL $$"
    );
    let output = run(out.path(), &["--nproc-per-node", "2"], &script);
    assert_code(&output, 90);
    let said = stderr(&output);
    assert!(said.contains("rank 1 of 2") && said.contains("was killed by signal 9 (SIGKILL;"), "{said}");
}

#[test]
fn a_recorded_error_is_shown_and_its_time_counts() {
    let _alone = alone();
    let out = folder();
    let record = r#"{"message": {"message": "ValueError: no such user", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"x.py\", line 3\nValueError: no such user\n", "timestamp": "1"}}}"#;
    // Rank 1 has failed first, and ends last.
    let script = format!(
        "[ $RANK = 0 ] && {{ there recorded; exit 1; }}
        trap '' TERM; printf %s '{record}' > $TORCHELASTIC_ERROR_FILE; echo 1 > $0/recorded; {RANK_0_ENDS} exit 1"
    );
    let output = run(out.path(), &["--nproc-per-node", "2"], &script);
    assert_code(&output, 90);
    let said = stderr(&output);
    assert!(
        said.contains("error: rank 1 of 2") && said.contains("exited with 1: ValueError: no such user"),
        "{said}"
    );
    assert!(said.contains("its traceback") && said.contains("\n      File \"x.py\", line 3\n"), "{said}");
    assert!(said.contains("rank 0 failed later"), "{said}");
}

#[test]
fn a_failure_is_followed_by_a_restart_of_all_ranks_at_another_port() {
    let _alone = alone();
    let out = folder();
    let script = "n=$TORCHELASTIC_RESTART_COUNT; echo $MASTER_PORT > $0/port-$n-$RANK
        echo $DDP_RUN_SECRET > $0/secret-$n-$RANK; [ $n = 1 ] && exit 0
        [ $RANK = 0 ] && exec sleep 1000; there secret-$n-0; exit 5";
    let output = run(out.path(), &["--nproc-per-node", "2", "--max-restarts", "2"], script);
    assert_code(&output, 0);
    let said = stderr(&output);
    assert!(said.contains("exited with 5\n") && said.contains("\nattempt 2/3, generation 2\n"), "{said}");
    // One of 16,000 ports is drawn.
    for name in ["port", "secret"] {
        let of =
            |n, rank| fs::read_to_string(out.path().join(format!("{name}-{n}-{rank}"))).expect("written");
        assert_eq!(of(1, 0), of(1, 1), "{name}");
        assert_ne!(of(0, 1), of(1, 1), "{name}");
    }
    let output = run(out.path(), &["--max-restarts", "1"], "echo $TORCHELASTIC_RESTART_COUNT; exit 3");
    assert_code(&output, 90);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n", "attempts");
}

/// Two workers that run `script` once they are ready, and their supervisor.
fn ready(out: &Path, script: &str) -> Child {
    let mut command = Command::new("env");
    let launch = launch(out, &["--nproc-per-node", "2"], script);
    command.arg("--default-signal=INT").arg(launch.get_program()).args(launch.get_args());
    let removed = launch.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name);
    for name in removed {
        command.env_remove(name);
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    until("the workers are ready", || [0, 1].iter().all(|rank| out.join(format!("ready-{rank}")).exists()));
    child
}

#[test]
fn a_stop_signal_reaches_the_workers_as_it_is() {
    let _alone = alone();
    for (name, signal) in [("INT", Signal::INT), ("TERM", Signal::TERM)] {
        let by_default = format!("echo 1 > $0/ready-$RANK; exec env --default-signal={name} sleep 1000");
        let handled = |code: &str| {
            format!(
                "trap 'echo 1 > $0/got-$RANK; exit {code}' {name}
                echo 1 > $0/ready-$RANK; while :; do sleep 0.01; done"
            )
        };
        // A program that ends with 0 after the signal has done what it had to do.
        for (script, code) in [(by_default, 75), (handled("75"), 75), (handled("0"), 0), (handled("1"), 90)] {
            let out = folder();
            let child = ready(out.path(), &script);
            kill(child.id(), signal);
            let output = finish(child);
            assert_code(&output, code);
            assert_eq!(stderr(&output).contains("stopped on request"), code == 75, "{}", stderr(&output));
            assert_eq!(out.path().join("got-1").exists(), script.contains("got-"), "{name} {code}");
            assert_gone(out.path(), &["pid-0", "pid-1"]);
        }
    }
}

/// The shell that has started the program dies of the signal at once.
#[test]
fn a_program_in_a_wrapper_may_save_when_it_is_stopped() {
    let _alone = alone();
    let out = folder();
    let script =
        "save() { until grep -q ') Z' /proc/$$/stat; do sleep 0.01; done; echo 1 > $0/saved-$RANK; exit; }
        (trap save TERM; echo 1 > $0/ready-$RANK; while :; do sleep 0.01; done) & wait";
    let child = ready(out.path(), script);
    kill(child.id(), Signal::TERM);
    assert_code(&finish(child), 75);
    for rank in [0, 1] {
        assert!(out.path().join(format!("saved-{rank}")).exists(), "rank {rank}");
    }
}

#[test]
fn workers_do_not_outlive_a_killed_supervisor() {
    let _alone = alone();
    let out = folder();
    let child = ready(out.path(), "trap '' TERM; echo 1 > $0/ready-$RANK; exec sleep 1000");
    kill(child.id(), Signal::KILL);
    finish(child);
    for name in ["pid-0", "pid-1"] {
        let pid = pid(out.path(), name).expect("ready");
        until("the worker is gone", || gone(pid));
    }
}

#[test]
fn a_program_that_cannot_be_started_is_a_wrong_command_line() {
    let _alone = alone();
    let out = folder();
    fs::write(out.path().join("train.py"), "print(1)\n").expect("written");
    let refused = |program: &str| {
        let mut command = ddp_run();
        let output = output_of(command.current_dir(&out).args(["launch", "--", program]));
        assert_code(&output, 2);
        stderr(&output)
    };
    assert!(
        refused("no-such-program").contains("cannot start `no-such-program`: it is in no folder of PATH")
    );
    assert!(refused("./none").contains("cannot start `./none`: there is no such file"));
    let said = refused("./train.py");
    assert!(said.contains("it is not executable") && said.contains("`-- python ./train.py`"), "{said}");
    let script = out.path().join("script");
    fs::write(&script, "#!/no/such/interp -x\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("set");
    let said = refused("./script");
    assert!(said.contains("its interpreter (first line `#!/no/such/interp -x`) is missing"), "{said}");
    assert!(!said.contains("logs: "), "{said}");
}

#[test]
fn a_rank_of_a_launcher_is_refused() {
    for flags in
        [&[][..], &["--nproc-per-node", "4"], &["--nnodes", "3"], &["--node-rank", "0"], &["--standalone"]]
    {
        let mut command = ddp_run();
        command.arg("launch").args(flags).args(["--", "true"]).env("RANK", "0").env("WORLD_SIZE", "2");
        command.envs([("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")]);
        let output = output_of(command.env("MASTER_PORT", "29500"));
        assert_code(&output, 2);
        let said = stderr(&output);
        let what = "`launch` starts the ranks itself, but RANK, WORLD_SIZE make this process rank 0 of 2";
        assert!(
            said.contains(what) && said.contains("`env -u RANK -u WORLD_SIZE ddp-run launch …`"),
            "{said}"
        );
    }
}

#[test]
fn a_run_that_cannot_start_leaves_no_log_folder() {
    let out = folder();
    let mut command = ddp_run();
    command.args(["launch", "--nnodes", "2", "--", "true"]).env("DDP_RUN_SECRET", "a secret of these nodes");
    let output = output_of(command.env("TMPDIR", out.path()));
    assert_code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("requires a rendezvous endpoint") && !said.contains("logs: "), "{said}");
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 0);
}

#[test]
fn a_log_folder_that_cannot_be_made_has_the_hint_of_launch() {
    let out = folder();
    fs::write(out.path().join("logs"), "").expect("written");
    let output = run(out.path(), &[], "exit 0");
    assert_code(&output, 74);
    let said = stderr(&output);
    assert!(said.contains("hint: `--log-dir DIR` writes elsewhere") && !said.contains("--out"), "{said}");
}

#[test]
fn a_program_without_dashes_before_it_has_a_tip() {
    for arguments in [&["python", "x.py"][..], &["-m", "foo"]] {
        let output = output_of(ddp_run().arg("launch").args(arguments));
        assert_code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains("`ddp-run launch [FLAGS] -- python x.py`"), "{said}");
    }
}

/// A DDP program of PyTorch, killed and restarted, ends with the weights of one that was not.
#[test]
fn a_pytorch_program_is_restarted_to_the_same_result() {
    let Some(python) = std::env::var_os("DDP_RUN_TORCH_PYTHON") else {
        return println!("skipped: DDP_RUN_TORCH_PYTHON names no Python with torch");
    };
    let _alone = alone();
    let out = folder();
    let trained = |name: &str, die_at: &[&str]| {
        let mut command = ddp_run();
        command.args(["launch", "--nproc-per-node", "2", "--max-restarts", "1", "--log-dir"]).arg(out.path());
        command.arg("--").arg(&python).arg("tests/launch/process/ddp_toy.py").arg(out.path().join(name));
        command.args(die_at).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish_within(RUN_HUNG, command.spawn().expect("the program starts"));
        assert_code(&output, 0);
        (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output))
    };
    let (whole, _) = trained("whole", &[]);
    let (resumed, said) = trained("killed", &["2"]);
    assert!(said.contains("rank 1 of 2 (local rank 1, pid ") && said.contains("signal 9 (SIGKILL"), "{said}");
    assert!(
        whole.starts_with("resumed at 0 weights ['") && resumed.starts_with("resumed at 2 weights"),
        "{resumed}"
    );
    assert_eq!(whole.split_once("weights"), resumed.split_once("weights").map(|(_, w)| ("resumed at 0 ", w)));
}
