//! This group as the control group of an engine that moves its data outside of it: messages between calls, and who is
//! late in a call that is not this group's.

use super::GlooGroup;
use super::control::Control;
use super::engine::Engine;
use crate::calls::try_lock;
use crate::execute::Shared as _;
use crate::probe::{self, MAX_REPORTED, Probe};
use crate::{CommError, CommErrorKind, FailureDetector, StepPhase, messages};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pause between two checks whether a call has released the engine.
const ENGINE_CHECK: Duration = Duration::from_millis(5);

impl FailureDetector for GlooGroup {
    fn poll(&self) -> Result<(), CommError> {
        // A call that holds the engine reads all messages itself.
        if self.shared.failure().is_none()
            && let Some(mut engine) = try_lock(&self.engine)
        {
            engine.idle = true;
            // Its error is the group's.
            let _ = engine.poll_once(None, None, Some(Instant::now()), false);
            engine.idle = false;
        }
        self.shared.failure().map_or(Ok(()), Err)
    }

    fn set_calls_made(&self, calls: u64) {
        self.shared.device_calls.store(calls, Ordering::Relaxed);
    }

    fn report_overdue(&self, call: &str, number: u64, time_limit: Duration) -> CommError {
        let late = messages::overdue(call, time_limit);
        // A call in which another thread waits knows better which rank is missing. It reaches its verdict within its
        // deadline and the time for answers, and gets the same time again on a busy machine: giving up at that very
        // moment would often come before its verdict. Only a call that waits as long as its peers are alive has no
        // verdict to give.
        let begun = Instant::now();
        let share = || if self.shared.open_ended.load(Ordering::Relaxed) { 1 } else { 2 };
        while begun.elapsed() < share() * (time_limit + probe::grace(time_limit))
            && self.shared.failure().is_none()
        {
            if let Some(mut engine) = try_lock(&self.engine) {
                return engine.find_late_ranks(&late, number, time_limit);
            }
            std::thread::sleep(ENGINE_CHECK);
        }
        self.shared.fail(CommErrorKind::Timeout, None, &messages::overdue_on(&late, self.shared.calls.rank))
    }
}

impl Engine {
    /// Answers peers that have sent a probe before this call began.
    pub(super) fn answer_pending_probes(&mut self) {
        if !self.links.iter().flatten().any(|link| link.probe_pending) {
            return;
        }
        let frame = Control::ProbeReply(self.header, self.shared.calls.place()).frame();
        for (link, control) in self.links.iter_mut().zip(&self.shared.control) {
            if let (Some(link), Some(control)) = (link, control)
                && std::mem::take(&mut link.probe_pending)
            {
                control.send(&frame);
            }
        }
    }

    pub(super) fn send_progress(&self, peer: usize, place: StepPhase) {
        if let Some(control) = self.shared.control.get(peer).and_then(Option::as_ref) {
            let calls = self.shared.device_calls.load(Ordering::Relaxed);
            control.send(&Control::Progress(calls, place).frame());
        }
    }

    /// Asks all peers how far they are, waits for their answers, and returns the verdict.
    fn find_late_ranks(&mut self, late: &str, number: u64, time_limit: Duration) -> CommError {
        self.progress = Some(Probe::new(self.world, Instant::now(), time_limit, self.answers));
        let frame = Control::ProgressRequest.frame();
        self.shared.control.iter().flatten().for_each(|c| c.send(&frame));
        self.idle = true;
        while let Some(until) = self.progress.as_ref().map(Probe::until)
            && Instant::now() < until
            && self.peers().any(|p| self.is_unanswered(p))
        {
            if let Err(error) = self.poll_once(None, None, Some(until), false) {
                return error;
            }
        }
        self.idle = false;
        self.late_verdict(late, number)
    }

    fn progress_of(&self, peer: usize) -> Option<(u64, StepPhase)> {
        self.progress.as_ref()?.answer(peer).copied()
    }

    fn is_unanswered(&self, peer: usize) -> bool {
        self.progress_of(peer).is_none() && !self.has_departed(peer)
    }

    fn late_verdict(&self, late: &str, number: u64) -> CommError {
        let (silent, mut behind): (Vec<usize>, Vec<usize>) = (
            self.peers().filter(|p| self.is_unanswered(*p)).collect(),
            self.peers().filter(|p| self.progress_of(*p).is_some_and(|(calls, _)| calls < number)).collect(),
        );
        behind.sort_by_key(|p| self.progress_of(*p).map(|(calls, _)| calls));
        let reported =
            self.peers().filter_map(|p| self.progress_of(p).map(|here| (p, here))).take(MAX_REPORTED);
        let report: String =
            reported.map(|(p, (calls, place))| messages::progress(p, calls, place)).collect();
        let (kind, culprit, verdict) = if let Some(first) = silent.first() {
            (CommErrorKind::Timeout, Some(*first), messages::silent(&silent, self.me))
        } else if let Some(gone) = self.peers().find(|p| self.has_departed(*p)) {
            (CommErrorKind::PeerLost, Some(gone), messages::left(gone, self.me))
        } else if let Some(last) = behind.first() {
            (CommErrorKind::Timeout, Some(*last), messages::behind(&behind, self.me))
        } else {
            (CommErrorKind::Timeout, None, messages::all_respond(number > 0))
        };
        self.fail(kind, culprit, &format!("{late}: {verdict}{report}"))
    }
}
