//! The collectives in flight, oldest first, and what they hold until the device is done with them.

use super::driver::CudaEvent;
use crate::header::Header;
use std::any::Any;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(super) struct LaunchedCollective {
    pub header: Header,
    /// Reached when the device could begin it; None if the host has waited for that.
    pub begin: Option<CudaEvent>,
    pub done: CudaEvent,
    /// Since when it could run.
    pub since: Option<Instant>,
    /// Keeps its memory alive.
    pub keep: Box<dyn Any + Send>,
}

#[derive(Default)]
pub(super) struct Queue {
    pending: VecDeque<LaunchedCollective>,
    spare: Vec<CudaEvent>,
    /// The group is being dropped.
    pub leaving: bool,
    /// The watchdog is finished.
    pub left: bool,
}

/// The sequence number of a collective that is done, and the guard of its memory.
pub(super) type FinishedCollective = (u64, Box<dyn Any + Send>);

impl Queue {
    pub(super) fn push(&mut self, pending: LaunchedCollective) {
        self.pending.push_back(pending);
    }

    /// An event that is no longer in use.
    pub(super) fn spare(&mut self) -> Option<CudaEvent> {
        self.spare.pop()
    }

    /// Checks how far the device is. Calls that are done are moved to `done`, even if this returns an error.
    pub(super) fn retire(&mut self, done: &mut Vec<FinishedCollective>) -> Result<(), String> {
        while let Some(oldest) = self.pending.front_mut() {
            if oldest.since.is_none() && oldest.begin.as_ref().map_or(Ok(true), CudaEvent::is_done)? {
                oldest.since = Some(Instant::now());
            }
            if !oldest.done.is_done()? {
                break;
            }
            if let Some(LaunchedCollective { header, begin, done: end, keep, .. }) = self.pending.pop_front()
            {
                self.spare.extend(begin.into_iter().chain([end]));
                done.push((header.sequence, keep));
            }
        }
        Ok(())
    }

    pub(super) fn oldest(&self) -> Option<Header> {
        self.pending.front().map(|p| p.header)
    }

    pub(super) fn newest(&self) -> Option<&LaunchedCollective> {
        self.pending.back()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The oldest collective, if the device could have begun it more than `timeout` ago.
    pub(super) fn overdue(&self, timeout: Duration) -> Option<Header> {
        let late = |p: &&LaunchedCollective| p.since.is_some_and(|since| since.elapsed() > timeout);
        self.pending.front().filter(late).map(|p| p.header)
    }
}

impl Drop for Queue {
    /// Memory that the device may still write to is never released.
    fn drop(&mut self) {
        std::mem::take(&mut self.pending).into_iter().for_each(|p| std::mem::forget(p.keep));
    }
}
