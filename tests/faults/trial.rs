//! One run with a fault in it, and what must hold after any such run.

use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

/// Six optimizer steps with a checkpoint after each second one: a tenth of a second.
pub const SPEC: &str = "name = \"faults\"\nseed = 3\nepochs = 2\nbatch_size = 4\nsave_every = \"2 steps\"\n\
    [model]\nname = \"mlp\"\nhidden = [16]\n\
    [dataset]\nname = \"random\"\nsamples = 160\nfeatures = 8\nval_split = 0.2\n\
    [train]\nmax_steps = 6\n\
    [optimizer]\nname = \"adamw\"\nlr = 1e-2\n\
    [metrics]\nlog_every = 1\n\
    [launch]\nthreads = 1\n";

/// A language model of two epochs.
const TEXT_SPEC: &str = "name = \"texts\"\nseed = 3\nepochs = 2\nbatch_size = 8\n\
    [model]\nname = \"gpt\"\nn_layer = 1\nn_head = 2\nn_embd = 16\n\
    [dataset]\nname = \"text\"\npath = 'PLACE/text.txt'\nblock_size = 16\n\
    [optimizer]\nname = \"adamw\"\n[launch]\nthreads = 1\n";

/// For the ranks that are not stopped to say whom they blame, while other tests run.
pub const SHUTDOWN: &str = "launch.shutdown_timeout=8";

pub struct Trial {
    dir: tempfile::TempDir,
    pub world: usize,
    pub out: PathBuf,
}

/// A run that was started.
pub struct Running<'a> {
    trial: &'a Trial,
    fault: String,
    child: Child,
    begun: Instant,
    told: PathBuf,
}

/// How a run ended.
pub struct Ended {
    pub code: Option<i32>,
    pub told: String,
    /// From the start of the command.
    pub took: Duration,
}

impl Trial {
    pub fn new(world: usize) -> Self {
        Self::of(world, SPEC)
    }

    /// `PLACE` in the spec is the folder of the trial.
    pub fn of(world: usize, spec: &str) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        write_spec(dir.path(), &spec.replace("PLACE", &dir.path().display().to_string()));
        Self { out: dir.path().join("run"), world, dir }
    }

    /// The trial of a language model, which generates texts after each evaluation.
    pub fn of_text(world: usize) -> Self {
        let trial = Self::of(world, TEXT_SPEC);
        let text = "to be or not to be, that is the question. ".repeat(40);
        fs::write(trial.dir.path().join("text.txt"), text).expect("the scratch folder is writable");
        trial
    }

    /// `train` on the run's folder; the caller adds flags.
    pub fn command(&self) -> Command {
        let mut command = ddp_run();
        command.arg("train").arg(self.dir.path().join("job.toml")).arg("--out").arg(&self.out);
        command.args(["--progress", "none"]).env(TAG, &self.out);
        command
    }

    /// A supervised run, with `fault` unless that is empty, from its start to its end.
    pub fn run(&self, fault: &str, flags: &[&str]) -> Ended {
        self.start(fault, flags).end()
    }

    /// As [`Trial::run`], for a fault in `rank` that only a deadline ends: not busy once it has struck.
    pub fn hang(&self, rank: usize, fault: &str, flags: &[&str], busy: Busy) -> Ended {
        let mut run = self.start(fault, flags);
        run.strikes(rank);
        drop(busy);
        run.end()
    }

    pub fn start(&self, fault: &str, flags: &[&str]) -> Running<'_> {
        let told = self.dir.path().join("stderr");
        let mut command = self.command();
        command.args(["--nproc-per-node", &self.world.to_string()]).args(flags).env("DDP_RUN_FAULT", fault);
        command.stdout(Stdio::null()).stderr(File::create(&told).expect("the scratch folder is writable"));
        let begun = Instant::now();
        let child = command.spawn().expect("the binary starts");
        Running { trial: self, fault: fault.to_owned(), child, begun, told }
    }

    /// The fault has struck this rank: it is the last thing that the rank's log knows of.
    #[track_caller]
    pub fn assert_struck(&self, rank: usize) {
        assert!(self.has_struck(rank), "{}", self.log(rank));
    }

    pub fn has_struck(&self, rank: usize) -> bool {
        self.log(rank).trim_end().lines().last().is_some_and(|line| line.contains("on purpose"))
    }

    fn log(&self, rank: usize) -> String {
        fs::read_to_string(self.out.join(format!("logs/rank-{rank}.log"))).unwrap_or_default()
    }

    /// The rank's flight record, if it left one.
    pub fn record(&self, rank: usize) -> Option<Value> {
        let text = fs::read(self.out.join(format!("logs/collectives-rank-{rank}.json"))).ok()?;
        Some(serde_json::from_slice(&text).expect("a record is whole"))
    }

    /// How long the call had taken that failed, when the rank wrote its record.
    pub fn waited(&self, rank: usize) -> Option<Duration> {
        let record = self.record(rank)?;
        let began = record["collectives"].as_array()?.last()?["started"].as_f64()?;
        let path = self.out.join(format!("logs/collectives-rank-{rank}.json"));
        let written = fs::metadata(path).and_then(|m| m.modified()).ok()?;
        let written = written.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(written.saturating_sub(Duration::from_secs_f64(began)))
    }

    /// Model and optimizer bytes of the newest checkpoint.
    pub fn bits(&self) -> Vec<Vec<u8>> {
        bits(&self.out)
    }

    /// No process of the run is there any more, and no file that is not documented.
    #[track_caller]
    pub fn assert_nothing_is_left(&self, what: &str) {
        assert_eq!(processes(&self.out), [0u32; 0], "{what}: processes are left");
        let mut strange = files(&self.out);
        strange.retain(|path| !documented(path, self.world));
        assert!(strange.is_empty(), "{what}: {strange:?}");
    }
}

