//! Launches collectives, one at a time, and keeps the group's first failure. What must not wait for a launch (the
//! watchdog, `check`) has separate locks.

#![allow(unsafe_code)]

use super::driver::{CudaContext, CudaEvent, CudaStream};
use super::library::{AbortHandle, Communicator, CommunicatorState};
use super::order::StreamOrder;
use super::queue::{LaunchedCollective, Queue};
use crate::call::check_reduction;
use crate::calls::{CallLog, lock, try_lock};
use crate::execute::call_span;
use crate::header::{Algorithm, CallOperation, Header};
use crate::{
    CommError, CommErrorKind, DeviceCollectives, DeviceSlice, FailureDetector, ProcessGroup, ReduceOp,
    messages,
};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long the control group has to say which peer is gone, if NCCL only reports that one is.
const VERDICT: Duration = Duration::from_millis(500);
/// How long the end of a launch is polled without sleeping; afterwards, how long each sleep is.
const BUSY: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(100);
/// Limit for a call into NCCL, which does not wait for peers, once the group has failed.
const HANGS: Duration = Duration::from_secs(2);
/// Pause between two checks of the peers.
const PEER_CHECK: Duration = Duration::from_millis(5);

pub(super) struct Engine {
    pub control: Arc<dyn ProcessGroup>,
    pub context: CudaContext,
    stream: CudaStream,
    order: StreamOrder,
    pub timeout: Duration,
    /// None once it has been destroyed or aborted. Held during each call into NCCL.
    communicator: Mutex<Option<Communicator>>,
    /// What may abort it, once, even while a call hangs.
    abort_handle: Mutex<Option<AbortHandle>>,
    /// The collective that is being put into its stream, and since when.
    calling: Mutex<Option<(Header, Instant)>>,
    /// Number of calls so far. Held during the whole launch, so that launches keep the calls' order.
    turn: Mutex<u64>,
    pub queue: Mutex<Queue>,
    /// Notified when the watchdog has something to do, or has ended.
    pub wake: Condvar,
    failed: OnceLock<CommError>,
    pub calls: CallLog,
}

/// Reads the peers' control messages.
pub(super) fn poll_control(control: &dyn ProcessGroup) -> Result<(), CommError> {
    control.failure_detector().map_or(Ok(()), FailureDetector::poll)
}

/// Ends the control group because NCCL failed with `why`: with the loss of a peer, if there is one, else with this
/// rank's own failure.
pub(super) fn blame(control: &dyn ProcessGroup, why: &str) -> CommError {
    let until = Instant::now() + VERDICT;
    while Instant::now() < until {
        if let Err(error) = poll_control(control) {
            return error;
        }
        std::thread::sleep(PEER_CHECK);
    }
    abort_with(control, why)
}

/// Ends the control group with this rank's own failure.
fn abort_with(control: &dyn ProcessGroup, why: &str) -> CommError {
    control.abort(why);
    let rank = control.rank();
    let own = || CommError::new(CommErrorKind::Aborted, Some(rank), messages::aborted(rank, why));
    poll_control(control).err().unwrap_or_else(own)
}

/// Ends the control group because the call `what`, number `number` of this engine, has taken longer than `timeout`.
pub(super) fn overdue(control: &dyn ProcessGroup, what: &str, number: u64, timeout: Duration) -> CommError {
    let alone = || CommError::new(CommErrorKind::Timeout, None, messages::overdue(what, timeout));
    control.failure_detector().map_or_else(alone, |detector| detector.report_overdue(what, number, timeout))
}

/// The call in messages, as distinct from those of the control group.
fn by_nccl(call: Header) -> String {
    format!("{call} by NCCL")
}

impl Engine {
    pub(super) fn new(
        control: Arc<dyn ProcessGroup>,
        context: CudaContext,
        (stream, order): (CudaStream, StreamOrder),
        communicator: Communicator,
        timeout: Duration,
    ) -> Self {
        Self {
            calls: CallLog::new(control.rank()),
            control,
            context,
            stream,
            order,
            timeout,
            abort_handle: Mutex::new(Some(communicator.abort_handle())),
            calling: Mutex::new(None),
            communicator: Mutex::new(Some(communicator)),
            turn: Mutex::new(0),
            queue: Mutex::default(),
            wake: Condvar::new(),
            failed: OnceLock::new(),
        }
    }

