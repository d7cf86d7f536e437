//! `run.json`: provenance of a run: what ran, from which sources, on which hardware.

use super::clock::rfc3339;
use super::{Host, RunId};
use base::error::{Error, IoContext, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Git can hang on a network file system; a run waits at most this long for it.
const GIT_LIMIT: Duration = Duration::from_secs(2);

/// Earlier starts kept in `run.json`, so that a job which restarts for weeks does not grow the file without limit.
const MAX_EARLIER: usize = 100;

/// One start of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// RFC 3339, UTC.
    pub started: String,
    /// The run's name.
    pub name: String,
    /// Equal for specs with the same results.
    pub spec_hash: String,
    /// SHA-256 of the resolved spec's text, in hex. `None` in files of early versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// The command line, program first.
    pub argv: Vec<String>,
    /// Number of ranks.
    pub world: usize,
    /// One per local rank, in order.
    pub devices: Vec<String>,
    /// `gloo`, `mpi`, `nccl`, or `solo` with a single rank.
    pub backend: String,
    /// What started the processes: `ddp-run`, or `Slurm: job 12.0, task 0 of 4 on node n1`.
    pub launcher: String,
    /// The run that this start belongs to.
    pub run: RunId,
    /// The checkpoint that it resumed from; `None` for a start from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// `None` outside a repository or without git.
    pub git: Option<Git>,
    /// Of the program.
    pub versions: Versions,
    /// The machine of rank 0.
    pub host: Host,
    /// The keys of the spec that are set, each with its origin as in `ddp-run plan` (`spec`, `base FILE`,
    /// `--set` …); all others have their defaults. Empty in files of early versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
}

/// The checkpoint at which a branch of a run's history begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    /// The checkpoint's directory; relative to the run's folder, if it is in it.
    pub path: String,
    /// Optimizer steps that it has.
    pub step: u64,
    /// Training time of the run up to this checkpoint.
    pub seconds: f64,
}

/// The state of the repository that the spec is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Git {
    /// The hash of HEAD's commit.
    pub commit: String,
    /// Tracked files differ from the commit. `None` if git did not answer in time.
    pub dirty: Option<bool>,
}

/// Versions of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The version of ddp-run.
    pub ddp_run: String,
    /// The version of Burn.
    pub burn: String,
    /// `None` if the build could not determine it.
    pub rustc: Option<String>,
    /// The linker's build ID of the program; `None` if it has none, and in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// Facts about a start that only the caller knows.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// The run's name.
    pub name: &'a str,
    /// The hash of the resolved plan.
    pub spec_hash: &'a str,
    /// The spec's folder, whose git state is recorded.
    pub source_dir: &'a Path,
    /// Number of ranks.
    pub world: usize,
    /// One per local rank, in order.
    pub devices: Vec<String>,
    /// The name of the collectives' engine.
    pub backend: &'a str,
    /// What started the processes, for people.
    pub launcher: &'a str,
    /// Of the program.
    pub versions: Versions,
    /// The run that the start belongs to.
    pub run: RunId,
}

impl Provenance {
    /// The number of processes of this start; the plan of an elastic run has that of its most nodes.
    pub fn takes_place_with(&mut self, world: usize) {
        self.world = world;
        if world == 1 && self.backend == "gloo" {
            self.backend = "solo".to_owned();
        }
    }

    /// Collects the provenance. Takes a few milliseconds, or a few seconds if git hangs.
    pub fn gather(start: Start<'_>) -> Self {
        Self {
            started: rfc3339(SystemTime::now()),
            name: start.name.to_owned(),
            spec_hash: start.spec_hash.to_owned(),
            spec_digest: None,
            argv: command_line(),
            world: start.world,
            devices: start.devices,
            backend: start.backend.to_owned(),
            launcher: start.launcher.to_owned(),
            run: start.run,
            parent: None,
            git: git(start.source_dir, GIT_LIMIT),
            versions: start.versions,
            host: Host::here(),
            set: BTreeMap::new(),
        }
    }

