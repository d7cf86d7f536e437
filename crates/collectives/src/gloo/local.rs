//! Collectives between the ranks of a host, in shared memory. Every call begins with a round of notices, which check
//! that all ranks make the same call. Small payloads are part of the notice; larger ones go through the ranks' slots in
//! chunks.
//!
//! Every element is reduced in the order of local ranks, whatever its position in the buffer.

use super::chunks::{AllGather, AllReduce};
use super::engine::Engine;
use super::header::Header;
use super::shm::{Arena, ChunkProgress, FLAT, SLOTS};
use super::wait::{NOTICE_SPIN, TRANSFER_SPIN};
use crate::reduce::combine_all;
use crate::{CommError, CommErrorKind};
use std::ops::Range;
use std::sync::Arc;

/// What a rank does with each chunk of a call. `index` counts within the call; `chunk` identifies the slots.
pub(super) trait ChunkedCall {
    /// Number of chunks of the call, equal on all ranks.
    fn chunks(&self) -> usize;
    /// Writes what the other ranks need into this rank's slot.
    fn stage(&mut self, arena: &Arena, index: usize, chunk: u64);
    /// All ranks have staged: reads their slots, and may write to its own again.
    fn work(&mut self, arena: &Arena, index: usize, chunk: u64);
    /// All ranks have worked: reads their slots for the last time.
    fn finish(&mut self, arena: &Arena, index: usize, chunk: u64);
}

impl Engine {
    fn arena(&self) -> Result<Arc<Arena>, CommError> {
        self.shared.arena().cloned().ok_or_else(|| {
            let message = format!("rank {} has no shared memory", self.me);
            CommError::new(CommErrorKind::Misuse, None, message)
        })
    }

    /// Announces this rank's call with `payload`, and waits until all ranks of the host have announced the same call.
    fn announce_call(&mut self, arena: &Arc<Arena>, payload: &[u8]) -> Result<(), CommError> {
        self.round += 1;
        let round = self.round;
        arena.publish_processor();
        arena.post(round, &self.header.encode(), payload);
        self.shared.wake_others();
        let late = |a: &Arena| {
            a.others().filter(|local| !a.has_posted(round, *local)).map(|local| a.members[local]).collect()
        };
        self.wait_in_memory(None, NOTICE_SPIN, |a| a.all_posted(round), late)?;
        self.check_notices(arena)
    }

    /// Compares what other ranks of this host have announced for the current round with this rank's call.
    pub(super) fn check_notices(&mut self, arena: &Arc<Arena>) -> Result<(), CommError> {
        let round = self.round;
        if round == 0 || !arena.has_posted(round, arena.me) {
            return Ok(());
        }
        let own = arena.header(round, arena.me);
        for local in arena.others().filter(|local| arena.has_posted(round, *local)) {
            let theirs = arena.header(round, local);
            if theirs != own {
                self.notice_error(arena.members[local], &theirs)?;
            }
        }
        Ok(())
    }

    /// A call without payload.
    pub(super) fn local_barrier(&mut self) -> Result<(), CommError> {
        let arena = self.arena()?;
        self.announce_call(&arena, &[])
    }

    /// Every rank gets all payloads and reduces them itself.
    fn flat_all_reduce(&mut self, buf: &mut [u8]) -> Result<(), CommError> {
        let (arena, kind) = (self.arena()?, self.kind());
        self.announce_call(&arena, buf)?;
        let (round, n) = (self.round, buf.len());
        let operand = |rank| arena.payload(round, rank, n);
        combine_all(kind, buf, (operand, arena.ranks()), self.divisor());
        Ok(())
    }

    /// `root` is a local rank.
    fn flat_broadcast(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        let arena = self.arena()?;
        let payload: &[u8] = if arena.me == root { buf } else { &[] };
        self.announce_call(&arena, payload)?;
        if arena.me != root {
            let n = buf.len();
            buf.copy_from_slice(arena.payload(self.round, root, n));
        }
        Ok(())
    }

    /// Announces the call, then takes all chunks through the three steps, each as soon as it is possible.
    pub(super) fn through_slots(&mut self, work: &mut dyn ChunkedCall) -> Result<(), CommError> {
        let arena = self.arena()?;
        self.announce_call(&arena, &[])?;
        let first = self.chunk;
        let end = first + work.chunks() as u64;
        self.chunk = end;
        let (mut staged, mut worked, mut freed) = (first, first, first);
        let index = |chunk: u64| (chunk - first) as usize;
        while freed < end {
            // Conditions for the next steps; each is false if this rank itself has not got that far.
            let can_finish = |a: &Arena| freed < worked && a.all(ChunkProgress::Worked) > freed;
            let can_work = |a: &Arena| worked < staged && a.all(ChunkProgress::Staged) > worked;
            let can_stage = |a: &Arena| staged < end && a.all(ChunkProgress::Freed) + SLOTS as u64 > staged;
            if can_finish(&arena) {
                work.finish(&arena, index(freed), freed);
                freed += 1;
                arena.publish(ChunkProgress::Freed, freed);
            } else if can_work(&arena) {
                work.work(&arena, index(worked), worked);
                worked += 1;
                arena.publish(ChunkProgress::Worked, worked);
            } else if can_stage(&arena) {
                work.stage(&arena, index(staged), staged);
                staged += 1;
                arena.publish(ChunkProgress::Staged, staged);
            } else {
                let late = |a: &Arena| {
                    let behind = |local: &usize| {
                        a.progress(*local, ChunkProgress::Worked) < worked
                            || a.progress(*local, ChunkProgress::Staged) < staged
                            || a.progress(*local, ChunkProgress::Freed) < freed
                    };
                    a.others().filter(behind).map(|local| a.members[local]).collect()
                };
                self.wait_in_memory(
                    None,
                    TRANSFER_SPIN,
                    |a| can_finish(a) || can_work(a) || can_stage(a),
                    late,
                )?;
                continue;
            }
            arena.publish_processor();
            self.shared.wake_others();
        }
        Ok(())
    }

    /// Reduces over the whole world, which shares this memory; the same holds for the calls below. With a `root`, only
    /// the root's buffer needs to receive the result.
    pub(super) fn reduce_in_memory(&mut self, buf: &mut [u8], root: Option<usize>) -> Result<(), CommError> {
        let (kind, divisor) = (self.kind(), self.divisor());
        match buf.len() <= FLAT {
            true => self.flat_all_reduce(buf),
            false => self.through_slots(&mut AllReduce { buf, kind, divisor, root }),
        }
    }

    pub(super) fn broadcast_in_memory(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        if buf.len() <= FLAT {
            return self.flat_broadcast(buf, root);
        }
        let n = buf.len();
        let blocks: Vec<Range<usize>> =
            (0..self.world).map(|rank| if rank == root { 0..n } else { n..n }).collect();
        self.through_slots(&mut AllGather { buf, blocks: &blocks })
    }

    /// Handles a notice that differs from this rank's own.
    pub(super) fn notice_error(
        &mut self,
        peer: usize,
        theirs: &[u8; super::header::HEADER],
    ) -> Result<(), CommError> {
        match Header::decode(theirs) {
            Some(theirs) => Err(self.mismatch(peer, &theirs)),
            None => Err(self.invalid_message(peer)),
        }
    }
}
