//! The worker's view of a stop request: a flag that the training loop reads at step boundaries.
//!
//! SIGTERM, SIGINT, SIGUSR1 (Slurm's preemption notice), SIGHUP (the terminal is gone) and SIGQUIT all mean "save and stop". SIGCONT,
//! which Slurm sends along, is no event. The program hears them from its first moment ([`StopFlag::install`]): whoever takes the
//! request over later finds it there, and a subcommand that has nothing to stop [gives them back](StopFlag::release). That a run has failed and is being taken down is no stop request, and no signal: a supervisor says it on the
//! control pipe ([`StopFlag::take_down`]). Under a supervisor a repeated signal changes nothing for the worker: Slurm signals every process of
//! a step, so a worker may get the same request from Slurm and from its supervisor, and it is the supervisor that
//! knows when a second request was meant; it then kills the workers. A process without a supervisor decides itself,
//! and ends itself when it has not stopped in time ([`StopFlag::limit`]).

#![allow(unsafe_code)]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::low_level::emulate_default_handler;

use super::os;
use crate::error::{Error, ExitCode, Result};

/// The signals that ask a run to save and stop.
pub const STOP_SIGNALS: [i32; 5] = [SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGQUIT];

/// Those of them that this process listens to. What a terminal sends stays ignored where the process was started so: by `nohup`,
/// or in the background of a shell without job control. What a scheduler asks by is heard in any case.
pub(super) fn heard() -> impl Iterator<Item = i32> {
    let by_terminal = |signal| matches!(signal, SIGHUP | SIGINT | SIGQUIT);
    STOP_SIGNALS.into_iter().filter(move |signal| !(by_terminal(*signal) && os::is_ignored(*signal)))
}

/// Signals this close to the first one are the same request: `timeout` signals a process and then its group, and may lose the
/// processor in between. Too short costs a checkpoint, too long a third Ctrl-C.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(250);

/// For a rank that is not training yet to end by itself after a stop signal, or a take-down.
const NOTICE: Duration = Duration::from_millis(500);

/// What a second stop signal does to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OnSecondSignal {
    /// Nothing: a supervisor kills this process when it is meant to end at once.
    Ignore,
    /// It ends at once with exit code 75: nothing is saved, and the last checkpoint continues the run.
    Exit,
}

/// Signals do what they do to any program, the first one too.
const RELEASED: u8 = OnSecondSignal::Exit as u8 + 1;

/// Whether this process was asked to stop. Clones share one state; reading it is one atomic load.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// 0 until a stop is requested, then the first signal's number, or -1 for [`StopFlag::request`].
    signal: AtomicI32,
    /// Nanoseconds from `install` to the first signal.
    at: AtomicU64,
    /// [`STARTING`], then [`MET`], then [`RUNNING`], then one of the others; may skip some.
    stage: AtomicU8,
    /// An [`OnSecondSignal`], or [`RELEASED`].
    then: AtomicU8,
}

/// The ranks have not met: there is nobody whose loss this one could notice.
const STARTING: u8 = 0;
/// The ranks have met, and no step boundary has been reached: there is nothing to save, and nobody to agree with.
const MET: u8 = 1;
/// The run goes on, or is on its way to its end.
const RUNNING: u8 = 2;
/// The run has come to its end, or failed: signals change nothing any more.
const SETTLED: u8 = 3;
/// The process is being ended.
const ENDING: u8 = 4;

/// How a process ends that its supervisor takes down: as by SIGTERM.
const TAKEN_DOWN: i32 = 128 + SIGTERM;

/// Why a process ends itself after a stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEnd {
    /// The signal came before the first step boundary: while the ranks meet, or while data is prepared.
    BeforeTraining,
    /// The grace is over.
    Overdue,
}

impl StopFlag {
    /// A flag that no signal sets, for tests and for training inside another program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Installs handlers for the stop signals, for the rest of the process. It is the program's first deed: until then a
    /// stop signal kills the process without a word.
    pub fn install(second: OnSecondSignal) -> Result<Self> {
        let flag = Self::new();
        flag.on_second(second);
        let start = Instant::now();
        for signal in heard() {
            let inner = Arc::clone(&flag.0);
            let handler = move || inner.arrived(signal, start.elapsed());
            // SAFETY: `arrived` uses atomics, clock_gettime, _exit and what signal-hook says is good for a handler.
            unsafe { os::on_signal(signal, handler) }
                .map_err(|e| Error::internal(format!("cannot install a handler for signal {signal}: {e}")))?;
        }
        os::unblock(&STOP_SIGNALS)
            .map_err(|e| Error::internal(format!("cannot unblock the stop signals: {e}")))?;
        Ok(flag)
    }

    pub fn on_second(&self, second: OnSecondSignal) {
        self.0.then.store(second as u8, Ordering::SeqCst);
    }

    /// This process has nothing to save: the stop signals do what they do to any program, one that has come as well.
    pub fn release(&self) {
        self.0.then.store(RELEASED, Ordering::SeqCst);
        if let Some(signal) = self.signal() {
            let _ = emulate_default_handler(signal);
        }
    }

    pub fn requested(&self) -> bool {
        self.0.signal.load(Ordering::Acquire) != 0
    }

