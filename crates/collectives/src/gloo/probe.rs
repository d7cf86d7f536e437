//! What a call does at its deadline: before a rank is blamed, every peer is probed. A rank that is
//! itself waiting answers from within its call; a rank that is stopped, or busy elsewhere, does not, and is the one to
//! name, even if this rank was waiting for another one in between.

use super::control::Control;
use super::engine::Engine;
use super::header::Header;
use crate::probe::Probe;
use crate::{CommError, CommErrorKind, messages};
use std::time::Instant;

impl Engine {
    /// Called when the deadline, or the time for answers after it, has passed.
    pub(super) fn overdue(&mut self, waiting_for: Vec<usize>) -> Result<(), CommError> {
        match &self.probe {
            Some(probe) => Err(self.verdict(probe, &waiting_for)),
            None => {
                self.probe = Some(Probe::new(self.world, Instant::now(), self.time_limit, self.answers));
                let frame = Control::Probe.frame();
                self.shared.control.iter().flatten().for_each(|c| c.send(&frame));
                Ok(())
            }
        }
    }

    fn verdict(&self, probe: &Probe, awaited: &[usize]) -> CommError {
        let (departed, last_seen) = (|p| self.has_departed(p), |p| self.last_seen(p));
        let call = (self.me, &self.header);
        let (culprit, cause) = probe.verdict(call, self.time_limit, awaited, departed, last_seen);
        self.fail(CommErrorKind::Timeout, culprit, &cause)
    }

    /// The last call and place of a rank of this host that does not answer, from shared memory.
    fn last_seen(&self, peer: usize) -> Option<String> {
        let arena = self.shared.arena()?;
        let local = arena.local(peer)?;
        let last = match arena.last_header(self.round, local).and_then(|h| Header::decode(&h)) {
            Some(header) => format!("last entered {header}"),
            None => format!("has not entered the call of rank {}", self.me),
        };
        Some(format!("rank {peer} {last}, {}", arena.place(local)))
    }

    /// Reads what `peer` has sent on its control connection.
    pub(super) fn read_control(&mut self, peer: usize) -> Result<(), CommError> {
        let shared = self.shared.clone();
        let Some(control) = &shared.control[peer] else { return Ok(()) };
        loop {
            let link = self.link(peer)?;
            let Some(space) = link.control_in.space() else { return Err(self.invalid_message(peer)) };
            match control.read(space) {
                Ok(0) => return self.control_ended(peer, "connection closed"),
                Ok(n) => {
                    if link.control_in.advance(n) {
                        self.handle_control(peer)?;
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
        Err(self.fail(CommErrorKind::PeerLost, Some(peer), &messages::disconnected(peer, what, self.me)))
    }

    fn handle_control(&mut self, peer: usize) -> Result<(), CommError> {
        let (own, place, me, idle) = (self.header, self.shared.calls.place(), self.me, self.idle);
        match self.link(peer)?.control_in.take() {
            None => Err(self.invalid_message(peer)),
            Some(Control::Abort { kind, culprit, cause }) => {
                let culprit = culprit.filter(|c| *c != me || kind != CommErrorKind::PeerLost);
                Err(self.fail(kind, culprit, &cause))
            }
            Some(Control::Goodbye) => {
                self.link(peer)?.departed = true;
                Ok(())
            }
            Some(Control::Probe) if idle => {
                self.link(peer)?.probe_pending = true;
                Ok(())
            }
            Some(Control::Probe) => {
                if let Some(control) = &self.shared.control[peer] {
                    control.send(&Control::ProbeReply(own, place).frame());
                }
                Ok(())
            }
            Some(Control::Wake) => Ok(()),
            Some(Control::ProgressRequest) => {
                self.send_progress(peer, place);
                Ok(())
            }
            Some(Control::Progress(calls, place)) => {
                if let Some(probe) = &mut self.progress {
                    probe.record(peer, (calls, place));
                }
                Ok(())
            }
            Some(Control::ProbeReply(theirs, place)) => {
                if let Some(probe) = &mut self.probe {
                    probe.record(peer, (theirs, place));
                }
                Ok(())
            }
        }
    }
}
