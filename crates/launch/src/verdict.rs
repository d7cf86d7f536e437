//! The cause of a run's end: classifies each worker's end and selects the one that decides the exit code.

use signal_hook::consts::{SIGABRT, SIGKILL, SIGTERM};

use super::failure::{Evidence, Kind};
use super::stop::STOP_SIGNALS;
use crate::ExitCode;

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

/// How the generation ended, and which rank caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The supervisor's exit code.
    pub code: ExitCode,
    /// The rank to blame; none if the run is done or was stopped on request.
    pub culprit: Option<usize>,
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
    /// It lost its peers: a consequence of another worker's end, unless no other cause is found.
    Consequence,
    /// An independent failure.
    RootCause,
}

impl Class {
    pub fn is_on_request(self) -> bool {
        matches!(self, Class::OnRequest | Class::OnRequestAfterLoss)
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

/// Whether a restart may succeed after `end`.
pub fn is_retryable(end: &End) -> bool {
    match (&end.status, end.evidence.kind) {
        // A panic that the rank had outlived; one that ends the process aborts it.
        (WorkerStatus::Signaled { signal, .. }, Some(Kind::Bug)) if end.evidence.own.is_none() => {
            *signal != SIGABRT
        }
        (_, Some(kind)) => kind.is_retryable(),
        // Processes or memory may be scarce temporarily.
        (WorkerStatus::Signaled { .. } | WorkerStatus::NotStarted(_), None) => true,
        // A Rust panic.
        (WorkerStatus::Exited(101), None) => false,
        (WorkerStatus::Exited(code), None) => {
            ExitCode::of_worker(*code).and_then(ExitCode::restart) != Some(false)
        }
    }
}

/// The class of `end`. A stop request that arrives after a worker died of the same signal explains that death: Slurm
/// signals every process of a step. `stops_unasked` is that of [`Policy`](super::state::Policy).
pub fn class(end: &End, stop_requested: bool, stops_unasked: bool) -> Class {
    const STOPPED: i32 = ExitCode::Stopped as i32;
    const COLLECTIVE: i32 = ExitCode::Collective as i32;
    const RENDEZVOUS: i32 = ExitCode::Rendezvous as i32;
    match end.status {
        WorkerStatus::Exited(0) => Class::Done,
        WorkerStatus::Exited(STOPPED)
            if stops_unasked || stop_requested || end.requested != Requested::Nothing =>
        {
            Class::Stopped
        }
        WorkerStatus::Exited(COLLECTIVE | RENDEZVOUS) => Class::Consequence,
        // A rank that failed may still save or wait for its sinks when its peers' ends take the run down.
        _ if end.evidence.own.is_some() => Class::RootCause,
        _ if !died_on_request(end, stop_requested) => Class::RootCause,
        _ if end.evidence.lost_others() => Class::OnRequestAfterLoss,
        _ => Class::OnRequest,
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
pub(super) struct Run<'a> {
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

impl Run<'_> {
    pub fn verdict(mut self) -> Verdict {
        self.ends.sort_by_key(|(_, end)| end.order);
        // Workers may be reaped in a different order than they failed.
        let roots = self.ends.iter().filter(|(_, end)| self.class(end) == Class::RootCause);
        if let Some((rank, end)) = roots.min_by_key(|(_, end)| (end.evidence.at, end.order)).copied() {
            return Verdict { code: code_of(end), culprit: Some(rank) };
        }
        let overdue = self.first(|end, class| end.overdue && class.is_on_request()).map(|(rank, _)| rank);
        if let Some(rank) = overdue.or(self.overdue) {
            return Verdict { code: ExitCode::WorkerFailed, culprit: Some(rank) };
        }
        let consequence = self.first_of(Class::Consequence);
        let stopped = match self.unresponsive() {
            // Other nodes may have lost this rank and detected it earlier than this node.
            Some((rank, end)) => {
                let lost = self.class(end) == Class::OnRequestAfterLoss;
                let own = if lost { ExitCode::Collective } else { ExitCode::WorkerFailed };
                let code = consequence.map_or(own, |(_, consequence)| code_of(consequence));
                Verdict { code, culprit: Some(rank) }
            }
            None => Verdict { code: ExitCode::Stopped, culprit: None },
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
            (_, Some((rank, consequence))) => {
                return Verdict { code: code_of(consequence), culprit: Some(rank) };
            }
            _ => {}
        }
        // Not all ranks exited with 0: the generation was stopped before all had started, or a rank could not be killed.
        if self.ends.len() < self.workers || self.first_of(Class::Stopped).is_some() {
            return stopped;
        }
        // A rank that was killed after others had ended with 0 is done, unless it had lost them before the end.
        match self.first_of(Class::OnRequestAfterLoss) {
            Some((rank, _)) if self.first_of(Class::Done).is_some() => {
                Verdict { code: ExitCode::Collective, culprit: Some(rank) }
            }
            _ => Verdict { code: ExitCode::Done, culprit: None },
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

/// The run's exit code for a worker's end: the worker's own code if it is a documented verdict on the job, and that of its
/// failure if it did not live to exit with it.
pub fn code_of(end: &End) -> ExitCode {
    let exited = match end.status {
        WorkerStatus::NotStarted(_) => return ExitCode::Internal,
        // A worker that stopped unasked has failed.
        WorkerStatus::Exited(code) => ExitCode::of_worker(code).filter(|own| *own != ExitCode::Stopped),
        WorkerStatus::Signaled { .. } => None,
    };
    exited.or(end.evidence.own).unwrap_or(ExitCode::WorkerFailed)
}
