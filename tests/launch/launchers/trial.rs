//! One run by a launcher, and what must hold of it.

use crate::common::*;
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const SPEC: &str = "configs/ci/smoke.toml";
/// Notes a rank's exit code in a file of its own, and keeps the launcher from doing anything about it. (torchrun reads
/// `$$` as an escaped dollar.)
const NOTE: &str = "\"$@\"; code=$?; echo $code > $(mktemp \"$DDP_RUN_TEST_RUN/../code-XXXXXXXX\"); exit 0";
/// Goes on for hours.
pub const ENDLESS: [&str; 4] = ["--set", "epochs=100000", "--set", "save_every=\"never\""];

/// A program on PATH, or a printed line.
pub fn found(program: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::split_paths(&search).map(|dir| dir.join(program)).find(|p| p.is_file());
    if path.is_none() {
        println!("skipped: {program} is not on this machine");
    }
    path
}

pub struct Trial {
    dir: tempfile::TempDir,
    pub out: PathBuf,
}

/// A launcher's processes; killed with this.
pub struct Started {
    child: Child,
    told: PathBuf,
    tag: PathBuf,
}

impl Trial {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::create_dir(dir.path().join("tmp")).expect("the scratch folder is writable");
        Self { out: dir.path().join("run"), dir }
    }

    /// `ddp-run train` on the run's folder.
    pub fn ddp_run(&self, flags: &[&str]) -> Vec<String> {
        let out = self.out.display().to_string();
        let words = [env!("CARGO_BIN_EXE_ddp-run"), "train", SPEC, "--out", &out, "--progress", "none"];
        words.iter().chain(flags).map(|word| word.to_string()).collect()
    }

    /// The same with each rank's exit code noted.
    pub fn noted(&self, flags: &[&str]) -> Vec<String> {
        let shell = ["sh", "-c", NOTE, "sh"].map(str::to_owned);
        shell.into_iter().chain(self.ddp_run(flags)).collect()
    }

    /// Starts `launcher` with `words` behind its own arguments, in the environment of this run.
    pub fn start(&self, mut launcher: Command, words: &[String]) -> Started {
        let told =
            self.dir.path().join(format!("told-{}", fs::read_dir(&self.dir).expect("a folder").count()));
        let file = File::create(&told).expect("the scratch folder is writable");
        let also = file.try_clone().expect("a descriptor");
        launcher.args(words).current_dir(env!("CARGO_MANIFEST_DIR"));
        launcher.env(TAG, &self.out).env("DDP_RUN_SECRET", "a secret of these processes");
        // Launchers keep the state of a session there, and one may remove what another still needs.
        launcher.env("TMPDIR", self.dir.path().join("tmp"));
        launcher.stdin(Stdio::null()).stdout(file).stderr(also);
        let child = launcher.spawn().expect("the launcher starts");
        Started { child, told, tag: self.out.clone() }
    }

    /// Runs to the end, which is a success.
    #[track_caller]
    pub fn run(&self, launcher: Command, words: &[String]) -> String {
        let mut started = self.start(launcher, words);
        let status = started.end(RUN_HUNG).unwrap_or_else(|| panic!("hangs:\n{}", started.told()));
        assert!(status.success(), "{status}:\n{}", started.told());
        started.told()
    }

    /// The run ended as one that ddp-run started itself.
    #[track_caller]
    pub fn assert_same_bits(&self) {
        static OWN: OnceLock<(Vec<Vec<u8>>, Vec<serde_json::Value>)> = OnceLock::new();
        let (own_bits, own_results) = OWN.get_or_init(|| {
            let own = Trial::new();
            assert_code(&train(Path::new(SPEC), &own.out, &["--nproc-per-node", "2"]), 0);
            (bits(&own.out), results(&own.out))
        });
        assert_eq!(&results(&self.out), own_results);
        assert!(bits(&self.out) == *own_bits, "model or optimizer differ");
    }

    pub fn log(&self, rank: usize) -> String {
        fs::read_to_string(self.out.join(format!("logs/rank-{rank}.log"))).unwrap_or_default()
    }

    pub fn launcher(&self) -> String {
        let run = read_json(self.out.join("run.json"));
        run["launcher"].as_str().expect("it names the launcher").to_owned()
    }

    /// Kills rank 1 of an endless run; rank 0 ends with 91 and names it, and nothing is left.
    #[track_caller]
    pub fn kill_rank_1(&self, launcher: Command, rank_variable: &str) {
        let mut started = self.start(launcher, &self.noted(&ENDLESS));
        let steps = || step_events(&self.out).len();
        let trains = within(RUN_HUNG, || started.ended() || steps() >= 3);
        assert!(trains && !started.ended(), "it does not train:\n{}", started.told());
        let victim = self.process_with(&format!("{rank_variable}=1"));
        kill(victim, Signal::KILL);
        let codes = || {
            let files = fs::read_dir(&self.dir).expect("a folder").flatten();
            let codes = files.filter(|f| f.file_name().to_string_lossy().starts_with("code-"));
            let mut codes: Vec<String> =
                codes.filter_map(|f| Some(fs::read_to_string(f.path()).ok()?.trim().to_owned())).collect();
            codes.retain(|code| !code.is_empty());
            codes.sort();
            codes
        };
        // Nothing but the death ends rank 0: the deadline of its collectives is far.
        assert!(within(HUNG, || codes().len() == 2), "{:?}:\n{}", codes(), started.told());
        assert_eq!(codes(), ["137", "91"], "{}", started.told());
        let note = read_json(self.out.join("logs/collectives-rank-0.json"));
        assert_eq!(note["error"]["peer"], 1, "{note}");
        assert!(started.end(RUN_HUNG).is_some(), "the launcher hangs:\n{}", started.told());
        assert!(started.told().contains("error: rank 0: rank 1 disconnected"), "{}", started.told());
        assert!(within(HUNG, || processes(&self.out).is_empty()), "processes are left");
    }

    /// The ddp-run of this run that has `variable` in its environment.
    #[track_caller]
    fn process_with(&self, variable: &str) -> u32 {
        let is_it = |pid: &u32| {
            let of = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            of("comm").starts_with(b"ddp-run")
                && of("environ").split(|b| *b == 0).any(|v| v == variable.as_bytes())
        };
        let found: Vec<u32> = processes(&self.out).into_iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{variable}: {found:?}");
        found[0]
    }
}

impl Started {
    /// Kills the launcher alone.
    pub fn kill_launcher(&mut self) {
        kill(self.child.id(), Signal::KILL);
        let _ = self.child.wait();
    }

    pub fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap_or_default()
    }

    fn ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    pub fn end(&mut self, deadline: Duration) -> Option<ExitStatus> {
        within(deadline, || self.ended());
        self.child.try_wait().expect("it is our child")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.ended() {
            processes(&self.tag).into_iter().for_each(|pid| kill(pid, Signal::KILL));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
