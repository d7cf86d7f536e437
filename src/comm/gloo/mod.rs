//! The `gloo` engine: collectives between CPU processes, through memory inside a host and over TCP between hosts. No
//! thread of its own: a blocked call makes the progress. Every wait has a deadline, every failure reaches all ranks at
//! once and names the same culprit everywhere. One case is beyond this: where a connection breaks between two ranks that
//! both live on, each sees the other gone, and the rest hear who spoke first ("seen by rank …").
//!
//! From the outside in: [`GlooGroup`] checks arguments and takes the lock; `topology` chooses an algorithm; `local` and
//! `chunks` work in a host's memory (`shm`), `hierarchy`, `large`, `small` and `compare` between ranks by links;
//! `stream` moves their bytes; `engine` keeps the call, `wait` waits and hears the news, `agree` judges what peers
//! call, `probe` finds out who is late; `watch` does both beside calls, for an engine that has this group for control; `link`, `wire`, `lanes` and, of every engine,
//! `header` and `control` are what travels; `shared` is what other threads may touch during a call.

mod agree;
mod chunks;
mod compare;
mod engine;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod hierarchy;
mod lanes;
mod large;
mod link;
mod local;
mod options;
mod probe;
mod setup;
mod shared;
pub(crate) mod shm;
mod small;
mod stream;
#[cfg(test)]
mod tests;
mod topology;
mod wait;
mod watch;
mod wire;

#[cfg(any(test, fuzzing))]
pub(crate) use fuzz::decode_anything;
pub use options::{AlgorithmChoice, GlooOptions, Transport};

use super::rendezvous::RendezvousConfig;
use super::{
    CallRecord, CommError, CommErrorKind, DType, Place, ProcessGroup, ReduceOp, SliceMut, SliceRef, Wait,
    Watch, calls::lock, check, conduct::conduct, control, header,
};
use control::Control;
use engine::Engine;
use header::{Algorithm, Header, Operation};
use shared::Shared;
use std::net::Shutdown;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stream::Kind;
use topology::Topology;

/// A process group of CPU processes. Drop it to leave in peace: the others lose it only if they still need it.
pub struct GlooGroup {
    rank: usize,
    world: usize,
    timeout: Duration,
    topology: Topology,
    choice: AlgorithmChoice,
    /// What headers of this group have in common.
    base: Header,
    shared: Arc<Shared>,
    engine: Mutex<Engine>,
}

impl GlooGroup {
    /// Meets the other ranks and connects to each; blocks for `init_timeout` at most.
    pub fn connect(mut config: RendezvousConfig, options: GlooOptions) -> Result<Self, CommError> {
        let (engine, topology) = setup::set_up(&mut config, &options)?;
        Ok(Self {
            rank: config.rank,
            world: config.world_size,
            timeout: config.timeout,
            topology,
            choice: options.algorithm,
            base: engine.header,
            shared: engine.shared.clone(),
            engine: Mutex::new(engine),
        })
    }

    /// From now on so many answers of peers end the wait for signs of life, and no clock does: whoever lives is heard, however busy the machine.
    #[cfg(test)]
    pub(crate) fn count_answers(&self, answers: usize) {
        lock(&self.engine).answers = Some(answers);
    }

    /// The last call that was made, running or done; None before the first.
    pub fn status(&self) -> Option<CallRecord> {
        self.shared.calls.last()
    }

    /// Runs one call under the lock.
    fn call(
        &self,
        check: Result<(), CommError>,
        header: Header,
        patience: Option<Duration>,
        run: impl FnOnce(&mut Engine, Kind) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let kind = Kind { dtype: header.dtype, op: header.reduce_op };
        conduct(&mut *lock(&self.engine), check, header, patience, |engine| run(engine, kind))
    }

    /// What a call announces: the algorithm follows from the operation and from the `count` elements of a buffer.
    fn header(&self, operation: Operation, dtype: DType, count: usize) -> Header {
        let algorithm = self.topology.choose(self.choice, operation, count * dtype.size());
        Header { operation, dtype, count: count as u64, algorithm, ..self.base }
    }
}

/// `world` blocks of `block` bytes.
fn blocks(world: usize, block: usize) -> Vec<Range<usize>> {
    (0..world).map(|rank| rank * block..(rank + 1) * block).collect()
}

