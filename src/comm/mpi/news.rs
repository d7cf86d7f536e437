//! News: control messages between ranks beside the calls (failures, goodbyes, signs of life). A rank in a call reads
//! news; any other reads it at the start of its next call. Also the two ways a group ends: in order, which all ranks
//! agree on, and after a failure, which leaves each rank time to record what happened.

use super::engine::Engine;
use super::library::{Channel, Pending};
use super::pause::Pause;
use crate::comm::control::{Control, FrameReader, MAX_FRAME};
use crate::comm::probe::Probe;
use crate::comm::{CommError, CommErrorKind, messages};
use std::time::{Duration, Instant};

/// Bytes of the sender's rank, in front of a frame.
const SENDER: usize = 4;

pub(super) struct News {
    /// The receive for the next message from any rank.
    ear: Option<Pending>,
    outgoing: Vec<Pending>,
    departed: Vec<Option<Instant>>,
    told: bool,
}

/// How long ranks wait for each other. No event can end such a wait if it is for a rank that may be gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Graces {
    /// How long an operation may continue after the goodbye of a peer, which had done its part before.
    pub farewell: Duration,
    /// How long a rank that failed stays for the others: when the first process ends, `mpirun` kills the rest.
    pub linger: Duration,
    /// How long the other ranks wait for the rank that gave up, or that needed one that had left, to end first: its
    /// exit code becomes mpirun's.
    pub precedence: Duration,
    /// Tests: this many answers end the wait for them, however long they take. By default, only time does.
    pub answers: Option<usize>,
}

impl Default for Graces {
    fn default() -> Self {
        Self {
            farewell: Duration::from_secs(1),
            linger: Duration::from_secs(1),
            precedence: Duration::from_millis(300),
            answers: None,
        }
    }
}

impl News {
    pub(super) fn new(world: usize) -> Self {
        Self { ear: None, outgoing: Vec::new(), departed: vec![None; world], told: false }
    }
}

/// The sender and its frame; None if malformed.
fn open(message: &[u8]) -> Option<(usize, FrameReader)> {
    let (sender, mut rest) = message.split_first_chunk::<SENDER>()?;
    let mut reader = FrameReader::new();
    loop {
        let space = reader.space()?;
        let (now, later) = rest.split_at_checked(space.len())?;
        space.copy_from_slice(now);
        rest = later;
        if reader.advance(now.len()) {
            return Some((u32::from_le_bytes(*sender) as usize, reader));
        }
    }
}

impl Engine {
    fn tell(&mut self, to: usize, frame: &[u8]) {
        let mut memory = self.memory(SENDER + frame.len());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        bytes[..SENDER].copy_from_slice(&(self.me as u32).to_le_bytes());
        bytes[SENDER..][..frame.len()].copy_from_slice(frame);
        // A message that cannot be sent is for a rank that is gone.
        if let Ok(pending) = self.library.send(Channel::News, memory, SENDER + frame.len(), to) {
            self.news.outgoing.push(pending);
        }
    }

    fn tell_all(&mut self, news: Control<'_>) {
        let frame = news.frame();
        self.peers().for_each(|peer| self.tell(peer, &frame));
    }

    /// Tells the other ranks, once, why the group has ended.
    pub(super) fn tell_failure(&mut self) {
        let shared = self.shared.clone();
        if let Some(failed) = shared.failed()
            && !std::mem::replace(&mut self.news.told, true)
        {
            let (kind, culprit) = (failed.error.kind, failed.error.peer);
            self.tell_all(Control::Abort { kind, culprit, cause: &failed.cause });
        }
    }

    /// An error once the group has ended, whichever rank ended it; the other ranks have been told by then.
    pub(super) fn check(&mut self) -> Result<(), CommError> {
        self.tell_failure();
        self.shared.failed().map_or(Ok(()), |failed| Err(failed.error.clone()))
    }

    /// Handles the messages that have arrived. An error once the group has ended, whichever rank ended it.
    pub(super) fn listen(&mut self) -> Result<(), CommError> {
        self.check()?;
        while let Some(message) = self.hear().map_err(|e| self.broken(&e))? {
            self.obey(&message)?;
        }
        Ok(())
    }

    /// The next message, if one has arrived.
    fn hear(&mut self) -> super::library::Result<Option<Vec<u8>>> {
        let Self { library, news, .. } = self;
        let mut failed = Ok(());
        news.outgoing.retain_mut(|sent| match library.test(sent) {
            Ok(done) => !done,
            Err(e) => {
                failed = Err(e);
                true
            }
        });
        failed?;
        let mut ear = match self.news.ear.take() {
            Some(ear) => ear,
            None => {
                let memory = self.memory(SENDER + MAX_FRAME);
                self.library.recv(Channel::News, memory, SENDER + MAX_FRAME, None)?
            }
        };
        if !self.library.test(&mut ear)? {
            self.news.ear = Some(ear);
            return Ok(None);
        }
        let memory = ear.take();
        let message = bytemuck::cast_slice(&memory[1])[..SENDER + MAX_FRAME].to_vec();
        self.give_back(memory);
        Ok(Some(message))
    }

