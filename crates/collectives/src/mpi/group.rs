//! [`MpiGroup`]: the lock, and the steps of each operation.

use super::engine::{Engine, MpiShared, PAYLOAD};
use super::start;
use crate::calls::lock;
use crate::execute::{Shared as _, execute};
use crate::reduce::{Reduction, combine_all};
use crate::{
    Call, CallRecord, CommError, CommErrorKind, FlightRecorder, MpiConfig, ProcessGroup, ReduceOp, SliceMut,
    StepPhase, messages,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A process group of the ranks of an MPI job. Dropping it leaves the group in order: it waits until the other ranks
/// leave, too, and then ends MPI. After a failure, dropping it leaves MPI running, and the process should end with the
/// exit code of the failure.
pub(super) struct MpiGroup {
    rank: usize,
    world: usize,
    timeout: Duration,
    shared: Arc<MpiShared>,
    /// None while the group is being dropped.
    engine: Mutex<Option<Engine>>,
}

impl MpiGroup {
    /// Starts MPI, which a process can do only once, and waits for the other ranks; blocks for at most `init_timeout`.
    pub(super) fn connect(config: &MpiConfig) -> Result<Self, CommError> {
        let engine = start::start(config)?;
        Ok(Self {
            rank: engine.me,
            world: engine.world,
            timeout: config.timeout,
            shared: engine.shared.clone(),
            engine: Mutex::new(Some(engine)),
        })
    }

    #[cfg(test)]
    pub(super) fn set_grace_periods(&self, grace_periods: super::control_messages::GracePeriods) {
        if let Some(engine) = lock(&self.engine).as_mut() {
            engine.grace_periods = grace_periods;
        }
    }

    #[cfg(test)]
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}

impl Engine {
    /// Runs the call that has begun.
    fn run(&mut self, call: Call<'_>) -> Result<(), CommError> {
        match call {
            Call::Send { buf, to, .. } => return self.send_message(buf.bytes(), to),
            Call::Recv { mut buf, from, .. } => return self.recv_message(buf.bytes_mut(), from),
            Call::AllReduce { buf, op } if buf.bytes().len() <= PAYLOAD => {
                return self.reduce_in_notice(buf, op);
            }
            _ => self.agree_on_call()?,
        }
        let dtype = self.header.dtype;
        match call {
            Call::AllReduce { mut buf, op } => self.reduce_chunks(buf.bytes_mut(), dtype, op, None),
            Call::Reduce { mut buf, op, root } => self.reduce_chunks(buf.bytes_mut(), dtype, op, Some(root)),
            Call::Broadcast { mut buf, root } => self.broadcast_chunks(buf.bytes_mut(), root),
            Call::AllGather { input, mut output } => {
                self.all_gather_chunks(input.bytes(), output.bytes_mut())
            }
            Call::ReduceScatter { input, mut output, op } => {
                self.reduce_scatter_chunks(input.bytes(), output.bytes_mut(), dtype, op)
            }
            Call::Barrier(_) | Call::Send { .. } | Call::Recv { .. } => Ok(()),
        }
    }

    /// Every notice contains the rank's whole buffer: each rank combines them in rank order.
    fn reduce_in_notice(&mut self, mut buf: SliceMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        let notices = self.exchange(buf.bytes())?;
        let (over, bytes, world) = (Reduction { dtype: buf.dtype(), op }, buf.bytes().len(), self.world);
        let operand = |rank| notices.payload(rank, bytes);
        let divisor = (op == ReduceOp::Mean).then_some(world);
        combine_all(over, buf.bytes_mut(), (operand, world), divisor);
        self.give_back(notices.memory);
        Ok(())
    }
}

impl ProcessGroup for MpiGroup {
    fn rank(&self) -> usize {
        self.rank
    }
    fn world_size(&self) -> usize {
        self.world
    }
    fn backend(&self) -> &'static str {
        "mpi"
    }

    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        let mut engine = lock(&self.engine);
        let Some(engine) = engine.as_mut() else { return Ok(()) };
        let header = call.header(start::base());
        execute(engine, call, header, self.timeout, Engine::run)
    }

    fn abort(&self, why: &str) {
        self.shared.fail(CommErrorKind::Aborted, Some(self.rank), &messages::aborted(self.rank, why));
        // A running call checks for failures within milliseconds, and then releases the engine.
        if let Some(engine) = lock(&self.engine).as_mut() {
            engine.announce_failure();
        }
    }

    fn flight_recorder(&self) -> Option<&dyn FlightRecorder> {
        Some(self)
    }
}

impl FlightRecorder for MpiGroup {
    fn note(&self, place: StepPhase) {
        self.shared.calls.note(place);
    }

    fn place(&self) -> StepPhase {
        self.shared.calls.place()
    }

    fn history(&self) -> Vec<CallRecord> {
        self.shared.calls.history()
    }
}

impl Drop for MpiGroup {
    fn drop(&mut self) {
        let engine = self.engine.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut engine) = engine else { return };
        if self.shared.failed.get().is_some() {
            engine.linger(false);
        } else if !engine.leave() {
            engine.linger(true);
        } else {
            let Engine { init_thread, library, .. } = engine;
            if !init_thread.finalize(library) {
                tracing::warn!(
                    "rank {}: MPI_Finalize did not return; the process exits without it",
                    self.rank
                );
            }
        }
    }
}
