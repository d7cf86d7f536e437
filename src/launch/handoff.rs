//! What a supervisor tells a worker: one JSON line over the worker's standard input, which stays open after it.
//!
//! A pipe, because arguments and environment are visible to others and the line carries the run's secret. The pipe is
//! the control pipe too: the supervisor holds its other end until the worker is gone, so end-of-file means that the
//! supervisor is dead, and the worker ends at once. At most one word follows the handoff: [`TAKE_DOWN`].

use std::io::{self, BufRead, IsTerminal, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::logs::LogFormat;
use super::os;
use super::stop::StopFlag;
use crate::comm::rendezvous::Secret;
use crate::error::{Error, ExitCode, Result};
use crate::telemetry::{ProgressMode, Provenance};

/// A resolved spec is some kilobytes; a longer line is no handoff.
pub const MAX_BYTES: usize = 4 << 20;

/// The run has failed, or is ended at once. Not a signal: a launcher may send the same one to ask for a save.
pub(super) const TAKE_DOWN: &[u8] = b"take-down\n";

/// Both sides are the same binary, unless it was replaced under a running supervisor.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A worker's place among the processes of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub rank: usize,
    /// Rank among the processes of this node: which device is its own.
    pub local_rank: usize,
    pub world_size: usize,
    /// Number of processes on this node.
    pub local_world_size: usize,
    pub node_rank: usize,
    pub nnodes: usize,
}

/// How this worker meets the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// It is alone.
    Solo,
    /// Rank 0: the supervisor bound and listens on `addr`; the socket is inherited as descriptor `fd`.
    Inherited { fd: i32, addr: SocketAddr },
    /// Rank 0 of an externally launched run: bind `host:port` yourself.
    Listen { host: String, port: u16 },
    /// The others: rank 0 listens there.
    Connect { host: String, port: u16 },
    /// Rank 0 writes to this file where it listens, and the others look it up.
    File { path: PathBuf },
}

/// The job itself, the same for every worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHandoff {
    /// The spec as typed, for messages.
    pub spec_name: String,
    /// The resolved spec (`job.toml`).
    pub job_toml: String,
    pub out_dir: PathBuf,
    /// `auto`, `never` or a path.
    pub resume: String,
    /// This start, for `run.json`; whoever starts rank 0 has it.
    #[serde(default)]
    pub provenance: Option<Provenance>,
    pub log_format: LogFormat,
    pub progress: ProgressMode,
}

/// `J` is what the workers are to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff<J = JobHandoff> {
    version: String,
    pub place: Place,
    /// Threads that this worker may keep busy.
    pub threads: usize,
    pub endpoint: Endpoint,
    pub secret: Secret,
    pub run_id: String,
    /// Counts the sets of workers that this run has had, from 1.
    pub generation: u64,
    /// Counts the starts since the last progress, from 1.
    pub attempt: u32,
    /// Why there is another generation; none for the first.
    pub reason: Option<String>,
    /// Where `rank-N.log` and `failure-rank-N.json` go.
    pub log_dir: PathBuf,
    pub job: J,
}

/// What a worker has after [`Handoff::receive`].
#[derive(Debug)]
pub struct Received<J = JobHandoff> {
    pub handoff: Handoff<J>,
    /// Rank 0's rendezvous listener, when it was inherited.
    pub listener: Option<TcpListener>,
}

impl Endpoint {
    /// Rank 0's: the process that it is handed to inherits `listener`.
    pub(crate) fn inherited(listener: &TcpListener) -> Result<Self> {
        let addr = listener.local_addr().map_err(|e| Error::internal(e.to_string()))?;
        Ok(Endpoint::Inherited { fd: listener.as_raw_fd(), addr })
    }
}

impl Handoff {
    /// A handoff of the first generation and attempt; logs go to `out_dir/logs`.
    pub fn new(place: Place, endpoint: Endpoint, secret: Secret, job: JobHandoff) -> Self {
        Self { log_dir: job.out_dir.join("logs"), ..Self::of(place, endpoint, secret, job) }
    }

    /// [`Handoff::take`], in `ddp-run worker`.
    pub fn receive(stop: &StopFlag) -> Result<Received> {
        let by_hand = || {
            Error::usage("`ddp-run worker` is started by the supervisor, not by hand")
                .hint("`ddp-run SPEC.toml` starts a run")
        };
        Self::take(stop, by_hand, |rank| say!("rank {rank}: the supervisor is gone; ending at once"))
    }
}

impl<J: Serialize + DeserializeOwned> Handoff<J> {
    /// A handoff of the first generation and attempt, without a folder for logs.
    pub fn of(place: Place, endpoint: Endpoint, secret: Secret, job: J) -> Self {
        Self {
            version: VERSION.to_string(),
            place,
            threads: 1,
            endpoint,
            secret,
            run_id: String::new(),
            generation: 1,
            attempt: 1,
            reason: None,
            log_dir: PathBuf::new(),
            job,
        }
    }

