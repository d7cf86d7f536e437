#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod buffer;
mod call;
mod calls;
pub mod config;
mod control;
pub mod device;
mod execute;
#[cfg(any(test, fuzzing))]
mod fuzz;
pub mod gloo;
mod gpu;
mod header;
mod init;
pub mod launchers;
mod messages;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "mpi/missing.rs"]
pub mod mpi;
#[cfg(feature = "nccl")]
pub mod nccl;
#[cfg(not(feature = "nccl"))]
#[path = "nccl/missing.rs"]
pub mod nccl;
mod options;
mod probe;
pub mod record;
mod reduce;
#[cfg(test)]
mod reference;
pub mod rendezvous;
mod solo;
#[doc(hidden)]
pub mod testing;
mod threads;
mod variables;

pub use buffer::{DType, Element, SliceMut, SliceRef};
pub use call::Call;
pub use config::DistributedConfig;
pub use init::init;
pub use options::Options;
pub use rendezvous::{KeySource, RdzvEndpoint};
pub use solo::SoloGroup;
pub use threads::spawn;

// Names that ddp-run's program uses; users find them in the modules.
#[doc(hidden)]
pub use calls::lock;
#[doc(hidden)]
pub use config::{Backend, MpiConfig};
#[doc(hidden)]
pub use device::{DeviceCollectives, DeviceSlice};
#[cfg(fuzzing)]
#[doc(hidden)]
pub use fuzz::decode_anything;
#[doc(hidden)]
pub use gpu::{GpuUuid, on_one_gpu};
#[doc(hidden)]
pub use header::Algorithm;
#[doc(hidden)]
pub use record::{CallRecord, FlightRecorder, Phase, StepPhase};

use base::named;
use std::time::Duration;

named! {
    /// How elements at the same position are combined. `Mean` divides the sum by the world size (floats only). Codes
    /// on the wire are positions: append only.
    pub enum ReduceOp {
        /// The order of the operands depends on the transport and the algorithm: rank order in shared memory.
        Sum = "sum",
        /// The sum divided by the world size.
        Mean = "mean",
        /// NaN wins.
        Max = "max",
        /// NaN wins.
        Min = "min",
    }
}

/// How long a collective may wait for its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The group's timeout (`[distributed] timeout`).
    Deadline,
    /// As long as every peer's connection is alive: for work of unbounded length, such as rank 0 preparing data.
    WhilePeersLive,
    /// The group's timeout, and this much longer.
    Longer(Duration),
}

