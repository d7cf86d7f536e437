//! The `gloo` engine: collectives over TCP between CPU processes, one connection for data and one for control
//! between each pair of ranks. No thread of its own: a blocked call makes the progress. Every wait has a deadline,
//! every failure reaches all ranks at once and names the same culprit everywhere. One case is beyond this: where a
//! connection breaks between two ranks that both live on, each sees the other gone, and the rest hear who spoke
//! first ("seen by rank …").
//!
//! From the outside in: [`GlooGroup`] checks arguments and takes the lock; `large` and `small` are the algorithms;
//! `stream` moves their bytes; `engine` waits and hears the news, `agree` judges what peers call, `probe` finds out
//! who is late; `link`, `header` and `control` are the wire; `shared` is what other threads may touch during a call.

mod agree;
mod control;
mod engine;
mod header;
mod large;
mod link;
mod options;
mod probe;
mod shared;
mod small;
mod stream;
#[cfg(test)]
mod tests;

pub use options::{AlgorithmChoice, GlooOptions, Transport};

use super::rendezvous::{self, RendezvousConfig};
use super::{
    CallRecord, CommError, CommErrorKind, DType, Place, ProcessGroup, ReduceOp, SliceMut, SliceRef, Wait,
    check,
};
use control::Control;
use engine::Engine;
use header::{Algorithm, Header, Operation};
use link::Link;
use sha2::{Digest, Sha256};
use shared::{ControlSocket, Shared, lock};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stream::Kind;

/// Buffers of up to this many bytes go by the algorithms for small ones.
const SMALL: usize = 64 << 10;

/// A process group over TCP. Drop it to leave in peace: the others lose it only if they still need it.
pub struct GlooGroup {
    rank: usize,
    world: usize,
    timeout: Duration,
    /// What headers of this group have in common.
    base: Header,
    shared: Arc<Shared>,
    engine: Mutex<Engine>,
}

impl GlooGroup {
    /// Meets the other ranks and connects to each; blocks for `init_timeout` at most.
    pub fn connect(mut config: RendezvousConfig, _options: GlooOptions) -> Result<Self, CommError> {
        let mesh = rendezvous::form_mesh(&mut config)?;
        let failed = |e: std::io::Error| {
            CommError::new(CommErrorKind::Rendezvous, None, format!("cannot set up the connections: {e}"))
        };
        let (mut links, mut control) = (Vec::new(), Vec::new());
        for sockets in mesh {
            if let Some(s) = &sockets {
                keep_alive(&s.control).map_err(|e| failed(e.into()))?;
            }
            let (link, c) = match sockets {
                Some(s) => (Some(Link::new(s.data)), Some(ControlSocket::new(s.control))),
                None => (None, None),
            };
            links.push(link);
            control.push(c);
        }
        let (rank, world) = (config.rank, config.world_size);
        let base = Header {
            operation: Operation::Barrier,
            dtype: DType::U8,
            reduce_op: ReduceOp::Sum,
            algorithm: Algorithm::Direct,
            root: 0,
            tag: 0,
            run: Sha256::digest(config.run_id.as_bytes()).first_chunk().map_or(0, |b| u64::from_le_bytes(*b)),
            generation: config.generation,
            sequence: 0,
            count: 0,
        };
        let shared = Arc::new(Shared::new(rank, control).map_err(failed)?);
        let engine = Engine::new(rank, links, shared.clone(), base);
        Ok(Self { rank, world, timeout: config.timeout, base, shared, engine: Mutex::new(engine) })
    }

    /// The last call that was made, running or done; None before the first.
    pub fn status(&self) -> Option<CallRecord> {
        self.shared.last()
    }

    /// Runs one call under the lock: argument check, header, algorithm, record. A wrong call ends the group for
    /// all, for the others would wait for it in vain.
    fn call(
        &self,
        check: Result<(), CommError>,
        header: Header,
        patience: Option<Duration>,
        run: impl FnOnce(&mut Engine, Kind) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let mut engine = lock(&self.engine);
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        if let Err(e) = check {
            let cause = format!("rank {} made a wrong call: {}", self.rank, e.message);
            return Err(self.shared.fail(e.kind, Some(self.rank), &cause));
        }
        let sequence = match header.operation {
            Operation::Send => engine.count_pairwise(header.root as usize, |l| &mut l.sends)?,
            Operation::Recv => engine.count_pairwise(header.root as usize, |l| &mut l.recvs)?,
            _ => engine.count_call(),
        };
        engine.begin(Header { sequence, ..header }, patience)?;
        // An algorithm's own error (a bug) must end the group as any other.
        run(&mut engine, Kind { dtype: header.dtype, op: header.reduce_op })
            .map_err(|e| self.shared.fail(e.kind, e.peer, &e.message))?;
        self.shared.finished();
        Ok(())
    }

