//! Which processors the ranks of a host run on. A rank that spins while the rank it waits for needs the same processor
//! waits for itself. The scheduler may leave the two there for long, because ranks that sleep and wake each other look
//! like one task at a time.

#![allow(unsafe_code)]

use super::arena::Arena;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::atomic::Ordering;

impl Arena {
    /// Publishes the processors that this rank may use.
    pub(super) fn publish_allowed(&self) {
        // SAFETY: this rank's own line, read by others only after all ranks have reported that setup is done.
        let bits = unsafe { self.segment.bytes_mut(self.layout.allowed(self.me)) };
        if let Ok(set) = sched_getaffinity(None) {
            for cpu in (0..bits.len() * 8).filter(|cpu| *cpu < CpuSet::MAX_CPU && set.is_set(*cpu)) {
                bits[cpu / 8] |= 1 << (cpu % 8);
            }
        }
    }

    /// Whether the host's ranks have fewer processors than there are ranks, so that spinning only keeps others from
    /// working. Call it only after all ranks are set up.
    pub fn is_oversubscribed(&self) -> bool {
        *self.oversubscribed.get_or_init(|| {
            let mut union = vec![0u8; self.layout.allowed(0).len()];
            for rank in 0..self.ranks() {
                // SAFETY: written before the ranks reported that setup is done, and never again.
                let bits = unsafe { self.segment.bytes(self.layout.allowed(rank)) };
                union.iter_mut().zip(bits).for_each(|(u, b)| *u |= b);
            }
            let processors: u32 = union.iter().map(|b| b.count_ones()).sum();
            (processors as usize) < self.ranks()
        })
    }

    /// Publishes which processor this rank runs on, and returns it.
    pub fn publish_processor(&self) -> usize {
        let cpu = sched_getcpu();
        self.segment.half_word(self.layout.processor(self.me)).store(cpu as u32 + 1, Ordering::Relaxed);
        cpu
    }

    fn processor(&self, rank: usize) -> Option<usize> {
        let cpu = self.segment.half_word(self.layout.processor(rank)).load(Ordering::Relaxed);
        (cpu > 0).then(|| cpu as usize - 1)
    }

    /// Moves this thread to a processor that no rank is on, if there is one and another rank is on this rank's processor.
    pub fn move_to_free_processor(&self) {
        let own = self.publish_processor();
        if !self.others().any(|rank| self.processor(rank) == Some(own)) {
            return;
        }
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut free = allowed;
        free.unset(own);
        for cpu in self.others().filter_map(|rank| self.processor(rank)).filter(|c| *c < CpuSet::MAX_CPU) {
            free.unset(cpu);
        }
        // The kernel moves the thread for the first mask and leaves it there for the second, which restores the affinity.
        if free.count() > 0 && sched_setaffinity(None, &free).is_ok() {
            self.publish_processor();
            let _ = sched_setaffinity(None, &allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on its own thread, because it changes the thread's processor.
    #[test]
    fn a_rank_moves_off_a_processor_that_another_rank_uses() {
        let Ok(allowed) = sched_getaffinity(None) else { return };
        if allowed.count() < 2 {
            println!("skipped: there is one processor only");
            return;
        }
        std::thread::spawn(move || {
            let (a, fd) = Arena::create(&[0, 1]).unwrap();
            let b = Arena::open(&fd, 1, &[0, 1]).unwrap();
            // Both ranks are this thread, so they are on one processor, whichever it is.
            let mut here = CpuSet::new();
            here.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
            sched_setaffinity(None, &here).unwrap();
            let (first, other) = (a.publish_processor(), b.publish_processor());
            assert_eq!(first, other);
            sched_setaffinity(None, &allowed).unwrap();
            assert!(!a.is_oversubscribed());
            a.move_to_free_processor();
            assert_ne!(a.processor(0), a.processor(1));
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        })
        .join()
        .unwrap();
    }
}
