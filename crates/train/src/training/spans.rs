//! The tracing spans of the training loop: epoch (level debug), step and phase (trace). Disabled spans cost one check of a
//! flag each; their fields are not evaluated.

use collectives::Phase;
use std::cell::RefCell;
use tracing::span::EnteredSpan;

/// The open spans. A phase lasts until it is ended or the next one begins, a step until the next one or the end of the epoch.
#[derive(Debug, Default)]
pub(super) struct Spans(RefCell<Open>);

/// In the order in which they close.
#[derive(Debug, Default)]
struct Open {
    phase: Option<EnteredSpan>,
    step: Option<EnteredSpan>,
    epoch: Option<EnteredSpan>,
}

impl Spans {
    /// Epoch number `epoch` (from 0) begins.
    pub(super) fn epoch(&self, rank: usize, epoch: u64) {
        self.end();
        self.0.borrow_mut().epoch = Some(tracing::debug_span!("epoch", rank, epoch).entered());
    }

    /// The step after `done` others begins.
    pub(super) fn step(&self, rank: usize, done: u64) {
        let mut open = self.0.borrow_mut();
        open.phase = None;
        open.step = None;
        open.step = Some(tracing::trace_span!("step", rank, step = done).entered());
    }

    /// A phase of the step begins, or one between steps.
    pub(super) fn phase(&self, phase: Phase) {
        let mut open = self.0.borrow_mut();
        open.phase = None;
        open.phase = Some(tracing::trace_span!("phase", phase = phase.name()).entered());
    }

    /// What follows belongs to no phase.
    pub(super) fn end_of_phase(&self) {
        self.0.borrow_mut().phase = None;
    }

    /// The last step of an epoch is done.
    pub(super) fn end_of_steps(&self) {
        let mut open = self.0.borrow_mut();
        open.phase = None;
        open.step = None;
    }

    /// Closes all.
    pub(super) fn end(&self) {
        self.end_of_steps();
        self.0.borrow_mut().epoch = None;
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
        // With one subscriber only, a span that another thread meets first would count as unwanted for all.
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
            let spans = Spans::default();
            spans.epoch(1, 0);
            for step in 0..2 {
                spans.step(1, step);
                spans.phase(Phase::Forward);
                spans.phase(Phase::Sync);
                spans.end_of_phase();
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
