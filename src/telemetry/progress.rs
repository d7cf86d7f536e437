//! Progress output: one status line on a terminal, plain lines elsewhere, and a summary of each epoch.

use super::bar::{StatusLine, Words};
use super::epochs::rate_of;
use super::events::EpochEvent;
use super::numbers::{clock, epoch_of, exponent, rate, seconds, significant};
use super::screen;
use crate::say::StderrWriter;
use crate::show;
use indicatif::ProgressDrawTarget;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use unicode_width::UnicodeWidthStr;

/// `--progress`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum ProgressMode {
    /// A bar on a terminal, else plain lines
    #[default]
    Auto,
    Bar,
    Plain,
    None,
}

/// Shortest time between two plain lines, so that the log of a fast run stays short.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub epochs: u64,
    /// Optimizer steps in all epochs.
    pub steps: u64,
    /// `train.max_steps`, which may end the run earlier.
    pub max_steps: Option<u64>,
}

impl Totals {
    fn steps(&self) -> u64 {
        self.max_steps.map_or(self.steps, |max| max.min(self.steps))
    }
}

/// Progress values of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLine {
    /// From 0.
    pub epoch: u64,
    /// Completed optimizer steps of the whole run.
    pub step: u64,
    pub loss: f64,
    pub lr: f64,
    pub samples_per_s: f64,
}

/// Values of the line in the format of the PyTorch tutorials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochLine {
    pub rank: usize,
    pub epoch: u64,
    /// Per process.
    pub batch_size: usize,
    /// Batches per rank and epoch.
    pub steps: u64,
}

/// `[GPU: 0 Epoch: 0, Batch size: 32 | Steps 16]`, as printed by PyTorch's DDP tutorials; `GPU` is the rank, on CPUs too.
pub fn tutorial_line(line: EpochLine) -> String {
    let EpochLine { rank, epoch, batch_size, steps } = line;
    format!("[GPU: {rank} Epoch: {epoch}, Batch size: {batch_size} | Steps {steps}]")
}

/// `epoch 1/12  train loss 1.234 acc 55.1 %  val loss … acc …  12.3 s  1234 samples/s  data wait 0.1 %`; of `epochs`. An epoch that is
/// too short has no rate and no wait.
pub fn epoch_summary(event: &EpochEvent, epochs: u64) -> String {
    let rates = rate_of(event.trained()).map_or_else(String::new, |per_second| {
        format!("  {} samples/s  data wait {}", rate(per_second), percent(event.data_wait))
    });
    let (epoch, metrics) = (epoch_of(event.epoch, epochs), metrics_words(event));
    format!("{epoch}{metrics}  {}{rates}", seconds(event.seconds))
}

/// `  train loss 1.234 acc 55.1 %  val loss …`
pub(super) fn metrics_words(event: &EpochEvent) -> String {
    let mut line = String::new();
    for (split, metrics) in [("train", Some(&event.train)), ("val", event.val.as_ref())] {
        let Some(metrics) = metrics else { continue };
        let _ = write!(line, "  {split}");
        for (name, value) in metrics.iter() {
            let short = match name {
                "accuracy" => "acc",
                "top5" => "top-5",
                name => name,
            };
            let _ = write!(line, " {short} {}", metric_words(name, value));
        }
    }
    line
}

/// The value of a metric, with or without its split: `99.1 %`, `0.1234`.
pub fn metric_words(name: &str, value: f64) -> String {
    match name.rsplit('.').next() {
        Some("accuracy" | "top5") => percent(value),
        _ => significant(value),
    }
}

pub(super) fn percent(fraction: f64) -> String {
    format!("{:.1} %", 100.0 * fraction)
}

/// Rank 0's progress on stderr.
pub struct Progress {
    totals: Totals,
    show: Show,
}

enum Show {
    Bar(StatusLine),
    Plain {
        out: Box<dyn Write + Send>,
        every: Duration,
        started: Instant,
        first: Option<u64>,
        last: Option<Instant>,
    },
    Nothing,
}

