//! The listening side of the handshake. An [`Acceptor`] takes all connections, gives each a short time to prove the
//! run's secret, and returns those that do, with the `Join` that they sent. One thread serves all of them without
//! blocking. An unauthenticated connection costs one descriptor and two kilobytes; their number is limited (the
//! oldest is dropped for a new one), and none delays another.

use super::accept_error::{AcceptError, classify};
use super::auth::{HandshakeRole, NONCE, PROOF, nonce};
use super::io::{StreamError, poll_until};
use super::secret::Secret;
use super::wire::{self, Join, LENGTH, MAX_JOIN, Message, WireError};
use crate::CommError;
use rustix::event::{PollFd, PollFlags};
use std::collections::{HashSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Sent first on every connection, by the listener and the connector alike.
pub(super) const MAGIC: [u8; 8] = *b"DDPRUN\x01\n";
/// Magic and nonce. The connector's is followed by its proof.
pub(super) const HELLO: usize = MAGIC.len() + NONCE;
/// The listener's answer to a proof: one of these; `PROVED` is followed by its own proof.
pub(super) const PROVED: u8 = 1;
pub(super) const NOT_PROVED: u8 = 0;

/// Why a peer without the run's secret is rejected.
const NO_SECRET: &str = "it does not have the run's secret";
/// The kind of rejection of a peer that has the secret.
pub(super) const FOREIGN: &str = "foreign";

/// Maximum number of unauthenticated connections at a time.
const MAX_PENDING: usize = 128;
/// Time limit from accept to `Join`.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Pause after descriptors or memory have run out: others may release some.
const RESOURCE_PAUSE: Duration = Duration::from_millis(20);
const BUFFER: usize = if HELLO + PROOF > MAX_JOIN { HELLO + PROOF } else { MAX_JOIN };

pub(super) type JoinResult = Result<Join, OtherProtocol>;

/// A peer sent a `Join` of this version of the protocol.
pub(super) struct OtherProtocol(pub u32);

pub(super) enum AcceptEvent {
    /// A peer that has proved the secret, and what it sent.
    Joined(TcpStream, SocketAddr, JoinResult),
    /// The watched socket with this index has something to read, or is closed.
    Watched(usize),
    Deadline,
}

enum HandshakeStage {
    Proof,
    Length,
    Join,
}

struct PendingConnection {
    stream: TcpStream,
    address: SocketAddr,
    nonce: [u8; NONCE],
    until: Instant,
    stage: HandshakeStage,
    buffer: [u8; BUFFER],
    filled: usize,
    need: usize,
}

pub(super) struct Acceptor {
    listeners: Vec<TcpListener>,
    secret: Secret,
    /// Oldest first.
    pending: VecDeque<PendingConnection>,
    warned: HashSet<&'static str>,
    /// The last connection of another run's process, and why it was rejected.
    rejection: Option<String>,
    /// No connection is accepted before this time: the system was short of a resource.
    resume: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(listeners: Vec<TcpListener>, secret: Secret) -> Result<Self, CommError> {
        listeners.iter().try_for_each(|l| l.set_nonblocking(true)).map_err(listener_failed)?;
        Ok(Self {
            listeners,
            secret,
            pending: VecDeque::new(),
            warned: HashSet::new(),
            rejection: None,
            resume: None,
        })
    }

    /// The next peer that proves the secret, or an event on a watched socket.
    pub(super) fn next(&mut self, watch: &[&TcpStream], deadline: Instant) -> Result<AcceptEvent, CommError> {
        loop {
            self.resume = self.resume.filter(|r| *r > Instant::now());
            let until = self.pending.front().map_or(deadline, |p| p.until.min(deadline));
            let until = self.resume.map_or(until, |r| r.min(until));
            let interest = if self.resume.is_some() { PollFlags::empty() } else { PollFlags::IN };
            let mut fds: Vec<PollFd<'_>> = watch.iter().map(|w| PollFd::new(w, PollFlags::IN)).collect();
            fds.extend(self.listeners.iter().map(|l| PollFd::new(l, interest)));
            fds.extend(self.pending.iter().map(|p| PollFd::new(&p.stream, PollFlags::IN)));
            poll_until(&mut fds, Some(until)).map_err(listener_failed)?;
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if let Some(index) = ready[..watch.len()].iter().position(|r| *r) {
                return Ok(AcceptEvent::Watched(index));
            }
            let (incoming, ready) = ready[watch.len()..].split_at(self.listeners.len());
            if let Some(joined) = self.progress(ready) {
                return Ok(joined);
            }
            self.expire();
            for (listener, _) in incoming.iter().enumerate().filter(|(_, incoming)| **incoming) {
                self.accept(listener)?;
            }
            if Instant::now() >= deadline {
                return Ok(AcceptEvent::Deadline);
            }
        }
    }

    /// Accepts all waiting connections, up to a limit, so that handshakes in progress get their turn.
    fn accept(&mut self, listener: usize) -> Result<(), CommError> {
        for _ in 0..MAX_PENDING / 2 {
            let (stream, address) = match self.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => match classify(&e) {
                    AcceptError::Connection => continue,
                    AcceptError::Resources => {
                        self.pending.pop_front();
                        if self.warned.insert("short") {
                            tracing::warn!(
                                "rendezvous: no file descriptor or memory for another connection ({e}); retrying"
                            );
                        }
                        self.resume = Some(Instant::now() + RESOURCE_PAUSE);
                        return Ok(());
                    }
                    AcceptError::Listener => return Err(listener_failed(e)),
                },
            };
            let nonce = nonce()?;
            let hello = [&MAGIC[..], &nonce[..]].concat();
            if stream.set_nonblocking(true).is_err() || !matches!((&stream).write(&hello), Ok(HELLO)) {
                continue;
            }
            if self.pending.len() >= MAX_PENDING {
                let oldest = self.pending.pop_front();
                self.warn(
                    "crowd",
                    oldest.map(|p| p.address),
                    "too many connections have not authenticated yet",
                );
            }
            self.pending.push_back(PendingConnection {
                stream,
                address,
                nonce,
                until: Instant::now() + HANDSHAKE,
                stage: HandshakeStage::Proof,
                buffer: [0; BUFFER],
                filled: 0,
                need: HELLO + PROOF,
            });
        }
        Ok(())
    }

    /// Advances the connections that are ready; returns the first that completes.
    fn progress(&mut self, ready: &[bool]) -> Option<AcceptEvent> {
        // Back to front, so that a removal does not shift connections that are still to be visited.
        for index in (0..ready.len()).rev().filter(|i| ready[*i]) {
            match self.pending[index].advance(&self.secret) {
                Ok(None) => {}
                Ok(Some(joined)) => {
                    let p = self.pending.remove(index)?;
                    return Some(AcceptEvent::Joined(p.stream, p.address, joined));
                }
                Err(why) => {
                    let address = self.pending.remove(index).map(|p| p.address);
                    self.warn(why, address, why);
                }
            }
        }
        None
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(p) = self.pending.pop_front_if(|p| p.until <= now) {
            self.warn("idle", Some(p.address), "it did not authenticate in time");
        }
    }

    /// Warns once per kind: a peer that sends garbage must not be able to fill the log.
    pub(super) fn warn(&mut self, kind: &'static str, address: Option<SocketAddr>, why: &str) {
        let from = address.map_or_else(|| "an unknown address".to_owned(), |a| a.to_string());
        if [NO_SECRET, FOREIGN].contains(&kind) {
            self.rejection = Some(format!("a connection from {from} was rejected: {why}"));
        }
        if self.warned.insert(kind) {
            tracing::warn!(
                "rendezvous: rejected a connection from {from}: {why} (further rejections for this reason are not logged)"
            );
        }
    }

    /// The last connection that was rejected, and why, if it may be the one that is missing.
    pub(super) fn rejection(&self) -> Option<&str> {
        self.rejection.as_deref()
    }

    /// Whether a connection was refused for `kind`.
    #[cfg(test)]
    pub(super) fn has_warned(&self, kind: &str) -> bool {
        self.warned.contains(kind)
    }
}

