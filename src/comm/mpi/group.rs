//! [`MpiGroup`]: argument checks, the lock, and each operation's steps.

use super::MpiConfig;
use super::engine::{Board, Engine, PAYLOAD, Shared};
use super::meet;
use crate::comm::calls::lock;
use crate::comm::conduct::conduct;
use crate::comm::header::{Header, Operation};
use crate::comm::{
    CallRecord, CommError, CommErrorKind, DType, Place, ProcessGroup, ReduceOp, SliceMut, SliceRef, Wait,
    check, reduce,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A process group of the ranks of an MPI job. Drop it to leave in peace: that waits for the others to leave, too, and
/// then ends MPI. After a failure the drop leaves MPI as it is, and the process should end with an exit code that says so.
pub struct MpiGroup {
    rank: usize,
    world: usize,
    timeout: Duration,
    shared: Arc<Shared>,
    /// None once the group is being dropped.
    engine: Mutex<Option<Engine>>,
}

impl MpiGroup {
    /// Starts MPI, which a process can do once, and meets the other ranks; blocks for `init_timeout` at most.
    pub fn connect(config: &MpiConfig) -> Result<Self, CommError> {
        let engine = meet::meet(config)?;
        Ok(Self {
            rank: engine.me,
            world: engine.world,
            timeout: config.timeout,
            shared: engine.shared.clone(),
            engine: Mutex::new(Some(engine)),
        })
    }

    #[cfg(test)]
    pub(super) fn give(&self, graces: super::news::Graces) {
        if let Some(engine) = lock(&self.engine).as_mut() {
            engine.graces = graces;
        }
    }

    #[cfg(test)]
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Runs one call under the lock. A world of one has nobody to talk to: `run` is left out.
    fn call(
        &self,
        check: Result<(), CommError>,
        header: Header,
        patience: Option<Duration>,
        run: impl FnOnce(&mut Engine) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let mut engine = lock(&self.engine);
        let Some(engine) = engine.as_mut() else { return Ok(()) };
        let alone = self.world == 1;
        conduct(engine, check, header, patience, |engine| if alone { Ok(()) } else { run(engine) })
    }

    fn header(&self, operation: Operation, dtype: DType, count: usize) -> Header {
        Header { operation, dtype, count: count as u64, ..meet::base() }
    }
}

/// Every rank's whole buffer came with its notice: each combines them in rank order.
fn combine(board: &Board, buf: &mut SliceMut<'_>, op: ReduceOp, world: usize) {
    let (dtype, bytes) = (buf.dtype(), buf.as_ref().bytes().len());
    let operand = |rank| board.payload(rank, bytes);
    let divisor = (op == ReduceOp::Mean).then_some(world);
    reduce::combine_all(dtype, op, buf.bytes_mut(), (operand, world), divisor);
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

    fn all_reduce(&self, mut buf: SliceMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        let check = check::reduction("all_reduce", buf.dtype(), op);
        let header = self.header(Operation::AllReduce, buf.dtype(), buf.len());
        let header = Header { reduce_op: op, ..header };
        self.call(check, header, Some(self.timeout), |engine| {
            let small = buf.bytes().len() <= PAYLOAD;
            let board = engine.exchange(if small { buf.bytes() } else { &[] })?;
            if small {
                combine(&board, &mut buf, op, self.world);
            }
            engine.give_back(board.memory);
            if small {
                return Ok(());
            }
            let dtype = buf.dtype();
            engine.reduce_chunks(buf.bytes_mut(), dtype, op, None)
        })
    }

    fn reduce(&self, mut buf: SliceMut<'_>, op: ReduceOp, root: usize) -> Result<(), CommError> {
        let check = check::reduction("reduce", buf.dtype(), op)
            .and_then(|()| check::root("reduce", root, self.world));
        let header = self.header(Operation::Reduce, buf.dtype(), buf.len());
        let header = Header { reduce_op: op, root: root as u32, ..header };
        self.call(check, header, Some(self.timeout), |engine| {
            engine.agree_on_call()?;
            let dtype = buf.dtype();
            engine.reduce_chunks(buf.bytes_mut(), dtype, op, Some(root))
        })
    }

    fn broadcast(&self, mut buf: SliceMut<'_>, root: usize) -> Result<(), CommError> {
        let check = check::root("broadcast", root, self.world);
        let header = self.header(Operation::Broadcast, buf.dtype(), buf.len());
        let header = Header { root: root as u32, ..header };
        self.call(check, header, Some(self.timeout), |engine| {
            engine.agree_on_call()?;
            engine.broadcast_chunks(buf.bytes_mut(), root)
        })
    }

    fn all_gather(&self, input: SliceRef<'_>, mut output: SliceMut<'_>) -> Result<(), CommError> {
        let whole = (output.dtype(), output.len());
        let check = check::blocks("all_gather", (input.dtype(), input.len()), whole, self.world);
        let header = self.header(Operation::AllGather, input.dtype(), input.len());
        if check.is_ok() && self.world == 1 {
            output.bytes_mut().copy_from_slice(input.bytes());
        }
        self.call(check, header, Some(self.timeout), |engine| {
            engine.agree_on_call()?;
            engine.all_gather_chunks(input.bytes(), output.bytes_mut())
        })
    }

    fn reduce_scatter(
        &self,
        input: SliceRef<'_>,
        mut output: SliceMut<'_>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let (block, whole) = ((output.dtype(), output.len()), (input.dtype(), input.len()));
        let check = check::reduction("reduce_scatter", input.dtype(), op)
            .and_then(|()| check::blocks("reduce_scatter", block, whole, self.world));
        let header = self.header(Operation::ReduceScatter, output.dtype(), output.len());
        let header = Header { reduce_op: op, ..header };
        if check.is_ok() && self.world == 1 {
            output.bytes_mut().copy_from_slice(input.bytes());
        }
        self.call(check, header, Some(self.timeout), |engine| {
            engine.agree_on_call()?;
            engine.reduce_scatter_chunks(input.bytes(), output.bytes_mut(), input.dtype(), op)
        })
    }

    fn barrier(&self, wait: Wait) -> Result<(), CommError> {
        let header = self.header(Operation::Barrier, DType::U8, 0);
        let patience = match wait {
            Wait::Deadline => Some(self.timeout),
            Wait::AtMost(duration) => Some(duration),
            Wait::WhilePeersLive => None,
        };
        self.call(Ok(()), header, patience, Engine::agree_on_call)
    }

    /// Returns when MPI has taken the bytes, which is not to say that they have arrived.
    fn send(&self, buf: SliceRef<'_>, to: usize, tag: u32) -> Result<(), CommError> {
        let check = check::peer("send", to, self.rank, self.world);
        let header = self.header(Operation::Send, buf.dtype(), buf.len());
        let header = Header { root: to as u32, tag, ..header };
        self.call(check, header, Some(self.timeout), |engine| engine.send_message(buf.bytes(), to))
    }

    fn recv(&self, mut buf: SliceMut<'_>, from: usize, tag: u32) -> Result<(), CommError> {
        let check = check::peer("recv", from, self.rank, self.world);
        let header = self.header(Operation::Recv, buf.dtype(), buf.len());
        let header = Header { root: from as u32, tag, ..header };
        self.call(check, header, Some(self.timeout), |engine| engine.recv_message(buf.bytes_mut(), from))
    }

    fn abort(&self, why: &str) {
        let cause = format!("rank {} gave up: {why}", self.rank);
        self.shared.fail(CommErrorKind::Aborted, Some(self.rank), &cause);
        // A call that runs looks up within milliseconds, and gives the engine free.
        if let Some(engine) = lock(&self.engine).as_mut() {
            engine.tell_failure();
        }
    }

    fn note(&self, place: Place) {
        self.shared.calls.note(place);
    }

    fn place(&self) -> Place {
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
        if self.shared.failed().is_some() {
            engine.linger(false);
        } else if !engine.leave() {
            engine.linger(true);
        } else {
            let Engine { keeper, library, .. } = engine;
            if !keeper.finalize(library) {
                tracing::warn!(
                    "rank {}: MPI_Finalize does not come back; the process ends without it",
                    self.rank
                );
            }
        }
    }
}
