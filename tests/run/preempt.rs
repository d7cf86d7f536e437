//! Runs that are told to stop: with and without a save, in time and not, and what Slurm is asked then. `scontrol` is a script
//! here that notes what it is asked; `tests/launch/slurm.rs` has the real one.
#![cfg(target_os = "linux")]

use crate::common::*;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Ends when it is told to; a checkpoint after each twenty steps.
const SPEC: &str = "name = \"preempt\"\nseed = 5\nepochs = 1000000000\nbatch_size = 8\nsave_every = \"20 steps\"\n\
    [model]\nname = \"mlp\"\nhidden = [64]\n\
    [dataset]\nname = \"random\"\nsamples = 640\nfeatures = 16\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-3\n\
    [metrics]\nlog_every = 1\n\
    [launch]\nnproc_per_node = 2\nthreads = 1\n";

struct Scratch {
    folder: tempfile::TempDir,
    spec: PathBuf,
    out: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        Self { spec: write_spec(folder.path(), SPEC), out: folder.path().join("run"), folder }
    }

    fn command(&self, sets: &[&str]) -> Command {
        let mut command = ddp_run();
        command.arg(&self.spec).arg("--out").arg(&self.out).args(["--progress", "none"]);
        command.args(sets.iter().flat_map(|s| ["--set", s])).env(TAG, &self.out);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Two ranks without a supervisor.
    fn ranks(&self, sets: &[&str], edit: impl Fn(&mut Command)) -> [Child; 2] {
        // By a file: a port that is free now may be another test's when they meet.
        let meet = format!("launch.rdzv_endpoint=\"file://{}/meet\"", self.folder.path().display());
        [0, 1].map(|rank: usize| {
            let mut command = self.command(&[sets, &[&meet]].concat());
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("LOCAL_RANK", rank.to_string());
            command.env("LOCAL_WORLD_SIZE", "2").env("DDP_RUN_SECRET", "sixteen characters");
            edit(&mut command);
            command.spawn().expect("the binary starts")
        })
    }

    #[track_caller]
    fn wait_for_step(&self, n: u64) {
        let step = |e: &serde_json::Value| e["event"] == "step" && e["step"].as_u64() >= Some(n);
        let came = within(HUNG, || events(&self.out).iter().any(step));
        assert!(came, "step {n} did not come; events: {:?}\n{}", events(&self.out).last(), logs(&self.out));
    }

    fn last_step(&self) -> u64 {
        events(&self.out)
            .iter()
            .filter(|e| e["event"] == "step")
            .filter_map(|e| e["step"].as_u64())
            .max()
            .unwrap_or(0)
    }

    fn checkpoint_step(&self) -> u64 {
        let newest = newest_checkpoint(&self.out);
        let name = newest.file_name().expect("a name").to_string_lossy().into_owned();
        name.trim_start_matches("step-").parse().expect("a step")
    }

    /// An `scontrol` that answers `show` with `state`, and `requeue` with `status`; it is the first in PATH. What it is asked is
    /// in the file `asked`.
    fn scontrol(&self, state: &str, status: i32) -> String {
        let bin = self.folder.path().join("bin");
        std::fs::create_dir(&bin).expect("mkdir");
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> {}/asked\n\
             case $1 in requeue) echo 'scontrol: no controller' >&2; exit {status};; esac\n\
             echo JobId=77 JobState={state} Reason=None\n",
            self.folder.path().display()
        );
        let path = bin.join("scontrol");
        std::fs::write(&path, script).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
    }

    fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn stop(child: Child) -> Output {
    kill(child.id(), Signal::USR1);
    finish(child)
}

#[test]
fn a_stopped_run_has_saved_its_last_step() {
    let _alone = alone();
    let run = Scratch::new();
    let child = run.command(&[]).spawn().expect("the binary starts");
    run.wait_for_step(25);
    let output = stop(child);
    assert_code(&output, 75);
    let last = run.last_step();
    assert_eq!(run.checkpoint_step(), last);
    let told = format!("stopped on request; step {last} is saved; the same command resumes from it\n");
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
}

/// `command` with these signals ignored or not, as a shell would start it.
fn behind_env(flag: &str, command: Command) -> Command {
    let mut env = Command::new("env");
    env.arg(flag).arg(command.get_program()).args(command.get_args()).current_dir(env!("CARGO_MANIFEST_DIR"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.env(name, value),
            None => env.env_remove(name),
        };
    }
    env.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    env
}

#[test]
fn a_closed_terminal_stops_a_run_as_sigterm_does() {
    let _alone = alone();
    for signal in [Signal::HUP, Signal::QUIT] {
        let run = Scratch::new();
        let mut command = behind_env("--default-signal=HUP,QUIT", run.command(&[]));
        let child = command.spawn().expect("env starts");
        run.wait_for_step(25);
        kill(child.id(), signal);
        let output = finish(child);
        assert_code(&output, 75);
        assert_eq!(run.checkpoint_step(), run.last_step(), "{signal:?}");
    }
}