impl Progress {
    /// Writes to stderr.
    pub fn new(mode: ProgressMode, totals: Totals) -> Self {
        let terminal = std::io::stderr().is_terminal();
        match mode {
            ProgressMode::None => Self { totals, show: Show::Nothing },
            ProgressMode::Bar => Self::bar(totals, screen::target()),
            ProgressMode::Auto if terminal => Self::bar(totals, screen::target()),
            ProgressMode::Auto | ProgressMode::Plain => {
                Self::plain(totals, Box::new(StderrWriter), PLAIN_EVERY)
            }
        }
    }

    fn bar(totals: Totals, target: ProgressDrawTarget) -> Self {
        Self { totals, show: Show::Bar(StatusLine::new(totals.steps(), target)) }
    }

    /// Writes to `out`: at most one line per `every`, and one for the last step.
    pub fn plain(totals: Totals, out: Box<dyn Write + Send>, every: Duration) -> Self {
        Self { totals, show: Show::Plain { out, every, started: Instant::now(), first: None, last: None } }
    }

    /// Starts at `step` in a resumed run: the remaining time is estimated from the steps of this process only.
    pub fn resume_at(&mut self, step: u64) {
        match &mut self.show {
            Show::Bar(line) => {
                line.bar.set_position(step);
                line.bar.reset_eta();
            }
            Show::Plain { first, .. } => *first = Some(step),
            Show::Nothing => {}
        }
    }

    /// Reports a completed optimizer step.
    pub fn step(&mut self, line: StepLine) {
        self.step_at(line, Instant::now());
    }

    fn step_at(&mut self, line: StepLine, now: Instant) {
        let totals = self.totals;
        match &mut self.show {
            Show::Bar(bar) => bar.set(line.step, words(&line, totals.epochs)),
            Show::Plain { out, every, started, first, last } => {
                let first = *first.get_or_insert(line.step.saturating_sub(1));
                let due = last.is_none_or(|last| now.duration_since(last) >= *every);
                if !due && line.step != totals.steps() {
                    return;
                }
                *last = Some(now);
                let done = line.step.saturating_sub(first).max(1);
                let left = totals.steps().saturating_sub(line.step);
                let eta = now.duration_since(*started).as_secs_f64() / done as f64 * left as f64;
                let Words { epoch, loss, lr, speed } = words(&line, totals.epochs);
                let (step, steps, eta) = (line.step, totals.steps(), clock(eta));
                let line = format!("{epoch}  step {step}/{steps}  {loss}  {lr}  {speed}  eta {eta}\n");
                // Errors of the progress output are ignored.
                let _ = out.write_all(line.as_bytes());
            }
            Show::Nothing => {}
        }
    }

    /// Prints a separate line above the bar, such as an epoch summary or a warning; on a terminal that is too narrow for it, several.
    pub fn message(&mut self, text: &str) {
        match &mut self.show {
            Show::Bar(line) => line.bar.suspend(|| say!("{}", broken(text, screen::columns()))),
            Show::Plain { out, .. } => {
                let _ = out.write_all(format!("{}\n", show::message(text)).as_bytes());
            }
            Show::Nothing => {}
        }
    }

    /// Removes the bar from the terminal.
    pub fn finish(&mut self) {
        if let Show::Bar(line) = &self.show {
            line.bar.finish_and_clear();
        }
    }
}

/// Breaks a line of less than `columns` columns at its wide gaps; what follows is below the second part.
fn broken(line: &str, columns: usize) -> String {
    let mut parts = line.split("  ").filter(|part| !part.is_empty());
    let head = parts.next().unwrap_or_default();
    let indent = head.width() + 2;
    let (mut out, mut column) = (head.to_owned(), head.width());
    for part in parts {
        let fits = column + 2 + part.width() < columns || column == head.width();
        if fits {
            out.push_str("  ");
            column += 2;
        } else {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        }
        out.push_str(part);
        column += part.width();
    }
    out
}

