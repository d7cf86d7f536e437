//! The connecting side: retries until an attempt succeeds, the deadline passes, or another attempt would be pointless.

use super::accept::{ProofError, authenticate};
use super::io::{StreamError, poll_until, read_message, write_by};
use super::ports::{PortSearch, Ports};
use super::wire::{self, MAX_REPORT, Message};
use super::{CommError, Secret, file};
use rustix::event::{PollFd, PollFlags};
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Timeout of one TCP connect, so that a dropped SYN does not use up the whole time.
const CONNECT: Duration = Duration::from_secs(3);
/// The same for an attempt that begins at the deadline: the message then tells what is wrong there.
const LEAST: Duration = Duration::from_millis(1);
/// How long before the deadline a side without a way to the other gives up.
const EARLIER: Duration = Duration::from_secs(5);
/// Timeout of one attempt, from the connection to the other side's proof; the other side allows the connector 5 s for
/// its part. A live process answers in milliseconds. A listener that does not respond for longer than both is the wrong one (a
/// stopped process, a host that vanished), or is not ready yet and loses nothing by another attempt.
pub const ATTEMPT: Duration = Duration::from_secs(10);
/// The same for one candidate of several ports, which may belong to any program.
const CANDIDATE: Duration = Duration::from_secs(2);

/// Where the other side listens.
#[derive(Clone, Debug)]
pub enum Target {
    /// `host:port`.
    At(String),
    /// The address in this file, read at each attempt.
    File(PathBuf),
    /// A host, and how to find the port.
    Agreed(String, Ports),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::At(address) => f.write_str(address),
            Target::File(path) => write!(f, "the address in {}", path.display()),
            Target::Agreed(host, ports) if ports.store.is_none() => write!(f, "{host}, {ports}"),
            Target::Agreed(_, ports) => write!(f, "{ports}"),
        }
    }
}

pub(super) struct Dial<'a> {
    pub target: &'a Target,
    /// The name of the other side in messages.
    pub peer: &'a str,
    /// The name of this side in messages: `rank 3`.
    pub me: &'a str,
    pub secret: &'a Secret,
    /// The connection to rank 0, once there is one: it reports when the rendezvous has failed elsewhere.
    pub watch: &'a [&'a TcpStream],
    /// How long a listener may not respond before the next attempt; None: until the deadline.
    pub attempt: Option<Duration>,
    pub deadline: Instant,
    /// The deadline in messages: `before init_timeout`.
    pub by_when: &'a str,
}

pub(super) enum DialError {
    /// The watched connection has something to read, or is closed.
    Watched,
    Failed(CommError),
    /// This machine has no way to the other side.
    Unreachable(CommError),
}

/// Whether the other side is at an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressCertainty {
    Sure,
    /// Another program may listen there.
    Guessed,
}

enum AttemptError {
    /// Worth another attempt.
    Retry(String),
    /// The same; this machine has no way to the other side, or does not know its address.
    Unreachable(String),
    Watched,
    Fatal(String),
}

impl From<StreamError> for AttemptError {
    fn from(t: StreamError) -> Self {
        match t {
            StreamError::Watched => AttemptError::Watched,
            other => AttemptError::Retry(other.to_string()),
        }
    }
}

