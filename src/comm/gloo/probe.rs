//! What a call does at its deadline: before a rank is blamed, every peer is asked for a sign of life. A rank that is
//! itself waiting answers from within its call; a rank that is stopped, or busy elsewhere, does not, and is the one to
//! name, even if this rank was waiting for another one in between.

use super::control::Control;
use super::engine::Engine;
use super::header::Header;
use crate::comm::probe::{Probe, TOLD};
use crate::comm::rendezvous::name_ranks;
use crate::comm::{CommError, CommErrorKind, Place};
use std::time::Instant;

impl Engine {
    /// Called when the deadline, or the time for answers after it, has passed.
    pub(super) fn overdue(&mut self, waiting_for: Vec<usize>) -> Result<(), CommError> {
        match &self.probe {
            Some(_) => Err(self.verdict(&waiting_for)),
            None => {
                self.probe = Some(Probe::new(self.world, Instant::now(), self.patience, self.answers));
                let frame = Control::Probe.frame();
                self.shared.control.iter().flatten().for_each(|c| c.send(&frame));
                Ok(())
            }
        }
    }

    fn answer(&self, peer: usize) -> Option<&(Header, Place)> {
        self.probe.as_ref()?.answer(peer)
    }

    fn verdict(&self, waiting_for: &[usize]) -> CommError {
        let silent: Vec<usize> =
            self.peers().filter(|p| self.answer(*p).is_none() && !self.has_departed(*p)).collect();
        let after = format!("after {:?} (timeout)", self.patience);
        // A rank that this call needs, before one that is only busy elsewhere.
        let needed = silent.iter().find(|p| waiting_for.contains(p));
        if let Some(first) = needed.or(silent.first()) {
            let cause = format!(
                "{} gave no sign of life {after}: stopped, or busy outside of any collective (asked by rank {}){}",
                name_ranks(&silent),
                self.me,
                self.report(&silent)
            );
            return self.fail(CommErrorKind::Timeout, Some(*first), &cause);
        }
        // All ranks are alive and waiting: report where each one is. Those in another call are the likely culprits.
        let elsewhere = |p: &usize| self.answer(*p).is_some_and(|(h, _)| *h != self.header);
        let culprit = self.peers().find(elsewhere).or(waiting_for.first().copied());
        let cause = format!(
            "no progress {after}: rank {} waits for {} in {}{}",
            self.me,
            name_ranks(waiting_for),
            self.header,
            self.report(&[])
        );
        self.fail(CommErrorKind::Timeout, culprit, &cause)
    }

    /// Where each rank is, ranks in `first` before the others.
    fn report(&self, first: &[usize]) -> String {
        let rest = self.peers().filter(|p| !first.contains(p));
        let lines = first.iter().copied().chain(rest).filter_map(|p| self.whereabouts(p));
        lines.take(TOLD).map(|line| format!("; {line}")).collect()
    }

    /// What a rank has answered; for a silent rank of this host, what it has left in shared memory.
    fn whereabouts(&self, peer: usize) -> Option<String> {
        if let Some((header, place)) = self.answer(peer) {
            return Some(format!("rank {peer} is in {header}, {place}"));
        }
        let arena = self.shared.arena()?;
        let local = arena.local(peer)?;
        let last = match arena.last_header(self.round, local).and_then(|h| Header::decode(&h).ok()) {
            Some(header) => format!("after or in {header}"),
            None => format!("before the call that rank {} is in", self.me),
        };
        Some(format!("rank {peer} was last seen {last}, {}", arena.place(local)))
    }

    /// Reads what `peer` has sent on its control connection.
    pub(super) fn hear(&mut self, peer: usize) -> Result<(), CommError> {
        let shared = self.shared.clone();
        let Some(control) = &shared.control[peer] else { return Ok(()) };
        loop {
            let link = self.link(peer)?;
            let Some(space) = link.control_in.space() else { return Err(self.garbage(peer)) };
            match control.read(space) {
                Ok(0) => return self.control_ended(peer, "connection closed"),
                Ok(n) => {
                    if link.control_in.advance(n) {
                        self.obey(peer)?;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return self.control_ended(peer, &e.to_string()),
            }
        }
    }

    fn control_ended(&mut self, peer: usize, what: &str) -> Result<(), CommError> {
        let link = self.link(peer)?;
        link.control_closed = true;
        if link.departed {
            return Ok(());
        }
        let cause = format!("rank {peer} is gone: {what} (seen by rank {})", self.me);
        Err(self.fail(CommErrorKind::PeerLost, Some(peer), &cause))
    }

    fn obey(&mut self, peer: usize) -> Result<(), CommError> {
        let (own, place, me, idle) = (self.header, self.shared.calls.place(), self.me, self.idle);
        match self.link(peer)?.control_in.take() {
            None => Err(self.garbage(peer)),
            Some(Control::Abort { kind, culprit, cause }) => {
                let (culprit, cause) =
                    (culprit.filter(|c| *c != me || kind != CommErrorKind::PeerLost), cause.to_owned());
                Err(self.fail(kind, culprit, &cause))
            }
            Some(Control::Goodbye) => {
                self.link(peer)?.departed = true;
                Ok(())
            }
            Some(Control::Probe) if idle => {
                self.link(peer)?.asked = true;
                Ok(())
            }
            Some(Control::Probe) => {
                if let Some(control) = &self.shared.control[peer] {
                    control.send(&Control::Echo(own, place).frame());
                }
                Ok(())
            }
            Some(Control::Bell) => Ok(()),
            Some(Control::Where) => {
                self.say_where(peer, place);
                Ok(())
            }
            Some(Control::Here(calls, place)) => {
                self.link(peer)?.here = Some((calls, place));
                Ok(())
            }
            Some(Control::Echo(theirs, place)) => {
                if let Some(probe) = &mut self.probe {
                    probe.heard(peer, theirs, place);
                }
                Ok(())
            }
        }
    }
}