fn listener_failed(e: std::io::Error) -> CommError {
    CommError::rendezvous(format!("rendezvous: cannot accept connections: {e}"))
}

impl PendingConnection {
    /// Reads what has arrived: a complete `Join` at last. An error is the reason to close the connection.
    fn advance(&mut self, secret: &Secret) -> Result<Option<JoinResult>, &'static str> {
        loop {
            if self.filled < self.need {
                match (&self.stream).read(&mut self.buffer[self.filled..self.need]) {
                    Ok(0) => return Err("it closed the connection before it authenticated"),
                    Ok(n) => self.filled += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return Err("the connection failed before it authenticated"),
                }
                if !self.buffer.starts_with(&MAGIC[..self.filled.min(MAGIC.len())])
                    && matches!(self.stage, HandshakeStage::Proof)
                {
                    return Err("it does not use ddp-run's protocol");
                }
                continue;
            }
            match self.stage {
                HandshakeStage::Proof => self.check_proof(secret)?,
                HandshakeStage::Length => {
                    let length =
                        u32::from_le_bytes([self.buffer[0], self.buffer[1], self.buffer[2], self.buffer[3]]);
                    if length as usize > MAX_JOIN {
                        return Err("it announced a message that exceeds the limit");
                    }
                    self.expect(HandshakeStage::Join, length as usize);
                }
                HandshakeStage::Join => {
                    return match wire::decode(&self.buffer[..self.need]) {
                        Ok(Message::Join(join)) => Ok(Some(Ok(join))),
                        Err(WireError::Protocol(theirs)) => Ok(Some(Err(OtherProtocol(theirs)))),
                        _ => Err("it did not send a join request"),
                    };
                }
            }
        }
    }

    fn expect(&mut self, stage: HandshakeStage, need: usize) {
        self.stage = stage;
        self.need = need;
        self.filled = 0;
    }

    fn check_proof(&mut self, secret: &Secret) -> Result<(), &'static str> {
        let (hello, proof) = self.buffer[..HELLO + PROOF].split_at(HELLO);
        let Some(theirs) = hello.last_chunk::<NONCE>() else { return Err("it sent an incomplete hello") };
        if !secret.verify(HandshakeRole::Connector, &self.nonce, theirs, proof) {
            let _ = (&self.stream).write(&[NOT_PROVED]);
            return Err(NO_SECRET);
        }
        let mut answer = [PROVED; 1 + PROOF];
        answer[1..].copy_from_slice(&secret.prove(HandshakeRole::Listener, &self.nonce, theirs));
        match (&self.stream).write(&answer) {
            Ok(n) if n == answer.len() => {}
            _ => return Err("the connection failed"),
        }
        self.expect(HandshakeStage::Length, LENGTH);
        Ok(())
    }
}

