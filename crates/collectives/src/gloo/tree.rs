//! Algorithms for small buffers, whose cost is the number of messages on the longest path: recursive doubling, binomial
//! trees, dissemination. Messages are whole buffers, reduced in rank order, so that both partners of an exchange
//! compute the same bits from the same operands.

use super::engine::Engine;
use super::stream::{ReceiveAction, Rx, Tx};
use crate::CommError;
use crate::reduce::combine;

/// Buffers in the working memory start at multiples of this many bytes.
const ALIGN: usize = 64;

impl Engine {
    /// In round k, each rank exchanges its result with the one whose index in `ranks` differs in bit k. Those beyond
    /// the largest power of two first hand their buffer to a partner, and get the result at the end.
    pub(super) fn all_reduce_doubling(&mut self, ranks: &[usize], buf: &mut [u8]) -> Result<(), CommError> {
        let Some(me) = ranks.iter().position(|r| *r == self.me).filter(|_| ranks.len() > 1) else {
            return Ok(());
        };
        let core = 1 << ranks.len().ilog2();
        if me >= core {
            self.send_all(buf, ranks[me - core])?;
            return self.recv_all(buf, ranks[me - core]);
        }
        let padded = buf.len().next_multiple_of(ALIGN);
        let mut work = self.take_work(2 * padded);
        let result = self.doubling(buf, bytemuck::cast_slice_mut(&mut work), padded, (ranks, me));
        self.work = work;
        result
    }

    fn doubling(
        &mut self,
        buf: &mut [u8],
        work: &mut [u8],
        half: usize,
        (ranks, me): (&[usize], usize),
    ) -> Result<(), CommError> {
        let (core, n, kind) = (1 << ranks.len().ilog2(), buf.len(), self.kind());
        let partner = ranks.get(me + core).copied();
        work[..n].copy_from_slice(buf);
        if let Some(p) = partner {
            self.recv_all(&mut work[half..half + n], p)?;
            let (own, other) = work.split_at_mut(half);
            combine(kind, &mut own[..n], &other[..n], None);
        }
        // Which half holds this rank's result; the other half receives the partner's.
        let mut own = 0;
        let mut bit = 1;
        while bit < core {
            let (mine, theirs) = (own * half, (1 - own) * half);
            let (send, recv) = (mine..mine + n, [(theirs..theirs + n, ReceiveAction::Store)]);
            let peer = ranks[me ^ bit];
            let tx = Tx { peer, parts: std::slice::from_ref(&send), lead: n };
            self.stream(work, Some(tx), Some(Rx { peer, parts: &recv }))?;
            let last = self.divisor().filter(|_| bit * 2 == core);
            let (low, high) = work.split_at_mut(half);
            let (low, high) = (&mut low[..n], &mut high[..n]);
            let (mine, theirs) = if own == 0 { (low, high) } else { (high, low) };
            // The lower rank's operand comes first, with the same code on both sides.
            if me & bit == 0 {
                combine(kind, mine, theirs, last);
            } else {
                combine(kind, theirs, mine, last);
                own = 1 - own;
            }
            bit *= 2;
        }
        buf.copy_from_slice(&work[own * half..own * half + n]);
        match partner {
            Some(p) => self.send_all(buf, p),
            None => Ok(()),
        }
    }

    /// Takes the working memory, with room for at least `bytes`. The caller puts it back into `self.work`.
    pub(super) fn take_work(&mut self, bytes: usize) -> Vec<u64> {
        let mut work = std::mem::take(&mut self.work);
        if work.len() < bytes.div_ceil(8) {
            work.resize(bytes.div_ceil(8), 0);
        }
        work
    }

    /// The parent (None for the root) and the children, nearest first, in the binomial tree under `root`.
    fn tree(&self, root: usize) -> (Option<usize>, Vec<usize>) {
        let w = self.world;
        let position = (self.me + w - root) % w;
        let rank = |position: usize| (position + root) % w;
        let lowest = if position == 0 { w.next_power_of_two() } else { position & position.wrapping_neg() };
        let children = (0..).map(|k| 1 << k).take_while(|bit| *bit < lowest).map(|bit| position + bit);
        let parent = (position > 0).then(|| rank(position - lowest));
        (parent, children.filter(|c| *c < w).map(rank).collect())
    }

    /// A rank returns only after its children have entered the call, so that a mismatch is always detected.
    pub(super) fn broadcast_tree(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        let (parent, children) = self.tree(root);
        if let Some(parent) = parent {
            self.announce(parent)?;
            self.recv_all(buf, parent)?;
        }
        // The farthest child has the largest subtree.
        for child in children.iter().rev() {
            self.send_all(buf, *child)?;
        }
        children.into_iter().try_for_each(|child| self.expect(child))
    }

    /// The tree of `broadcast_tree`, from the leaves up.
    pub(super) fn reduce_tree(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        let (parent, children) = self.tree(root);
        for child in &children {
            self.announce(*child)?;
        }
        for (index, child) in children.iter().enumerate() {
            let is_last = parent.is_none() && index + 1 == children.len();
            let last = self.divisor().filter(|_| is_last);
            let parts = [(0..buf.len(), ReceiveAction::Combine(last))];
            self.stream(buf, None, Some(Rx { peer: *child, parts: &parts }))?;
        }
        let Some(parent) = parent else { return Ok(()) };
        self.send_all(buf, parent)?;
        self.expect(parent)
    }

    /// In round k, each rank informs the one 2^k ahead that it, and every rank that has informed it so far, has arrived.
    pub(super) fn barrier_dissemination(&mut self) -> Result<(), CommError> {
        let (me, w) = (self.me, self.world);
        let mut distance = 1;
        while distance < w {
            let tx = Tx { peer: (me + distance) % w, parts: &[], lead: 0 };
            let rx = Rx { peer: (me + w - distance) % w, parts: &[] };
            self.stream(&mut [], Some(tx), Some(rx))?;
            distance *= 2;
        }
        Ok(())
    }
}
