//! The batch scripts of `jobs/slurm` under a real Slurm, as `scripts/slurm-one-node.sh` starts one. Skipped with a word where none
//! answers. The bits of a run that was preempted, requeued and resumed are those of one that never was.
#![cfg(target_os = "linux")]

use crate::common::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Saves nothing by itself before the end.
const SPEC: &str = "name = \"slurm\"\nseed = 5\nepochs = 100\nbatch_size = 8\nsave_every = \"100 epochs\"\n\
    [model]\nname = \"mlp\"\nhidden = [256, 256]\ndropout = 0.1\n\
    [dataset]\nname = \"random\"\nsamples = 640\nfeatures = 16\nval_split = 0.2\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-3\n\
    [metrics]\nlog_every = 1\n\
    [launch]\nnproc_per_node = 2\nthreads = 1\n";

/// In the midst of the run; what has been requeued goes on after it.
const HELD: &str = "stop:rank=1,phase=forward,step=20";

fn command(program: &str, arguments: &[&str]) -> Option<Output> {
    Command::new("timeout").arg("60").arg(program).args(arguments).output().ok()
}

fn text(program: &str, arguments: &[&str]) -> String {
    let output = command(program, arguments).filter(|o| o.status.success());
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

/// Whether there is a Slurm with a node that takes jobs.
fn slurm_answers() -> bool {
    // A controller that is gone is asked for ten seconds.
    static READY: OnceLock<bool> = OnceLock::new();
    let ready = *READY.get_or_init(|| {
        let states = text("sinfo", &["--noheader", "--format", "%t"]);
        states.lines().any(|s| matches!(s, "idle" | "mix" | "alloc"))
    });
    if !ready {
        eprintln!("skipped: no Slurm answers here (scripts/slurm-one-node.sh starts one)");
    }
    ready
}

/// What the scripts start.
fn task() -> &'static str {
    env!("CARGO_BIN_EXE_ddp-run")
}

/// A submitted job, cancelled when it is dropped.
struct Job {
    id: String,
    out: PathBuf,
    folder: tempfile::TempDir,
}

