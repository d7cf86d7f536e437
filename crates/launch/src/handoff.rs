//! The handoff from a supervisor to a worker: one JSON line over the worker's standard input, which stays open afterwards.
//!
//! It is a pipe because the line contains the run's secret, and arguments and environment are visible to others. It
//! is also the control pipe: the supervisor keeps its end open until the worker has ended, so end-of-file means that
//! the supervisor is dead, and the worker exits at once. At most one word follows the handoff: [`TAKE_DOWN`].

use std::io::{self, BufRead, IsTerminal, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::os;
use super::stop::StopFlag;
use crate::ExitCode;
use base::error::{Error, Result};
use collectives::rendezvous::{Ports, Secret};

/// A resolved spec has a few kilobytes; a longer line is not a handoff.
pub const MAX_BYTES: usize = 4 << 20;

/// The run has failed or is ended at once. It is not a signal, because a launcher may send the same signal to request a save.
pub(super) const TAKE_DOWN: &[u8] = b"take-down\n";

/// Supervisor and worker are the same binary, unless it was replaced while the supervisor was running.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A worker's position among the processes of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPosition {
    /// From 0, over all nodes.
    pub rank: usize,
    /// The rank among the processes of this node; it selects the device.
    pub local_rank: usize,
    /// Number of processes of the run.
    pub world_size: usize,
    /// Number of processes on this node.
    pub local_world_size: usize,
    /// From 0.
    pub node_rank: usize,
    /// Number of nodes.
    pub nnodes: usize,
}

impl RankPosition {
    /// In a run of `world_size` processes on a single node.
    pub fn on_one_node(rank: usize, world_size: usize) -> Self {
        Self { rank, local_rank: rank, world_size, local_world_size: world_size, node_rank: 0, nnodes: 1 }
    }
}

/// How this worker connects to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants describe their fields")]
pub enum Endpoint {
    /// There is no other worker.
    Solo,
    /// Rank 0: the supervisor has bound the socket and listens on `addr`; the worker inherits it as descriptor `fd`.
    Inherited { fd: i32, addr: SocketAddr },
    /// Rank 0 under an external launcher: the rank binds `host:port` itself.
    Listen { host: String, port: u16 },
    /// Other ranks: rank 0 listens there.
    Connect { host: String, port: u16 },
    /// Under an external launcher that reserves no port for rank 0, which is on this host.
    Agreed { host: String, ports: Ports },
    /// Rank 0 writes its address to this file, and the others read it.
    File { path: PathBuf },
}

/// `J` describes the workers' job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoff<J> {
    version: String,
    /// The worker's place in the run.
    pub place: RankPosition,
    /// Number of compute threads of this worker.
    pub threads: usize,
    /// How the worker connects to the others.
    pub endpoint: Endpoint,
    /// The generation's secret, which its ranks prove to each other.
    pub secret: Secret,
    /// Identifies the run; equal in all its generations.
    pub run_id: String,
    /// Number of this generation within the run, from 1.
    pub generation: u64,
    /// Number of this attempt since the last progress, from 1.
    pub attempt: u32,
    /// Why the previous generation ended; none for the first generation.
    pub reason: Option<String>,
    /// Folder of `rank-N.log` and `failure-rank-N.json`.
    pub log_dir: PathBuf,
    /// What the worker is to do.
    pub job: J,
}

/// The result of [`Handoff::take`].
#[derive(Debug)]
pub struct Received<J> {
    /// The handoff, of this program's version.
    pub handoff: Handoff<J>,
    /// Rank 0's inherited rendezvous listener.
    pub listener: Option<TcpListener>,
}

impl Endpoint {
    /// Rank 0's endpoint: the worker inherits `listener`.
    pub fn inherited(listener: &TcpListener) -> Result<Self> {
        let addr = listener.local_addr().map_err(|e| Error::internal(e.to_string()))?;
        Ok(Endpoint::Inherited { fd: listener.as_raw_fd(), addr })
    }
}

