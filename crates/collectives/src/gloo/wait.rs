//! How a call waits. While it waits it listens to every peer, not only to those that it needs: a header of another
//! call, a failure reported by any rank, or a closed connection ends the call at once.
//!
//! Connections are waited for in `poll`. A wait for data in shared memory first spins, then sleeps; since control
//! messages arrive only on connections, a sleeping rank checks for them every few milliseconds.

use super::engine::Engine;
use super::header::HEADER;
use super::lanes::Lanes;
use super::shm::Arena;
use crate::rendezvous::poll_until;
use crate::{CommError, CommErrorKind};
use rustix::event::{PollFd, PollFlags};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two ranks that call at the same moment are both in the call within this time; longer waits are left to the kernel.
const SPIN: Duration = Duration::from_micros(5);
/// The same if the host has a processor for every rank: ranks that exchange blocks need not wake each other.
const LONG_SPIN: Duration = Duration::from_micros(40);
/// The same in shared memory, where the other rank is a few cache misses away. Waking up takes some 50 us if an idle
/// processor has gone to sleep; a rank that sleeps sooner than that makes the other wait, too, and so on.
pub(super) const NOTICE_SPIN: Duration = Duration::from_micros(100);
/// The same during a transfer, when the others are known to be working.
pub(super) const TRANSFER_SPIN: Duration = Duration::from_micros(500);
/// How often a spinning rank checks whether the other rank can run at all.
const PROCESSOR_CHECK: Duration = Duration::from_micros(5);
/// How often a rank yields before it sleeps, if there are more ranks than processors.
const YIELDS: usize = 10;
/// How long a sleeping rank may miss control messages.
const CONTROL_CHECK: Duration = Duration::from_millis(10);

/// How long a rank that waits for a connection may leave its host's memory unchecked.
const MEMORY_CHECK: Duration = Duration::from_millis(100);

fn at_most(until: Option<Instant>, pause: Duration) -> Instant {
    let soon = Instant::now() + pause;
    until.map_or(soon, |u| u.min(soon))
}

/// What `poll` watches.
#[derive(Clone, Copy, PartialEq)]
enum PollSource {
    Wake,
    Control(usize),
    Data(usize),
}

/// Checks `ready` repeatedly for a while, without sleeping.
fn spin_until(arena: &Arena, spin: Duration, ready: impl Fn(&Arena) -> bool) -> bool {
    if arena.is_oversubscribed() {
        return (0..YIELDS).any(|_| {
            std::thread::yield_now();
            ready(arena)
        });
    }
    let start = Instant::now();
    let mut next_check = PROCESSOR_CHECK;
    loop {
        for _ in 0..16 {
            if ready(arena) {
                return true;
            }
            std::hint::spin_loop();
        }
        let elapsed = start.elapsed();
        if elapsed > spin {
            return false;
        }
        if elapsed > next_check {
            // A rank that waits for this processor gets to run, if only to publish that it is here.
            std::thread::yield_now();
            arena.move_to_free_processor();
            next_check += PROCESSOR_CHECK;
        }
    }
}

impl Engine {
    /// Sleeps until the link to `send_to` has room or the one to `recv_from` has bytes; may return early.
    pub(super) fn wait(&mut self, send_to: Option<usize>, recv_from: Option<usize>) -> Result<(), CommError> {
        let Some(arena) = self.shared.arena().cloned() else { return self.wait_in_poll(send_to, recv_from) };
        let pipe = |p: Option<usize>| p.filter(|p| self.is_in_memory(*p));
        let (pipe_to, pipe_from) = (pipe(send_to), pipe(recv_from));
        let local = |p: Option<usize>| p.and_then(|p| arena.local(p));
        let (to, from) = (local(pipe_to), local(pipe_from));
        let ready = |a: &Arena| {
            to.is_some_and(|to| a.pipe_room(to) > 0) || from.is_some_and(|from| a.pipe_filled(from) > 0)
        };
        match (pipe_to.or(pipe_from), (pipe_to, pipe_from) == (send_to, recv_from)) {
            (None, _) => self.wait_in_poll(send_to, recv_from),
            (Some(_), true) => {
                let late = |_: &Arena| send_to.into_iter().chain(recv_from).collect();
                self.wait_in_memory(recv_from, NOTICE_SPIN, ready, late)
            }
            (Some(peer), false) => self.wait_for_both(&arena, peer, || ready(&arena), send_to, recv_from),
        }
    }

    /// Whether to try again: true for a few microseconds, before the kernel is asked to wake this thread.
    pub(super) fn spin(&self, since: &mut Option<Instant>) -> bool {
        let start = since.get_or_insert_with(Instant::now);
        std::hint::spin_loop();
        start.elapsed() < if self.processor_per_rank { LONG_SPIN } else { SPIN }
    }