/// A process group: `world_size` processes that call the same collectives in the same order.
///
/// Every method blocks until its result is available or the call has failed. After an error the group is unusable: each
/// later call returns the same error at once. Results are bit-equal on all ranks, and from run to run for a given world
/// size and algorithm. Methods take `&self` and may be called from several threads; calls run one at a time, in the
/// order in which they take the group's lock. Callers must keep that order equal on all ranks.
pub trait ProcessGroup: Send + Sync {
    /// This process's rank, from 0.
    fn rank(&self) -> usize;
    /// The number of processes.
    fn world_size(&self) -> usize;
    /// The engine's name in specs and logs: `gloo`, `nccl`, `mpi`, `solo`.
    fn backend(&self) -> &'static str;
    /// Runs one call; the methods below are built on it.
    fn call(&self, call: Call<'_>) -> Result<(), CommError>;
    /// `buf` holds this rank's contribution and receives the reduction over all ranks.
    fn all_reduce(&self, buf: SliceMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        self.call(Call::AllReduce { buf, op })
    }
    /// Like `all_reduce`, but only `root`'s `buf` receives the result; the contents of the others are unspecified afterwards.
    fn reduce(&self, buf: SliceMut<'_>, op: ReduceOp, root: usize) -> Result<(), CommError> {
        self.call(Call::Reduce { buf, op, root })
    }
    /// Copies `root`'s `buf` to every rank's `buf`.
    fn broadcast(&self, buf: SliceMut<'_>, root: usize) -> Result<(), CommError> {
        self.call(Call::Broadcast { buf, root })
    }
    /// `output` has `world_size * input.len()` elements; rank r's input becomes block r.
    fn all_gather(&self, input: SliceRef<'_>, output: SliceMut<'_>) -> Result<(), CommError> {
        self.call(Call::AllGather { input, output })
    }
    /// `input` has `world_size * output.len()` elements; rank r receives the reduction of block r over all ranks.
    fn reduce_scatter(
        &self,
        input: SliceRef<'_>,
        output: SliceMut<'_>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        self.call(Call::ReduceScatter { input, output, op })
    }
    /// Returns when every rank has called it.
    fn barrier(&self, wait: Wait) -> Result<(), CommError> {
        self.call(Call::Barrier(wait))
    }
    /// Returns when the bytes have been passed on for sending, not when they have arrived.
    fn send(&self, buf: SliceRef<'_>, to: usize, tag: u32) -> Result<(), CommError> {
        self.call(Call::Send { buf, to, tag })
    }
    /// Fills `buf` with what rank `from` sends with `tag`; both lengths must be equal.
    fn recv(&self, buf: SliceMut<'_>, from: usize, tag: u32) -> Result<(), CommError> {
        self.call(Call::Recv { buf, from, tag })
    }
    /// Ends the group for a reason local to this rank (`why`): every peer's pending or next collective fails at once
    /// with a message that names this rank. Idempotent.
    fn abort(&self, why: &str);
    /// The record of this rank's place and calls, if the group keeps one.
    fn flight_recorder(&self) -> Option<&dyn FlightRecorder> {
        None
    }
    /// Collectives on device memory, if the engine has them.
    fn device_collectives(&self) -> Option<&dyn DeviceCollectives> {
        None
    }
    /// Failure detection for an engine that uses this group for control, if the group offers it.
    fn failure_detector(&self) -> Option<&dyn FailureDetector> {
        None
    }
}

/// What a group offers an engine that moves its data outside the group and uses it for control: detection of failures
/// while no call runs, and of late ranks.
pub trait FailureDetector: Send + Sync {
    /// Reads messages from the peers without blocking. A peer that is gone or has aborted ends the group; the error is
    /// that of every later call. Call it many times a second, because it also answers the peers' questions.
    fn poll(&self) -> Result<(), CommError>;
    /// Sets the number of the engine's calls that this rank has made so far, for peers that ask.
    fn set_calls_made(&self, calls: u64);
    /// The engine's call `number` (`call`, as text) did not complete within `time_limit`: asks every peer for its progress, and
    /// ends the group on all ranks with the verdict.
    fn report_overdue(&self, call: &str, number: u64, time_limit: Duration) -> CommError;
}

named! {
    /// How a collective failed.
    pub enum CommErrorKind {
        /// A peer's connection closed or broke.
        PeerLost = "peer-lost",
        /// A peer did not respond before the deadline.
        Timeout = "timeout",
        /// Ranks disagree on the call (operation, type, count, sequence number).
        Mismatch = "mismatch",
        /// The call itself is invalid (rank out of range, lengths that don't fit, `Mean` of integers).
        Misuse = "misuse",
        /// The processes did not find each other, or one could not prove the run's secret.
        Rendezvous = "rendezvous",
        /// A peer called `abort`.
        Aborted = "aborted",
        /// A library or a device that the group needs is missing.
        Unavailable = "unavailable",
        /// An option, a variable of the environment or the key of the run's secret is missing or invalid.
        Configuration = "configuration",
    }
}

/// Why a collective failed, and which rank caused it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[error("{message}")]
pub struct CommError {
    /// The kind of failure.
    pub kind: CommErrorKind,
    /// The peer that caused it, if known.
    pub peer: Option<usize>,
    /// A sentence that names the rank, the call and the peer.
    pub message: String,
    /// What to do about it.
    #[serde(skip)]
    pub hint: Option<String>,
}

impl CommError {
    /// Creates an error from its parts.
    pub fn new(kind: CommErrorKind, peer: Option<usize>, message: impl Into<String>) -> Self {
        Self { kind, peer, message: message.into(), hint: None }
    }

    /// The group could not be formed; no rank is to blame.
    pub fn rendezvous(message: impl Into<String>) -> Self {
        Self::new(CommErrorKind::Rendezvous, None, message)
    }

    /// What this process was told is missing or invalid.
    pub fn configuration(message: impl Into<String>) -> Self {
        Self::new(CommErrorKind::Configuration, None, message)
    }

    /// A library or a device is missing.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(CommErrorKind::Unavailable, None, message)
    }

    /// The same error, caused by `peer`.
    pub(crate) fn caused_by(self, peer: Option<usize>) -> Self {
        Self { peer, ..self }
    }

    /// The same error with a way out.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A timeout before the first call is a failure of the rendezvous.
    fn at_the_start(self) -> Self {
        match self.kind {
            CommErrorKind::Timeout => Self { kind: CommErrorKind::Rendezvous, ..self },
            _ => self,
        }
    }
}

impl From<CommError> for base::error::Error {
    fn from(e: CommError) -> Self {
        use base::error::{Error, ErrorKind};
        let code = match e.kind {
            CommErrorKind::Configuration => ErrorKind::Usage,
            CommErrorKind::Unavailable => ErrorKind::Unavailable,
            CommErrorKind::Rendezvous => ErrorKind::Rendezvous,
            CommErrorKind::Misuse | CommErrorKind::Mismatch => ErrorKind::Internal,
            CommErrorKind::PeerLost | CommErrorKind::Timeout | CommErrorKind::Aborted => {
                ErrorKind::Collective
            }
        };
        Error { hint: e.hint.clone(), ..Error::new(code, e.message.clone()) }.cause(e)
    }
}