#[test]
fn under_nohup_a_run_trains_on_when_the_terminal_closes() {
    let _alone = alone();
    let run = Scratch::new();
    let child = behind_env("--ignore-signal=HUP", run.command(&[])).spawn().expect("env starts");
    run.wait_for_step(25);
    // The workers get it too, were they in the terminal's process group.
    for pid in [child.id()].into_iter().chain(children(child.id())) {
        kill(pid, Signal::HUP);
    }
    run.wait_for_step(run.last_step() + 40);
    assert_eq!(processes(&run.out).len(), 3, "a supervisor and two workers");
    let output = stop(child);
    assert_code(&output, 75);
    assert_eq!(run.checkpoint_step(), run.last_step());
}

#[test]
fn metrics_and_report_have_the_supervisors_verdict() {
    let _alone = alone();
    // Who is left knows of a broken connection, or nothing.
    for rank in [1, 0] {
        let run = Scratch::new();
        let mut command = run.command(&[]);
        let killed =
            output_of(command.env("DDP_RUN_FAULT", format!("kill:rank={rank},phase=forward,step=3")));
        assert_code(&killed, 90);
        let events = events(&run.out);
        let end = events.last().expect("events");
        assert_eq!((end["event"].as_str(), end["exit_code"].as_u64()), (Some("end"), Some(90)), "{end}");
        assert_eq!(events.iter().filter(|e| e["event"] == "end").count(), 1, "{events:?}");
        assert!(end["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{end}");
        assert!(
            end["reason"].as_str().is_some_and(|r| r.starts_with(&format!("rank {rank} of 2 "))),
            "{end}"
        );
        let report = std::fs::read_to_string(run.out.join("report.html")).expect("there is a report");
        assert!(report.contains("(exit code 90)"), "{end}");
    }
}

#[test]
fn on_preempt_exit_ends_without_a_save() {
    let _alone = alone();
    let run = Scratch::new();
    let mut command = run.command(&["checkpoint.on_preempt=exit"]);
    // Between two checkpoints.
    command.env("DDP_RUN_FAULT", "stop:rank=1,phase=forward,step=30");
    let child = command.spawn().expect("the binary starts");
    let rank = held(&run.out);
    kill(child.id(), Signal::USR1);
    release_when_asked_to_stop(rank);
    let output = finish(child);
    assert_code(&output, 75);
    assert!(stderr(&output).contains("step 20 is saved"), "{}", stderr(&output));
    let (saved, last) = (run.checkpoint_step(), run.last_step());
    assert!(saved == 20 && (30..40).contains(&last), "{saved} {last}");
    assert_eq!(events(&run.out).last().expect("events")["reason"], "stopped");
    let again = output_of(&mut run.command(&["train.max_steps=60"]));
    assert_code(&again, 0);
    assert!(stderr(&again).contains("resumes at step 20 "), "{}", stderr(&again));
}

/// Rank 1 is stopped by SIGSTOP, so rank 0 never gets to a step boundary.
const HANG: (&str, &str) = ("DDP_RUN_FAULT", "stop:rank=1,phase=forward,step=5");

#[test]
fn a_rank_without_a_supervisor_ends_when_the_grace_is_over() {
    let _alone = alone();
    let run = Scratch::new();
    let [first, mut second] = run.ranks(&["checkpoint.grace=1"], |c| {
        c.env(HANG.0, HANG.1);
    });
    assert_eq!(held(&run.out), second.id());
    let begun = Instant::now();
    let output = stop(first);
    let took = begun.elapsed();
    assert_code(&output, 75);
    let overdue = "did not stop within 1 s of the signal (`checkpoint.grace`)";
    assert!(stderr(&output).contains(overdue), "{}", stderr(&output));
    let end = events(&run.out).pop().expect("events");
    assert_eq!(
        (&end["event"], &end["reason"], &end["exit_code"]),
        (&"end".into(), &"stopped".into(), &75.into())
    );
    assert!(took >= Duration::from_secs(1), "{took:?}");
    second.kill().expect("kill");
    second.wait().expect("wait");
}

#[test]
fn a_supervisor_ends_the_rank_that_does_not_stop_and_names_it() {
    let _alone = alone();
    let run = Scratch::new();
    let child = run.command(&["checkpoint.grace=1"]).env(HANG.0, HANG.1).spawn().expect("the binary starts");
    held(&run.out);
    let begun = Instant::now();
    let output = stop(child);
    let took = begun.elapsed();
    assert_code(&output, 90);
    assert!(took >= Duration::from_secs(1), "{took:?}");
    // Rank 0, which waits for it, is overdue as well.
    let told = stderr(&output);
    let told = told.split_once("\nerror: ").unwrap_or_else(|| panic!("{told}")).1;
    assert!(told.contains("rank 1 of 2 ") || told.contains("rank 1 did not exit when told to"), "{told}");
}

/// What standard error says at the end, and what `scontrol` was asked, when a run in Slurm's job 77 is stopped.
fn stopped_in_slurm(sets: &[&str], state: &str, status: i32) -> (String, Vec<String>) {
    let run = Scratch::new();
    let path = run.scontrol(state, status);
    let child =
        run.command(sets).env("PATH", path).env("SLURM_JOB_ID", "77").spawn().expect("the binary starts");
    run.wait_for_step(5);
    let output = stop(child);
    assert_code(&output, 75);
    (stderr(&output), run.asked())
}

#[test]
fn a_supervisor_asks_slurm_once_and_only_when_the_spec_says_so() {
    let _alone = alone();
    let (said, asked) = stopped_in_slurm(&["launch.requeue=true"], "RUNNING", 0);
    assert_eq!(asked, ["--oneliner show job 77", "requeue 77"]);
    assert!(said.contains("Slurm requeued job 77"), "{said}");
    assert_eq!(stopped_in_slurm(&[], "RUNNING", 0).1, Vec::<String>::new());
}

#[test]
fn a_job_that_slurm_is_ending_is_not_requeued() {
    let _alone = alone();
    for state in ["COMPLETING", "CANCELLED", "TIMEOUT"] {
        let (said, asked) = stopped_in_slurm(&["launch.requeue=true"], state, 0);
        assert_eq!(asked, ["--oneliner show job 77"], "{state}");
        assert!(said.contains(&format!("job 77 is not requeued: Slurm is ending it ({state})")), "{said}");
    }
}

#[test]
fn a_failed_requeue_is_a_warning_with_scontrols_error() {
    let _alone = alone();
    let (said, _) = stopped_in_slurm(&["launch.requeue=true"], "RUNNING", 1);
    assert!(said.contains("warning: cannot requeue Slurm job 77: scontrol: no controller"), "{said}");
    assert!(said.contains("hint: run `scontrol requeue 77`"), "{said}");
}

#[test]
fn one_rank_of_an_srun_step_requeues_after_all_have_saved() {
    let _alone = alone();
    let run = Scratch::new();
    let path = run.scontrol("RUNNING", 0);
    let array = [("SLURM_JOB_ID", "78"), ("SLURM_ARRAY_JOB_ID", "77"), ("SLURM_ARRAY_TASK_ID", "3")];
    let ranks = run.ranks(&["launch.requeue=true"], |c| {
        c.env("PATH", &path).envs(array);
    });
    run.wait_for_step(5);
    // Slurm signals each; one would do.
    kill(ranks[1].id(), Signal::USR1);
    for child in ranks {
        assert_code(&finish(child), 75);
    }
    assert_eq!(run.asked(), ["--oneliner show job 77_3", "requeue 77_3"]);
    assert_eq!(run.checkpoint_step(), run.last_step());
}

/// Requeuing makes Slurm send SIGTERM to every process of the job, `scontrol` and rank 0 among them.
#[test]
fn the_sigterm_of_a_requeue_changes_nothing() {
    let _alone = alone();
    let run = Scratch::new();
    let path = run.scontrol("RUNNING", 0);
    let script = Path::new(path.split(':').next().expect("a folder")).join("scontrol");
    let text = std::fs::read_to_string(&script).expect("written");
    // To itself, and to the one that waits for it; the process above `sh` is this one, for `sh` became it. Half a second is at least
    // what it takes not to count as the first signal.
    let text = text
        .replace("case $1 in requeue)", "case $1 in requeue) sleep 0.5; kill -TERM $PPID; kill -TERM $$;");
    std::fs::write(&script, text).expect("write");
    let sets = ["launch.requeue=true"];
    let [first, second] = run.ranks(&sets, |c| {
        c.env("PATH", &path).env("SLURM_JOB_ID", "77");
    });
    run.wait_for_step(5);
    let output = stop(first);
    assert_code(&output, 75);
    assert_code(&finish(second), 75);
    assert!(stderr(&output).contains("Slurm requeued job 77"), "{}", stderr(&output));
}

/// A pipe that is full, and that nobody reads as long as the first of both is kept.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (unread, mut full) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&full, true).expect("fcntl");
    while std::io::Write::write(&mut full, &[b'.'; 4096]).is_ok() {}
    while std::io::Write::write(&mut full, b".").is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).expect("fcntl");
    (unread, full)
}

#[test]
fn a_run_with_unread_output_trains_and_stops_on_request() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (unread, full) = full_pipe();
    let mut command = ddp_run();
    // Rank 0 has something to say, too.
    command.arg(&scratch.spec).arg("--out").arg(&scratch.out).args(["--progress", "plain"]);
    let child = command.stdout(Stdio::null()).stderr(full).spawn().expect("the binary starts");
    drop(command);
    scratch.wait_for_step(3);
    kill(child.id(), Signal::TERM);
    let output = finish(child);
    assert_code(&output, 75);
    assert!(scratch.checkpoint_step() >= 3);
    drop(unread);
}
