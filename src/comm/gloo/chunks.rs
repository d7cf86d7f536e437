//! The collectives between the ranks of a host as work on chunks. Each rank combines one part of every chunk, so that
//! all work at once and nobody's buffer is read twice from main memory.

use super::large;
use super::local::Work;
use super::shm::{Arena, CHUNK};
use super::stream::Kind;
use crate::comm::reduce::combine_all;
use std::ops::Range;

/// Bytes that go through the steps of a reduction together: they stay in the first-level cache.
const BLOCK: usize = 16 << 10;
/// Parts of chunks start at multiples of this.
const LINE: usize = 64;

/// The `index`-th of nearly equal parts of `len` bytes, which start at cache lines.
fn part(len: usize, parts: usize, index: usize) -> Range<usize> {
    let lines = large::part(len.div_ceil(LINE), LINE, parts, index);
    lines.start.min(len)..lines.end.min(len)
}

/// The bytes of `block` that its `index`-th chunk of `size` takes.
fn piece(block: &Range<usize>, index: usize, size: usize) -> Range<usize> {
    let at = |chunks: usize| block.start + (chunks * size).min(block.len());
    at(index)..at(index + 1)
}

/// `own` and the others' bytes at `at` of the chunk's slots, reduced in rank order into `out`.
fn reduce(
    arena: &Arena,
    chunk: u64,
    at: Range<usize>,
    own: &[u8],
    out: &mut [u8],
    (kind, divisor): (Kind, Option<usize>),
) {
    let operand = |rank| if rank == arena.me { own } else { arena.slot(chunk, rank, at.clone()) };
    combine_all(kind.dtype, kind.op, out, (operand, arena.ranks()), divisor);
}

/// Every rank's buffer becomes the reduction of all; only `root`'s if there is one.
pub(super) struct AllReduce<'b> {
    pub buf: &'b mut [u8],
    pub kind: Kind,
    pub divisor: Option<usize>,
    pub root: Option<usize>,
}

impl Work for AllReduce<'_> {
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

/// Every rank's block of the buffer, in place, becomes the reduction of all ranks' contents of it; the rest is left.
/// Blocks are by rank of the host.
pub(super) struct ReduceScatter<'b> {
    pub buf: &'b mut [u8],
    pub blocks: &'b [Range<usize>],
    pub kind: Kind,
    pub divisor: Option<usize>,
}

impl ReduceScatter<'_> {
    /// Each block's share of a slot.
    fn share(&self) -> usize {
        CHUNK / self.blocks.len() / LINE * LINE
    }
}

impl Work for ReduceScatter<'_> {
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

/// Every rank's block of the buffer reaches all; `blocks` by rank of the host. A broadcast has one that is not empty.
pub(super) struct AllGather<'b> {
    pub buf: &'b mut [u8],
    pub blocks: &'b [Range<usize>],
}

impl Work for AllGather<'_> {
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
