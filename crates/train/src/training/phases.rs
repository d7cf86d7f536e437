//! The phases of the training loop, for messages about failures, for the times of steps and as
//! tracing spans: epoch (level debug), step and phase (trace). Disabled spans cost one check of a
//! flag each; their fields are not evaluated.

use super::StepAnatomy;
use super::anatomy::{PhaseClock, StepPart};
use collectives::{CommError, Phase, ProcessGroup, StepPhase};
use ddp::AveragingTime;
use std::sync::Arc;
use tracing::span::EnteredSpan;

/// What this rank's training thread does now.
pub(super) struct PhaseTracker {
    group: Arc<dyn ProcessGroup>,
    spans: Spans,
    clock: PhaseClock,
}

impl PhaseTracker {
    pub fn new(group: Arc<dyn ProcessGroup>) -> Self {
        Self { group, spans: Spans::default(), clock: PhaseClock::default() }
    }

    /// A phase begins; the group is told.
    pub fn enter(&mut self, place: StepPhase) {
        self.spans.phase(place.phase);
        self.clock.reach(place.phase.into());
        self.group.note(place);
    }

    /// What follows (events, the beginning of an epoch) belongs to no phase.
    pub fn leave(&mut self) {
        self.spans.phase = None;
        self.clock.reach(StepPart::Other);
    }

    /// Epoch number `epoch` (from 0) begins.
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.leave();
        self.spans.epoch(self.group.rank(), epoch);
    }

    /// The step after `done` others begins.
    pub fn begin_step(&mut self, done: u64) {
        self.spans.step(self.group.rank(), done);
    }

    /// The last step of an epoch is done.
    pub fn end_steps(&mut self) {
        self.spans.end_of_steps();
    }

    /// The training ends.
    pub fn end(&mut self) {
        self.spans.end();
    }

    /// Counts a step whose times belong to the next exchange.
    pub fn count_step(&mut self) {
        self.clock.count_step();
    }

    /// Exchanges the ranks' times since the last exchange. A collective.
    ///
    /// # Errors
    /// A failed collective.
    pub fn exchange_times(&mut self, averaging: AveragingTime) -> Result<StepAnatomy, CommError> {
        self.clock.exchange(averaging, &*self.group)
    }
}

/// The open spans, in the order in which they close. A phase lasts until it is ended or the next
/// one begins, a step until the next one or the end of the epoch.
#[derive(Debug, Default)]
struct Spans {
    phase: Option<EnteredSpan>,
    step: Option<EnteredSpan>,
    epoch: Option<EnteredSpan>,
}

impl Spans {
    fn epoch(&mut self, rank: usize, epoch: u64) {
        self.end();
        self.epoch = Some(tracing::debug_span!("epoch", rank, epoch).entered());
    }

    fn step(&mut self, rank: usize, done: u64) {
        self.end_of_steps();
        self.step = Some(tracing::trace_span!("step", rank, step = done).entered());
    }

    fn phase(&mut self, phase: Phase) {
        self.phase = None;
        self.phase = Some(tracing::trace_span!("phase", phase = phase.name()).entered());
    }

    fn end_of_steps(&mut self) {
        self.phase = None;
        self.step = None;
    }

    fn end(&mut self) {
        self.end_of_steps();
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt::format::FmtSpan;

    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl Write for Text {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The lines about two steps and an evaluation at a level, each up to the times.
    fn recorded(level: tracing::Level) -> Vec<String> {
        // With one subscriber only, a span that another thread meets first would count as unwanted
        // for all.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let text = Text::default();
        let to = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_level(false)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut spans = Spans::default();
            spans.epoch(1, 0);
            for step in 0..2 {
                spans.step(1, step);
                spans.phase(Phase::Forward);
                spans.phase(Phase::Sync);
                spans.phase = None;
                tracing::debug!("reported");
            }
            spans.end_of_steps();
            spans.phase(Phase::Evaluate);
            spans.end();
        });
        let text = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.split(": close").next().unwrap().trim().to_owned()).collect()
    }

    #[test]
    fn spans_are_nested_and_closed_in_order() {
        let reported = |within: &str| format!("{within}: reported");
        let epoch = "epoch{rank=1 epoch=0}";
        let step = |n| format!("{epoch}:step{{rank=1 step={n}}}");
        let phase = |of: &str, name: &str| format!("{of}:phase{{phase=\"{name}\"}}");
        let mut lines = Vec::new();
        for n in 0..2 {
            lines.extend([phase(&step(n), "forward"), phase(&step(n), "sync"), reported(&step(n)), step(n)]);
        }
        lines.extend([phase(epoch, "evaluate"), epoch.to_owned()]);
        assert_eq!(recorded(tracing::Level::TRACE), lines);
        assert_eq!(recorded(tracing::Level::DEBUG), [reported(epoch), reported(epoch), epoch.to_owned()]);
        assert_eq!(recorded(tracing::Level::INFO), [""; 0]);
    }
}
