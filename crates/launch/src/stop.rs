//! The worker's view of a stop request: a flag that the training loop reads at step boundaries.
//!
//! SIGTERM, SIGINT, SIGUSR1 (Slurm's preemption notice), SIGHUP (the terminal is closed) and SIGQUIT all mean "save
//! and stop". SIGCONT, which Slurm sends along, is ignored. The handlers are installed when the program starts
//! ([`StopFlag::install`]), so a later reader sees an earlier request; a subcommand that has nothing to stop [removes
//! them](StopFlag::release).
//!
//! Taking down a failed run is neither a stop request nor a signal: the supervisor sends a word on the control pipe
//! ([`StopFlag::take_down`]).
//!
//! Under a supervisor a repeated signal has no effect on a worker. Slurm signals every process of a step, so a worker
//! may get one request twice, from Slurm and from its supervisor; only the supervisor can tell a second request, and
//! then kills the workers. A process without a supervisor decides for itself, and exits when it has not stopped in
//! time ([`StopFlag::watch`]).

#![allow(unsafe_code)]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::low_level::emulate_default_handler;

use super::os;
use crate::ExitCode;
use base::error::{Error, Result};

/// The signals that ask a run to save and stop.
pub const STOP_SIGNALS: [i32; 5] = [SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGQUIT];

/// The stop signals that this process handles. Signals of the terminal stay ignored if the process was started so: by
/// `nohup`, or in the background of a shell without job control. Signals of a scheduler are always handled.
pub(super) fn handled_signals() -> impl Iterator<Item = i32> {
    let by_terminal = |signal| matches!(signal, SIGHUP | SIGINT | SIGQUIT);
    STOP_SIGNALS.into_iter().filter(move |signal| !(by_terminal(*signal) && os::is_ignored(*signal)))
}

/// Signals within this time of the first are the same request: `timeout` signals a process and then its group, and
/// may be descheduled in between. If this is too short, a checkpoint is lost; if too long, a third Ctrl-C is needed.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(250);

/// Time for a rank that is not training yet to exit by itself after a stop signal or a take-down.
const NOTICE: Duration = Duration::from_millis(500);

/// What a second stop signal does to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OnSecondSignal {
    /// It is ignored: a supervisor kills this process if it is to end at once.
    Ignore,
    /// The process exits at once with 75: nothing is saved, and the run resumes from the last checkpoint.
    Exit,
}

/// All signals, including the first, have their default effect.
const RELEASED: u8 = OnSecondSignal::Exit as u8 + 1;

/// Whether this process was asked to stop. Clones share their state; reading it is one atomic load.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// 0 until a stop is requested, then the number of the first signal.
    signal: AtomicI32,
    /// Nanoseconds from `install` to the first signal.
    at: AtomicU64,
    /// [`STARTING`], [`CONNECTED`], [`RUNNING`], then one of the others; stages may be skipped.
    stage: AtomicU8,
    /// An [`OnSecondSignal`], or [`RELEASED`].
    then: AtomicU8,
}

/// The rendezvous is not complete, so this rank can't detect the loss of a peer.
const STARTING: u8 = 0;
/// The rendezvous is complete, but no step boundary has been reached: there is nothing to save and no agreement to wait for.
const CONNECTED: u8 = 1;
/// The run is training or finishing.
const RUNNING: u8 = 2;
/// The run has finished or failed: signals have no effect any more.
const SETTLED: u8 = 3;
/// The process is exiting.
const ENDING: u8 = 4;

/// Exit code of a process that its supervisor takes down: that of SIGTERM.
const TAKEN_DOWN: i32 = 128 + SIGTERM;

/// Why a process ends itself after a stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfExit {
    /// The signal came before the first step boundary: during the rendezvous, or while data was prepared.
    BeforeTraining,
    /// The grace period is over.
    Overdue,
}