impl Running<'_> {
    fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap_or_default()
    }

    /// The process ids of its ranks.
    pub fn ranks(&self) -> Vec<u32> {
        children(self.child.id())
    }

    /// Waits until its fault has struck this rank, or it has ended.
    fn strikes(&mut self, rank: usize) {
        self.within_reason(|run| {
            let ended = run.child.try_wait().expect("it is our child").is_some();
            ended || run.trial.has_struck(rank)
        });
    }

    pub fn end(mut self) -> Ended {
        let mut code = None;
        self.within_reason(|run| {
            code = run.child.try_wait().expect("it is our child");
            code.is_some()
        });
        Ended { code: code.and_then(|c| c.code()), told: self.told(), took: self.begun.elapsed() }
    }

    fn within_reason(&mut self, mut holds: impl FnMut(&mut Self) -> bool) {
        if !within(RUN_HUNG, || holds(self)) {
            processes(&self.trial.out).into_iter().for_each(|pid| kill(pid, Signal::KILL));
            panic!("{} at world {} hangs; so far it said:\n{}", self.fault, self.trial.world, self.told());
        }
    }
}

/// Plays all `cases` at the same time: what they do most is to wait for a deadline, or for processes to start and end.
pub fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, play: impl Fn(T) + Sync) {
    let play = &play;
    std::thread::scope(|scope| {
        cases.into_iter().for_each(|case| drop(scope.spawn(move || play(case))));
    });
}

/// Whoever only waits for a deadline from then on drops it.
#[derive(Clone)]
pub struct Busy(#[allow(dead_code)] mpsc::Sender<()>);

impl Busy {
    /// As [`at_once`]; it is dropped when each case has dropped its own.
    pub fn at_once<T: Send>(self, cases: impl IntoIterator<Item = T>, play: impl Fn(T, Self) + Sync) {
        let cases: Vec<_> = cases.into_iter().map(|case| (case, self.clone())).collect();
        drop(self);
        at_once(cases, |(case, busy)| play(case, busy));
    }
}

/// Plays `groups` one after the other, but for their waiting: each begins when the one before it is not busy any more, and other tests
/// when the last is not.
pub fn wait_together(groups: &[fn(Busy)]) {
    let alone = alone();
    std::thread::scope(|scope| {
        for play in groups {
            let (busy, waits) = mpsc::channel();
            scope.spawn(move || play(Busy(busy)));
            // Nothing is sent: this ends with the last that is busy.
            let _ = waits.recv();
        }
        drop(alone);
    });
}

/// Paths below `folder`, relative to it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => open.push(path),
                path => found.push(path.strip_prefix(folder).expect("it is below").to_owned()),
            }
        }
    }
    found
}

fn documented(path: &Path, world: usize) -> bool {
    let parts: Vec<&str> = path.iter().map(|p| p.to_str().expect("plain names")).collect();
    let of_a_rank = |name: &str, prefix: &str, suffix: &str| {
        let rank = name.strip_prefix(prefix).and_then(|n| n.strip_suffix(suffix));
        rank.and_then(|r| r.parse().ok()).is_some_and(|r: usize| r < world)
    };
    match parts[..] {
        ["job.toml" | "run.json" | "metrics.jsonl" | "report.html" | ".lock"] => true,
        ["specs", name] => name
            .strip_suffix(".toml")
            .is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit())),
        ["tensorboard", name] => name.starts_with("events.out.tfevents."),
        ["logs", name] => {
            of_a_rank(name, "rank-", ".log")
                || of_a_rank(name, "failure-rank-", ".json")
                || of_a_rank(name, "collectives-rank-", ".json")
        }
        ["checkpoints", ".lock"] => true,
        // A writer that was killed leaves its hidden folder to the next one.
        [
            "checkpoints",
            folder,
            "model.safetensors" | "optimizer.safetensors" | "state.json" | "usage.json",
        ] => ["step-", ".tmp-step-", ".old-step-"].iter().any(|p| folder.starts_with(p)),
        _ => false,
    }
}
