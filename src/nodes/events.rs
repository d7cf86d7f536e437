//! What the policy hears and says: the events of a run's nodes, and the actions that they lead to.

use super::NodeRange;
use crate::error::ExitCode;
use crate::launch::{Cause, Failed};
use std::time::Duration;

/// A node's connection; never reused.
pub type Member = u64;

/// How often, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub nodes: NodeRange,
    /// Restarts without progress.
    pub max_restarts: u32,
    /// For the nodes to come together at first.
    pub join: Duration,
    /// For a lost node to come back.
    pub rejoin: Duration,
    /// How long more than the least number of nodes is waited for, once there are enough.
    pub settle: Duration,
    /// Before the second restart without progress; the first follows at once. Doubles each time.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// For a node to report after it was recalled; then it counts as lost.
    pub report: Duration,
    /// The same where its workers save first.
    pub grace: Duration,
}

impl Limits {
    /// The usual pauses, for a run of `nodes`.
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
            grace: Duration::from_secs(600),
        }
    }

    /// Before restart number `n` (from 1) without progress.
    pub(super) fn pause_before(&self, n: u32) -> Duration {
        match n {
            0 | 1 => Duration::ZERO,
            n => self.pause.saturating_mul(1 << (n - 2).min(16)).min(self.longest_pause),
        }
    }
}

/// What a node reports that failed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    pub code: ExitCode,
    pub weight: Weight,
    /// Another attempt may fare better.
    pub retry: bool,
    /// The rank that it is about; for an echo the one that it lost, as it says.
    pub rank: Option<usize>,
    /// What was wrong, for people.
    pub message: String,
    pub hint: Option<String>,
}

/// How near a node's failure is to the cause: the heaviest of a generation is blamed, the first of those that weigh the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// A rank lost a peer elsewhere.
    Echo,
    /// A rank of this node had to be killed when the node was recalled: it may be the one that others lost.
    Unresponsive,
    /// The node itself is gone.
    LostNode,
    /// A rank of this node was silent, as its peers say.
    Blamed,
    /// A rank of this node failed by itself.
    Root,
}

/// How a node's part of a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeEnd {
    Done,
    /// Saved and stopped, or taken down as asked.
    Stopped,
    Failed(Failure),
}

/// `Done` or `Stopped`, or what failed.
impl From<Result<ExitCode, Failed>> for NodeEnd {
    fn from(end: Result<ExitCode, Failed>) -> Self {
        match end {
            Ok(ExitCode::Done) => NodeEnd::Done,
            Ok(_) => NodeEnd::Stopped,
            Err(Failed { code, cause, retry, rank, message, hint }) => {
                let weight = match cause {
                    Cause::Echo => Weight::Echo,
                    Cause::Unresponsive => Weight::Unresponsive,
                    Cause::Blamed => Weight::Blamed,
                    Cause::Root => Weight::Root,
                };
                NodeEnd::Failed(Failure { code, weight, retry, rank, message, hint })
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Joined {
        member: Member,
        /// The node rank that it was given, if any.
        seat: Option<usize>,
        /// Tells a supervisor that was started again on the same host from another node that claims its seat.
        host: String,
        nproc: usize,
        /// The last generation that it knows of.
        generation: u64,
    },
    Lost(Member),
    Ended {
        member: Member,
        end: NodeEnd,
        /// The newest checkpoint's step, as far as the node sees it.
        checkpoint: Option<u64>,
    },
    /// A stop signal reached the node's supervisor, which has passed it on to its workers.
    StopRequested {
        member: Member,
        /// It was the second one.
        at_once: bool,
    },
    TimerFired(Timer),
}

/// Setting a timer that is running already restarts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// The nodes needed did not come.
    Join,
    /// No more than the nodes needed came.
    Settle,
    Pause,
    /// A recalled node did not report.
    Report,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start(Generation),
    /// To one node: end your workers; with `save`, at a step boundary and with a checkpoint.
    Recall {
        member: Member,
        save: bool,
    },
    Refuse {
        member: Member,
        why: String,
        /// It may ask again.
        later: bool,
    },
    /// Breaks the connection to a node that is taken for lost; it may come back.
    CutOff(Member),
    /// The node leaves, as it was asked to.
    Dismiss(Member),
    /// The next generation can't start yet: for the pause, or for nodes that are missing.
    Announce {
        reason: String,
        missing: Vec<usize>,
        pause: Duration,
    },
    SetTimer(Timer, Duration),
    /// The run is over, for all nodes.
    Finish {
        code: ExitCode,
        failure: Option<Failure>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// From 1.
    pub number: u64,
    /// From 1; counts the starts since the last progress.
    pub attempt: u32,
    /// Each node and its number of workers, in the order of ranks.
    pub nodes: Vec<(Member, usize)>,
    /// Why there is another one.
    pub reason: Option<String>,
    /// The newest checkpoint's step, which it goes on from.
    pub checkpoint: Option<u64>,
}
