//! The state of one call at a time: its deadline, the notice that opens it, and the wait for its operations.

use super::backoff::Backoff;
use super::control_messages::{ControlMessages, GracePeriods};
use super::init_thread::InitThread;
use super::library::{self, AlignedMemory, Library, MpiError, PendingOperation};
use crate::calls::CallLog;
use crate::execute::{self, Engine as _, SequenceNumbers, Shared as _};
use crate::header::{HEADER, Header};
use crate::probe::Probe;
use crate::{CommError, CommErrorKind, messages};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes that every rank sends to every other at the start of a group call: its header and, if it is small, its whole buffer.
pub(super) const NOTICE: usize = 256;
/// Offset of the buffer in the notice, aligned for every element type.
const PAYLOAD_AT: usize = 64;
pub(super) const PAYLOAD: usize = NOTICE - PAYLOAD_AT;
/// Tests of an operation between two checks for control messages.
const LOOKS: u32 = 8;
/// Maximum number of memory blocks that are kept for later calls.
const KEPT: usize = 8;

/// What the threads of a rank share: a call holds the engine while it waits, and these must not wait for the call.
pub(super) struct MpiShared {
    pub failed: OnceLock<GroupFailure>,
    pub calls: CallLog,
}

/// The end of the group: the error on this rank, and the cause as a text that fits all ranks.
pub(super) struct GroupFailure {
    pub error: CommError,
    pub cause: String,
}

pub(super) struct Engine {
    pub me: usize,
    pub world: usize,
    pub library: Library,
    pub init_thread: InitThread,
    pub shared: Arc<MpiShared>,
    pub control: ControlMessages,
    /// The current call, or the last one.
    pub header: Header,
    deadline: Option<Instant>,
    /// How long the current call may wait, for messages.
    pub time_limit: Duration,
    pub probe: Option<Probe>,
    pub grace_periods: GracePeriods,
    numbers: SequenceNumbers,
    pool: Vec<AlignedMemory>,
}

impl execute::Shared for MpiShared {
    fn calls(&self) -> &CallLog {
        &self.calls
    }
    /// The engine informs the other ranks when it runs next, at the latest when the group is dropped.
    fn fail(&self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        let failed =
            || GroupFailure { error: self.calls.error(kind, culprit, cause), cause: cause.to_owned() };
        self.failed.get_or_init(failed).error.clone()
    }
}

impl execute::Engine for Engine {
    type Shared = MpiShared;

    fn shared(&self) -> &Arc<MpiShared> {
        &self.shared
    }

    fn numbers(&mut self) -> &mut SequenceNumbers {
        &mut self.numbers
    }

    fn begin(&mut self, header: Header, time_limit: Option<Duration>) -> Result<(), CommError> {
        self.check()?;
        self.header = header;
        self.deadline = time_limit.and_then(|p| Instant::now().checked_add(p));
        self.time_limit = time_limit.unwrap_or_default();
        self.probe = None;
        self.shared.calls.started(header);
        self.poll_control()
    }

    fn fail(&mut self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        let error = self.shared.fail(kind, culprit, cause);
        self.announce_failure();
        error
    }
}