    /// The line that goes down the pipe, newline included.
    ///
    /// Errors: longer than 4 MiB, or a path that is not UTF-8.
    pub fn to_line(&self) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)
            .map_err(|e| Error::usage(format!("the job can't be handed to a worker process: {e}")))?;
        line.push(b'\n');
        if line.len() > MAX_BYTES {
            return Err(Error::spec(format!(
                "the resolved spec has {} bytes; the limit is {MAX_BYTES}",
                line.len()
            )));
        }
        Ok(line)
    }

    fn from_line(line: &[u8]) -> Result<Self> {
        // The version first: another version's handoff may not decode, and that would be the wrong complaint.
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let broken = |e| Error::internal(format!("the supervisor's handoff can't be decoded: {e}"));
        let version = serde_json::from_slice::<Version>(line).map_err(broken)?.version;
        if version != VERSION {
            let what = format!("this worker is ddp-run {VERSION}, its supervisor is {version}");
            return Err(Error::internal(what)
                .hint("the program was replaced while the run was going on: start it again"));
        }
        serde_json::from_slice(line).map_err(broken)
    }

    /// The worker's first deed: reads the handoff from standard input, takes over the listener, and starts the thread
    /// that ends this process when the supervisor is gone (after `orphaned`), and tells `stop` that the run is being taken down. Call it once,
    /// in a process that a supervisor has started.
    ///
    /// Errors: standard input is no handoff (someone typed the command: `by_hand`), or was written by another version.
    pub fn take(
        stop: &StopFlag,
        by_hand: impl FnOnce() -> Error,
        orphaned: fn(usize),
    ) -> Result<Received<J>> {
        let stdin = io::stdin();
        let line = if stdin.is_terminal() { None } else { read_line(&mut stdin.lock())? };
        let line = line.ok_or_else(by_hand)?;
        let handoff = Self::from_line(&line)?;
        let listener = match &handoff.endpoint {
            Endpoint::Inherited { fd, .. } => Some(os::adopt_listener(*fd).map_err(|e| {
                Error::internal(format!("the rendezvous socket was not inherited as descriptor {fd}: {e}"))
            })?),
            _ => None,
        };
        let (rank, stop) = (handoff.place.rank, stop.clone());
        std::thread::Builder::new()
            .name("supervisor-watch".into())
            .stack_size(64 << 10)
            .spawn(move || {
                if heard_take_down(&mut io::stdin().lock()) {
                    stop.take_down();
                    wait_for_end(&mut io::stdin().lock());
                }
                orphaned(rank);
                end_orphan();
            })
            .map_err(|e| {
                Error::internal(format!("cannot start the thread that watches the supervisor: {e}"))
            })?;
        Ok(Received { handoff, listener })
    }
}

/// One line of at most [`MAX_BYTES`]; `None` where there is nothing at all.
fn read_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input
        .take(MAX_BYTES as u64)
        .read_until(b'\n', &mut line)
        .map_err(|e| Error::internal(format!("cannot read the supervisor's handoff: {e}")))?;
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        None => Ok(None),
        Some(_) => Err(Error::internal("the supervisor's handoff is cut off or too long")),
    }
}

/// Waits for the word that the run is being taken down; `false` when the other end is closed before it is whole.
fn heard_take_down(input: &mut impl Read) -> bool {
    let mut word = [0; TAKE_DOWN.len()];
    input.read_exact(&mut word).is_ok() && word == *TAKE_DOWN
}

/// Returns when the other end is closed. Nothing more is written to it, so whatever arrives is passed over.
fn wait_for_end(input: &mut impl Read) {
    let _ = io::copy(input, &mut io::sink());
}

/// Without destructors and exit handlers: they may wait for threads that wait for peers. On Linux the kernel's
/// parent-death signal usually comes first.
fn end_orphan() -> ! {
    crate::say::flush();
    signal_hook::low_level::exit(ExitCode::WorkerFailed as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handoff() -> Handoff {
        let place =
            Place { rank: 1, local_rank: 1, world_size: 2, local_world_size: 2, node_rank: 0, nnodes: 1 };
        let endpoint = Endpoint::Connect { host: "127.0.0.1".into(), port: 4711 };
        let job = JobHandoff {
            job_toml: "name = \"x\"\n# \u{2028} ü\n".into(),
            log_format: LogFormat::Json,
            progress: ProgressMode::Plain,
            ..JobHandoff::default()
        };
        Handoff::new(place, endpoint, Secret::generate().expect("random"), job)
    }

    #[test]
    fn survives_the_pipe_as_one_line() {
        let sent = handoff();
        let line = sent.to_line().expect("encode");
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let mut input = &line[..];
        let got =
            <Handoff>::from_line(&read_line(&mut input).expect("read").expect("a line")).expect("decode");
        assert_eq!(got, sent);
    }

    #[test]
    fn debug_output_does_not_show_the_secret() {
        let handoff = handoff();
        assert!(!format!("{handoff:?}").contains(&*handoff.secret.to_hex()));
    }

    #[test]
    fn a_take_down_is_told_from_the_end_of_the_pipe() {
        assert!(heard_take_down(&mut &b"take-down\n"[..]));
        assert!(!heard_take_down(&mut &b"take-"[..]));
        assert!(!heard_take_down(&mut io::empty()));
    }

    #[test]
    fn refuses_what_is_no_handoff() {
        assert!(read_line(&mut &b""[..]).expect("read").is_none());
        assert!(read_line(&mut &b"{\"version\""[..]).expect_err("cut").message.contains("cut off"));
        let long = vec![b'x'; MAX_BYTES + 10];
        assert!(read_line(&mut &long[..]).expect_err("long").message.contains("too long"));
        assert!(<Handoff>::from_line(b"[]").is_err());
        let other = <Handoff>::from_line(b"{\"version\":\"0.0.0-other\",\"new\":1}").expect_err("version");
        assert!(other.message.contains("0.0.0-other"), "{other}");
        let mut big = handoff();
        big.job.job_toml = "x".repeat(MAX_BYTES);
        assert_eq!(big.to_line().expect_err("too long").code, ExitCode::Spec);
    }
}
