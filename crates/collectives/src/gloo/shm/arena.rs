//! One rank's view of its host's segment: notices of calls, chunks in flight, pipes, and the counters that wake sleeping
//! ranks. Ranks are local ranks here.
//!
//! The protocol that makes access to the bytes safe: a rank writes only its own notices, slots and pipe ends. It writes
//! its notice of round r only after it has seen every rank's notice of round r - 1, so no rank still reads the notice
//! of r - 2 in the same place. It writes a slot only after every rank is done with the slot's last chunk. Readers wait
//! for the word that announces the bytes (release, acquire).

#![allow(unsafe_code)]

use super::layout::{PIPE, SegmentLayout};
use super::memory::SharedSegment;
use crate::gloo::header::HEADER;
use crate::{Phase, StepPhase};
use rustix::thread::futex;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// What a rank has done with its chunks so far, over all calls.
#[derive(Clone, Copy, Debug)]
pub enum ChunkProgress {
    /// Written to the slot for the other ranks.
    Staged,
    /// The other ranks' chunks are combined and the result is written for them.
    Worked,
    /// Nothing of the chunk is read any more.
    Freed,
}

/// How a rank waits; read by the ranks that may have to wake it.
const AWAKE: u32 = 0;
const ON_FUTEX: u32 = 1;
const IN_POLL: u32 = 2;

pub struct Arena {
    pub(super) segment: SharedSegment,
    pub(super) layout: SegmentLayout,
    /// This rank's local rank.
    pub me: usize,
    /// The global ranks of this host, ascending.
    pub members: Vec<usize>,
    pub(super) oversubscribed: OnceLock<bool>,
}

impl Arena {
    /// Creates a segment for `members`; the caller is the first of them.
    pub(super) fn create(members: &[usize]) -> io::Result<(Self, OwnedFd)> {
        let layout = SegmentLayout::new(members.len());
        let (segment, fd) = SharedSegment::create(layout.len())?;
        Ok((Self::over(segment, layout, 0, members), fd))
    }

    /// Opens the segment that another rank of this host has created.
    pub(super) fn open(fd: &OwnedFd, me: usize, members: &[usize]) -> io::Result<Self> {
        let layout = SegmentLayout::new(members.len());
        let segment = SharedSegment::open(fd, layout.len())?;
        Ok(Self::over(segment, layout, me, members))
    }

    fn over(segment: SharedSegment, layout: SegmentLayout, me: usize, members: &[usize]) -> Self {
        let arena = Self { segment, layout, me, members: members.to_vec(), oversubscribed: OnceLock::new() };
        arena.publish_allowed();
        arena
    }

    pub fn ranks(&self) -> usize {
        self.members.len()
    }