impl StopFlag {
    /// A flag that no signal sets, for tests and for training inside another program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Installs handlers for the stop signals, for the lifetime of the process. Call it first: until then a stop
    /// signal kills the process without a message.
    pub fn install(second: OnSecondSignal) -> Result<Self> {
        let flag = Self::new();
        flag.on_second(second);
        let start = Instant::now();
        for signal in handled_signals() {
            let inner = Arc::clone(&flag.0);
            let handler = move || inner.arrived(signal, start.elapsed());
            // SAFETY: `arrived` only uses atomics, clock_gettime, _exit and functions that signal-hook declares safe
            // in a handler.
            unsafe { signal_hook::low_level::register(signal, handler) }
                .map_err(|e| Error::internal(format!("cannot install a handler for signal {signal}: {e}")))?;
        }
        os::unblock(&STOP_SIGNALS)
            .map_err(|e| Error::internal(format!("cannot unblock the stop signals: {e}")))?;
        Ok(flag)
    }

    /// Sets what a second stop signal does.
    pub fn on_second(&self, second: OnSecondSignal) {
        self.0.then.store(second as u8, Ordering::SeqCst);
    }

    /// Restores the default effect of the stop signals, because this process has nothing to save; also applies to a
    /// signal that has arrived.
    pub fn release(&self) {
        self.0.then.store(RELEASED, Ordering::SeqCst);
        if let Some(signal) = self.signal() {
            let _ = emulate_default_handler(signal);
        }
    }

    /// Whether this rank may still wait for the others to connect.
    pub(crate) fn is_before_rendezvous(&self) -> bool {
        self.0.stage.load(Ordering::SeqCst) == STARTING
    }

    /// Whether a stop signal has arrived.
    pub fn requested(&self) -> bool {
        self.signal().is_some()
    }

    /// The number of the first signal; `None` before it.
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.signal.load(Ordering::SeqCst)).filter(|s| *s > 0)
    }

    /// Like [`Self::requested`], for use at a step boundary: from now on the training loop handles a stop.
    pub fn requested_at_step(&self) -> bool {
        self.reach(RUNNING);
        self.requested()
    }

    /// Whether a stop was requested, and this rank has not begun to train: there is nothing to save, and it need not wait for others.
    pub fn requested_before_training(&self) -> bool {
        self.requested() && self.0.stage.load(Ordering::Acquire) <= CONNECTED
    }

    /// Call it after the rendezvous: from now on each rank detects the loss of another.
    pub fn connected(&self) {
        self.reach(CONNECTED);
    }

    /// The run has failed elsewhere, and nothing of it is to be saved. A rank that has completed the rendezvous
    /// detects this itself and reports what it saw; if it does not, the supervisor kills it. A rank that still waits
    /// for others would wait forever, so it exits after a short time in which it may notice that they are missing.
    pub(crate) fn take_down(&self) {
        std::thread::sleep(NOTICE);
        if self.advance(STARTING, ENDING) {
            tracing::info!("exiting before the rendezvous: the run failed elsewhere");
            signal_hook::low_level::exit(TAKEN_DOWN);
        }
    }

    /// Makes this process exit with 75 if a stop signal arrives before its first step boundary, or if it has not
    /// [settled](Self::settle) within `grace` (if any) after the signal. `last` is called before the exit.
    pub fn watch(&self, grace: Option<Duration>, last: impl FnOnce(SelfExit) + Send + 'static) -> Result<()> {
        let cannot = |e| Error::internal(format!("cannot watch for stop signals: {e}"));
        let (mut signalled, write) = UnixStream::pair().map_err(cannot)?;
        for signal in handled_signals() {
            let write = write.try_clone().map_err(cannot)?;
            signal_hook::low_level::pipe::register(signal, write).map_err(cannot)?;
        }
        let flag = self.clone();
        let watch = move || {
            // A signal that came before the pipe existed is in the flag.
            if flag.signal().is_none() && signalled.read_exact(&mut [0]).is_err() {
                return;
            }
            // A launcher may have sent it because a peer failed; this rank then hears that from the peer and reports it.
            std::thread::sleep(NOTICE);
            let mut why = SelfExit::BeforeTraining;
            if !flag.advance(STARTING, ENDING) && !flag.advance(CONNECTED, ENDING) {
                let Some(grace) = grace else { return };
                std::thread::sleep(grace);
                why = SelfExit::Overdue;
                if !flag.advance(RUNNING, ENDING) {
                    return;
                }
            }
            last(why);
            signal_hook::low_level::exit(ExitCode::Stopped as i32);
        };
        std::thread::Builder::new().name("stop-watch".into()).spawn(watch).map(drop).map_err(cannot)
    }

    /// The run has finished or failed: from now on neither a signal nor the time limit ends this process. Slurm sends
    /// SIGTERM to a job that is requeued, when only the report remains to be written.
    pub fn settle(&self) {
        self.reach(SETTLED);
    }

    /// Advances to `stage` if that is later than the present one; does not return if the process is exiting.
    fn reach(&self, stage: u8) {
        if self.0.stage.fetch_max(stage, Ordering::AcqRel) == ENDING {
            loop {
                std::thread::park();
            }
        }
    }

    fn advance(&self, from: u8, to: u8) -> bool {
        self.0.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// As if `signal` had arrived.
    #[doc(hidden)]
    pub fn arrived(&self, signal: i32) {
        self.0.arrived(signal, Duration::ZERO);
    }
}