    /// The optimizer steps that were done before it.
    pub fn begins_at(&self) -> u64 {
        self.parent.as_ref().map_or(0, |parent| parent.step)
    }

    fn is_the_start_of(&self, other: &Self) -> bool {
        (&self.run, &self.started) == (&other.run, &other.started)
    }
}

/// The starts of a run: the latest and the earlier ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// The latest start.
    #[serde(flatten)]
    pub latest: Provenance,
    /// Oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Provenance>,
}

impl RunFile {
    /// The starts that led to the folder's contents, oldest first: from the last one that began a new run, without those whose steps
    /// were all undone.
    pub fn since_beginning(&self) -> Vec<&Provenance> {
        let all: Vec<&Provenance> = self.earlier.iter().chain([&self.latest]).collect();
        let first = all.iter().rposition(|start| start.parent.is_none()).unwrap_or(0);
        let mut led: Vec<&Provenance> = Vec::new();
        for start in &all[first..] {
            // The first one stays, which says where the run began.
            while led.len() > 1 && led.last().is_some_and(|before| before.begins_at() >= start.begins_at()) {
                led.pop();
            }
            led.push(start);
        }
        led
    }
}

/// The command line of this process.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect()
}

/// Writes `run.json` atomically, once per start. The starts in an existing file are kept under `earlier`. A file that
/// can't be read is replaced with a warning: provenance never stops a run.
pub fn write(path: &Path, latest: Provenance) -> Result<()> {
    let mut earlier = Vec::new();
    if path.exists() {
        match read(path) {
            // Workers restarted by a supervisor.
            Ok(before) if before.latest.is_the_start_of(&latest) => return Ok(()),
            Ok(before) => {
                earlier = before.earlier;
                earlier.push(before.latest);
            }
            Err(e) => tracing::warn!("{e}; it is replaced"),
        }
    }
    if earlier.len() > MAX_EARLIER {
        earlier.drain(..earlier.len() - MAX_EARLIER);
    }
    base::files::replace_json(path, &RunFile { latest, earlier })
}

/// Reads a `run.json`.
///
/// # Errors
/// `ErrorKind::Io`: it cannot be read, or is not such a file.
pub fn read(path: &Path) -> Result<RunFile> {
    let text = base::files::read(path).doing("read", path)?;
    let unreadable = |e| Error::io(format!("cannot read {}: {e}", path.display()));
    serde_json::from_slice(&text).map_err(unreadable)
}

fn git(folder: &Path, limit: Duration) -> Option<Git> {
    let deadline = Instant::now() + limit;
    let commit = run_git(folder, &["rev-parse", "HEAD"], deadline)?.trim().to_owned();
    let status = run_git(folder, &["status", "--porcelain", "--untracked-files=no"], deadline);
    Some(Git { commit, dirty: status.map(|s| !s.trim().is_empty()) })
}

/// Output of a git command if it succeeds in time. The repository's hooks and file-system monitors are not run.
fn run_git(folder: &Path, args: &[&str], deadline: Instant) -> Option<String> {
    let mut child = Command::new("git")
        .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
        .args(args)
        .current_dir(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    // The thread ends with the child's output, at the latest when the child is killed below.
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = std::io::Read::read_to_string(&mut stdout, &mut text);
        let _ = sender.send(read.ok().map(|_| text));
    });
    let text = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok().flatten();
    if text.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    text.filter(|_| status.success())
}