impl Dial<'_> {
    /// Connects, proves the secret and sends `join`, which is built from the connection's own address. With `answer`,
    /// also waits until the other side has accepted it.
    pub(super) fn run(
        &self,
        answer: bool,
        mut join: impl FnMut(&TcpStream) -> Result<Vec<u8>, CommError>,
    ) -> Result<TcpStream, DialError> {
        let (mut pause, mut last) = (FIRST_PAUSE, String::new());
        // The side that waits knows no more than that nobody came: what is wrong here is reported before it gives up.
        let left = self.deadline.saturating_duration_since(Instant::now());
        let early = self.deadline - (left / 10).min(EARLIER);
        let mut search = PortSearch::default();
        loop {
            match self.attempt(answer, &mut search, &mut join) {
                Ok(stream) => return Ok(stream),
                Err(AttemptError::Watched) => return Err(DialError::Watched),
                Err(AttemptError::Fatal(why)) => return Err(DialError::Failed(CommError::rendezvous(why))),
                Err(AttemptError::Unreachable(why)) if Instant::now() >= early => {
                    return Err(DialError::Unreachable(self.unreached(&why)));
                }
                Err(AttemptError::Unreachable(why)) => last = why,
                // An attempt cut short by the deadline knows less about the other side than the one before.
                Err(AttemptError::Retry(why)) if last.is_empty() || Instant::now() < self.deadline => {
                    last = why
                }
                Err(AttemptError::Retry(_)) => {}
            }
            if search.goes_on() && Instant::now() < self.deadline {
                continue;
            }
            let mut fds: Vec<PollFd<'_>> = self.watch.iter().map(|w| PollFd::new(w, PollFlags::IN)).collect();
            let next = Instant::now() + pause;
            let until = if Instant::now() < early { next.min(early) } else { next.min(self.deadline) };
            if poll_until(&mut fds, Some(until)).unwrap_or(false) {
                return Err(DialError::Watched);
            }
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            if Instant::now() >= self.deadline {
                return Err(DialError::Failed(self.unreached(&last)));
            }
        }
    }

    fn unreached(&self, why: &str) -> CommError {
        let Self { me, peer, target, by_when, .. } = self;
        CommError::rendezvous(format!("{me} could not reach {peer} at {target} {by_when}: {why}"))
    }

    fn attempt(
        &self,
        answer: bool,
        search: &mut PortSearch,
        join: &mut impl FnMut(&TcpStream) -> Result<Vec<u8>, CommError>,
    ) -> Result<TcpStream, AttemptError> {
        let (address, known) = self.address(search)?;
        let stream = self.connect(&address)?;
        stream.set_nonblocking(true).map_err(|e| AttemptError::Retry(e.to_string()))?;
        stream.set_nodelay(true).map_err(|e| AttemptError::Retry(e.to_string()))?;
        let (me, peer) = (self.me, self.peer);
        let candidate = known == AddressCertainty::Guessed && matches!(self.target, Target::Agreed(..));
        let longest = if candidate { Some(CANDIDATE) } else { self.attempt };
        let until = longest.map_or(self.deadline, |a| (Instant::now() + a).min(self.deadline));
        authenticate(&stream, self.secret, self.watch, until).map_err(|e| match e {
            ProofError::Stream(StreamError::Deadline) => AttemptError::Retry(no_response(&stream)),
            ProofError::Stream(t) => t.into(),
            _ if known == AddressCertainty::Guessed => AttemptError::Retry(format!(
                "the process that listens at {address} does not have the run's secret"
            )),
            // Rank 0 may have left its port before it was restarted.
            ProofError::NotDdpRun if matches!(self.target, Target::Agreed(..)) => {
                AttemptError::Retry(format!("the process that listens at {address} is not ddp-run"))
            }
            ProofError::NotDdpRun => {
                AttemptError::Fatal(format!("{me} expected {peer} at {address}, but the process there is not ddp-run"))
            }
            ProofError::Refused => AttemptError::Fatal(format!(
                "{peer} at {address} rejected {me}'s proof of the run's secret: they were started with different \
                 secrets"
            )),
            ProofError::WrongSecret => AttemptError::Fatal(format!(
                "the process at {address} does not have the secret of {me}: it is not {peer} of this run"
            )),
        })?;
        write_by(&stream, &join(&stream).map_err(|e| AttemptError::Fatal(e.message))?, self.deadline)?;
        if answer {
            let bytes = read_message(&stream, MAX_REPORT, self.watch, self.deadline)?;
            match wire::decode(&bytes) {
                Ok(Message::Accepted) => {}
                Ok(Message::Refused(why)) => return Err(AttemptError::Fatal(why.to_owned())),
                Ok(Message::Outdated(why)) => return Err(AttemptError::Retry(why.to_owned())),
                _ => {
                    return Err(AttemptError::Fatal(format!(
                        "{peer} at {address} sent an unexpected message"
                    )));
                }
            }
        }
        Ok(stream)
    }

    /// The `host:port` of this attempt.
    fn address(&self, search: &mut PortSearch) -> Result<(String, AddressCertainty), AttemptError> {
        match self.target {
            Target::At(address) => Ok((address.clone(), AddressCertainty::Sure)),
            // It may be left over from another run.
            Target::File(path) => file::lookup(path)
                .map_err(|e| AttemptError::Retry(e.to_string()))?
                .map(|address| (address, AddressCertainty::Guessed))
                .ok_or_else(|| AttemptError::Retry("the file has no address yet".into())),
            Target::Agreed(host, ports) => {
                let (port, known) = search.next(ports, self.deadline).map_err(AttemptError::Retry)?;
                Ok((
                    format!("{host}:{port}"),
                    if known { AddressCertainty::Sure } else { AddressCertainty::Guessed },
                ))
            }
        }
    }

    fn connect(&self, target: &str) -> Result<TcpStream, AttemptError> {
        // A name may resolve only after its pod or node is up.
        let addresses = resolve(target, self.deadline)
            .map_err(|e| AttemptError::Unreachable(format!("cannot resolve `{target}`: {e}")))?;
        let mut last = "the name resolves to no address".to_owned();
        let mut unreachable = true;
        for (n, address) in addresses.into_iter().enumerate() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && n > 0 {
                break;
            }
            match TcpStream::connect_timeout(&address, left.clamp(LEAST, CONNECT)) {
                // A loopback port without a listener can connect to itself.
                Ok(s) if s.local_addr().ok() == s.peer_addr().ok() => {
                    unreachable = false;
                    last = "no process listens there".into();
                }
                Ok(stream) => return Ok(stream),
                Err(e) => {
                    let no_way = [ErrorKind::NetworkUnreachable, ErrorKind::HostUnreachable];
                    unreachable &= no_way.contains(&e.kind());
                    last = e.to_string();
                }
            }
        }
        Err(if unreachable { AttemptError::Unreachable(last) } else { AttemptError::Retry(last) })
    }
}

