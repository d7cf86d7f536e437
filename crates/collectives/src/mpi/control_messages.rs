//! Control messages between ranks beside the calls (failures, goodbyes, probes). A rank in a call reads them; any other
//! reads them at the start of its next call. Also the two ways a group ends: in order, which all ranks
//! agree on, and after a failure, which leaves each rank time to record what happened.

use super::backoff::Backoff;
use super::engine::Engine;
use super::library::{Channel, PendingOperation};
use crate::control::{Control, MAX_FRAME};
use crate::execute::Engine as _;
use crate::probe::Probe;
use crate::{CommError, CommErrorKind, messages};
use std::time::{Duration, Instant};

/// Bytes of the sender's rank, in front of a frame.
const SENDER: usize = 4;

pub(super) struct ControlMessages {
    /// The receive for the next message from any rank.
    receive: Option<PendingOperation>,
    outgoing: Vec<PendingOperation>,
    departed: Vec<Option<Instant>>,
    announced: bool,
}

/// How long ranks wait for each other. No event can end such a wait if it is for a rank that may be gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct GracePeriods {
    /// How long an operation may continue after the goodbye of a peer, which had done its part before.
    pub goodbye: Duration,
    /// How long a rank that failed stays for the others: when the first process ends, `mpirun` kills the rest.
    pub linger: Duration,
    /// How long the other ranks wait for the rank that aborted, or that needed one that had left, to end first: its
    /// exit code becomes mpirun's.
    pub precedence: Duration,
    /// Tests: this many answers end the wait for them, however long they take. By default, only time does.
    pub answers: Option<usize>,
}

impl Default for GracePeriods {
    fn default() -> Self {
        Self {
            goodbye: Duration::from_secs(1),
            linger: Duration::from_secs(1),
            precedence: Duration::from_millis(300),
            answers: None,
        }
    }
}

impl ControlMessages {
    pub(super) fn new(world: usize) -> Self {
        Self { receive: None, outgoing: Vec::new(), departed: vec![None; world], announced: false }
    }
}

/// The sender, and what it says; None if malformed.
fn open(message: &[u8]) -> Option<(usize, Option<Control>)> {
    let (sender, frame) = message.split_first_chunk::<SENDER>()?;
    Some((u32::from_le_bytes(*sender) as usize, Control::decode(frame)))
}

impl Engine {
    fn send_control(&mut self, to: usize, frame: &[u8]) {
        let mut memory = self.memory(SENDER + frame.len());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        bytes[..SENDER].copy_from_slice(&(self.me as u32).to_le_bytes());
        bytes[SENDER..][..frame.len()].copy_from_slice(frame);
        // A message that cannot be sent is for a rank that is gone.
        if let Ok(pending) = self.library.send(Channel::Control, memory, SENDER + frame.len(), to) {
            self.control.outgoing.push(pending);
        }
    }

    fn broadcast_control(&mut self, message: Control) {
        let frame = message.frame();
        self.peers().for_each(|peer| self.send_control(peer, &frame));
    }

    /// Informs the other ranks, once, why the group has ended.
    pub(super) fn announce_failure(&mut self) {
        let shared = self.shared.clone();
        if let Some(failed) = shared.failed.get()
            && !std::mem::replace(&mut self.control.announced, true)
        {
            let (kind, culprit) = (failed.error.kind, failed.error.peer);
            self.broadcast_control(Control::abort(kind, culprit, &failed.cause));
        }
    }

    /// An error once the group has ended, whichever rank ended it; the other ranks have been informed by then.
    pub(super) fn check(&mut self) -> Result<(), CommError> {
        self.announce_failure();
        self.shared.failed.get().map_or(Ok(()), |failed| Err(failed.error.clone()))
    }

    /// Handles the messages that have arrived. An error once the group has ended, whichever rank ended it.
    pub(super) fn poll_control(&mut self) -> Result<(), CommError> {
        self.check()?;
        while let Some(message) = self.next_message().map_err(|e| self.mpi_failed(&e))? {
            self.handle_message(&message)?;
        }
        Ok(())
    }

    /// The next message, if one has arrived.
    fn next_message(&mut self) -> super::library::Result<Option<Vec<u8>>> {
        let Self { library, control, .. } = self;
        let mut failed = Ok(());
        control.outgoing.retain_mut(|sent| match library.test(sent) {
            Ok(done) => !done,
            Err(e) => {
                failed = Err(e);
                true
            }
        });
        failed?;
        let mut receive = match self.control.receive.take() {
            Some(receive) => receive,
            None => {
                let memory = self.memory(SENDER + MAX_FRAME);
                self.library.recv(Channel::Control, memory, SENDER + MAX_FRAME, None)?
            }
        };
        if !self.library.test(&mut receive)? {
            self.control.receive = Some(receive);
            return Ok(None);
        }
        let memory = receive.take();
        let message = bytemuck::cast_slice(&memory[1])[..SENDER + MAX_FRAME].to_vec();
        self.give_back(memory);
        Ok(Some(message))
    }