    /// The number of the signal that asked first; `None` before that, or when [`Self::request`] did.
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.signal.load(Ordering::SeqCst)).filter(|s| *s > 0)
    }

    /// As [`Self::requested`], asked at a step boundary: from here on, a stop is the training loop's.
    pub fn requested_at_step(&self) -> bool {
        self.reach(RUNNING);
        self.requested()
    }

    /// The ranks have met: from here on, each notices when another one is lost.
    pub fn met(&self) {
        self.reach(MET);
    }

    /// The run has failed elsewhere, and nothing of it is to be saved. A rank that has met the others notices by itself and says
    /// what it saw; the supervisor kills it when it does neither. One that still waits for others would wait in vain, so it
    /// is ended, after a moment in which it may notice that they don't come.
    pub fn take_down(&self) {
        std::thread::sleep(NOTICE);
        if self.advance(STARTING, ENDING) {
            tracing::info!("ended before the ranks met: the run has failed elsewhere");
            signal_hook::low_level::exit(TAKEN_DOWN);
        }
    }

    /// Ends this process with exit code 75 when a stop signal finds it before its first step boundary, and, where there is a
    /// `grace`, when it has not [settled](Self::settle) so long after the signal. `last` is called before.
    pub fn watch(&self, grace: Option<Duration>, last: impl FnOnce(OwnEnd) + Send + 'static) -> Result<()> {
        let cannot = |e| Error::internal(format!("cannot watch for stop signals: {e}"));
        let (mut signalled, write) = UnixStream::pair().map_err(cannot)?;
        for signal in heard() {
            let write = write.try_clone().map_err(cannot)?;
            signal_hook::low_level::pipe::register(signal, write).map_err(cannot)?;
        }
        let flag = self.clone();
        let watch = move || {
            // A signal that came before the pipe was there is in the flag.
            if flag.signal().is_none() && signalled.read_exact(&mut [0]).is_err() {
                return;
            }
            // A launcher may have sent it because a peer died, which this rank is about to notice and to report.
            std::thread::sleep(NOTICE);
            let mut why = OwnEnd::BeforeTraining;
            if !flag.advance(STARTING, ENDING) && !flag.advance(MET, ENDING) {
                let Some(grace) = grace else { return };
                std::thread::sleep(grace);
                why = OwnEnd::Overdue;
                if !flag.advance(RUNNING, ENDING) {
                    return;
                }
            }
            last(why);
            signal_hook::low_level::exit(ExitCode::Stopped as i32);
        };
        std::thread::Builder::new().name("stop-watch".into()).spawn(watch).map(drop).map_err(cannot)
    }

    /// The run has come to its end, or has failed: from here on, neither a signal nor the limit ends this process. Slurm sends SIGTERM to
    /// a job that is requeued, and what is left to do is to say so.
    pub fn settle(&self) {
        self.reach(SETTLED);
    }

    /// Advances to `stage`, if that is not behind; does not return once the process is being ended.
    fn reach(&self, stage: u8) {
        if self.0.stage.fetch_max(stage, Ordering::AcqRel) == ENDING {
            self.wait_if_ending();
        }
    }

    fn advance(&self, from: u8, to: u8) -> bool {
        self.0.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The watch was first, and is ending the process.
    fn wait_if_ending(&self) {
        while self.0.stage.load(Ordering::Acquire) == ENDING {
            std::thread::park();
        }
    }

    /// Asks for a stop from inside the process.
    pub fn request(&self) {
        let _ = self.0.signal.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Inner {
    /// `now` is counted from `install`.
    fn arrived(&self, signal: i32, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        // Stored first: whoever sees the signal number sees the time with it.
        let first = self.at.compare_exchange(0, now.max(1), Ordering::AcqRel, Ordering::Acquire);
        // Before `then` is read, which `release` writes before it looks here: one of the two sees the other.
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
        // Not later than the debounce time: the same request, so this process is still here.
        flag.0.arrived(SIGTERM, DEBOUNCE);
        assert!(clone.requested());
        assert_eq!(clone.signal(), Some(SIGUSR1));
        let own = StopFlag::new();
        own.request();
        assert!(own.requested());
        assert_eq!(own.signal(), None);
    }

    #[test]
    fn from_the_first_step_boundary_on_a_stop_is_the_loops() {
        let flag = StopFlag::new();
        assert!(!flag.requested_at_step());
        flag.request();
        assert!(flag.requested_at_step());
        let early = flag.advance(STARTING, ENDING) || flag.advance(MET, ENDING);
        assert!(!early, "the watch comes too late for an early end");
        assert!(flag.advance(RUNNING, ENDING), "but not for an overdue one");
    }

    #[test]
    fn a_rank_that_has_met_the_others_or_failed_is_not_ended_by_a_take_down() {
        // One that had not would end this test's process.
        let flag = StopFlag::new();
        flag.met();
        flag.take_down();
        flag.settle();
        flag.take_down();
        flag.met();
        assert!(!flag.advance(MET, ENDING) && !flag.advance(STARTING, ENDING), "no way back");
        assert!(!flag.requested(), "a take-down is no stop request");
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
        // Later than the debounce time: unsettled, this would end the test's process.
        flag.0.arrived(SIGTERM, 2 * DEBOUNCE);
        assert_eq!(flag.signal(), Some(SIGUSR1));
    }
}