/// The connecting side: proves the secret on `stream`, and checks the listener's proof.
pub(super) fn authenticate(
    stream: &TcpStream,
    secret: &Secret,
    watch: &[&TcpStream],
    deadline: Instant,
) -> Result<(), ProofError> {
    let mut hello = [0; HELLO];
    super::io::read_by(stream, &mut hello, watch, deadline)?;
    let theirs = match (hello.starts_with(&MAGIC), hello.last_chunk::<NONCE>()) {
        (true, Some(theirs)) => theirs,
        _ => return Err(ProofError::NotDdpRun),
    };
    let ours = nonce().map_err(|e| ProofError::Stream(StreamError::Io(std::io::Error::other(e))))?;
    let proof = secret.prove(HandshakeRole::Connector, theirs, &ours);
    super::io::write_by(stream, &[&MAGIC[..], &ours[..], &proof[..]].concat(), deadline)?;
    let mut verdict = [NOT_PROVED];
    super::io::read_by(stream, &mut verdict, watch, deadline)?;
    if verdict != [PROVED] {
        return Err(ProofError::Refused);
    }
    let mut proof = [0; PROOF];
    super::io::read_by(stream, &mut proof, watch, deadline)?;
    match secret.verify(HandshakeRole::Listener, theirs, &ours, &proof) {
        true => Ok(()),
        false => Err(ProofError::WrongSecret),
    }
}

pub(super) enum ProofError {
    Stream(StreamError),
    /// What answers there is not ddp-run.
    NotDdpRun,
    /// The listener reports that this side's proof is wrong.
    Refused,
    /// The listener's own proof is wrong.
    WrongSecret,
}

impl From<StreamError> for ProofError {
    fn from(t: StreamError) -> Self {
        ProofError::Stream(t)
    }
}
