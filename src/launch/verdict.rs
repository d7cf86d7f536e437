//! Whose doing a run's end was: what each worker's end says, and which one the run's exit code follows from.

use signal_hook::consts::{SIGKILL, SIGTERM};

use super::failure::Evidence;
use super::stop::STOP_SIGNALS;
use crate::error::ExitCode;

/// How a worker process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerStatus {
    Exited(i32),
    Signaled {
        signal: i32,
        core_dumped: bool,
    },
    /// The process never came to be; the operating system's reason.
    NotStarted(String),
}

/// How the generation ended, and whose doing it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub code: ExitCode,
    /// The rank to blame; none when the run is done or was stopped on request.
    pub culprit: Option<usize>,
}

/// What the supervisor had asked of a worker before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    Nothing,
    /// By SIGTERM, or by the word that the run is being taken down.
    ToStop,
    /// SIGKILL.
    ToDie,
}

/// What a worker's end says about the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Exit 0.
    Done,
    /// Exit 75: saved and stopped.
    Stopped,
    /// It died of the supervisor's (or the stop request's) own signal.
    Provoked,
    /// It lost its peers: a consequence of another worker's end, unless no other cause turns up.
    Echo,
    /// A cause of its own.
    Root,
}

/// A worker's end as seen by the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub status: WorkerStatus,
    pub asked: Asked,
    /// 0 for the first worker that ended.
    pub order: usize,
    /// It was killed because it had not ended when the stop deadline passed.
    pub overdue: bool,
    pub evidence: Evidence,
}

/// Whether a run that ended because of `end` may fare better when it is started again.
pub fn is_worth_another_attempt(end: &End) -> bool {
    match (&end.status, end.evidence.kind) {
        (_, Some(kind)) => kind.is_worth_another_attempt(),
        // Processes or memory may be short for a moment.
        (WorkerStatus::Signaled { .. } | WorkerStatus::NotStarted(_), None) => true,
        // A Rust panic.
        (WorkerStatus::Exited(101), None) => false,
        (WorkerStatus::Exited(code), None) => {
            ExitCode::from_status(*code).and_then(ExitCode::restart) != Some(false)
        }
    }
}

/// What `end` says, in the light of what is known now: a stop request that comes in after a worker died of the same
/// signal (Slurm signals every process of a step) explains that death.
pub fn class(end: &End, stop_requested: bool) -> Class {
    const STOPPED: i32 = ExitCode::Stopped as i32;
    const COLLECTIVE: i32 = ExitCode::Collective as i32;
    const RENDEZVOUS: i32 = ExitCode::Rendezvous as i32;
    let asked = end.asked != Asked::Nothing;
    match end.status {
        WorkerStatus::Exited(0) => Class::Done,
        WorkerStatus::Exited(STOPPED) => Class::Stopped,
        WorkerStatus::Exited(COLLECTIVE | RENDEZVOUS) => Class::Echo,
        // 128 + n is how a shell passes on that its child died of signal n.
        WorkerStatus::Exited(code) if asked && code == 128 + SIGTERM => Class::Provoked,
        WorkerStatus::Signaled { signal: SIGKILL, .. } if end.asked == Asked::ToDie => Class::Provoked,
        WorkerStatus::Signaled { signal: SIGTERM, .. } if asked => Class::Provoked,
        WorkerStatus::Signaled { signal, .. } if stop_requested && STOP_SIGNALS.contains(&signal) => {
            Class::Provoked
        }
        _ => Class::Root,
    }
}

/// All that a verdict depends on.
pub(super) struct Run<'a> {
    pub workers: usize,
    /// Ranks that have ended; a rank that was never started, or that the kernel could not end, is missing.
    pub ends: Vec<(usize, &'a End)>,
    /// A rank that did not end by the stop deadline and has still not ended.
    pub overdue: Option<usize>,
    pub stop_requested: bool,
    pub stopped_unharmed: bool,
    /// The controller ended the generation, and no signal did.
    pub recalled_at_once: bool,
}

impl Run<'_> {
    pub fn verdict(mut self) -> Verdict {
        self.ends.sort_by_key(|(_, end)| end.order);
        // Workers may be reaped in another order than they failed in.
        let roots = self.ends.iter().filter(|(_, end)| self.class(end) == Class::Root);
        if let Some((rank, end)) = roots.min_by_key(|(_, end)| (end.evidence.at, end.order)).copied() {
            return Verdict { code: code_of(&end.status), culprit: Some(rank) };
        }
        let overdue =
            self.ends.iter().find(|(_, e)| e.overdue && self.class(e) == Class::Provoked).map(|(r, _)| *r);
        if let Some(rank) = overdue.or(self.overdue) {
            return Verdict { code: ExitCode::WorkerFailed, culprit: Some(rank) };
        }
        let echo = self.first(Class::Echo);
        let stopped = match self.unresponsive() {
            // Other nodes may have lost this very rank, and noticed before anybody here did.
            Some(rank) => {
                let code = echo.map_or(ExitCode::WorkerFailed, |(_, echo)| code_of(&echo.status));
                Verdict { code, culprit: Some(rank) }
            }
            None => Verdict { code: ExitCode::Stopped, culprit: None },
        };
        // One that stopped before training began explains as much as one that died of the request.
        let provoked = self.first(Class::Provoked).or_else(|| self.first(Class::Stopped));
        match (provoked, echo) {
            // A worker that died of the stop request itself explains why the others lost a peer.
            (Some(_), None) if self.stop_requested => return stopped,
            (Some((_, death)), Some((_, echo)))
                if self.stop_requested && (self.stopped_unharmed || death.order < echo.order) =>
            {
                return stopped;
            }
            (_, Some((rank, echo))) => return Verdict { code: code_of(&echo.status), culprit: Some(rank) },
            _ => {}
        }
        // Not every rank ended by itself with 0: stopped before all were there, or killed without ever ending.
        if self.ends.len() < self.workers || self.first(Class::Stopped).is_some() {
            return stopped;
        }
        Verdict { code: ExitCode::Done, culprit: None }
    }

    /// A rank that did not end when its node was recalled.
    fn unresponsive(&self) -> Option<usize> {
        let killed = |end: &End| end.asked == Asked::ToDie && self.class(end) == Class::Provoked;
        self.ends.iter().find(|(_, end)| self.recalled_at_once && killed(end)).map(|(rank, _)| *rank)
    }

    fn first(&self, class: Class) -> Option<(usize, &End)> {
        self.ends.iter().find(|(_, end)| self.class(end) == class).copied()
    }

    fn class(&self, end: &End) -> Class {
        class(end, self.stop_requested)
    }
}

/// The run's exit code for a worker that ended like this: its own code where that is a documented verdict on the job.
pub fn code_of(status: &WorkerStatus) -> ExitCode {
    match status {
        WorkerStatus::Exited(code) => ExitCode::from_status(*code).unwrap_or(ExitCode::WorkerFailed),
        WorkerStatus::Signaled { .. } => ExitCode::WorkerFailed,
        WorkerStatus::NotStarted(_) => ExitCode::Internal,
    }
}
