//! The cause of a run's end: classifies each worker's end and selects the one that decides the exit code.

use signal_hook::consts::{SIGABRT, SIGKILL, SIGTERM};

use super::cause::FailureCause;
use super::failure::Evidence;
use super::stop::STOP_SIGNALS;
use crate::ExitCode;

/// The exit code of a Rust program after a panic.
pub(super) const RUST_PANIC: i32 = 101;

/// How a worker process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerStatus {
    /// With this exit code.
    Exited(i32),
    /// By a signal.
    Signaled {
        /// Its number.
        signal: i32,
        /// The kernel wrote a core dump.
        core_dumped: bool,
    },
    /// The process could not be started; the operating system's reason.
    NotStarted(String),
}

/// How a generation of workers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that was asked for is done.
    Done,
    /// On request.
    Stopped,
    /// A rank has failed.
    Failed {
        /// The rank to blame.
        culprit: usize,
        /// Why it failed.
        cause: FailureCause,
    },
}

impl Verdict {
    /// The rank to blame; none if the run is done or was stopped on request.
    pub fn culprit(self) -> Option<usize> {
        match self {
            Self::Done | Self::Stopped => None,
            Self::Failed { culprit, .. } => Some(culprit),
        }
    }

    fn failed((culprit, end): (usize, &End)) -> Self {
        Self::Failed { culprit, cause: end.cause() }
    }
}

/// What the supervisor had requested of a worker before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requested {
    Nothing,
    /// To stop: SIGTERM, or the word for taking the run down.
    Stop,
    /// SIGKILL.
    Kill,
}

/// What a worker's end says about the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Exit 0.
    Done,
    /// Exit 75: saved and stopped.
    Stopped,
    /// It died of the supervisor's signal, or of the stop signal itself, and had not failed before.
    OnRequest,
    /// It died on request before it could exit with the loss of its peers that it had noted.
    OnRequestAfterLoss,
    /// It failed: by itself, or (if the cause is a consequence, and no other one is found) because
    /// it lost its peers.
    Failed(FailureCause),
}

impl Class {
    pub fn is_on_request(self) -> bool {
        matches!(self, Class::OnRequest | Class::OnRequestAfterLoss)
    }

    /// It lost its peers, and ended for that reason.
    pub fn is_consequence(self) -> bool {
        matches!(self, Class::Failed(cause) if cause.is_consequence())
    }

    /// An independent failure.
    pub fn is_root_cause(self) -> bool {
        matches!(self, Class::Failed(cause) if !cause.is_consequence())
    }
}

/// A worker's end as seen by the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub status: WorkerStatus,
    pub(crate) requested: Requested,
    /// 0 for the first worker that ended.
    pub order: usize,
    /// It was killed because the stop deadline had passed.
    pub overdue: bool,
    pub(crate) evidence: Evidence,
}

impl End {
    /// Why the worker failed: the cause that its exit code stands for, more precisely if its note
    /// says so; if it did not live to exit with a code, the cause that it had noted.
    pub fn cause(&self) -> FailureCause {
        let (noted, own) = (self.evidence.noted, self.evidence.own());
        let panicked = noted == Some(FailureCause::Panicked);
        match self.status {
            WorkerStatus::NotStarted(_) => FailureCause::NotStarted,
            WorkerStatus::Exited(code) => match ExitCode::of_worker(code).and_then(FailureCause::of_code) {
                Some(cause) => noted.filter(|noted| noted.code() == cause.code()).unwrap_or(cause),
                None if panicked || noted.is_none() && code == RUST_PANIC => FailureCause::Panicked,
                None => own.unwrap_or(FailureCause::Other),
            },
            // A panic that ends the process aborts it.
            WorkerStatus::Signaled { signal: SIGABRT, .. } if panicked => FailureCause::Panicked,
            WorkerStatus::Signaled { .. } => own.unwrap_or(FailureCause::Other),
        }
    }
}

/// The class of `end`. A stop request that arrives after a worker died of the same signal explains that death: Slurm
/// signals every process of a step. `stops_unasked` is that of [`Policy`](super::state::Policy).
pub fn class(end: &End, stop_requested: bool, stops_unasked: bool) -> Class {
    const STOPPED: i32 = ExitCode::Stopped as i32;
    let asked = stops_unasked || stop_requested || end.requested != Requested::Nothing;
    let cause = match end.status {
        WorkerStatus::Exited(0) => return Class::Done,
        WorkerStatus::Exited(STOPPED) if asked => return Class::Stopped,
        _ => end.cause(),
    };
    // A rank that failed may still save or wait for its sinks when its peers' ends take the run down.
    let failed = cause.is_consequence() || end.evidence.own().is_some();
    match end.evidence.lost_others() {
        _ if failed || !died_on_request(end, stop_requested) => Class::Failed(cause),
        true => Class::OnRequestAfterLoss,
        false => Class::OnRequest,
    }
}