impl Inner {
    /// `now` is the time since `install`.
    fn arrived(&self, signal: i32, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        // The time is stored first, so that a reader of the signal number also sees its time.
        let first = self.at.compare_exchange(0, now.max(1), Ordering::AcqRel, Ordering::Acquire);
        // Before reading `then`: `release` writes that before it reads the signal, so one of the two sees the other.
        let _ = self.signal.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
        let then = self.then.load(Ordering::SeqCst);
        if then == RELEASED {
            let _ = emulate_default_handler(signal);
        }
        if let Err(first) = first
            && then == OnSecondSignal::Exit as u8
            && self.stage.load(Ordering::Acquire) <= RUNNING
            && now.saturating_sub(first) > DEBOUNCE.as_nanos() as u64
        {
            signal_hook::low_level::exit(ExitCode::Stopped as i32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_seen_by_every_clone_and_the_first_signal_is_kept() {
        let flag = StopFlag::new();
        let clone = flag.clone();
        assert!(!clone.requested());
        flag.on_second(OnSecondSignal::Exit);
        flag.0.arrived(SIGUSR1, Duration::ZERO);
        // Within the debounce time it is the same request, so this process must survive.
        flag.0.arrived(SIGTERM, DEBOUNCE);
        assert!(clone.requested());
        assert_eq!(clone.signal(), Some(SIGUSR1));
    }

    #[test]
    fn from_the_first_step_boundary_on_the_loop_handles_a_stop() {
        let flag = StopFlag::new();
        assert!(!flag.requested_at_step());
        flag.0.arrived(SIGTERM, Duration::ZERO);
        assert!(flag.requested_at_step());
        let early = flag.advance(STARTING, ENDING) || flag.advance(CONNECTED, ENDING);
        assert!(!early, "the watch comes too late for an early end");
        assert!(flag.advance(RUNNING, ENDING), "but not for an overdue one");
    }

    #[test]
    fn a_connected_or_failed_rank_is_not_ended_by_a_take_down() {
        // A flag without these calls would end the test's process.
        let flag = StopFlag::new();
        flag.connected();
        flag.take_down();
        flag.settle();
        flag.take_down();
        flag.connected();
        assert!(!flag.advance(CONNECTED, ENDING) && !flag.advance(STARTING, ENDING), "no way back");
        assert!(!flag.requested(), "a take-down is not a stop request");
        let failed = StopFlag::new();
        failed.settle();
        failed.take_down();
    }

    #[test]
    fn a_settled_run_is_not_ended_by_another_signal() {
        let flag = StopFlag::new();
        flag.on_second(OnSecondSignal::Exit);
        flag.0.arrived(SIGUSR1, Duration::ZERO);
        flag.settle();
        flag.settle();
        // After the debounce time: without `settle` this would end the test's process.
        flag.0.arrived(SIGTERM, 2 * DEBOUNCE);
        assert_eq!(flag.signal(), Some(SIGUSR1));
    }
}