    /// Waits until `ready`, which peers of this host cause by writing to its memory. `late` names the (global) ranks
    /// that are waited for; the pipe from `reads` is left to its reader.
    pub(super) fn wait_in_memory(
        &mut self,
        reads: Option<usize>,
        spin: Duration,
        ready: impl Fn(&Arena) -> bool,
        late: impl Fn(&Arena) -> Vec<usize>,
    ) -> Result<(), CommError> {
        let Some(arena) = self.shared.arena().cloned() else { return Ok(()) };
        if ready(&arena) || spin_until(&arena, spin, &ready) {
            return Ok(());
        }
        loop {
            let left = at_most(self.until(), CONTROL_CHECK).saturating_duration_since(Instant::now());
            arena.sleep(|| ready(&arena), left);
            if ready(&arena) {
                return Ok(());
            }
            let polled = self.poll_once(None, None, Some(Instant::now()), true);
            let noticed = polled.and_then(|_| self.check_memory(&arena, reads));
            let waiting_for = late(&arena);
            let ahead = self.header_ahead(&arena, &waiting_for);
            // What a peer wrote before its failure, its goodbye or another call counts; the next call fails.
            if ready(&arena) {
                return Ok(());
            }
            noticed?;
            if let Some((peer, header)) = ahead {
                return self.notice_error(peer, &header);
            }
            if let Some(gone) = waiting_for.iter().find(|p| self.has_departed(**p)) {
                return Err(self.departed_error(*gone));
            }
            self.check_deadline(waiting_for)?;
        }
    }

    pub(super) fn has_departed(&self, peer: usize) -> bool {
        self.links.get(peer).and_then(Option::as_ref).is_some_and(|l| l.departed)
    }

    /// A group call that a rank has announced while this one waits for its message.
    fn header_ahead(&self, arena: &Arena, waiting_for: &[usize]) -> Option<(usize, [u8; HEADER])> {
        if !self.header.operation.is_pairwise() {
            return None;
        }
        let local = waiting_for.iter().filter_map(|peer| Some((*peer, arena.local(*peer)?)));
        let next = self.round + 1;
        let (peer, local) = local.clone().find(|(_, local)| arena.has_posted(next, *local))?;
        Some((peer, arena.header(next, local)))
    }

    /// Checks headers of other calls that peers have written to shared memory.
    fn check_memory(&mut self, arena: &Arc<Arena>, reads: Option<usize>) -> Result<(), CommError> {
        self.check_notices(arena)?;
        for local in arena.others() {
            let peer = arena.members[local];
            let link = self.link(peer)?;
            let idle =
                reads != Some(peer) && link.wire.is_memory() && !link.reading && link.parked().is_none();
            if idle && arena.pipe_filled(local) >= HEADER {
                self.read_unawaited(peer)?;
            }
        }
        Ok(())
    }

    fn wait_in_poll(&mut self, send_to: Option<usize>, recv_from: Option<usize>) -> Result<(), CommError> {
        let arena = self.shared.arena().cloned();
        loop {
            // Ranks of this host don't wake this one for data that it does not wait for, but that may be another call.
            let mut wake_at = self.until();
            if let Some(arena) = &arena {
                self.check_memory(arena, recv_from)?;
                wake_at = Some(at_most(wake_at, MEMORY_CHECK));
            }
            if self.poll_once(send_to, recv_from, wake_at, true)? {
                return Ok(());
            }
            self.check_deadline(send_to.into_iter().chain(recv_from).collect())?;
        }
    }

    /// The deadline of the call, or that of the answers after it.
    fn until(&self) -> Option<Instant> {
        self.probe.as_ref().map(|p| p.until()).or(self.deadline)
    }

    fn check_deadline(&mut self, waiting_for: Vec<usize>) -> Result<(), CommError> {
        match self.until() {
            Some(until) if Instant::now() >= until => self.overdue(waiting_for),
            _ => Ok(()),
        }
    }

    /// Waits if one of the two is a connection and the other is the pipe of `peer`, which wakes this rank through the
    /// control connection when the pipe is `ready`.
    fn wait_for_both(
        &mut self,
        arena: &Arc<Arena>,
        peer: usize,
        ready: impl Fn() -> bool,
        send_to: Option<usize>,
        recv_from: Option<usize>,
    ) -> Result<(), CommError> {
        if self.has_departed(peer) && !ready() {
            return Err(self.departed_error(peer));
        }
        // The wake-up is lost if the peer dies or stops before it sends it.
        let wake_at = at_most(self.until(), MEMORY_CHECK);
        let polled = arena.while_polling(ready, || self.poll_once(send_to, recv_from, Some(wake_at), true));
        polled.transpose()?;
        self.check_memory(arena, recv_from)?;
        self.check_deadline(send_to.into_iter().chain(recv_from).collect())
    }