    pub(super) fn failure(&self) -> Option<&CommError> {
        self.failed.get()
    }

    /// Ends this rank's part of the group, unless it has already ended; returns the first failure. The watchdog aborts
    /// the communicator.
    pub(super) fn fail(&self, error: CommError) -> CommError {
        // Calls that the device has finished since the last check are not to blame.
        let _ = self.retire();
        let doing = lock(&self.queue).oldest();
        let place = self.control.place();
        let error = self.failed.get_or_init(|| match doing {
            Some(call) if error.kind != CommErrorKind::Misuse => {
                let rank = self.control.rank();
                let message = error.message.clone() + &messages::was_in(rank, &by_nccl(call), place);
                CommError { message, ..error }
            }
            _ => error,
        });
        self.wake.notify_all();
        error.clone()
    }

    /// Ends the group at the request of this rank.
    pub(super) fn abort(&self, why: &str) -> CommError {
        self.fail(abort_with(&*self.control, why))
    }

    /// Ends the group because this rank's device has failed.
    pub(super) fn broken(&self, why: &str) -> CommError {
        let error = abort_with(&*self.control, why);
        // The control group says which failure was the first.
        let kind = match error.peer {
            Some(peer) if peer == self.control.rank() => CommErrorKind::Unavailable,
            _ => error.kind,
        };
        self.fail(CommError { kind, ..error })
    }

    /// Ends the group because NCCL has failed; a peer may be the cause.
    pub(super) fn lost(&self, why: &str) -> CommError {
        self.fail(blame(&*self.control, why))
    }

    pub(super) fn overdue(&self, call: Header) -> CommError {
        self.fail(overdue(&*self.control, &by_nccl(call), call.sequence, self.timeout))
    }

    /// Calls NCCL, unless the communicator is gone.
    fn nccl(
        &self,
        call: impl FnOnce(&mut Communicator) -> Result<CommunicatorState, String>,
    ) -> Result<CommunicatorState, CommError> {
        let mut communicator = lock(&self.communicator);
        let result = communicator.as_mut().map(call);
        drop(communicator);
        match result {
            Some(result) => result.map_err(|why| self.lost(&why)),
            None => Err(self.abort("the NCCL communicator has been destroyed")),
        }
    }

    /// Checks NCCL for asynchronous errors, unless a call into NCCL is running.
    pub(super) fn listen(&self) -> Result<(), CommError> {
        let Some(mut communicator) = try_lock(&self.communicator) else { return Ok(()) };
        let state = communicator.as_mut().map(Communicator::state);
        drop(communicator);
        state.map_or(Ok(()), |state| state.map(drop).map_err(|why| self.lost(&why)))
    }

    /// The collective that has been on its way into its stream for longer than `limit`.
    pub(super) fn hangs(&self, limit: Duration) -> Option<Header> {
        lock(&self.calling).filter(|(_, since)| since.elapsed() > limit).map(|(header, _)| header)
    }

    /// Ends the communicator of a group that failed at `since`: what it runs on the device ends without a result. While
    /// a call is running, it does so only if that call hangs, which takes time to find out.
    pub(super) fn end(&self, since: Instant) {
        let free = try_lock(&self.communicator);
        if free.is_none() && (since.elapsed() < HANGS || self.hangs(HANGS).is_none()) {
            return;
        }
        // Whoever holds it may abort, once.
        let Some(abort_handle) = lock(&self.abort_handle).take() else { return };
        let ended = match free.and_then(|mut communicator| communicator.take()) {
            Some(communicator) => communicator.abort(),
            // SAFETY: the communicator is alive, because only the holder of `abort_handle` ends it. The call in progress has
            // hung for long and is the only one; no call follows it, because the group has failed.
            None => unsafe { abort_handle.abort() },
        };
        if let Err(why) = ended {
            tracing::warn!("rank {}: {why}", self.control.rank());
        }
    }

    /// The communicator, to be ended in order; None if it has already been ended.
    pub(super) fn take(&self) -> Option<Communicator> {
        lock(&self.abort_handle).take()?;
        lock(&self.communicator).take()
    }

    fn event(&self) -> Result<CudaEvent, String> {
        // The queue is locked only for this: creating an event takes time.
        let spare = lock(&self.queue).spare();
        spare.map_or_else(|| self.context.event(), Ok)
    }

