//! Algorithms for large buffers, all pipelined along the ring of ranks: every rank sends to the next and receives from
//! the previous one. Bandwidth-optimal. The order in which an element is reduced depends only on the world size and its
//! position, so results are bit-equal on all ranks and in every run.

use super::engine::Engine;
use super::stream::{ReceiveAction, Rx, Tx};
use crate::CommError;
use std::ops::Range;
use std::slice::from_ref;

/// The `index`-th of `parts` nearly equal parts of `elements`, in bytes.
pub(super) fn part(elements: usize, size: usize, parts: usize, index: usize) -> Range<usize> {
    let (base, extra) = (elements / parts, elements % parts);
    let start = index * base + index.min(extra);
    start * size..(start + base + usize::from(index < extra)) * size
}

/// The part that a rank handles in `step` of a walk around `ranks` that starts at `first` and goes down.
fn walk(ranks: usize, first: usize, step: usize) -> usize {
    (first + 2 * ranks - step) % ranks
}

impl Engine {
    fn next(&self) -> usize {
        (self.me + 1) % self.world
    }

    fn previous(&self) -> usize {
        (self.me + self.world - 1) % self.world
    }

    /// Reduce-scatter, then all-gather, around `ranks`, as one stream: each step sends what the step before received.
    pub(super) fn all_reduce_ring(&mut self, ranks: &[usize], buf: &mut [u8]) -> Result<(), CommError> {
        let (w, size) = (ranks.len(), self.header.dtype.size());
        let Some(me) = ranks.iter().position(|r| *r == self.me).filter(|_| w > 1) else { return Ok(()) };
        let range = |index| part(buf.len() / size, size, w, index);
        let last = ReceiveAction::Combine(self.divisor());
        let action = |step| match step {
            s if s + 2 < w => ReceiveAction::Combine(None),
            s if s + 2 == w => last,
            _ => ReceiveAction::Store,
        };
        let send: Vec<_> = (0..2 * w - 2).map(|s| range(walk(w, me, s))).collect();
        let recv: Vec<_> = (0..2 * w - 2).map(|s| (range(walk(w, me, s + 1)), action(s))).collect();
        self.ring((ranks[(me + 1) % w], ranks[(me + w - 1) % w]), buf, &send, &recv)
    }

    /// `work` holds the blocks of all ranks. On return, this rank's block is reduced and the others hold partial results.
    pub(super) fn reduce_scatter_ring(&mut self, work: &mut [u8]) -> Result<(), CommError> {
        let w = self.world;
        let block = work.len() / w;
        let range = |index: usize| index * block..(index + 1) * block;
        let (first, divisor) = (self.previous(), self.divisor());
        let action = |step| ReceiveAction::Combine(divisor.filter(|_| step + 2 == w));
        let send: Vec<_> = (0..w - 1).map(|s| range(walk(w, first, s))).collect();
        let recv: Vec<_> = (0..w - 1).map(|s| (range(walk(w, first, s + 1)), action(s))).collect();
        self.ring((self.next(), self.previous()), work, &send, &recv)
    }

    /// `buf` holds the blocks of all ranks, of which this rank's is filled on entry.
    pub(super) fn all_gather_ring(&mut self, buf: &mut [u8]) -> Result<(), CommError> {
        let w = self.world;
        let block = buf.len() / w;
        let range = |index: usize| index * block..(index + 1) * block;
        let send: Vec<_> = (0..w - 1).map(|s| range(walk(w, self.me, s))).collect();
        let recv: Vec<_> =
            (0..w - 1).map(|s| (range(walk(w, self.me, s + 1)), ReceiveAction::Store)).collect();
        self.ring((self.next(), self.previous()), buf, &send, &recv)
    }

    fn ring(
        &mut self,
        (next, previous): (usize, usize),
        buf: &mut [u8],
        send: &[Range<usize>],
        recv: &[(Range<usize>, ReceiveAction)],
    ) -> Result<(), CommError> {
        let lead = send.first().map_or(0, ExactSizeIterator::len);
        let tx = Tx { peer: next, parts: send, lead };
        let rx = Rx { peer: previous, parts: recv };
        self.stream(buf, Some(tx), Some(rx))
    }

    /// Down the chain root, root + 1, …: each rank forwards data while it receives it. A rank returns only after the
    /// next one has entered the call, so that a mismatch is always detected.
    pub(super) fn broadcast_chain(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        let (next, previous, n) = (self.next(), self.previous(), buf.len());
        let (is_root, is_last) = (self.me == root, next == root);
        if !is_root {
            self.announce(previous)?;
        }
        let (all, recv) = (0..n, [(0..n, ReceiveAction::Store)]);
        let tx = Tx { peer: next, parts: from_ref(&all), lead: if is_root { n } else { 0 } };
        let rx = Rx { peer: previous, parts: &recv };
        self.stream(buf, (!is_last).then_some(tx), (!is_root).then_some(rx))?;
        if is_last { Ok(()) } else { self.expect(next) }
    }

    /// Along the chain root + 1, …, root - 1, root: each rank adds its contribution and passes the result on.
    pub(super) fn reduce_chain(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        let (next, previous, n) = (self.next(), self.previous(), buf.len());
        let (is_root, is_first) = (self.me == root, previous == root);
        if !is_first {
            self.announce(previous)?;
        }
        let last = self.divisor().filter(|_| is_root);
        let (all, recv) = (0..n, [(0..n, ReceiveAction::Combine(last))]);
        let tx = Tx { peer: next, parts: from_ref(&all), lead: if is_first { n } else { 0 } };
        let rx = Rx { peer: previous, parts: &recv };
        self.stream(buf, (!is_root).then_some(tx), (!is_first).then_some(rx))?;
        if is_root { Ok(()) } else { self.expect(next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        for elements in [0, 1, 4, 5, 103] {
            for parts in 1..6 {
                let mut end = 0;
                for i in 0..parts {
                    let r = part(elements, 4, parts, i);
                    assert_eq!(r.start, end);
                    assert!(r.len().abs_diff(elements * 4 / parts) <= 4);
                    end = r.end;
                }
                assert_eq!(end, elements * 4);
            }
        }
    }
}