fn died_on_request(end: &End, stop_requested: bool) -> bool {
    let requested = end.requested != Requested::Nothing;
    match end.status {
        // A shell reports a child's death by signal n as 128 + n.
        WorkerStatus::Exited(code) => requested && STOP_SIGNALS.iter().any(|signal| code == 128 + signal),
        WorkerStatus::Signaled { signal: SIGKILL, .. } => end.requested == Requested::Kill,
        WorkerStatus::Signaled { signal, .. } => {
            requested && signal == SIGTERM || stop_requested && STOP_SIGNALS.contains(&signal)
        }
        WorkerStatus::NotStarted(_) => false,
    }
}

/// The input of a verdict.
pub(super) struct VerdictInput<'a> {
    pub workers: usize,
    /// Ranks that have ended; not those that were never started, or that the kernel could not end.
    pub ends: Vec<(usize, &'a End)>,
    /// A rank that has not ended although the stop deadline has passed.
    pub overdue: Option<usize>,
    pub stop_requested: bool,
    pub stops_unasked: bool,
    pub stopped_unharmed: bool,
    /// The controller ended the generation without a signal.
    pub recalled_at_once: bool,
}

impl VerdictInput<'_> {
    pub fn verdict(mut self) -> Verdict {
        self.ends.sort_by_key(|(_, end)| end.order);
        // Workers may be reaped in a different order than they failed.
        let roots = self.ends.iter().filter(|(_, end)| self.class(end).is_root_cause());
        if let Some(root) = roots.min_by_key(|(_, end)| (end.evidence.at, end.order)) {
            return Verdict::failed(*root);
        }
        let overdue = self.first(|end, class| end.overdue && class.is_on_request()).map(|(rank, _)| rank);
        if let Some(culprit) = overdue.or(self.overdue) {
            return Verdict::Failed { culprit, cause: FailureCause::Other };
        }
        let consequence = self.first(|_, class| class.is_consequence());
        let stopped = match self.unresponsive() {
            // Other nodes may have lost this rank and detected it earlier than this node.
            Some((culprit, end)) => {
                let lost = self.class(end) == Class::OnRequestAfterLoss;
                let own = if lost { FailureCause::PeerLost } else { FailureCause::Other };
                let cause = consequence.map_or(own, |(_, consequence)| consequence.cause());
                Verdict::Failed { culprit, cause }
            }
            None => Verdict::Stopped,
        };
        // A worker that stopped before training explains a consequence as well as one that ended on request.
        let on_request =
            self.first(|_, class| class.is_on_request()).or_else(|| self.first_of(Class::Stopped));
        match (on_request, consequence) {
            // A worker that died of the stop signal explains why the others lost a peer.
            (Some(_), None) if self.stop_requested => return stopped,
            (Some((_, death)), Some((_, consequence)))
                if self.stop_requested && (self.stopped_unharmed || death.order < consequence.order) =>
            {
                return stopped;
            }
            (_, Some(consequence)) => return Verdict::failed(consequence),
            _ => {}
        }
        // Not all ranks exited with 0: the generation was stopped before all had started, or a rank could not be killed.
        if self.ends.len() < self.workers || self.first_of(Class::Stopped).is_some() {
            return stopped;
        }
        // A rank that was killed after others had ended with 0 is done, unless it had lost them before the end.
        match self.first_of(Class::OnRequestAfterLoss) {
            Some((culprit, _)) if self.first_of(Class::Done).is_some() => {
                Verdict::Failed { culprit, cause: FailureCause::PeerLost }
            }
            _ => Verdict::Done,
        }
    }

    /// A rank that did not end when its node was recalled; if possible, not one that knew that it had lost others.
    fn unresponsive(&self) -> Option<(usize, &End)> {
        let killed = |class| {
            self.first(|end, own| self.recalled_at_once && end.requested == Requested::Kill && own == class)
        };
        killed(Class::OnRequest).or_else(|| killed(Class::OnRequestAfterLoss))
    }

    fn first_of(&self, class: Class) -> Option<(usize, &End)> {
        self.first(|_, own| own == class)
    }

    fn first(&self, is: impl Fn(&End, Class) -> bool) -> Option<(usize, &End)> {
        self.ends.iter().find(|(_, end)| is(end, self.class(end))).copied()
    }

    fn class(&self, end: &End) -> Class {
        class(end, self.stop_requested, self.stops_unasked)
    }
}