    /// The local rank of a global rank.
    pub fn local(&self, rank: usize) -> Option<usize> {
        self.members.binary_search(&rank).ok()
    }

    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.me;
        (0..self.ranks()).filter(move |r| *r != me)
    }

    // Notices.

    /// Announces this rank's call in a round.
    pub fn post(&self, round: u64, header: &[u8; HEADER], payload: &[u8]) {
        let at = self.layout.notice(round, self.me);
        // SAFETY: this rank's own notice, which no rank reads any more (see the module's documentation).
        unsafe {
            self.segment.bytes_mut(at + 8..at + 8 + HEADER).copy_from_slice(header);
            self.segment.bytes_mut(at + 64..at + 64 + payload.len()).copy_from_slice(payload);
        }
        self.segment.word(at).store(round, Ordering::Release);
    }

    pub fn has_posted(&self, round: u64, rank: usize) -> bool {
        self.segment.word(self.layout.notice(round, rank)).load(Ordering::Acquire) == round
    }

    pub fn all_posted(&self, round: u64) -> bool {
        (0..self.ranks()).all(|r| self.has_posted(round, r))
    }

    /// The header of a notice that has been posted.
    pub fn header(&self, round: u64, rank: usize) -> [u8; HEADER] {
        let at = self.layout.notice(round, rank);
        let mut header = [0; HEADER];
        // SAFETY: posted, and not written again before this rank has posted the next round.
        header.copy_from_slice(unsafe { self.segment.bytes(at + 8..at + 8 + HEADER) });
        header
    }

    /// The payload of a notice that has been posted.
    pub fn payload(&self, round: u64, rank: usize, len: usize) -> &[u8] {
        let at = self.layout.notice(round, rank) + 64;
        // SAFETY: as for the header.
        unsafe { self.segment.bytes(at..at + len) }
    }

    // Chunks.

    fn progress_word(&self, rank: usize, what: ChunkProgress) -> &std::sync::atomic::AtomicU64 {
        self.segment.word(self.layout.progress(rank) + 8 * what as usize)
    }

    /// Publishes how many chunks this rank has done.
    pub fn publish(&self, what: ChunkProgress, chunks: u64) {
        self.progress_word(self.me, what).store(chunks, Ordering::Release);
    }

    /// The progress of the slowest rank of the host.
    pub fn all(&self, what: ChunkProgress) -> u64 {
        (0..self.ranks()).map(|r| self.progress(r, what)).min().unwrap_or(0)
    }

    pub fn progress(&self, rank: usize, what: ChunkProgress) -> u64 {
        self.progress_word(rank, what).load(Ordering::Acquire)
    }

    /// A rank's bytes in the slot of a chunk that it has announced.
    pub fn slot(&self, chunk: u64, rank: usize, range: Range<usize>) -> &[u8] {
        let at = self.layout.slot(chunk, rank);
        // SAFETY: the owner writes to announced bytes only after this rank has freed the chunk.
        unsafe { self.segment.bytes(at + range.start..at + range.end) }
    }

    /// This rank's own bytes in the slot of a chunk that every rank has freed, or that this one has not announced yet.
    #[allow(clippy::mut_from_ref)]
    pub fn own_slot(&self, chunk: u64, range: Range<usize>) -> &mut [u8] {
        let at = self.layout.slot(chunk, self.me);
        // SAFETY: no other rank writes here, and none reads before the announcement; callers hold one slice at a time.
        unsafe { self.segment.bytes_mut(at + range.start..at + range.end) }
    }

    // Pipes.

    /// Writes as much as there is room for into the pipe to `to`; returns the number of bytes.
    pub fn pipe_write(&self, to: usize, bytes: &[u8]) -> usize {
        let pipe = self.layout.pipe(self.me, to);
        let written = self.segment.word(pipe.written).load(Ordering::Relaxed);
        let count = self.pipe_room(to).min(bytes.len());
        let start = written as usize % PIPE;
        let first = count.min(PIPE - start);
        // SAFETY: between `written` and `read` + PIPE the reader touches nothing.
        unsafe {
            let at = pipe.data + start;
            self.segment.bytes_mut(at..at + first).copy_from_slice(&bytes[..first]);
            self.segment
                .bytes_mut(pipe.data..pipe.data + count - first)
                .copy_from_slice(&bytes[first..count]);
        }
        self.segment.word(pipe.written).store(written + count as u64, Ordering::Release);
        count
    }

    /// Number of unread bytes in the pipe from `from`.
    pub fn pipe_filled(&self, from: usize) -> usize {
        let pipe = self.layout.pipe(from, self.me);
        let read = self.segment.word(pipe.read).load(Ordering::Relaxed);
        self.segment.word(pipe.written).load(Ordering::Acquire).wrapping_sub(read) as usize
    }

    /// Free bytes in the pipe to `to`.
    pub fn pipe_room(&self, to: usize) -> usize {
        let pipe = self.layout.pipe(self.me, to);
        let written = self.segment.word(pipe.written).load(Ordering::Relaxed);
        PIPE - written.wrapping_sub(self.segment.word(pipe.read).load(Ordering::Acquire)) as usize
    }

    /// Reads what has arrived in the pipe from `from`; returns the number of bytes.
    pub fn pipe_read(&self, from: usize, bytes: &mut [u8]) -> usize {
        let pipe = self.layout.pipe(from, self.me);
        let count = self.pipe_filled(from).min(bytes.len());
        let read = self.segment.word(pipe.read).load(Ordering::Relaxed);
        let start = read as usize % PIPE;
        let first = count.min(PIPE - start);
        // SAFETY: between `read` and `written` the writer touches nothing.
        unsafe {
            let at = pipe.data + start;
            bytes[..first].copy_from_slice(self.segment.bytes(at..at + first));
            bytes[first..count].copy_from_slice(self.segment.bytes(pipe.data..pipe.data + count - first));
        }
        self.segment.word(pipe.read).store(read + count as u64, Ordering::Release);
        count
    }

    // Failures.

    /// Marks this rank as failed, once it has reported the failure on its control connections.
    pub fn mark_failed(&self) {
        self.segment.half_word(self.layout.wake_words(self.me) + 8).store(1, Ordering::Release);
    }

    pub fn has_failures(&self) -> bool {
        (0..self.ranks())
            .any(|r| self.segment.half_word(self.layout.wake_words(r) + 8).load(Ordering::Acquire) != 0)
    }

    // Waiting and waking.

    fn wake_words(&self, rank: usize) -> (&AtomicU32, &AtomicU32) {
        let at = self.layout.wake_words(rank);
        (self.segment.half_word(at), self.segment.half_word(at + 4))
    }

    /// Wakes a rank that may be waiting for what this one has just published. True if it waits in `poll` and must be
    /// woken through its control connection.
    pub fn wake_rank(&self, rank: usize) -> bool {
        let (counter, sleeps) = self.wake_words(rank);
        // Either this load sees that the other rank is about to sleep, or that rank's last check sees what was published.
        fence(Ordering::SeqCst);
        if sleeps.load(Ordering::Relaxed) == AWAKE {
            return false;
        }
        let slept = sleeps.swap(AWAKE, Ordering::SeqCst);
        if slept == ON_FUTEX {
            counter.fetch_add(1, Ordering::SeqCst);
            // It is not an error if the rank no longer waits.
            let _ = futex::wake(counter, futex::Flags::empty(), u32::MAX);
        }
        slept == IN_POLL
    }

    /// Wakes all ranks of this host, including a call of this rank.
    pub fn wake_all(&self) {
        for rank in 0..self.ranks() {
            self.wake_rank(rank);
        }
    }

    /// Sleeps until another rank rings or `at_most` has passed. Does not sleep if `ready`, which is checked after this
    /// rank has announced that it is about to sleep.
    pub fn sleep(&self, ready: impl Fn() -> bool, at_most: Duration) {
        let (counter, sleeps) = self.wake_words(self.me);
        let seen = counter.load(Ordering::SeqCst);
        sleeps.store(ON_FUTEX, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready()
            && let Ok(timeout) = at_most.try_into()
        {
            // After an interrupted or outdated wait, the caller checks its condition again.
            let _ = futex::wait(counter, futex::Flags::empty(), seen, Some(&timeout));
        }
        sleeps.store(AWAKE, Ordering::SeqCst);
    }

    /// Runs `poll`, announced so that other ranks wake this one through its control connection; skips it if `ready`.
    pub fn while_polling<R>(&self, ready: impl Fn() -> bool, poll: impl FnOnce() -> R) -> Option<R> {
        let (_, sleeps) = self.wake_words(self.me);
        sleeps.store(IN_POLL, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let result = (!ready()).then(poll);
        sleeps.store(AWAKE, Ordering::SeqCst);
        result
    }

    // What other ranks can read of a rank that does not answer.

    pub fn note(&self, place: StepPhase) {
        let at = self.layout.place(self.me);
        self.segment.word(at).store(place.step, Ordering::Relaxed);
        self.segment.word(at + 8).store(place.phase as u64, Ordering::Relaxed);
    }

    pub fn place(&self, rank: usize) -> StepPhase {
        let at = self.layout.place(rank);
        let phase = self.segment.word(at + 8).load(Ordering::Relaxed) as usize;
        StepPhase {
            step: self.segment.word(at).load(Ordering::Relaxed),
            phase: Phase::ALL.get(phase).copied().unwrap_or_default(),
        }
    }

    /// The header that a rank has posted for `round`, the current round of this rank, or for the next; None if it is behind.
    pub fn last_header(&self, round: u64, rank: usize) -> Option<[u8; HEADER]> {
        let last = [round + 1, round].into_iter().find(|r| *r > 0 && self.has_posted(*r, rank))?;
        Some(self.header(last, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::HANG;
    use std::time::Instant;

    fn pair() -> [Arena; 2] {
        let (a, fd) = Arena::create(&[3, 5]).unwrap();
        let b = Arena::open(&fd, 1, &[3, 5]).unwrap();
        [a, b]
    }

    #[test]
    fn pipes_carry_bytes_in_order_across_their_end() {
        let [a, b] = pair();
        let sent: Vec<u8> = (0..PIPE * 3 + 17).map(|i| (i % 251) as u8).collect();
        let (mut out, mut got) = (0, Vec::new());
        let mut buffer = vec![0; 100_001];
        while got.len() < sent.len() {
            out += a.pipe_write(1, &sent[out..(out + 70_001).min(sent.len())]);
            let n = b.pipe_read(0, &mut buffer);
            got.extend_from_slice(&buffer[..n]);
        }
        assert!(got == sent && b.pipe_filled(0) == 0 && a.pipe_room(1) == PIPE);
        assert_eq!(b.pipe_write(0, &vec![1; PIPE + 5]), PIPE);
        assert_eq!(a.pipe_filled(1), PIPE);
    }

    #[test]
    fn a_sleeping_rank_is_woken_and_an_early_wake_up_is_not_lost() {
        let [a, b] = pair();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let start = Instant::now();
                while !a.has_posted(1, 1) {
                    a.sleep(|| a.has_posted(1, 1), 2 * HANG);
                }
                start.elapsed()
            });
            let begun = Instant::now();
            while b.wake_words(0).1.load(Ordering::SeqCst) != ON_FUTEX && begun.elapsed() < HANG {
                std::thread::yield_now();
            }
            b.post(1, &[7; HEADER], b"hello");
            b.wake_rank(0);
            assert!(sleeper.join().unwrap() < HANG, "it slept on");
        });
        assert_eq!((a.payload(1, 1, 5), a.header(1, 1)), (&b"hello"[..], [7; HEADER]));
        assert_eq!(a.last_header(1, 1), Some([7; HEADER]));
        assert_eq!(a.last_header(1, 0), None);
    }

    #[test]
    fn a_polling_rank_is_woken_once_through_its_connection() {
        let [a, b] = pair();
        let woken = a.while_polling(|| false, || (b.wake_rank(0), b.wake_rank(0)));
        assert_eq!(woken, Some((true, false)));
        assert!(!b.wake_rank(0));
    }

    #[test]
    fn places_can_be_read_by_others() {
        let [a, b] = pair();
        let place = StepPhase { step: 7, phase: Phase::Backward };
        a.note(place);
        assert_eq!((b.place(0), b.place(1)), (place, StepPhase::default()));
    }
}
