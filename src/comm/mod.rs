//! Collectives between the processes of a run.
//!
//! [`ProcessGroup`] is the one interface that the rest of the program sees. An engine (gloo over TCP here; others
//! join it) owns its connections, its deadlines and its algorithms; a caller hands over typed slices and gets the
//! reduced bits, the same on every rank, or an error that names a rank.

mod buffer;
mod call;
mod calls;
mod check;
mod conduct;
mod config;
mod control;
mod device;
#[cfg(any(test, fuzzing))]
mod fuzz;
pub mod gloo;
mod gpu;
mod header;
pub mod mpi;
pub mod nccl;
mod probe;
mod record;
mod reduce;
#[cfg(test)]
mod reference;
pub mod rendezvous;
mod solo;
#[cfg(test)]
pub(crate) mod testing;
mod watch;

pub use buffer::{DType, Element, SliceMut, SliceRef};
pub use call::Call;
pub use config::{Backend, DistributedConfig};
pub use device::{DeviceCollectives, DeviceSlice};
#[cfg(fuzzing)]
pub use fuzz::decode_anything;
pub(crate) use gpu::{GpuUuid, on_one_gpu};
pub use record::{CallRecord, Phase, Place};
pub use solo::SoloGroup;
pub use watch::Watch;

use std::time::Duration;

/// How elements of the same position are combined. `Mean` divides the sum by the world size (floats only).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ReduceOp {
    /// In rank order.
    Sum,
    /// The sum over the world size.
    Mean,
    /// NaN wins.
    Max,
    /// NaN wins.
    Min,
}

impl ReduceOp {
    /// Each of them.
    pub const ALL: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min];

    /// `sum`, `mean`, `max`, `min`.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
}

/// How long a collective may wait for its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The group's own deadline (`[distributed] timeout`).
    Deadline,
    /// As long as every peer's connection lives: for work whose length is not bounded, such as rank 0 preparing data.
    WhilePeersLive,
    /// This long.
    AtMost(Duration),
}

/// A process group: `world_size` processes that call the same collectives in the same order.
///
/// Every method blocks until its result is there or an error is certain. After an error the group is unusable: each
/// later call returns the same error at once. Results are bit-equal on all ranks and from run to run for a given
/// world size and algorithm. Methods take `&self` and may be called from several threads; calls are executed one
/// at a time in the order in which they take the group's lock, so callers keep that order equal on all ranks.
pub trait ProcessGroup: Send + Sync {
    /// This process's number, from 0.
    fn rank(&self) -> usize;
    /// The number of processes.
    fn world_size(&self) -> usize;
    /// The engine's name in specs and logs: `gloo`, `nccl`, `mpi`, `solo`.
    fn backend(&self) -> &'static str;
    /// Carries out one call: what the methods below are made of.
    fn call(&self, call: Call<'_>) -> Result<(), CommError>;
    /// `buf` holds this rank's contribution and receives the reduction over all ranks.
    fn all_reduce(&self, buf: SliceMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        self.call(Call::AllReduce { buf, op })
    }
    /// As `all_reduce`, but only `root`'s `buf` receives the result; the others' contents are unspecified after.
    fn reduce(&self, buf: SliceMut<'_>, op: ReduceOp, root: usize) -> Result<(), CommError> {
        self.call(Call::Reduce { buf, op, root })
    }
    /// Every rank's `buf` becomes that of `root`.
    fn broadcast(&self, buf: SliceMut<'_>, root: usize) -> Result<(), CommError> {
        self.call(Call::Broadcast { buf, root })
    }
    /// `output` has `world_size * input.len()` elements: rank r's input lands at block r.
    fn all_gather(&self, input: SliceRef<'_>, output: SliceMut<'_>) -> Result<(), CommError> {
        self.call(Call::AllGather { input, output })
    }
    /// `input` has `world_size * output.len()` elements: rank r receives the reduction of everyone's block r.
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
    /// Returns when the bytes are on their way, which is not to say that they have arrived.
    fn send(&self, buf: SliceRef<'_>, to: usize, tag: u32) -> Result<(), CommError> {
        self.call(Call::Send { buf, to, tag })
    }
    /// Fills `buf` with what rank `from` sends under `tag`; lengths are equal.
    fn recv(&self, buf: SliceMut<'_>, from: usize, tag: u32) -> Result<(), CommError> {
        self.call(Call::Recv { buf, from, tag })
    }
    /// Gives up for a reason of this rank's own (`why`), so that every peer's pending or next collective fails at
    /// once with a message that names this rank. Idempotent.
    fn abort(&self, why: &str);
    /// Says where in its work this rank is, for the reports of failures. Costs a few nanoseconds.
    fn note(&self, _place: Place) {}
    /// The place last noted; for an engine that keeps only its calls, that of the last call.
    fn place(&self) -> Place {
        self.history().last().map(|call| call.place).unwrap_or_default()
    }
    /// The last calls (64 at most), oldest first; empty for engines that keep none.
    fn history(&self) -> Vec<CallRecord> {
        Vec::new()
    }
    /// Collectives on device memory, of engines that have them.
    fn device_collectives(&self) -> Option<&dyn DeviceCollectives> {
        None
    }
    /// Of engines that others can have for control.
    fn watch(&self) -> Option<&dyn Watch> {
        None
    }
}

/// What kind of end a collective met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommErrorKind {
    /// A peer's connection closed or broke.
    PeerLost,
    /// A peer was silent until the deadline.
    Timeout,
    /// Ranks disagree on what is being called (operation, type, count, sequence).
    Mismatch,
    /// The call itself is wrong (rank out of range, lengths that don't fit, `Mean` of integers).
    Misuse,
    /// The processes did not find each other, or one could not prove the run's secret.
    Rendezvous,
    /// A peer called `abort`.
    Aborted,
}

/// Why a collective failed, and whose doing it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommError {
    /// What happened.
    pub kind: CommErrorKind,
    /// The peer that caused it, where that is known.
    pub peer: Option<usize>,
    /// A sentence that names the rank, the call and the peer.
    pub message: String,
}

impl CommError {
    /// Of these parts.
    pub fn new(kind: CommErrorKind, peer: Option<usize>, message: impl Into<String>) -> Self {
        Self { kind, peer, message: message.into() }
    }
}

impl std::fmt::Display for CommError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommError {}

impl From<CommError> for crate::error::Error {
    fn from(e: CommError) -> Self {
        use crate::error::{Error, ExitCode};
        let code = match e.kind {
            CommErrorKind::Rendezvous => ExitCode::Rendezvous,
            CommErrorKind::Misuse | CommErrorKind::Mismatch => ExitCode::Internal,
            CommErrorKind::PeerLost | CommErrorKind::Timeout | CommErrorKind::Aborted => ExitCode::Collective,
        };
        Error::new(code, e.message.clone()).cause(e)
    }
}
