//! Input and output of the policy: events of a run's nodes, and the actions in response.

use super::NodeRange;
use crate::ExitCode;
use crate::LaunchConfig;
pub(crate) use crate::{Attribution, NodeEnd, NodeFailure, Recall};
use std::time::Duration;

/// Identifies a node's connection; never reused.
pub type Member = u64;

/// Limits of restarts and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The run starts with `min` to `max` nodes.
    pub nodes: NodeRange,
    /// Restarts without progress in between.
    pub max_restarts: u32,
    /// For the nodes to arrive at the start.
    pub join: Duration,
    /// For a lost node to return.
    pub rejoin: Duration,
    /// How long to wait for further nodes once the minimum is present.
    pub settle: Duration,
    /// Pause before the second restart without progress; the first follows at once. Doubles each time.
    pub pause: Duration,
    /// Upper limit of the doubled pause.
    pub longest_pause: Duration,
    /// For a recalled node to report once its workers have ended; after that it counts as lost.
    pub report: Duration,
    /// For the workers of a node that is taken down.
    pub shutdown: Duration,
    /// For the workers of a node that is to save.
    pub grace: Duration,
    /// Workers end together: when those of one node are done, all are, or have `report` to end.
    pub together: bool,
}

impl Limits {
    /// Limits of a run of `nodes` with the default pauses.
    pub fn new(nodes: NodeRange) -> Self {
        Self {
            nodes,
            max_restarts: 0,
            join: Duration::from_secs(300),
            rejoin: Duration::from_secs(300),
            settle: Duration::from_secs(2),
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            report: Duration::from_secs(15),
            shutdown: *LaunchConfig::default().shutdown_timeout,
            grace: Duration::from_secs(600),
            together: true,
        }
    }

    /// The pause before restart `n` (from 1) without progress.
    pub(super) fn pause_before(&self, n: u32) -> Duration {
        match n {
            0 | 1 => Duration::ZERO,
            n => self.pause.saturating_mul(1 << (n - 2).min(16)).min(self.longest_pause),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Joined {
        member: Member,
        /// The node rank that it was started with, if any.
        seat: Option<usize>,
        /// The hostname; distinguishes a supervisor restarted on the same host from another node that claims its seat.
        host: String,
        nproc: usize,
        /// The last generation that it has seen.
        generation: u64,
    },
    Lost(Member),
    Ended {
        member: Member,
        end: NodeEnd,
        /// The step of the newest checkpoint that the node can see.
        checkpoint: Option<u64>,
    },
    /// A stop signal reached the node's supervisor, which has forwarded it to its workers.
    StopRequested {
        member: Member,
        /// It was the second signal.
        at_once: bool,
    },
    TimerFired(Timer),
    /// Why a node that may be a missing one is not connected.
    Rejected(String),
}

/// Setting a timer that is running restarts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// The time for the required nodes to arrive is over.
    Join,
    /// The time for further nodes to arrive is over.
    Settle,
    Pause,
    /// The time for recalled nodes to report is over.
    Report,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start(Generation),
    /// Tells one node to end its workers.
    Recall {
        member: Member,
        how: Recall,
    },
    Refuse {
        member: Member,
        why: String,
        /// It may try again.
        later: bool,
    },
    /// Breaks the connection to a node that is considered lost; it may return.
    CutOff(Member),
    /// The node leaves, as requested.
    Dismiss(Member),
    /// The next generation can't start yet, because of the pause or missing nodes.
    Announce {
        reason: String,
        missing: Vec<usize>,
        pause: Duration,
    },
    SetTimer(Timer, Duration),
    /// The run is over on all nodes.
    Finish {
        code: ExitCode,
        failure: Option<NodeFailure>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// From 1.
    pub number: u64,
    /// From 1; number of the attempt since the last progress.
    pub attempt: u32,
    /// Each node and its number of workers, in rank order.
    pub nodes: Vec<(Member, usize)>,
    /// Why the previous generation ended.
    pub reason: Option<String>,
    /// The step of the newest checkpoint, from which it resumes.
    pub checkpoint: Option<u64>,
}
