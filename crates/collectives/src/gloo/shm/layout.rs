//! The layout of a host's segment. Each part is written by one rank only; parts that two ranks use at the same time
//! never share a cache line. Ranks are local ranks here.

use std::ops::Range;

/// Bytes of one rank's chunk in a slot; all slots of a rank should stay in the second-level cache.
pub const CHUNK: usize = 256 << 10;
/// Maximum number of chunks of a rank in flight.
pub const SLOTS: usize = 4;
/// Maximum payload that is posted with the header of its call.
pub const FLAT: usize = 8 << 10;
/// Capacity of the pipe from one rank to another.
pub(super) const PIPE: usize = 256 << 10;

/// Alignment of all parts: two cache lines, because they are fetched in pairs.
const LINE: usize = 128;
/// A rank's words: progress, wake-up, place, processors.
const WORDS: usize = 5 * LINE;
/// A posted call: round, header, payload.
const NOTICE: usize = 64 + FLAT;
const PIPE_WORDS: usize = 2 * LINE;

#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentLayout {
    ranks: usize,
}

impl SegmentLayout {
    pub(super) fn new(ranks: usize) -> Self {
        Self { ranks }
    }

    pub(super) fn len(&self) -> usize {
        self.pipe_words(self.ranks * (self.ranks - 1))
    }

    /// Three words: the number of chunks staged, worked and freed.
    pub(super) fn progress(&self, rank: usize) -> usize {
        rank * WORDS
    }

    /// Three half words: the wake-up counter, how the rank sleeps, whether it has failed.
    pub(super) fn wake_words(&self, rank: usize) -> usize {
        rank * WORDS + LINE
    }

    /// Two words: step and phase.
    pub(super) fn place(&self, rank: usize) -> usize {
        rank * WORDS + 2 * LINE
    }

    /// One half word: the processor on which the rank was when it last checked.
    pub(super) fn processor(&self, rank: usize) -> usize {
        rank * WORDS + 3 * LINE
    }

    /// The processors that the rank may use, one bit each.
    pub(super) fn allowed(&self, rank: usize) -> Range<usize> {
        let start = rank * WORDS + 4 * LINE;
        start..start + LINE
    }

    /// The notice for odd or even rounds: one word, the header, the payload.
    pub(super) fn notice(&self, round: u64, rank: usize) -> usize {
        let boards = self.ranks * WORDS;
        boards + ((round as usize & 1) * self.ranks + rank) * NOTICE
    }

    /// The slot of a chunk.
    pub(super) fn slot(&self, chunk: u64, rank: usize) -> usize {
        let slots = (self.ranks * (WORDS + 2 * NOTICE)).next_multiple_of(4096);
        slots + (rank * SLOTS + chunk as usize % SLOTS) * CHUNK
    }

    /// Two words, each on its own line: bytes written so far, bytes read so far.
    fn pipe_words(&self, pipe: usize) -> usize {
        self.slot(0, self.ranks) + pipe * (PIPE_WORDS + PIPE)
    }

    pub(super) fn pipe(&self, from: usize, to: usize) -> PipeAt {
        let index = from * (self.ranks - 1) + to - usize::from(to > from);
        let words = self.pipe_words(index);
        PipeAt { written: words, read: words + LINE, data: words + PIPE_WORDS }
    }
}

/// Offsets of the parts of a pipe.
#[derive(Clone, Copy, Debug)]
pub(super) struct PipeAt {
    pub written: usize,
    pub read: usize,
    pub data: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_parts_do_not_overlap() {
        for ranks in 2..6 {
            let l = SegmentLayout::new(ranks);
            let mut parts = Vec::new();
            for r in 0..ranks {
                parts.push(l.progress(r)..l.progress(r) + 24);
                parts.push(l.wake_words(r)..l.wake_words(r) + 12);
                parts.push(l.place(r)..l.place(r) + 16);
                parts.push(l.processor(r)..l.processor(r) + 4);
                parts.push(l.allowed(r));
                parts.extend((0..2).map(|round| l.notice(round, r)..l.notice(round, r) + 64 + FLAT));
                parts.extend((0..SLOTS as u64).map(|c| l.slot(c, r)..l.slot(c, r) + CHUNK));
                for to in (0..ranks).filter(|to| *to != r) {
                    let p = l.pipe(r, to);
                    parts.extend([p.written..p.written + 8, p.read..p.read + 8, p.data..p.data + PIPE]);
                }
            }
            parts.sort_by_key(|p| p.start);
            assert!(parts.windows(2).all(|w| w[0].end <= w[1].start && w[1].start % 64 == 0));
            assert_eq!(parts.last().unwrap().end, l.len());
        }
    }
}