    /// Orders the stream after all work launched on the device so far.
    fn begin(&self) -> Result<(Option<CudaEvent>, CudaEvent), String> {
        self.context.enter()?;
        let done = self.event()?;
        Ok((self.order.begin(&self.context, &self.stream, self.event()?)?, done))
    }

    /// Passes `buffer` to NCCL and waits until NCCL has put the collective into the stream.
    fn launch(&self, buffer: &DeviceSlice, header: Header, done: &CudaEvent) -> Result<(), CommError> {
        let _span = call_span(&self.calls, header);
        *lock(&self.calling) = Some((header, Instant::now()));
        let launched = self.call(buffer, header, done);
        *lock(&self.calling) = None;
        launched
    }

    fn call(&self, buffer: &DeviceSlice, header: Header, done: &CudaEvent) -> Result<(), CommError> {
        let begun = Instant::now();
        let mut state = self.nccl(|c| c.all_reduce(buffer, header.reduce_op, &self.stream))?;
        // The first call of its kind connects the ranks, and may have to wait for them.
        while state == CommunicatorState::InProgress {
            self.check()?;
            if begun.elapsed() > self.timeout {
                return Err(self.overdue(header));
            }
            pause(begun);
            state = self.nccl(Communicator::state)?;
        }
        self.stream.record(done).map_err(|why| self.broken(&why))
    }

    /// Checks how far the device is, and releases the memory of the calls that are done.
    pub(super) fn retire(&self) -> Result<(), String> {
        let mut done = Vec::new();
        let result = lock(&self.queue).retire(&mut done);
        for (sequence, keep) in done {
            self.calls.finished_call(sequence);
            drop(keep);
        }
        result
    }

    /// Waits until the device has done the calls up to `sequence`.
    fn wait_on_host(&self, sequence: u64) -> Result<(), CommError> {
        let begun = Instant::now();
        loop {
            self.retire().map_err(|why| self.broken(&why))?;
            self.check()?;
            if lock(&self.queue).oldest().is_none_or(|h| h.sequence > sequence) {
                return Ok(());
            }
            pause(begun);
        }
    }
}

/// Pauses between two checks of something that usually takes microseconds.
fn pause(since: Instant) {
    if since.elapsed() < BUSY { std::thread::yield_now() } else { std::thread::sleep(NAP) }
}

impl DeviceCollectives for Engine {
    fn all_reduce(&self, buffer: DeviceSlice, op: ReduceOp) -> Result<(), CommError> {
        let mut turn = lock(&self.turn);
        self.check()?;
        if let Some(wrong) = check_reduction(buffer.dtype(), op) {
            let why = format!("it made an invalid call: all_reduce: {wrong}");
            let kind = CommErrorKind::Misuse;
            return Err(self.fail(CommError { kind, ..abort_with(&*self.control, &why) }));
        }
        *turn += 1;
        let header = Header {
            operation: CallOperation::AllReduce,
            dtype: buffer.dtype(),
            reduce_op: op,
            sequence: *turn,
            count: buffer.len() as u64,
            ..Header::base(Algorithm::Library, 0, 0)
        };
        let (begin, done) = self.begin().map_err(|why| self.broken(&why))?;
        self.check()?;
        self.calls.started(header);
        if let Some(detector) = self.control.failure_detector() {
            detector.set_calls_made(header.sequence);
        }
        let launched = self.launch(&buffer, header, &done);
        let keep = buffer.into_guard();
        if let Err(error) = launched {
            // It may be in the stream nevertheless.
            std::mem::forget(keep);
            return Err(error);
        }
        lock(&self.queue).push(LaunchedCollective { header, begin, done, since: None, keep });
        self.wake.notify_all();
        Ok(())
    }

    fn fence(&self) -> Result<(), CommError> {
        self.check()?;
        if self.order == StreamOrder::Host {
            let newest = lock(&self.queue).newest().map(|p| p.header.sequence);
            return newest.map_or(Ok(()), |sequence| self.wait_on_host(sequence));
        }
        let waits = lock(&self.queue).newest().map_or(Ok(()), |newest| self.context.wait(&newest.done));
        waits.map_err(|why| self.broken(&why))
    }

    fn check(&self) -> Result<(), CommError> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }
}
