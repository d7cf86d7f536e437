//! Collectives between the ranks of a host, in chunks. Each rank reduces one part of every chunk, so that all ranks
//! work at once and no buffer is read twice from main memory.

use super::local::ChunkedCall;
use super::ring;
use super::shm::{Arena, CHUNK};
use crate::reduce::{Reduction, combine_all};
use std::ops::Range;

/// Bytes that go through all steps of a reduction together; they stay in the first-level cache.
const BLOCK: usize = 16 << 10;
/// Parts of chunks start at multiples of this many bytes.
const LINE: usize = 64;

/// The `index`-th of `parts` nearly equal parts of `len` bytes, each starting at a cache line.
fn part(len: usize, parts: usize, index: usize) -> Range<usize> {
    let lines = ring::part(len.div_ceil(LINE), LINE, parts, index);
    lines.start.min(len)..lines.end.min(len)
}

/// The byte range of the `index`-th chunk of `size` bytes in `block`.
fn piece(block: &Range<usize>, index: usize, size: usize) -> Range<usize> {
    let at = |chunks: usize| block.start + (chunks * size).min(block.len());
    at(index)..at(index + 1)
}

/// Reduces `own` and the other ranks' bytes at `at` of the chunk's slots into `out`, in rank order.
fn reduce(
    arena: &Arena,
    chunk: u64,
    at: Range<usize>,
    own: &[u8],
    out: &mut [u8],
    (kind, divisor): (Reduction, Option<usize>),
) {
    let operand = |rank| if rank == arena.me { own } else { arena.slot(chunk, rank, at.clone()) };
    combine_all(kind, out, (operand, arena.ranks()), divisor);
}

/// Every rank's buffer receives the reduction over all; with a `root`, only the root's.
pub(super) struct AllReduce<'b> {
    pub buf: &'b mut [u8],
    pub kind: Reduction,
    pub divisor: Option<usize>,
    pub root: Option<usize>,
}

impl ChunkedCall for AllReduce<'_> {
    fn chunks(&self) -> usize {
        self.buf.len().div_ceil(CHUNK)
    }

    fn stage(&mut self, arena: &Arena, index: usize, chunk: u64) {
        let bytes = &self.buf[piece(&(0..self.buf.len()), index, CHUNK)];
        let mine = part(bytes.len(), arena.ranks(), arena.me);
        for at in [0..mine.start, mine.end..bytes.len()] {
            arena.own_slot(chunk, at.clone()).copy_from_slice(&bytes[at]);
        }
    }

    fn work(&mut self, arena: &Arena, index: usize, chunk: u64) {
        let range = piece(&(0..self.buf.len()), index, CHUNK);
        let bytes = &mut self.buf[range];
        let mine = part(bytes.len(), arena.ranks(), arena.me);
        for start in mine.clone().step_by(BLOCK) {
            let at = start..(start + BLOCK).min(mine.end);
            let out = arena.own_slot(chunk, at.clone());
            reduce(arena, chunk, at.clone(), &bytes[at.clone()], out, (self.kind, self.divisor));
            if self.root.is_none_or(|root| root == arena.me) {
                bytes[at].copy_from_slice(out);
            }
        }
    }

    fn finish(&mut self, arena: &Arena, index: usize, chunk: u64) {
        if self.root.is_some_and(|root| root != arena.me) {
            return;
        }
        let range = piece(&(0..self.buf.len()), index, CHUNK);
        let bytes = &mut self.buf[range];
        for rank in arena.others() {
            let at = part(bytes.len(), arena.ranks(), rank);
            bytes[at.clone()].copy_from_slice(arena.slot(chunk, rank, at));
        }
    }
}

/// Each rank's own block of its buffer receives, in place, the reduction of that block over all ranks; the rest is not
/// written. Blocks are by local rank.
pub(super) struct ReduceScatter<'b> {
    pub buf: &'b mut [u8],
    pub blocks: &'b [Range<usize>],
    pub kind: Reduction,
    pub divisor: Option<usize>,
}

impl ReduceScatter<'_> {
    /// Bytes of a slot that each block gets.
    fn share(&self) -> usize {
        CHUNK / self.blocks.len() / LINE * LINE
    }
}

impl ChunkedCall for ReduceScatter<'_> {
    fn chunks(&self) -> usize {
        self.blocks.iter().map(|b| b.len().div_ceil(self.share())).max().unwrap_or(0)
    }

    fn stage(&mut self, arena: &Arena, index: usize, chunk: u64) {
        for rank in arena.others() {
            let bytes = &self.buf[piece(&self.blocks[rank], index, self.share())];
            let at = rank * self.share();
            arena.own_slot(chunk, at..at + bytes.len()).copy_from_slice(bytes);
        }
    }

    fn work(&mut self, arena: &Arena, index: usize, chunk: u64) {
        let share = self.share();
        let own = &mut self.buf[piece(&self.blocks[arena.me], index, share)];
        let mut block = [0u64; BLOCK / 8];
        let mut done = 0;
        for bytes in own.chunks_mut(BLOCK) {
            let at = arena.me * share + done..arena.me * share + done + bytes.len();
            let out = &mut bytemuck::cast_slice_mut(&mut block)[..bytes.len()];
            reduce(arena, chunk, at, bytes, out, (self.kind, self.divisor));
            bytes.copy_from_slice(out);
            done += out.len();
        }
    }

    fn finish(&mut self, _: &Arena, _: usize, _: u64) {}
}

/// Copies every rank's block of the buffer to all ranks; `blocks` is by local rank. A broadcast has one non-empty block.
pub(super) struct AllGather<'b> {
    pub buf: &'b mut [u8],
    pub blocks: &'b [Range<usize>],
}

impl ChunkedCall for AllGather<'_> {
    fn chunks(&self) -> usize {
        self.blocks.iter().map(|b| b.len().div_ceil(CHUNK)).max().unwrap_or(0)
    }

    fn stage(&mut self, arena: &Arena, index: usize, chunk: u64) {
        let bytes = &self.buf[piece(&self.blocks[arena.me], index, CHUNK)];
        arena.own_slot(chunk, 0..bytes.len()).copy_from_slice(bytes);
    }

    fn work(&mut self, arena: &Arena, index: usize, chunk: u64) {
        for rank in arena.others() {
            let bytes = &mut self.buf[piece(&self.blocks[rank], index, CHUNK)];
            bytes.copy_from_slice(arena.slot(chunk, rank, 0..bytes.len()));
        }
    }

    fn finish(&mut self, _: &Arena, _: usize, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_chunk_once_and_start_at_lines() {
        for len in [0, 1, 64, 65, 1000, CHUNK] {
            for parts in 1..9 {
                let all: Vec<_> = (0..parts).map(|i| part(len, parts, i)).collect();
                assert_eq!(all.iter().map(ExactSizeIterator::len).sum::<usize>(), len);
                assert!(all.windows(2).all(|w| w[0].end == w[1].start));
                assert!(all.iter().all(|r| r.start % LINE == 0 || r.start == len));
            }
        }
    }
}