    fn header(&self, operation: Operation, dtype: DType, count: usize) -> Header {
        Header { operation, dtype, count: count as u64, ..self.base }
    }

    fn algorithm(&self, bytes: usize) -> Algorithm {
        if bytes <= SMALL { Algorithm::Doubling } else { Algorithm::Ring }
    }
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
        let algorithm = self.algorithm(buf.bytes().len());
        let header = self.header(Operation::AllReduce, buf.dtype(), buf.len());
        let header = Header { reduce_op: op, algorithm, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| match algorithm {
            _ if engine.world == 1 => Ok(()),
            Algorithm::Ring => engine.all_reduce_ring(buf.bytes_mut(), kind),
            _ => engine.all_reduce_doubling(buf.bytes_mut(), kind),
        })
    }

    fn reduce(&self, mut buf: SliceMut<'_>, op: ReduceOp, root: usize) -> Result<(), CommError> {
        let check = check::reduction("reduce", buf.dtype(), op)
            .and_then(|()| check::root("reduce", root, self.world));
        let algorithm = self.algorithm(buf.bytes().len());
        let header = self.header(Operation::Reduce, buf.dtype(), buf.len());
        let header = Header { reduce_op: op, algorithm, root: root as u32, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| match algorithm {
            _ if engine.world == 1 => Ok(()),
            Algorithm::Ring => engine.reduce_chain(buf.bytes_mut(), kind, root),
            _ => engine.reduce_tree(buf.bytes_mut(), kind, root),
        })
    }

    fn broadcast(&self, mut buf: SliceMut<'_>, root: usize) -> Result<(), CommError> {
        let check = check::root("broadcast", root, self.world);
        let algorithm = self.algorithm(buf.bytes().len());
        let header = self.header(Operation::Broadcast, buf.dtype(), buf.len());
        let header = Header { algorithm, root: root as u32, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| match algorithm {
            _ if engine.world == 1 => Ok(()),
            Algorithm::Ring => engine.broadcast_chain(buf.bytes_mut(), kind, root),
            _ => engine.broadcast_tree(buf.bytes_mut(), kind, root),
        })
    }

    fn all_gather(&self, input: SliceRef<'_>, mut output: SliceMut<'_>) -> Result<(), CommError> {
        let whole = (output.dtype(), output.len());
        let check = check::blocks("all_gather", (input.dtype(), input.len()), whole, self.world);
        let header = self.header(Operation::AllGather, input.dtype(), input.len());
        let header = Header { algorithm: Algorithm::Ring, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| {
            let (output, block) = (output.bytes_mut(), input.bytes().len());
            output[engine.me * block..][..block].copy_from_slice(input.bytes());
            if engine.world == 1 { Ok(()) } else { engine.all_gather_ring(output, kind) }
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
        let header = Header { reduce_op: op, algorithm: Algorithm::Ring, ..header };
        self.call(check, header, Some(self.timeout), |engine, kind| {
            let (input, output) = (input.bytes(), output.bytes_mut());
            if engine.world == 1 {
                output.copy_from_slice(input);
                return Ok(());
            }
            let mut memory = engine.take_work(input.len());
            let work = &mut bytemuck::cast_slice_mut(&mut memory)[..input.len()];
            work.copy_from_slice(input);
            let result = engine.reduce_scatter_ring(work, kind);
            output.copy_from_slice(&work[engine.me * output.len()..][..output.len()]);
            engine.work = memory;
            result
        })
    }

    fn barrier(&self, wait: Wait) -> Result<(), CommError> {
        let header = Header { algorithm: Algorithm::Doubling, ..self.base };
        let patience = match wait {
            Wait::Deadline => Some(self.timeout),
            Wait::AtMost(duration) => Some(duration),
            Wait::WhilePeersLive => None,
        };
        self.call(Ok(()), header, patience, Engine::barrier_dissemination)
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

    fn history(&self) -> Vec<CallRecord> {
        self.shared.history()
    }
}

/// A host that vanishes sends nothing, not even the end of a connection: without this, a barrier without deadline
/// would wait for it forever.
fn keep_alive(control: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(control, true)?;
    sockopt::set_tcp_keepidle(control, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(control, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(control, 4)
}

impl Drop for GlooGroup {
    fn drop(&mut self) {
        if self.shared.failure().is_none() {
            let frame = Control::Goodbye.frame();
            self.shared.control.iter().flatten().for_each(|c| c.send(&frame));
        }
        let engine = self.engine.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for link in engine.links.iter().flatten() {
            let _ = link.data.shutdown(Shutdown::Write);
        }
        for control in self.shared.control.iter().flatten() {
            let _ = control.stream.shutdown(Shutdown::Write);
            // Closing a socket with unread bytes resets the connection, which could overtake the farewell.
            while control.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {}
        }
    }
}
