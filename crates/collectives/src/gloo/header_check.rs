//! Whether a peer's header matches this rank's call, and the message if it does not.

use super::engine::Engine;
use super::header::Header;
use super::link::LinkRead;
use crate::{CommError, CommErrorKind, messages};

impl Engine {
    /// Checks the header that `peer` has sent on a connection that the call needs.
    pub(super) fn accept(&mut self, peer: usize) -> Result<(), CommError> {
        let (header, me) = (self.header, self.me);
        let link = self.link(peer)?;
        match link.parked().copied() {
            Some(theirs) if !header.agrees_with(&theirs, me, peer) => Err(self.mismatch(peer, &theirs)),
            Some(_) => {
                link.accept();
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn mismatch(&self, peer: usize, theirs: &Header) -> CommError {
        let own = &self.header;
        if (theirs.run, theirs.generation) != (own.run, own.generation) {
            return self.fail(CommErrorKind::Mismatch, Some(peer), &messages::other_run(peer));
        }
        // A rank that needed nothing from this peer may already be past the call on which they disagree.
        let earlier = Some(theirs.sequence).filter(|s| !theirs.operation.is_pairwise() && *s < own.sequence);
        let earlier = earlier.and_then(|s| self.shared.calls.group_call(s)).filter(|call| call != theirs);
        let cause = messages::mismatch([(self.me, earlier.unwrap_or(*own)), (peer, *theirs)]);
        self.fail(CommErrorKind::Mismatch, Some(peer), &cause)
    }

    pub(super) fn invalid_message(&self, peer: usize) -> CommError {
        self.fail(CommErrorKind::Mismatch, Some(peer), &messages::invalid_message(peer, self.me))
    }

    /// A connection that the call does not need at the moment has data: the header of the peer's call.
    pub(super) fn read_unawaited(&mut self, peer: usize) -> Result<(), CommError> {
        let link = self.link(peer)?;
        match link.recv(&mut []) {
            Ok(LinkRead::Bytes(_)) => {}
            Ok(LinkRead::WouldBlock) => return Ok(()),
            Ok(LinkRead::Invalid) => return Err(self.invalid_message(peer)),
            // Its control connection says what that means.
            Ok(LinkRead::Closed) | Err(_) => {
                link.data_closed = true;
                return Ok(());
            }
        }
        self.check_header(peer)
    }

    /// Checks the header that `peer` has sent on a connection that the call may not need.
    pub(super) fn check_header(&mut self, peer: usize) -> Result<(), CommError> {
        let (own, me) = (self.header, self.me);
        let Some(theirs) = self.link(peer)?.parked().copied() else { return Ok(()) };
        let other_run = (theirs.run, theirs.generation) != (own.run, own.generation);
        let both_group = !theirs.operation.is_pairwise() && !own.operation.is_pairwise();
        // A later call than this rank's: the peer is ahead, and this rank follows.
        let disagrees = theirs.sequence <= own.sequence && !own.agrees_with(&theirs, me, peer);
        if other_run || both_group && disagrees {
            return Err(self.mismatch(peer, &theirs));
        }
        Ok(())
    }
}
