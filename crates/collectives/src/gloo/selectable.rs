//! Algorithms that a spec can select by name: halving-doubling, trees over whole buffers, and the parameter server, as a baseline.

use super::engine::Engine;
use super::ring::part;
use super::stream::{ReceiveAction, Rx, Tx};
use crate::CommError;
use std::slice::from_ref;

impl Engine {
    /// Recursive halving leaves each of the first 2^k ranks with its part of the reduction; recursive doubling gathers
    /// the parts (Rabenseifner 2004). Each further rank first hands its buffer to a partner, and gets the result at the
    /// end.
    pub(super) fn all_reduce_halving_doubling(&mut self, buf: &mut [u8]) -> Result<(), CommError> {
        let (me, core, n) = (self.me, 1 << self.world.ilog2(), buf.len());
        if me >= core {
            self.send_all(buf, me - core)?;
            return self.recv_all(buf, me - core);
        }
        let partner = Some(me + core).filter(|p| *p < self.world);
        if let Some(peer) = partner {
            let parts = [(0..n, ReceiveAction::Combine(None))];
            self.stream(buf, None, Some(Rx { peer, parts: &parts }))?;
        }
        let size = self.header.dtype.size();
        // The byte range of parts `from..to` of `core`.
        let span = |from: usize, to: usize| {
            part(n / size, size, core, from).start..part(n / size, size, core, to - 1).end
        };
        let (mut from, mut to, mut bit) = (0, core, core / 2);
        while bit > 0 {
            let middle = from + bit;
            let (keep, give) =
                if me & bit == 0 { (from..middle, middle..to) } else { (middle..to, from..middle) };
            let send = span(give.start, give.end);
            let last = self.divisor().filter(|_| bit == 1);
            let recv = [(span(keep.start, keep.end), ReceiveAction::Combine(last))];
            let tx = Tx { peer: me ^ bit, lead: send.len(), parts: from_ref(&send) };
            self.stream(buf, Some(tx), Some(Rx { peer: me ^ bit, parts: &recv }))?;
            (from, to) = (keep.start, keep.end);
            bit /= 2;
        }
        bit = 1;
        while bit < core {
            let own = me & !(bit - 1);
            let theirs = (me ^ bit) & !(bit - 1);
            let send = span(own, own + bit);
            let recv = [(span(theirs, theirs + bit), ReceiveAction::Store)];
            let tx = Tx { peer: me ^ bit, lead: send.len(), parts: from_ref(&send) };
            self.stream(buf, Some(tx), Some(Rx { peer: me ^ bit, parts: &recv }))?;
            bit *= 2;
        }
        match partner {
            Some(peer) => self.send_all(buf, peer),
            None => Ok(()),
        }
    }

    /// Reduces up the tree to rank 0, then broadcasts down.
    pub(super) fn all_reduce_tree(&mut self, buf: &mut [u8]) -> Result<(), CommError> {
        self.reduce_tree(buf, 0)?;
        self.broadcast_tree(buf, 0)
    }

    /// Rank 0 receives all buffers in rank order, then sends the result to each rank.
    pub(super) fn all_reduce_star(&mut self, buf: &mut [u8]) -> Result<(), CommError> {
        self.reduce_star(buf, 0)?;
        self.broadcast_star(buf, 0)
    }

    pub(super) fn reduce_star(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        if self.me != root {
            self.send_all(buf, root)?;
            return self.expect(root);
        }
        let peers: Vec<usize> = self.peers().collect();
        for peer in &peers {
            self.announce(*peer)?;
        }
        for (index, peer) in peers.iter().enumerate() {
            let last = self.divisor().filter(|_| index + 1 == peers.len());
            let parts = [(0..buf.len(), ReceiveAction::Combine(last))];
            self.stream(buf, None, Some(Rx { peer: *peer, parts: &parts }))?;
        }
        Ok(())
    }

    pub(super) fn broadcast_star(&mut self, buf: &mut [u8], root: usize) -> Result<(), CommError> {
        if self.me != root {
            self.announce(root)?;
            return self.recv_all(buf, root);
        }
        let peers: Vec<usize> = self.peers().collect();
        for peer in &peers {
            self.send_all(buf, *peer)?;
        }
        peers.into_iter().try_for_each(|peer| self.expect(peer))
    }
}
