//! Moves buffers through MPI in chunks. A caller's memory is copied to and from memory that MPI may keep, because a
//! call that ends at its deadline leaves an operation behind that can't be cancelled. The copies cost little: a chunk
//! is reduced while it is in the cache, and the next one is copied while the last is in flight.
//!
//! MPI has no half types: for reductions they are converted to f32 and rounded once.

use super::engine::Engine;
use super::library::{AlignedMemory, Channel, PendingOperation, Result as MpiResult};
use crate::execute::Engine as _;
use crate::header::{HEADER, Header};
use crate::reduce::Reduction;
use crate::{CommError, CommErrorKind, DType, ReduceOp, messages};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a chunk (for gathers and scatters, of all ranks' blocks together).
const STAGE: usize = 1 << 20;
/// Chunks in flight at a time.
const DEPTH: usize = 2;

/// A reduction of `dtype` by `op`: MPI's part of it, and the conversions before and after.
#[derive(Clone, Copy)]
struct ChunkReduction {
    dtype: DType,
    over: Reduction,
    divisor: Option<usize>,
}

impl ChunkReduction {
    fn new(dtype: DType, op: ReduceOp, world: usize) -> Self {
        let carrier = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
        let (op, divisor) = match op {
            ReduceOp::Mean => (ReduceOp::Sum, Some(world)),
            other => (other, None),
        };
        Self { dtype, over: Reduction { dtype: carrier, op }, divisor }
    }

    /// Bytes of `count` elements in flight.
    fn bytes(self, count: usize) -> usize {
        count * self.over.dtype.size()
    }

    /// Elements of a chunk of `blocks` blocks.
    fn chunk(self, blocks: usize) -> usize {
        (STAGE / (blocks * self.over.dtype.size())).max(512)
    }

    fn load(self, from: &[u8], to: &mut [u8]) {
        match self.dtype {
            DType::F16 => cast::<f16>(from).convert_to_f32_slice(bytemuck::cast_slice_mut(to)),
            DType::BF16 => cast::<bf16>(from).convert_to_f32_slice(bytemuck::cast_slice_mut(to)),
            _ => to.copy_from_slice(from),
        }
    }

    /// Divides what MPI has summed in `from` and rounds it to the element type. Which NaN a sum of several NaNs gives
    /// depends on the order of operands, which may differ between ranks: every NaN is replaced by the same one.
    fn store(self, from: &mut [u8], to: &mut [u8]) {
        let n = self.divisor.unwrap_or(1);
        match self.over.dtype {
            DType::F32 => bytemuck::cast_slice_mut::<_, f32>(from).iter_mut().for_each(|x| {
                let mean = *x / n as f32;
                *x = if mean.is_nan() { f32::NAN } else { mean };
            }),
            DType::F64 => bytemuck::cast_slice_mut::<_, f64>(from).iter_mut().for_each(|x| {
                let mean = *x / n as f64;
                *x = if mean.is_nan() { f64::NAN } else { mean };
            }),
            _ => {}
        }
        match self.dtype {
            DType::F16 => bytemuck::cast_slice_mut::<_, f16>(to).convert_from_f32_slice(cast(from)),
            DType::BF16 => bytemuck::cast_slice_mut::<_, bf16>(to).convert_from_f32_slice(cast(from)),
            _ => to.copy_from_slice(from),
        }
    }
}

fn cast<T: bytemuck::Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

/// The first `n` bytes.
fn bytes(words: &mut AlignedMemory, n: usize) -> &mut [u8] {
    &mut bytemuck::cast_slice_mut(words)[..n]
}

/// The bytes of elements `range`, of `size` bytes each, in block `block` of `count` elements.
fn part(range: &Range<usize>, size: usize, block: usize, count: usize) -> Range<usize> {
    (block * count + range.start) * size..(block * count + range.end) * size
}

impl Engine {
    /// Processes `total` elements in chunks of `per`: `begin` starts the operation of a chunk, `end` takes its result.
    /// Both get the caller's `buffers`.
    fn in_chunks<B>(
        &mut self,
        buffers: &mut B,
        (total, per): (usize, usize),
        begin: impl Fn(&mut Self, &B, Range<usize>) -> MpiResult<PendingOperation>,
        end: impl Fn(&mut B, Range<usize>, &mut [AlignedMemory; 2]),
    ) -> Result<(), CommError> {
        let mut under_way = VecDeque::with_capacity(DEPTH);
        let mut chunks = (0..total).step_by(per).map(|start| start..(start + per).min(total));
        loop {
            while under_way.len() < DEPTH
                && let Some(chunk) = chunks.next()
            {
                let started = begin(self, buffers, chunk.clone());
                under_way.push_back((chunk, started));
            }
            let Some((chunk, started)) = under_way.pop_front() else { return Ok(()) };
            let mut memory = self.complete(started, false, None)?;
            end(buffers, chunk, &mut memory);
            self.give_back(memory);
        }
    }

    /// Reduces to all ranks, or only to `root`.
    pub(super) fn reduce_chunks(
        &mut self,
        mut buf: &mut [u8],
        dtype: DType,
        op: ReduceOp,
        root: Option<usize>,
    ) -> Result<(), CommError> {
        let (work, size, me) = (ChunkReduction::new(dtype, op, self.world), dtype.size(), self.me);
        let count = buf.len() / size;
        self.in_chunks(
            &mut buf,
            (count, work.chunk(1)),
            |engine, buf, chunk| {
                let wide = work.bytes(chunk.len());
                let mut memory = [engine.memory(wide), engine.memory(wide)];
                work.load(&buf[part(&chunk, size, 0, 0)], bytes(&mut memory[0], wide));
                engine.library.reduce(memory, chunk.len(), work.over, root)
            },
            |buf, chunk, memory| {
                if root.is_none_or(|root| root == me) {
                    let wide = work.bytes(chunk.len());
                    work.store(bytes(&mut memory[1], wide), &mut buf[part(&chunk, size, 0, 0)]);
                }
            },
        )
    }

    pub(super) fn reduce_scatter_chunks(
        &mut self,
        input: &[u8],
        mut output: &mut [u8],
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        let (work, size, world) = (ChunkReduction::new(dtype, op, self.world), dtype.size(), self.world);
        let count = output.len() / size;
        self.in_chunks(
            &mut output,
            (count, work.chunk(world)),
            |engine, _, chunk| {
                let wide = work.bytes(chunk.len());
                let mut memory = [engine.memory(wide * world), engine.memory(wide)];
                for (block, to) in bytes(&mut memory[0], wide * world).chunks_mut(wide).enumerate() {
                    work.load(&input[part(&chunk, size, block, count)], to);
                }
                engine.library.reduce_scatter(memory, chunk.len(), work.over)
            },
            |output, chunk, memory| {
                let wide = work.bytes(chunk.len());
                work.store(bytes(&mut memory[1], wide), &mut output[part(&chunk, size, 0, 0)]);
            },
        )
    }

    pub(super) fn all_gather_chunks(&mut self, input: &[u8], mut output: &mut [u8]) -> Result<(), CommError> {
        let (world, block) = (self.world, input.len());
        self.in_chunks(
            &mut output,
            (block, (STAGE / world).max(4096)),
            |engine, _, chunk| {
                let n = chunk.len();
                let mut memory = [engine.memory(n), engine.memory(n * world)];
                bytes(&mut memory[0], n).copy_from_slice(&input[chunk]);
                engine.library.all_gather(memory, n)
            },
            |output, chunk, memory| {
                let n = chunk.len();
                for (rank, from) in bytes(&mut memory[1], n * world).chunks(n).enumerate() {
                    output[part(&chunk, 1, rank, block)].copy_from_slice(from);
                }
            },
        )
    }

    pub(super) fn broadcast_chunks(&mut self, mut buf: &mut [u8], root: usize) -> Result<(), CommError> {
        let (total, me) = (buf.len(), self.me);
        self.in_chunks(
            &mut buf,
            (total, STAGE),
            |engine, buf, chunk| {
                let n = chunk.len();
                let mut memory = engine.memory(n);
                if me == root {
                    bytes(&mut memory, n).copy_from_slice(&buf[chunk]);
                }
                engine.library.broadcast(memory, n, root)
            },
            |buf, chunk, memory| {
                if me != root {
                    let n = chunk.len();
                    buf[chunk].copy_from_slice(bytes(&mut memory[1], n));
                }
            },
        )
    }

    /// Sends the header first, so that the receiver can check it before it takes the payload.
    pub(super) fn send_message(&mut self, buf: &[u8], to: usize) -> Result<(), CommError> {
        let header = self.header.encode();
        for piece in std::iter::once(&header[..]).chain(buf.chunks(STAGE)) {
            let mut memory = self.memory(piece.len());
            bytes(&mut memory, piece.len()).copy_from_slice(piece);
            let sent = self.library.send(Channel::Data, memory, piece.len(), to);
            let memory = self.complete(sent, true, Some(to))?;
            self.give_back(memory);
        }
        Ok(())
    }

    pub(super) fn recv_message(&mut self, buf: &mut [u8], from: usize) -> Result<(), CommError> {
        let mut header = [0; HEADER];
        self.recv_piece(&mut header, from)?;
        let Some(theirs) = Header::decode(&header) else { return Err(self.invalid_message(from)) };
        if !self.header.agrees_with(&theirs, self.me, from) {
            let cause = messages::mismatch([(self.me, self.header), (from, theirs)]);
            return Err(self.fail(CommErrorKind::Mismatch, Some(from), &cause));
        }
        buf.chunks_mut(STAGE).try_for_each(|piece| self.recv_piece(piece, from))
    }

    fn recv_piece(&mut self, piece: &mut [u8], from: usize) -> Result<(), CommError> {
        let memory = self.memory(piece.len());
        let received = self.library.recv(Channel::Data, memory, piece.len(), Some(from));
        let mut memory = self.complete(received, true, Some(from))?;
        piece.copy_from_slice(bytes(&mut memory[1], piece.len()));
        self.give_back(memory);
        Ok(())
    }
}