    fn obey(&mut self, message: &[u8]) -> Result<(), CommError> {
        let opened = open(message).filter(|(sender, _)| *sender < self.world);
        let Some((peer, mut reader)) = opened else {
            return Err(self.fail(CommErrorKind::Mismatch, None, "a rank sent an invalid control message"));
        };
        match reader.take() {
            Some(Control::Abort { kind, culprit, cause }) => {
                // The rank that failed tells all the others itself.
                self.news.told = true;
                let culprit = culprit.filter(|c| *c != self.me || kind != CommErrorKind::PeerLost);
                Err(self.fail(kind, culprit, cause))
            }
            Some(Control::Goodbye) => {
                self.news.departed[peer] = Some(Instant::now());
                Ok(())
            }
            Some(Control::Probe) => {
                let frame = Control::Echo(self.header, self.shared.calls.place()).frame();
                self.tell(peer, &frame);
                Ok(())
            }
            Some(Control::Echo(theirs, place)) => {
                if let Some(probe) = &mut self.probe {
                    probe.heard(peer, theirs, place);
                }
                Ok(())
            }
            Some(Control::Bell | Control::Where | Control::Here(..)) => Ok(()),
            None => {
                Err(self.fail(CommErrorKind::Mismatch, Some(peer), &messages::invalid_message(peer, self.me)))
            }
        }
    }

    /// Fails if a rank that has said goodbye is still needed: by a group call, or as the `peer` of this one.
    pub(super) fn check_departed(&mut self, peer: Option<usize>) -> Result<(), CommError> {
        let farewell = self.graces.farewell;
        let long_ago = |d: &Option<Instant>| d.is_some_and(|d| d.elapsed() > farewell);
        let gone = (0..self.world)
            .find(|rank| peer.is_none_or(|p| p == *rank) && long_ago(&self.news.departed[*rank]));
        let Some(gone) = gone else { return Ok(()) };
        Err(self.fail(CommErrorKind::PeerLost, Some(gone), &messages::left(gone, self.me)))
    }

    /// Called when the deadline, or the time for answers after it, has passed.
    pub(super) fn overdue(&mut self, peer: Option<usize>) -> Result<(), CommError> {
        if let Some(probe) = &self.probe {
            let departed = |p: usize| self.news.departed[p].is_some();
            let (call, awaited) = ((self.me, &self.header), peer.as_slice());
            let (culprit, cause) = probe.verdict(call, self.patience, awaited, departed, |_| None);
            return Err(self.fail(CommErrorKind::Timeout, culprit, &cause));
        }
        self.probe = Some(Probe::new(self.world, Instant::now(), self.patience, self.graces.answers));
        self.tell_all(Control::Probe);
        Ok(())
    }

    /// Leaves the group in order: waits, without a limit, until no rank needs anything more. True if MPI may be ended,
    /// false if the group has failed.
    pub(super) fn leave(&mut self) -> bool {
        self.tell_all(Control::Goodbye);
        let pause = Pause::new();
        while self.peers().any(|p| self.news.departed[p].is_none()) || !self.news.outgoing.is_empty() {
            if self.listen().is_err() {
                return false;
            }
            pause.rest();
        }
        match self.news.ear.take() {
            Some(ear) => self.library.cancel(ear).is_ok(),
            None => true,
        }
    }

    /// After a failure: this rank's messages must be delivered, and the other ranks must have recorded what happened,
    /// before this process ends, because its end kills them. `left`: this rank was done before.
    pub(super) fn linger(&mut self, left: bool) {
        let shared = self.shared.clone();
        let Some(failed) = shared.failed() else { return };
        self.tell_failure();
        self.tell_all(Control::Goodbye);
        let lost = matches!(failed.error.kind, CommErrorKind::PeerLost | CommErrorKind::Timeout);
        let culprit = failed.error.peer;
        let awaited: Vec<usize> = self.peers().filter(|p| !lost || culprit != Some(*p)).collect();
        let (until, pause) = (Instant::now() + self.graces.linger, Pause::new());
        while Instant::now() < until && awaited.iter().any(|p| self.news.departed[*p].is_none()) {
            match self.hear() {
                Ok(Some(message)) => drop(self.obey(&message)),
                Ok(None) => pause.rest(),
                Err(_) => return,
            }
        }
        if left || culprit.is_some_and(|c| c != self.me) && !lost {
            std::thread::sleep(self.graces.precedence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_sender_and_a_frame_and_anything_else_is_refused() {
        let cause = "rank 3 aborted: disk full";
        let frame = Control::Abort { kind: CommErrorKind::Aborted, culprit: Some(3), cause }.frame();
        let mut message = [&3u32.to_le_bytes()[..], &frame].concat();
        let whole = message.len();
        // A receive's memory is larger than the message.
        message.resize(SENDER + MAX_FRAME, 0xff);
        let (sender, mut reader) = open(&message).unwrap();
        assert_eq!(sender, 3);
        let news = reader.take();
        assert!(matches!(news, Some(Control::Abort { cause: c, .. }) if c == cause), "{news:?}");
        for cut in [0, 3, SENDER, SENDER + 2, whole - 1] {
            assert!(open(&message[..cut]).is_none(), "{cut} bytes");
        }
        assert!(open(&[0xff; SENDER + MAX_FRAME]).is_none());
    }
}