impl ProcessGroup for GlooGroup {
    fn rank(&self) -> usize {
        self.rank
    }
    fn world_size(&self) -> usize {
        self.world
    }
    fn backend(&self) -> &'static str {
        "gloo"
    }

    fn all_reduce(&self, mut buf: SliceMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        let check = check::reduction("all_reduce", buf.dtype(), op);
        let header = self.header(Operation::AllReduce, buf.dtype(), buf.len());
        let header = Header { reduce_op: op, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| {
            let buf = buf.bytes_mut();
            match header.algorithm {
                _ if engine.world == 1 => Ok(()),
                Algorithm::Memory => engine.reduce_in_memory(buf, kind, None),
                Algorithm::Hierarchical => engine.all_reduce_hierarchical(buf, kind, &self.topology),
                Algorithm::Ring => engine.all_reduce_ring(buf, kind),
                Algorithm::HalvingDoubling => engine.all_reduce_halving_doubling(buf, kind),
                Algorithm::Tree => engine.all_reduce_tree(buf, kind),
                Algorithm::ParameterServer => engine.all_reduce_star(buf, kind),
                _ => engine.all_reduce_doubling(buf, kind),
            }
        })
    }

    fn reduce(&self, mut buf: SliceMut<'_>, op: ReduceOp, root: usize) -> Result<(), CommError> {
        let check = check::reduction("reduce", buf.dtype(), op)
            .and_then(|()| check::root("reduce", root, self.world));
        let header = self.header(Operation::Reduce, buf.dtype(), buf.len());
        let header = Header { reduce_op: op, root: root as u32, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| match header.algorithm {
            _ if engine.world == 1 => Ok(()),
            Algorithm::Memory => engine.reduce_in_memory(buf.bytes_mut(), kind, Some(root)),
            Algorithm::Ring => engine.reduce_chain(buf.bytes_mut(), kind, root),
            Algorithm::ParameterServer => engine.reduce_star(buf.bytes_mut(), kind, root),
            _ => engine.reduce_tree(buf.bytes_mut(), kind, root),
        })
    }

    fn broadcast(&self, mut buf: SliceMut<'_>, root: usize) -> Result<(), CommError> {
        let check = check::root("broadcast", root, self.world);
        let header = self.header(Operation::Broadcast, buf.dtype(), buf.len());
        let header = Header { root: root as u32, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| match header.algorithm {
            _ if engine.world == 1 => Ok(()),
            Algorithm::Memory => engine.broadcast_in_memory(buf.bytes_mut(), root),
            Algorithm::Ring => engine.broadcast_chain(buf.bytes_mut(), kind, root),
            Algorithm::ParameterServer => engine.broadcast_star(buf.bytes_mut(), kind, root),
            _ => engine.broadcast_tree(buf.bytes_mut(), kind, root),
        })
    }

    fn all_gather(&self, input: SliceRef<'_>, mut output: SliceMut<'_>) -> Result<(), CommError> {
        let whole = (output.dtype(), output.len());
        let check = check::blocks("all_gather", (input.dtype(), input.len()), whole, self.world);
        let header = self.header(Operation::AllGather, input.dtype(), input.len());
        self.call(check, header, Some(self.timeout), |engine, kind| {
            let (output, block) = (output.bytes_mut(), input.bytes().len());
            output[engine.me * block..][..block].copy_from_slice(input.bytes());
            match header.algorithm {
                _ if engine.world == 1 => Ok(()),
                Algorithm::Memory => engine.all_gather_in_memory(output, &blocks(self.world, block)),
                _ => engine.all_gather_ring(output, kind),
            }
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
        self.call(check, header, Some(self.timeout), |engine, kind| {
            let (input, output) = (input.bytes(), output.bytes_mut());
            if engine.world == 1 {
                output.copy_from_slice(input);
                return Ok(());
            }
            let mut memory = engine.take_work(input.len());
            let work = &mut bytemuck::cast_slice_mut(&mut memory)[..input.len()];
            work.copy_from_slice(input);
            let result = match header.algorithm {
                Algorithm::Memory => {
                    engine.reduce_scatter_in_memory(work, &blocks(self.world, output.len()), kind)
                }
                _ => engine.reduce_scatter_ring(work, kind),
            };
            output.copy_from_slice(&work[engine.me * output.len()..][..output.len()]);
            engine.work = memory;
            result
        })
    }

    fn barrier(&self, wait: Wait) -> Result<(), CommError> {
        let header = self.header(Operation::Barrier, DType::U8, 0);
        let patience = match wait {
            Wait::Deadline => Some(self.timeout),
            Wait::AtMost(duration) => Some(duration),
            Wait::WhilePeersLive => None,
        };
        self.call(Ok(()), header, patience, |engine, kind| match header.algorithm {
            _ if engine.world == 1 => Ok(()),
            Algorithm::Memory => engine.local_barrier(),
            _ => engine.barrier_dissemination(kind),
        })
    }

    /// Returns when the operating system has taken the bytes, which is not to say that they have arrived.
    fn send(&self, buf: SliceRef<'_>, to: usize, tag: u32) -> Result<(), CommError> {
        let check = check::peer("send", to, self.rank, self.world);
        let header = self.header(Operation::Send, buf.dtype(), buf.len());
        let header = Header { root: to as u32, tag, ..header };
        self.call(check, header, Some(self.timeout), |engine, _| engine.send_all(buf.bytes(), to))
    }

    fn recv(&self, mut buf: SliceMut<'_>, from: usize, tag: u32) -> Result<(), CommError> {
        let check = check::peer("recv", from, self.rank, self.world);
        let header = self.header(Operation::Recv, buf.dtype(), buf.len());
        let header = Header { root: from as u32, tag, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| {
            engine.recv_all(buf.bytes_mut(), kind, from)
        })
    }

    fn abort(&self, why: &str) {
        let cause = format!("rank {} gave up: {why}", self.rank);
        self.shared.fail(CommErrorKind::Aborted, Some(self.rank), &cause);
    }

    fn note(&self, place: Place) {
        self.shared.note(place);
    }

    fn place(&self) -> Place {
        self.shared.calls.place()
    }

    fn history(&self) -> Vec<CallRecord> {
        self.shared.calls.history()
    }

    fn watch(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl Drop for GlooGroup {
    fn drop(&mut self) {
        if self.shared.failure().is_none() {
            let frame = Control::Goodbye.frame();
            self.shared.control.iter().flatten().for_each(|c| c.send(&frame));
        }
        let engine = self.engine.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for link in engine.links.iter().flatten() {
            link.wire.streams().iter().for_each(|s| drop(s.shutdown(Shutdown::Write)));
        }
        for control in self.shared.control.iter().flatten() {
            let _ = control.stream.shutdown(Shutdown::Write);
            // Closing a socket with unread bytes resets the connection, which could overtake the farewell.
            while control.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {}
        }
    }
}