    /// One `poll(2)` and all its events. True when an awaited data connection is ready.
    pub(super) fn poll_once(
        &mut self,
        send_to: Option<usize>,
        recv_from: Option<usize>,
        until: Option<Instant>,
        data: bool,
    ) -> Result<bool, CommError> {
        #[cfg(test)]
        (self.polls += 1);
        let mut sources = vec![PollSource::Wake];
        let mut fds = vec![PollFd::new(self.shared.wake_end(), PollFlags::IN)];
        for (peer, link) in self.links.iter().enumerate() {
            let (Some(link), Some(control)) = (link, &self.shared.control[peer]) else { continue };
            if !link.control_closed {
                sources.push(PollSource::Control(peer));
                fds.push(PollFd::new(&control.stream, PollFlags::IN));
            }
            // A connection from which nothing is expected would report its end again and again. So would one whose
            // header has been accepted, with the header of the peer's next call.
            let idle = !link.reading && !link.matched && !link.data_closed && link.parked().is_none();
            let incoming =
                link.wire.lanes().map(Lanes::incoming).filter(|_| data && (recv_from == Some(peer) || idle));
            if let Some(stream) = incoming {
                sources.push(PollSource::Data(peer));
                fds.push(PollFd::new(stream, PollFlags::IN));
            }
            if let Some(stream) =
                link.wire.lanes().map(Lanes::outgoing).filter(|_| data && send_to == Some(peer))
            {
                sources.push(PollSource::Data(peer));
                fds.push(PollFd::new(stream, PollFlags::OUT));
            }
        }
        match poll_until(&mut fds, until) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) => {
                let cause = format!("rank {} cannot poll its connections: {e}", self.me);
                return Err(self.fail(CommErrorKind::Aborted, Some(self.me), &cause));
            }
        }
        let events: Vec<(PollSource, PollFlags)> =
            sources.into_iter().zip(fds.iter().map(|f| f.revents())).filter(|(_, e)| !e.is_empty()).collect();
        drop(fds);
        self.handle(&events, send_to, recv_from)
    }

    /// Handles control connections first: they know best why a data connection has ended. Only what the awaited rank
    /// wrote before it ended comes before its end.
    fn handle(
        &mut self,
        events: &[(PollSource, PollFlags)],
        send_to: Option<usize>,
        recv_from: Option<usize>,
    ) -> Result<bool, CommError> {
        let mut ready = false;
        let has_come = |from: usize| {
            events.iter().any(|(s, flags)| *s == PollSource::Data(from) && flags.contains(PollFlags::IN))
        };
        let awaited = recv_from.filter(|from| has_come(*from));
        for (source, _) in events {
            match source {
                PollSource::Wake => {
                    return Err(self.shared.failure().unwrap_or_else(|| self.invalid_message(self.me)));
                }
                PollSource::Control(peer) if awaited == Some(*peer) => {}
                PollSource::Control(peer) => self.read_control(*peer)?,
                PollSource::Data(_) => {}
            }
        }
        for (source, flags) in events {
            let PollSource::Data(peer) = *source else { continue };
            let end = flags.intersects(PollFlags::ERR | PollFlags::HUP);
            let wanted = send_to == Some(peer) && (end || flags.contains(PollFlags::OUT))
                || recv_from == Some(peer) && (end || flags.contains(PollFlags::IN));
            match wanted {
                true => ready = true,
                false => self.read_unawaited(peer)?,
            }
        }
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gloo::{GlooOptions, Transport};
    use crate::{ProcessGroup, Wait, testing};
    use std::net::Shutdown;

    /// As when a process ends right after its part of the last barrier, and one poll reports both.
    #[test]
    fn data_of_the_awaited_rank_is_read_before_its_disconnection_is_reported() {
        let options = |_| GlooOptions { transport: Transport::Tcp, ..GlooOptions::default() };
        let mut groups = testing::form(2, Duration::from_secs(60), options);
        let gone = groups.pop().expect("rank 1");
        gone.send((&vec![7u8; 16]).into(), 0, 0).expect("sent");
        gone.shared.control.iter().flatten().for_each(|c| c.stream.shutdown(Shutdown::Both).expect("open"));
        let mut engine = groups[0].engine.lock().expect("nobody panicked");
        let both = [(PollSource::Control(1), PollFlags::IN), (PollSource::Data(1), PollFlags::IN)];
        assert!(engine.handle(&both, None, Some(1)).expect("the data first"));
        // Nothing is awaited from it, or nothing has arrived: its end is what counts.
        let error = engine.handle(&both[..1], None, Some(1)).expect_err("it is gone");
        assert_eq!((error.kind, error.peer), (CommErrorKind::PeerLost, Some(1)), "{error}");
    }

    /// As when rank 0 finishes a collective and fails, before rank 1 has looked at its memory again.
    #[test]
    fn what_a_peer_wrote_before_it_failed_is_read() {
        let groups = testing::form(2, Duration::from_secs(60), |_| GlooOptions::default());
        groups[1].abort("its data set is another one");
        let knows = |_: &Arena| groups[0].shared.failure().is_some();
        {
            let mut engine = groups[0].engine.lock().expect("nobody panicked");
            engine.wait_in_memory(None, Duration::ZERO, knows, |_| vec![1]).expect("what came before");
        }
        let error = groups[0].barrier(Wait::Deadline).expect_err("the group has failed");
        assert_eq!((error.kind, error.peer), (CommErrorKind::Aborted, Some(1)), "{error}");
    }
}
