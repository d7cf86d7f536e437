//! One call at a time: its deadline, its header on every connection that it uses, and the wait for sockets in
//! which all news from peers is heard. Algorithms are written on top of `try_send`, `try_recv` and `wait`.
//!
//! While a call waits it watches every connection, not only the ones that it needs: a header of another call on
//! any of them, a failure reported by anyone, a connection that closes, each ends the call at once.

use super::header::Header;
use super::link::{Got, Link};
use super::probe::Probe;
use super::shared::Shared;
use crate::comm::rendezvous::poll_until;
use crate::comm::{CommError, CommErrorKind};
use rustix::event::{PollFd, PollFlags};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a broken data connection waits for the control connection to say why.
const VERDICT: Duration = Duration::from_millis(500);
/// Two ranks that call at the same moment meet within this; longer waits are left to the kernel.
const SPIN: Duration = Duration::from_micros(5);

pub(super) struct Engine {
    pub me: usize,
    pub world: usize,
    pub links: Vec<Option<Link>>,
    pub shared: Arc<Shared>,
    /// The current call, or the last.
    pub header: Header,
    pub deadline: Option<Instant>,
    /// How long the current call may wait, for messages.
    pub patience: Duration,
    pub probe: Option<Probe>,
    pub sequence: u64,
    /// Memory of algorithms, kept between calls: whole messages, and the blocks of a stream (aligned for any type).
    pub work: Vec<u64>,
    pub stage: Vec<u64>,
}

/// What `poll` watches.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Wake,
    Control(usize),
    Data(usize),
}

impl Engine {
    pub(super) fn new(me: usize, links: Vec<Option<Link>>, shared: Arc<Shared>, header: Header) -> Self {
        Self {
            me,
            world: links.len(),
            links,
            shared,
            header,
            deadline: None,
            patience: Duration::ZERO,
            probe: None,
            sequence: 0,
            work: Vec::new(),
            stage: Vec::new(),
        }
    }

    /// The sequence number of the group call that begins.
    pub(super) fn count_call(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The sequence number of the send or recv that begins.
    pub(super) fn count_pairwise(
        &mut self,
        peer: usize,
        counter: impl FnOnce(&mut Link) -> &mut u64,
    ) -> Result<u64, CommError> {
        let counter = counter(self.link(peer)?);
        *counter += 1;
        Ok(*counter)
    }

    pub(super) fn link(&mut self, peer: usize) -> Result<&mut Link, CommError> {
        let me = self.me;
        match self.links.get_mut(peer).and_then(Option::as_mut) {
            Some(link) => Ok(link),
            None => {
                let message = format!("rank {me} has no connection to rank {peer}");
                Err(CommError::new(CommErrorKind::Misuse, Some(peer), message))
            }
        }
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.world).filter(move |p| *p != me)
    }

    pub(super) fn fail(&self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        self.shared.fail(kind, culprit, cause)
    }

    /// Starts a call: forgets the last one's state and hears what has come in the meantime.
    pub(super) fn begin(&mut self, header: Header, patience: Option<Duration>) -> Result<(), CommError> {
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        self.header = header;
        self.deadline = patience.and_then(|p| Instant::now().checked_add(p));
        self.patience = patience.unwrap_or_default();
        self.probe = None;
        self.links.iter_mut().flatten().for_each(Link::begin);
        self.shared.started(header);
        self.poll_once(None, None, Some(Instant::now()), false)?;
        // Headers of ranks that were ahead wait here for their call; it may be this one, and need nothing of them.
        self.peers().try_for_each(|peer| self.judge(peer))
    }

    /// Sends the header, if it is not out, and what there is room for of `payload`; never waits. Returns the
    /// payload bytes sent, None if there was no room.
    pub(super) fn try_send(&mut self, peer: usize, payload: &[u8]) -> Result<Option<usize>, CommError> {
        let header = self.header;
        match self.link(peer)?.send(&header, payload) {
            Ok(sent) => Ok(sent),
            Err(e) => Err(self.lost(peer, &e.to_string())),
        }
    }

    /// Reads the peer's header, if it is not accepted yet, and what has come of the payload; never waits. None if
    /// nothing had come.
    pub(super) fn try_recv(&mut self, peer: usize, payload: &mut [u8]) -> Result<Option<usize>, CommError> {
        let link = self.link(peer)?;
        // A parked header is judged before anything behind it is touched.
        if !link.matched && link.parked().is_some() {
            self.accept(peer)?;
            return self.try_recv(peer, payload);
        }
        match link.recv(payload) {
            Ok(Got::WouldBlock) => Ok(None),
            Ok(Got::Bytes(n)) => {
                if !link.matched && link.parked().is_some() {
                    self.accept(peer)?;
                }
                Ok(Some(n))
            }
            Ok(Got::Closed) => Err(self.lost(peer, "connection closed")),
            Ok(Got::Garbage) => Err(self.garbage(peer)),
            Err(e) => Err(self.lost(peer, &e.to_string())),
        }
    }