impl Drop for Job {
    fn drop(&mut self) {
        command("scancel", &["--quiet", &self.id]);
        let begun = Instant::now();
        // Its folder goes with it.
        while self.is_there() && begun.elapsed() < RUN_HUNG {
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

impl Job {
    /// Submits a script of `jobs/slurm` for [`SPEC`].
    fn submit(script: &str, options: &[&str], flags: &[&str], fault: &str) -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        let spec = write_spec(folder.path(), SPEC);
        let out = folder.path().join("run");
        let mut sbatch = Command::new("sbatch");
        sbatch
            .args(["--parsable", "--chdir"])
            .arg(folder.path())
            .arg(format!("--export=ALL,DDP_RUN={}", task()));
        sbatch.arg("--output=job.out").args(options);
        sbatch.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/slurm").join(script));
        sbatch.arg(spec).arg("--out").arg(&out).args(["--progress", "none"]).args(flags);
        sbatch.env(TAG, &out).env("DDP_RUN_FAULT", fault);
        let output = output_of(&mut sbatch);
        assert!(output.status.success(), "{}", stderr(&output));
        Self { id: String::from_utf8_lossy(&output.stdout).trim().to_owned(), out, folder }
    }

    /// A field of `scontrol show job`.
    fn field(&self, name: &str) -> String {
        let shown = text("scontrol", &["--oneliner", "show", "job", &self.id]);
        let fields = shown.split_whitespace().filter_map(|w| w.split_once('='));
        fields.filter(|(n, _)| *n == name).map(|(_, v)| v.to_owned()).next().unwrap_or_default()
    }

    fn is_there(&self) -> bool {
        !text("squeue", &["--noheader", "--jobs", &self.id]).is_empty()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("job.out")).unwrap_or_default()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, mut ready: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !ready() {
            let state = self.field("JobState");
            assert!(begun.elapsed() < RUN_HUNG, "no {what}: job is {state} and said:\n{}", self.said());
            let over = matches!(state.as_str(), "FAILED" | "CANCELLED" | "TIMEOUT" | "COMPLETED") && !ready();
            assert!(!over, "no {what}: job is {state} and said:\n{}", self.said());
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Waits until the run is well under way.
    #[track_caller]
    fn wait_for_20_steps(&self) {
        let seen =
            || events(&self.out).iter().any(|e| e["event"] == "step" && e["step"].as_u64() >= Some(20));
        self.wait_for("steps", seen);
    }

    /// Signals the job when [`HELD`] holds it, and lets it go on when the signal is there.
    #[track_caller]
    fn signal_held(&self, options: &[&str]) {
        self.wait_for_20_steps();
        let rank = held(&self.out);
        self.signal(options);
        release_when_asked_to_stop(rank);
    }

    fn signal(&self, options: &[&str]) {
        let output = command("scancel", &[options, &[self.id.as_str()]].concat()).expect("scancel");
        assert!(output.status.success(), "{}", stderr(&output));
    }

    #[track_caller]
    fn wait_for_state(&self, state: &str) {
        let mut hastened = false;
        self.wait_for(state, || {
            if !hastened && self.field("Restarts") == "1" && self.field("Reason") == "BeginTime" {
                // A requeued job waits until its old credential has expired; within the same second the new one would be refused.
                command("scontrol", &["update", &format!("JobId={}", self.id), "StartTime=now+3seconds"]);
                hastened = true;
            }
            self.field("JobState") == state
        });
    }

    fn ends(&self) -> Vec<(String, i64)> {
        let ends = events(&self.out).into_iter().filter(|e| e["event"] == "end");
        ends.map(|e| (e["reason"].as_str().unwrap().to_owned(), e["exit_code"].as_i64().unwrap())).collect()
    }

    /// The run is complete, went on once from where it was stopped, and has the bits of a run without an interruption.
    #[track_caller]
    fn assert_resumed_and_exact(&self) {
        let (stopped, done) = (("stopped".to_owned(), 75), ("done".to_owned(), 0));
        assert_eq!(self.ends(), [stopped, done], "{}", self.said());
        assert_eq!(self.field("Restarts"), "1");
        let resumed: Vec<u64> = events(&self.out)
            .iter()
            .filter(|e| e["event"] == "resume")
            .filter_map(|e| e["step"].as_u64())
            .collect();
        assert!(matches!(resumed[..], [step] if step > 0), "{resumed:?}");
        let whole = self.folder.path().join("whole");
        assert_code(&train(&self.folder.path().join("job.toml"), &whole, &[]), 0);
        assert_eq!(results(&self.out), results(&whole));
        assert!(bits(&self.out) == bits(&whole), "model or optimizer differ");
    }
}

#[test]
fn ranks_that_srun_starts_train_to_the_end() {
    let _alone = alone();
    if !slurm_answers() {
        return;
    }
    let job = Job::submit("multi-node.sbatch", &["--nodes=1"], &["--set", "epochs=2"], "");
    job.wait_for_state("COMPLETED");
    assert_eq!(job.field("ExitCode"), "0:0");
    assert_eq!(job.ends(), [("done".to_owned(), 0)]);
    let run = std::fs::read_to_string(job.out.join("run.json")).expect("written");
    assert!(run.contains("\"world\": 2"), "{run}");
}

#[test]
fn submit_passes_the_script_to_sbatch_and_the_job_runs() {
    let _alone = alone();
    if !slurm_answers() {
        return;
    }
    let folder = tempfile::tempdir().expect("tempdir");
    let (spec, out) = (write_spec(folder.path(), SPEC), folder.path().join("run"));
    let mut submit = ddp_run();
    submit.args(["submit", "slurm"]).arg(&spec).arg("--out").arg(&out);
    submit.args(["--time", "10", "--set", "epochs=2", "--submit"]).env("DDP_RUN", task());
    let output = output_of(&mut submit);
    assert_code(&output, 0);
    let said = String::from_utf8_lossy(&output.stdout);
    let id = said.trim().rsplit(' ').next().expect("Submitted batch job N").to_owned();
    let job = Job { id, out, folder };
    job.wait_for_state("COMPLETED");
    assert_eq!(job.ends(), [("done".to_owned(), 0)]);
    assert!(job.out.join(format!("slurm-{}.out", job.id)).exists());
}

#[test]
fn a_preempted_job_is_requeued_and_ends_in_the_same_bits() {
    let _alone = alone();
    if !slurm_answers() {
        return;
    }
    let job = Job::submit("preemptible.sbatch", &[], &[], HELD);
    job.signal_held(&["--signal=USR1"]);
    job.wait_for_state("COMPLETED");
    assert!(job.said().contains(&format!("Slurm requeued job {}", job.id)), "{}", job.said());
    job.assert_resumed_and_exact();
}

/// In the batch script itself, `SLURM_PROCID` and `SLURM_NTASKS` are set, and do not make it a rank.
#[test]
fn a_supervisor_in_the_batch_script_saves_and_is_requeued() {
    let _alone = alone();
    if !slurm_answers() {
        return;
    }
    let options = ["--ntasks-per-node=2", "--cpus-per-task=1", "--requeue", "--open-mode=append"];
    let job = Job::submit("single-node.sbatch", &options, &["--set", "launch.requeue=true"], HELD);
    job.signal_held(&["--batch", "--signal=USR1"]);
    job.wait_for_state("COMPLETED");
    job.assert_resumed_and_exact();
}

#[test]
fn a_cancelled_job_saves_and_stays_cancelled() {
    let _alone = alone();
    if !slurm_answers() {
        return;
    }
    let job = Job::submit("preemptible.sbatch", &[], &["--set", "epochs=1000000000"], "");
    job.wait_for_20_steps();
    job.signal(&[]);
    job.wait_for("CANCELLED", || job.field("JobState") == "CANCELLED");
    assert_eq!(job.ends(), [("stopped".to_owned(), 75)], "{}", job.said());
    assert!(newest_checkpoint(&job.out).join("state.json").exists());
    assert!(
        job.said().contains(&format!("job {} is not requeued: Slurm is ending it", job.id)),
        "{}",
        job.said()
    );
    assert_eq!(job.field("Restarts"), "0");
}