/// For a listener that accepted the connection, or whose system did.
fn no_response(stream: &TcpStream) -> String {
    match stream.peer_addr() {
        Ok(address) => format!("the listener at {address} does not respond"),
        Err(_) => "the listener there does not respond".into(),
    }
}

/// The system's resolver has no deadline, so a name is looked up on a thread that may outlast the deadline.
pub(super) fn resolve(target: &str, deadline: Instant) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = target.parse() {
        return Ok(vec![address]);
    }
    let (answer, found) = std::sync::mpsc::channel();
    let name = target.to_owned();
    let lookup = move || answer.send(name.to_socket_addrs().map(Vec::from_iter).map_err(|e| e.to_string()));
    std::thread::Builder::new().name("resolve".into()).spawn(lookup).map_err(|e| e.to_string())?;
    let left = deadline.saturating_duration_since(Instant::now());
    found.recv_timeout(left).unwrap_or_else(|_| Err("timed out".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_without_a_way_to_the_other_gives_up_before_the_deadline() {
        let secret = Secret::generate().unwrap();
        let target = &Target::At("no.such.host.invalid:1".into());
        let deadline = Instant::now() + Duration::from_secs(60);
        // The time until the deadline is that of a tenth, which has begun.
        let dial = |deadline| {
            let (peer, me, by_when) = ("rank 0", "rank 1", "in time");
            let dial =
                Dial { target, peer, me, secret: &secret, watch: &[], attempt: None, deadline, by_when };
            dial.run(false, |_| Ok(Vec::new()))
        };
        let Err(DialError::Unreachable(error)) = dial(Instant::now() + Duration::from_millis(200)) else {
            panic!("it is reached, or waits for the deadline")
        };
        assert!(error.message.contains("cannot resolve `no.such.host.invalid:1`"), "{error}");
        assert!(Instant::now() < deadline, "hangs");
    }

    #[test]
    fn names_and_addresses_are_resolved_and_invalid_ones_are_not() {
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(resolve("127.0.0.1:80", deadline), Ok(vec!["127.0.0.1:80".parse().unwrap()]));
        assert!(resolve("localhost:80", deadline).unwrap().iter().all(|a| a.ip().is_loopback()));
        assert!(resolve("no port", deadline).is_err());
    }
}