impl<J: Serialize + DeserializeOwned> Handoff<J> {
    /// A handoff of the first generation and attempt, without a log folder.
    pub fn new(place: RankPosition, endpoint: Endpoint, secret: Secret, job: J) -> Self {
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

    /// The line to write to the pipe, with its newline.
    ///
    /// Errors: longer than 4 MiB, or a path that is not UTF-8.
    pub fn to_line(&self) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self).map_err(|e| not_encoded(&e))?;
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
        // The version is checked first: the handoff of another version may not decode, and the error message would be wrong.
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let broken = |e| Error::internal(format!("the supervisor's handoff can't be decoded: {e}"));
        let version = serde_json::from_slice::<Version>(line).map_err(broken)?.version;
        if version != VERSION {
            let what = format!("this worker is ddp-run {VERSION}, its supervisor is {version}");
            return Err(
                Error::internal(what).hint("the program was replaced during the run; start the run again")
            );
        }
        serde_json::from_slice(line).map_err(broken)
    }

    /// Reads the handoff from standard input, takes over the listener, and starts the thread that ends this process
    /// when the supervisor is gone (after `orphaned`) and that notifies `stop` when the run is taken down. Call it once,
    /// before anything else, in a process that a supervisor has started.
    ///
    /// Errors: standard input is not a handoff (someone typed the command: `by_hand`), or comes from another version.
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
                if received_take_down(&mut io::stdin().lock()) {
                    stop.take_down();
                    // No more is expected; any that comes is ignored.
                    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
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

pub(super) fn not_encoded(e: &serde_json::Error) -> Error {
    Error::usage(format!("cannot encode the job for a worker process: {e}"))
}

/// Reads one line of at most [`MAX_BYTES`]; `None` at end-of-file without any data.
fn read_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input
        .take(MAX_BYTES as u64)
        .read_until(b'\n', &mut line)
        .map_err(|e| Error::internal(format!("cannot read the supervisor's handoff: {e}")))?;
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        None => Ok(None),
        Some(_) => Err(Error::internal("the supervisor's handoff is truncated or too long")),
    }
}

/// Waits for [`TAKE_DOWN`]; `false` if the other end is closed before the word is complete.
fn received_take_down(input: &mut impl Read) -> bool {
    let mut word = [0; TAKE_DOWN.len()];
    input.read_exact(&mut word).is_ok() && word == *TAKE_DOWN
}

/// Exits without destructors and exit handlers, which may wait for threads that wait for peers. On Linux the kernel's
/// parent-death signal usually arrives first.
fn end_orphan() -> ! {
    base::status::flush();
    signal_hook::low_level::exit(ExitCode::WorkerFailed as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handoff() -> Handoff<String> {
        let endpoint = Endpoint::Connect { host: "127.0.0.1".into(), port: 4711 };
        let job = "name = \"x\"\n# \u{2028} ü\n".to_owned();
        Handoff::new(RankPosition::on_one_node(1, 2), endpoint, Secret::generate().expect("random"), job)
    }

    #[test]
    fn survives_the_pipe_as_one_line() {
        let sent = handoff();
        let line = sent.to_line().expect("encode");
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let mut input = &line[..];
        let line = read_line(&mut input).expect("read").expect("a line");
        let got = Handoff::from_line(&line).expect("decode");
        assert_eq!(got, sent);
    }

    #[test]
    fn debug_output_does_not_show_the_secret() {
        let handoff = handoff();
        assert!(!format!("{handoff:?}").contains(&*handoff.secret.to_hex()));
    }

    #[test]
    fn a_take_down_is_distinguished_from_the_end_of_the_pipe() {
        assert!(received_take_down(&mut &b"take-down\n"[..]));
        assert!(!received_take_down(&mut &b"take-"[..]));
        assert!(!received_take_down(&mut io::empty()));
    }

    #[test]
    fn rejects_invalid_handoffs() {
        assert!(read_line(&mut &b""[..]).expect("read").is_none());
        assert!(read_line(&mut &b"{\"version\""[..]).expect_err("cut").message.contains("truncated"));
        let long = vec![b'x'; MAX_BYTES + 10];
        assert!(read_line(&mut &long[..]).expect_err("long").message.contains("too long"));
        assert!(Handoff::<String>::from_line(b"[]").is_err());
        let other =
            Handoff::<String>::from_line(b"{\"version\":\"0.0.0-other\",\"new\":1}").expect_err("version");
        assert!(other.message.contains("0.0.0-other"), "{other}");
        let mut big = handoff();
        big.job = "x".repeat(MAX_BYTES);
        assert_eq!(big.to_line().expect_err("too long").kind, base::error::ErrorKind::Spec);
    }
}