fn words(line: &StepLine, epochs: u64) -> Words {
    Words {
        epoch: epoch_of(line.epoch, epochs),
        loss: format!("loss {}", significant(line.loss)),
        lr: format!("lr {}", exponent(line.lr)),
        speed: format!("{} samples/s", rate(line.samples_per_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn line(step: u64) -> StepLine {
        StepLine { epoch: (step - 1) / 10, step, loss: 2.3031, lr: 5e-4, samples_per_s: 1234.4 }
    }

    #[test]
    fn tutorial_line_has_the_exact_format() {
        let line = EpochLine { rank: 0, epoch: 0, batch_size: 32, steps: 16 };
        assert_eq!(tutorial_line(line), "[GPU: 0 Epoch: 0, Batch size: 32 | Steps 16]");
    }

    #[test]
    fn epoch_summary_with_and_without_validation() {
        let mut event = EpochEvent {
            epoch: 0,
            train: Metrics::new(1.2341).with("accuracy", 0.5512),
            val: Some(Metrics::new(1.1).with("accuracy", 0.6).samples(5000)),
            seconds: 12.34,
            step: 352,
            lr: 5e-4,
            samples_per_s: 1234.4,
            data_wait: 0.001,
            cut: false,
        };
        assert_eq!(
            epoch_summary(&event, 12),
            "epoch 1/12  train loss 1.234 acc 55.1 %  val loss 1.100 acc 60.0 %  12.3 s  1234 samples/s  data wait 0.1 %"
        );
        event.val = None;
        event.train = Metrics::new(0.00001234).with("mae", 12345.6);
        assert_eq!(
            epoch_summary(&event, 12),
            "epoch 1/12  train loss 1.234e-5 mae 12346  12.3 s  1234 samples/s  data wait 0.1 %"
        );
        event.seconds = 0.04;
        assert_eq!(epoch_summary(&event, 12), "epoch 1/12  train loss 1.234e-5 mae 12346  40 ms");
    }

    /// Completes a step this long after the start.
    fn step_after(progress: &mut Progress, passed: Duration, line: StepLine) {
        let Show::Plain { started, .. } = &progress.show else { panic!("plain") };
        let now = *started + passed;
        progress.step_at(line, now);
    }

    #[test]
    fn plain_progress_is_rate_limited_and_includes_the_last_step() {
        let out = Shared::default();
        let totals = Totals { epochs: 2, steps: 20, max_steps: None };
        let mut progress = Progress::plain(totals, Box::new(out.clone()), Duration::from_secs(10));
        for step in 1..=20 {
            step_after(&mut progress, Duration::from_secs(step), line(step));
        }
        progress.finish();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        let steps: Vec<&str> = text.lines().map(|l| l.split("  ").nth(1).unwrap()).collect();
        assert_eq!(steps, ["step 1/20", "step 11/20", "step 20/20"]);
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with("epoch 1/2  step 1/20  loss 2.303  lr 5e-4  1234 samples/s  eta 19s"),
            "{first}"
        );
    }

    #[test]
    fn eta_of_a_resumed_run_counts_its_own_steps() {
        let out = Shared::default();
        let totals = Totals { epochs: 10, steps: 1000, max_steps: None };
        let mut progress = Progress::plain(totals, Box::new(out.clone()), Duration::from_secs(10));
        progress.resume_at(900);
        step_after(&mut progress, Duration::from_secs(10), line(910));
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        assert!(text.trim_end().ends_with("eta 1m30s"), "{text}");
    }

    #[test]
    fn a_message_is_broken_at_its_gaps() {
        let line = "epoch 1/2  train loss 1.1 acc 49.7 %  val loss 0.6 acc 70.0 %  3.7 s  1075 samples/s";
        assert_eq!(broken(line, 140), line);
        assert_eq!(
            broken(line, 80),
            "epoch 1/2  train loss 1.1 acc 49.7 %  val loss 0.6 acc 70.0 %  3.7 s\n           1075 samples/s"
        );
        assert_eq!(broken(line, 40).lines().count(), 3);
        assert_eq!(broken(line, 0).lines().count(), 4, "the first part stays on the first line");
        assert_eq!(broken("", 80), "");
    }

    #[test]
    fn the_bar_shows_the_current_step() {
        let mut progress =
            Progress::bar(Totals { epochs: 2, steps: 20, max_steps: None }, ProgressDrawTarget::hidden());
        progress.resume_at(5);
        progress.step(line(12));
        let Show::Bar(shown) = &progress.show else { panic!("a bar") };
        assert_eq!((shown.bar.position(), shown.bar.length()), (12, Some(20)));
        assert_eq!(shown.words(), words(&line(12), 2));
        assert_eq!(shown.words().speed, "1234 samples/s");
        progress.finish();
    }
}