    /// The data connection to `peer` is gone. Its control connection knows whether it died, failed because of
    /// somebody else, or went in peace; that tells whom to blame.
    fn lost(&mut self, peer: usize, what: &str) -> CommError {
        let until = Instant::now() + VERDICT;
        while let Ok(link) = self.link(peer) {
            link.data_closed = true;
            if link.departed {
                let cause = format!("rank {peer} has left the group, but rank {} still needs it", self.me);
                return self.fail(CommErrorKind::PeerLost, Some(peer), &cause);
            }
            match self.poll_once(None, None, Some(until), false) {
                Ok(_) if Instant::now() < until => {}
                Ok(_) => break,
                Err(e) => return e,
            }
        }
        let cause = format!("rank {peer} is gone: {what} (seen by rank {})", self.me);
        self.fail(CommErrorKind::PeerLost, Some(peer), &cause)
    }

    /// Sleeps until the data connection to `send_to` has room, or the one to `recv_from` has bytes.
    pub(super) fn wait(&mut self, send_to: Option<usize>, recv_from: Option<usize>) -> Result<(), CommError> {
        loop {
            let until = self.probe.as_ref().map(|p| p.until).or(self.deadline);
            if self.poll_once(send_to, recv_from, until, true)? {
                return Ok(());
            }
            if until.is_some_and(|u| Instant::now() >= u) {
                self.overdue(send_to.into_iter().chain(recv_from).collect())?;
            }
        }
    }

    /// A few microseconds of attempts before the kernel is asked to wake us.
    pub(super) fn spin(&self, since: &mut Option<Instant>) -> bool {
        let start = since.get_or_insert_with(Instant::now);
        std::hint::spin_loop();
        start.elapsed() < SPIN
    }

    /// One `poll(2)`, and everything that it brings. True when a wanted data connection is ready.
    fn poll_once(
        &mut self,
        send_to: Option<usize>,
        recv_from: Option<usize>,
        until: Option<Instant>,
        data: bool,
    ) -> Result<bool, CommError> {
        let mut sources = vec![Source::Wake];
        let mut fds = vec![PollFd::new(self.shared.wake_end(), PollFlags::IN)];
        for (peer, link) in self.links.iter().enumerate() {
            let (Some(link), Some(control)) = (link, &self.shared.control[peer]) else { continue };
            if !link.control_closed {
                sources.push(Source::Control(peer));
                fds.push(PollFd::new(&control.stream, PollFlags::IN));
            }
            let mut flags = PollFlags::empty();
            let idle = !link.reading && !link.data_closed && link.parked().is_none();
            flags.set(PollFlags::IN, recv_from == Some(peer) || idle);
            flags.set(PollFlags::OUT, send_to == Some(peer));
            // A socket that nothing is wanted of would still report its end, again and again.
            if data && !flags.is_empty() {
                sources.push(Source::Data(peer));
                fds.push(PollFd::new(&link.data, flags));
            }
        }
        match poll_until(&mut fds, until) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) => {
                let cause = format!("rank {} cannot wait for its connections: {e}", self.me);
                return Err(self.fail(CommErrorKind::Aborted, Some(self.me), &cause));
            }
        }
        let events: Vec<(Source, PollFlags)> =
            sources.into_iter().zip(fds.iter().map(|f| f.revents())).filter(|(_, e)| !e.is_empty()).collect();
        drop(fds);
        self.handle(&events, send_to, recv_from)
    }

    /// Control first: it knows best why a data connection has ended.
    fn handle(
        &mut self,
        events: &[(Source, PollFlags)],
        send_to: Option<usize>,
        recv_from: Option<usize>,
    ) -> Result<bool, CommError> {
        let mut ready = false;
        for (source, _) in events {
            match source {
                Source::Wake => return Err(self.shared.failure().unwrap_or_else(|| self.garbage(self.me))),
                Source::Control(peer) => self.hear(*peer)?,
                Source::Data(_) => {}
            }
        }
        for (source, flags) in events {
            let Source::Data(peer) = *source else { continue };
            let end = flags.intersects(PollFlags::ERR | PollFlags::HUP);
            let wanted = send_to == Some(peer) && (end || flags.contains(PollFlags::OUT))
                || recv_from == Some(peer) && (end || flags.contains(PollFlags::IN));
            match wanted {
                true => ready = true,
                false => self.overhear(peer)?,
            }
        }
        Ok(ready)
    }
}
