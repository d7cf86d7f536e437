//! The state of one call at a time: its deadline, and its header on every link that it uses. Algorithms are built on
//! `try_send`, `try_recv` and the waits in `wait`.

use super::header::Header;
use super::link::{LinkRead, PeerLink};
use super::shared::GlooShared;
use super::shm::Arena;
use super::wire::Wire;
use crate::execute::{self, SequenceNumbers, Shared as _};
use crate::probe::Probe;
use crate::{CommError, CommErrorKind, StepPhase, messages};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a call with a broken data connection waits for the control connection to say why.
const CAUSE_WAIT: Duration = Duration::from_millis(500);

pub(super) struct Engine {
    pub me: usize,
    pub world: usize,
    pub links: Vec<Option<PeerLink>>,
    pub shared: Arc<GlooShared>,
    /// The current call, or the last one.
    pub header: Header,
    pub deadline: Option<Instant>,
    /// How long the current call may wait, for messages.
    pub time_limit: Duration,
    pub probe: Option<Probe>,
    /// The last question how many calls the peers have made on their devices.
    pub progress: Option<Probe<(u64, StepPhase)>>,
    /// Tests: this many answers end the wait for them, however long they take. By default, only time does.
    pub answers: Option<usize>,
    /// Set between calls: a probe that arrives then is answered in the next call.
    pub idle: bool,
    pub numbers: SequenceNumbers,
    /// Calls announced and chunks moved so far in the memory of this host: equal on all of its ranks.
    pub round: u64,
    pub chunk: u64,
    /// Whether this host has a processor for each of its ranks.
    pub processor_per_rank: bool,
    /// Number of polls of the connections.
    #[cfg(test)]
    pub polls: usize,
    /// Memory of algorithms, kept between calls: whole messages, and the blocks of a stream (aligned for any type).
    pub work: Vec<u64>,
    pub stage: Vec<u64>,
}

impl execute::Engine for Engine {
    type Shared = GlooShared;

    fn shared(&self) -> &Arc<GlooShared> {
        &self.shared
    }

    fn numbers(&mut self) -> &mut SequenceNumbers {
        &mut self.numbers
    }

    fn begin(&mut self, header: Header, time_limit: Option<Duration>) -> Result<(), CommError> {
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        self.header = header;
        self.deadline = time_limit.and_then(|p| Instant::now().checked_add(p));
        self.time_limit = time_limit.unwrap_or_default();
        self.probe = None;
        self.shared.open_ended.store(time_limit.is_none(), Ordering::Relaxed);
        self.links.iter_mut().flatten().for_each(PeerLink::begin);
        self.shared.calls.started(header);
        self.answer_pending_probes();
        // In shared memory, a rank that has to wait reads all control messages but failures soon enough.
        if !self.all_in_memory() || self.shared.arena().is_some_and(|arena| arena.has_failures()) {
            self.poll_once(None, None, Some(Instant::now()), false)?;
        }
        // Headers of ranks that were ahead are parked until their call; that may be this one, even if it needs nothing from them.
        self.peers().try_for_each(|peer| self.check_header(peer))
    }
}

impl Engine {
    pub(super) fn new(
        me: usize,
        links: Vec<Option<PeerLink>>,
        shared: Arc<GlooShared>,
        header: Header,
    ) -> Self {
        let world = links.len();
        Self {
            me,
            world,
            links,
            shared,
            header,
            deadline: None,
            time_limit: Duration::ZERO,
            probe: None,
            progress: None,
            answers: None,
            idle: false,
            numbers: SequenceNumbers::new(world),
            round: 0,
            chunk: 0,
            processor_per_rank: false,
            #[cfg(test)]
            polls: 0,
            work: Vec::new(),
            stage: Vec::new(),
        }
    }

    pub(super) fn link(&mut self, peer: usize) -> Result<&mut PeerLink, CommError> {
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

    /// Whether all ranks are on this host and share its memory.
    pub(super) fn all_in_memory(&self) -> bool {
        self.shared.arena().is_some_and(|arena| arena.ranks() == self.world)
    }

    /// Switches the links between the ranks of this host to shared memory.
    pub(super) fn move_into(&mut self, arena: Arena) {
        for local in arena.others() {
            if let Some(link) = &mut self.links[arena.members[local]] {
                link.wire = Wire::memory(self.shared.clone(), local);
                link.data_closed = false;
            }
        }
        self.shared.set_arena(arena);
    }

    pub(super) fn is_in_memory(&self, peer: usize) -> bool {
        self.links.get(peer).and_then(Option::as_ref).is_some_and(|l| l.wire.is_memory())
    }

    pub(super) fn fail(&self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        self.shared.fail(kind, culprit, cause)
    }

    /// Sends the header, if it has not been sent, and as much of `payload` as there is room for; does not block.
    /// Returns the number of payload bytes sent, None if there was no room.
    pub(super) fn try_send(&mut self, peer: usize, payload: &[u8]) -> Result<Option<usize>, CommError> {
        let header = self.header;
        match self.link(peer)?.send(&header, payload) {
            Ok(sent) => Ok(sent),
            Err(e) => Err(self.connection_lost(peer, &e.to_string())),
        }
    }

    /// Reads the peer's header, if it is not accepted yet, and the payload that has arrived; does not block. None if
    /// nothing has arrived.
    pub(super) fn try_recv(&mut self, peer: usize, payload: &mut [u8]) -> Result<Option<usize>, CommError> {
        let link = self.link(peer)?;
        // A parked header is checked before anything after it is read.
        if !link.matched && link.parked().is_some() {
            self.accept(peer)?;
            return self.try_recv(peer, payload);
        }
        match link.recv(payload) {
            Ok(LinkRead::WouldBlock) => Ok(None),
            Ok(LinkRead::Bytes(n)) => {
                if !link.matched && link.parked().is_some() {
                    self.accept(peer)?;
                }
                Ok(Some(n))
            }
            Ok(LinkRead::Closed) => Err(self.connection_lost(peer, "connection closed")),
            Ok(LinkRead::Invalid) => Err(self.invalid_message(peer)),
            Err(e) => Err(self.connection_lost(peer, &e.to_string())),
        }
    }

    /// The data connection to `peer` is gone. Its control connection says whether the peer died, failed because of
    /// another rank, or left in order, and so which rank to blame.
    fn connection_lost(&mut self, peer: usize, what: &str) -> CommError {
        let until = Instant::now() + CAUSE_WAIT;
        while let Ok(link) = self.link(peer) {
            link.data_closed = true;
            if link.departed {
                return self.departed_error(peer);
            }
            match self.poll_once(None, None, Some(until), false) {
                Ok(_) if Instant::now() < until => {}
                Ok(_) => break,
                Err(e) => return e,
            }
        }
        self.fail(CommErrorKind::PeerLost, Some(peer), &messages::disconnected(peer, what, self.me))
    }

    /// A rank that has said goodbye is still needed.
    pub(super) fn departed_error(&self, peer: usize) -> CommError {
        self.fail(CommErrorKind::PeerLost, Some(peer), &messages::left(peer, self.me))
    }
}
