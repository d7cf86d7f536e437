//! The collectives that are under way, oldest first, and what they hold until the device is done with them.

use super::driver::Event;
use crate::comm::header::Header;
use std::any::Any;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(super) struct Pending {
    pub header: Header,
    /// When the device could begin with it; None where the host has waited for that.
    pub begin: Option<Event>,
    pub done: Event,
    /// Since when it could run.
    pub since: Option<Instant>,
    /// Keeps its memory.
    pub keep: Box<dyn Any + Send>,
}

#[derive(Default)]
pub(super) struct Queue {
    pending: VecDeque<Pending>,
    spare: Vec<Event>,
    /// The group is being dropped.
    pub leaving: bool,
    /// The watchdog has done its last work.
    pub left: bool,
}

/// A collective that is done, and the guard of its memory.
pub(super) type Done = (u64, Box<dyn Any + Send>);

impl Queue {
    pub(super) fn push(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// An event that nobody waits for any more.
    pub(super) fn spare(&mut self) -> Option<Event> {
        self.spare.pop()
    }

    /// Looks how far the device is. What it has done is moved to `done`, whatever is returned.
    pub(super) fn retire(&mut self, done: &mut Vec<Done>) -> Result<(), String> {
        while let Some(oldest) = self.pending.front_mut() {
            if oldest.since.is_none() && oldest.begin.as_ref().map_or(Ok(true), Event::is_done)? {
                oldest.since = Some(Instant::now());
            }
            if !oldest.done.is_done()? {
                break;
            }
            if let Some(Pending { header, begin, done: end, keep, .. }) = self.pending.pop_front() {
                self.spare.extend(begin.into_iter().chain([end]));
                done.push((header.sequence, keep));
            }
        }
        Ok(())
    }

    pub(super) fn oldest(&self) -> Option<Header> {
        self.pending.front().map(|p| p.header)
    }

    pub(super) fn newest(&self) -> Option<&Pending> {
        self.pending.back()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The oldest, if the device could have begun it longer than `timeout` ago.
    pub(super) fn overdue(&self, timeout: Duration) -> Option<Header> {
        let late = |p: &&Pending| p.since.is_some_and(|since| since.elapsed() > timeout);
        self.pending.front().filter(late).map(|p| p.header)
    }
}

impl Drop for Queue {
    /// What the device may still write to is never given away.
    fn drop(&mut self) {
        std::mem::take(&mut self.pending).into_iter().for_each(|p| std::mem::forget(p.keep));
    }
}