    fn handle_message(&mut self, message: &[u8]) -> Result<(), CommError> {
        let opened = open(message).filter(|(sender, _)| *sender < self.world);
        let Some((peer, control)) = opened else {
            return Err(self.fail(CommErrorKind::Mismatch, None, "a rank sent an invalid control message"));
        };
        match control {
            Some(Control::Abort { kind, culprit, cause }) => {
                // The rank that failed informs all the others itself.
                self.control.announced = true;
                let culprit = culprit.filter(|c| *c != self.me || kind != CommErrorKind::PeerLost);
                Err(self.fail(kind, culprit, &cause))
            }
            Some(Control::Goodbye) => {
                self.control.departed[peer] = Some(Instant::now());
                Ok(())
            }
            Some(Control::Probe) => {
                let frame = Control::ProbeReply(self.header, self.shared.calls.place()).frame();
                self.send_control(peer, &frame);
                Ok(())
            }
            Some(Control::ProbeReply(theirs, place)) => {
                if let Some(probe) = &mut self.probe {
                    probe.record(peer, (theirs, place));
                }
                Ok(())
            }
            Some(Control::Wake | Control::ProgressRequest | Control::Progress(..)) => Ok(()),
            None => Err(self.invalid_message(peer)),
        }
    }

    /// Fails if a rank that has said goodbye is still needed: by a group call, or as the `peer` of this one.
    pub(super) fn check_departed(&mut self, peer: Option<usize>) -> Result<(), CommError> {
        let goodbye = self.grace_periods.goodbye;
        let long_ago = |d: &Option<Instant>| d.is_some_and(|d| d.elapsed() > goodbye);
        let gone = (0..self.world)
            .find(|rank| peer.is_none_or(|p| p == *rank) && long_ago(&self.control.departed[*rank]));
        let Some(gone) = gone else { return Ok(()) };
        Err(self.fail(CommErrorKind::PeerLost, Some(gone), &messages::left(gone, self.me)))
    }

    /// Called when the deadline, or the time for answers after it, has passed.
    pub(super) fn overdue(&mut self, peer: Option<usize>) -> Result<(), CommError> {
        if let Some(probe) = &self.probe {
            let departed = |p: usize| self.control.departed[p].is_some();
            let (call, awaited) = ((self.me, &self.header), peer.as_slice());
            let (culprit, cause) = probe.verdict(call, self.time_limit, awaited, departed, |_| None);
            return Err(self.fail(CommErrorKind::Timeout, culprit, &cause));
        }
        self.probe =
            Some(Probe::new(self.world, Instant::now(), self.time_limit, self.grace_periods.answers));
        self.broadcast_control(Control::Probe);
        Ok(())
    }

    /// Leaves the group in order: waits, without a limit, until no rank needs anything more. True if MPI may be ended,
    /// false if the group has failed.
    pub(super) fn leave(&mut self) -> bool {
        self.broadcast_control(Control::Goodbye);
        let backoff = Backoff::new();
        while self.peers().any(|p| self.control.departed[p].is_none()) || !self.control.outgoing.is_empty() {
            if self.poll_control().is_err() {
                return false;
            }
            backoff.wait();
        }
        match self.control.receive.take() {
            Some(receive) => self.library.cancel(receive).is_ok(),
            None => true,
        }
    }

    /// After a failure: this rank's messages must be delivered, and the other ranks must have recorded what happened,
    /// before this process ends, because its end kills them. `left`: this rank was done before.
    pub(super) fn linger(&mut self, left: bool) {
        let shared = self.shared.clone();
        let Some(failed) = shared.failed.get() else { return };
        self.announce_failure();
        self.broadcast_control(Control::Goodbye);
        let lost = matches!(failed.error.kind, CommErrorKind::PeerLost | CommErrorKind::Timeout);
        let culprit = failed.error.peer;
        let awaited: Vec<usize> = self.peers().filter(|p| !lost || culprit != Some(*p)).collect();
        let (until, backoff) = (Instant::now() + self.grace_periods.linger, Backoff::new());
        while Instant::now() < until && awaited.iter().any(|p| self.control.departed[*p].is_none()) {
            match self.next_message() {
                Ok(Some(message)) => drop(self.handle_message(&message)),
                Ok(None) => backoff.wait(),
                Err(_) => return,
            }
        }
        if left || culprit.is_some_and(|c| c != self.me) && !lost {
            std::thread::sleep(self.grace_periods.precedence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_sender_and_a_frame_and_others_are_rejected() {
        let cause = "rank 3 aborted: disk full";
        let frame = Control::abort(CommErrorKind::Aborted, Some(3), cause).frame();
        let mut message = [&3u32.to_le_bytes()[..], &frame].concat();
        let whole = message.len();
        // A receive's memory is larger than the message.
        message.resize(SENDER + MAX_FRAME, 0xff);
        let (sender, control) = open(&message).unwrap();
        assert_eq!(sender, 3);
        assert!(matches!(control, Some(Control::Abort { cause: c, .. }) if *c == *cause));
        assert!(open(&message[..3]).is_none());
        for cut in [SENDER, SENDER + 1, SENDER + 2, whole - 1] {
            assert_eq!(open(&message[..cut]), Some((3, None)), "{cut} bytes");
        }
        assert_eq!(Control::decode(&[0xff; MAX_FRAME]), None);
    }
}