impl Engine {
    pub(super) fn new(init_thread: InitThread, library: Library, header: Header) -> Self {
        let (me, world) = (library.rank, library.world);
        Self {
            me,
            world,
            library,
            init_thread,
            shared: Arc::new(MpiShared { failed: OnceLock::new(), calls: CallLog::new(me) }),
            control: ControlMessages::new(world),
            header,
            deadline: None,
            time_limit: Duration::ZERO,
            probe: None,
            grace_periods: GracePeriods::default(),
            numbers: SequenceNumbers::new(world),
            pool: Vec::new(),
        }
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.world).filter(move |p| *p != me)
    }

    pub(super) fn invalid_message(&mut self, rank: usize) -> CommError {
        self.fail(CommErrorKind::Mismatch, Some(rank), &messages::invalid_message(rank, self.me))
    }

    /// MPI itself has reported a failure. At best, its text names the rank.
    pub(super) fn mpi_failed(&mut self, e: &MpiError) -> CommError {
        self.fail(CommErrorKind::PeerLost, None, &format!("MPI failed on rank {}: {e}", self.me))
    }

    /// The deadline of the call, or that of the answers after it.
    fn until(&self) -> Option<Instant> {
        self.probe.as_ref().map(|p| p.until()).or(self.deadline)
    }

    /// At least `bytes` bytes of memory, with contents left over from other calls.
    pub(super) fn memory(&mut self, bytes: usize) -> AlignedMemory {
        let need = bytes.div_ceil(8);
        // A block far larger than requested is left for a call that needs it.
        match self.pool.iter().position(|w| w.len() >= need && w.len() / 4 <= need) {
            Some(found) => self.pool.swap_remove(found),
            None => vec![0; need].into_boxed_slice(),
        }
    }

    /// Keeps the largest blocks, which are the most expensive to allocate.
    pub(super) fn give_back(&mut self, memory: [AlignedMemory; 2]) {
        self.pool.extend(memory.into_iter().filter(|words| !words.is_empty()));
        while self.pool.len() > KEPT {
            let smallest = (0..self.pool.len()).min_by_key(|i| self.pool[*i].len()).unwrap_or(0);
            self.pool.swap_remove(smallest);
        }
    }

    /// Waits for an operation, and handles control messages meanwhile. `rendezvous`: the other ranks, or only `peer` where that is
    /// known, may not have called yet (as opposed to working on the same call).
    pub(super) fn complete(
        &mut self,
        started: library::Result<PendingOperation>,
        rendezvous: bool,
        peer: Option<usize>,
    ) -> Result<[AlignedMemory; 2], CommError> {
        let mut pending = started.map_err(|e| self.mpi_failed(&e))?;
        let backoff = Backoff::new();
        for look in 1u32.. {
            if self.library.test(&mut pending).map_err(|e| self.mpi_failed(&e))? {
                break;
            }
            if look.is_multiple_of(LOOKS) || backoff.is_long() {
                self.poll_control()?;
                self.check_departed(peer)?;
            }
            if self.until().is_some_and(|until| Instant::now() >= until) {
                self.overdue(peer)?;
            }
            match rendezvous {
                true => backoff.wait(),
                false => backoff.wait_in_transfer(),
            }
        }
        Ok(pending.take())
    }

    /// Waits for all ranks and compares their calls. Returns every rank's notice, with its payload.
    pub(super) fn exchange(&mut self, payload: &[u8]) -> Result<Notices, CommError> {
        let mut memory = [self.memory(NOTICE), self.memory(NOTICE * self.world)];
        let notice: &mut [u8] = bytemuck::cast_slice_mut(&mut memory[0]);
        notice[..HEADER].copy_from_slice(&self.header.encode());
        notice[PAYLOAD_AT..][..payload.len()].copy_from_slice(payload);
        let gathered = self.library.all_gather(memory, NOTICE);
        let notices = Notices { memory: self.complete(gathered, true, None)? };
        let headers: Vec<Option<Header>> = (0..self.world).map(|rank| notices.header(rank)).collect();
        self.agree(&headers)?;
        Ok(notices)
    }

    /// Like `exchange`, for calls whose buffers follow.
    pub(super) fn agree_on_call(&mut self) -> Result<(), CommError> {
        let notices = self.exchange(&[])?;
        self.give_back(notices.memory);
        Ok(())
    }

    /// Every rank has every header, so all reach the same verdict: the rank that differs is named.
    fn agree(&mut self, headers: &[Option<Header>]) -> Result<(), CommError> {
        if headers.iter().all(|h| *h == Some(self.header)) {
            return Ok(());
        }
        if let Some(rank) = headers.iter().position(Option::is_none) {
            return Err(self.invalid_message(rank));
        }
        let headers: Vec<Header> = headers.iter().flatten().copied().collect();
        let followers = |rank: usize| headers.iter().filter(|h| **h == headers[rank]).count();
        // Of equally large groups, the one with the lowest rank is taken to be right.
        let right = (0..headers.len()).rev().max_by_key(|rank| followers(*rank)).unwrap_or(0);
        let deviant = headers.iter().position(|h| *h != headers[right]).unwrap_or(right);
        let cause = messages::mismatch([right, deviant].map(|rank| (rank, headers[rank])));
        Err(self.fail(CommErrorKind::Mismatch, Some(deviant), &cause))
    }
}

/// The notices of a call, by rank.
pub(super) struct Notices {
    pub memory: [AlignedMemory; 2],
}

impl Notices {
    fn notice(&self, rank: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.memory[1])[rank * NOTICE..][..NOTICE]
    }

    fn header(&self, rank: usize) -> Option<Header> {
        Header::decode(self.notice(rank).first_chunk()?)
    }

    pub(super) fn payload(&self, rank: usize, bytes: usize) -> &[u8] {
        &self.notice(rank)[PAYLOAD_AT..][..bytes]
    }
}