/// The provenance of a start from `folder`, for tests.
#[doc(hidden)]
pub fn sample(folder: &Path) -> Provenance {
    Provenance::gather(Start {
        name: "toy",
        spec_hash: "abc",
        source_dir: folder,
        world: 2,
        devices: vec!["cpu".into(), "cpu".into()],
        backend: "gloo",
        launcher: "ddp-run",
        versions: Versions::default(),
        run: RunId { start: RunId::draw().unwrap(), ..RunId::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::testing::HANG;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn a_start_of_an_elastic_run_has_the_processes_of_its_generation() {
        let mut start = sample(Path::new("."));
        start.takes_place_with(4);
        assert_eq!((start.world, start.backend.as_str()), (4, "gloo"));
        start.takes_place_with(1);
        assert_eq!((start.world, start.backend.as_str()), (1, "solo"));
    }

    fn sh(folder: &Path, script: &str) -> bool {
        Command::new("sh").args(["-ec", script]).current_dir(folder).status().is_ok_and(|s| s.success())
    }

    #[test]
    fn run_json_keeps_earlier_starts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let mut first = sample(dir.path());
        first.spec_hash = "first".into();
        write(&path, first.clone()).unwrap();
        let second = sample(dir.path());
        write(&path, second.clone()).unwrap();
        assert_eq!(read(&path).unwrap(), RunFile { latest: second, earlier: vec![first] });
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["spec_hash"], "abc");
        assert!(json["host"]["cores"].as_u64().unwrap() >= 1);
    }

    #[test]
    fn starts_whose_steps_were_undone_led_to_nothing() {
        let at = |name: &str, step: Option<u64>| {
            let parent = step.map(|step| Parent { path: "c".into(), step, seconds: 0.0 });
            Provenance { spec_hash: name.into(), parent, ..sample(Path::new(".")) }
        };
        let led = |starts: &[(&str, Option<u64>)]| {
            let mut all: Vec<Provenance> = starts.iter().map(|(name, step)| at(name, *step)).collect();
            let file = RunFile { latest: all.pop().unwrap(), earlier: all };
            file.since_beginning().iter().map(|start| start.spec_hash.clone()).collect::<String>()
        };
        assert_eq!(led(&[("a", None), ("b", Some(4)), ("c", Some(8))]), "abc");
        // It began anew; it went back behind two others; it began where the one before had.
        assert_eq!(led(&[("a", None), ("b", Some(4)), ("c", None), ("d", Some(8))]), "cd");
        assert_eq!(led(&[("a", None), ("b", Some(4)), ("c", Some(8)), ("d", Some(2))]), "ad");
        assert_eq!(led(&[("a", None), ("b", Some(4)), ("c", Some(4)), ("d", Some(8))]), "acd");
        // The beginning is that of another run, or is not recorded any more.
        assert_eq!(led(&[("a", Some(8)), ("b", Some(8))]), "ab");
    }

    #[test]
    fn replaces_a_damaged_run_json() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        std::fs::write(&path, "{").unwrap();
        assert!(read(&path).unwrap_err().message.contains("run.json"));
        write(&path, sample(dir.path())).unwrap();
        assert!(read(&path).unwrap().earlier.is_empty());
    }

    #[test]
    fn git_state_has_commit_and_dirty_flag() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(git(dir.path(), HANG), None, "no repository");
        let made = "git init -q . && echo a > a && git add a && \
                    git -c user.name=t -c user.email=t@example.com commit -q -m a";
        if !sh(dir.path(), made) {
            println!("skipped: git is not there");
            return;
        }
        let clean = git(dir.path(), HANG).unwrap();
        assert_eq!((clean.commit.len(), clean.dirty), (40, Some(false)));
        std::fs::write(dir.path().join("a"), "b").unwrap();
        assert_eq!(git(dir.path(), HANG).unwrap().dirty, Some(true));
    }

    #[test]
    fn kills_git_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let (gave_up, end) = std::sync::mpsc::channel();
        // Nothing is ever written to the pipe: the child is killed at the deadline.
        std::thread::spawn(move || {
            gave_up.send(run_git(pipe.parent().unwrap(), &["hash-object", "pipe"], Instant::now()))
        });
        assert_eq!(end.recv_timeout(HANG), Ok(None));
    }
}
