//! Progress output: one status line on a terminal, plain lines elsewhere, and a summary of each epoch.

use super::bar::{StatusLine, Words};
use super::epoch_summary::{epoch_summary, epoch_summary_within};
use super::epochs::PerSample;
use super::events::EpochEvent;
use base::numbers::{clock, epoch_of, exponent, is_endless, of_all, significant};
use base::screen;
use base::status::StderrWriter;
use indicatif::ProgressDrawTarget;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// `--progress`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "`--help` prints what is documented")]
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
    /// `train.epochs`.
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
    /// Training loss of the step; NaN if the step was skipped, as gradients overflowed under the loss scale.
    pub loss: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// Of all ranks.
    pub samples_per_s: f64,
    /// What a sample consists of.
    pub per_sample: PerSample,
}

/// Values of the line in the format of the PyTorch tutorials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochLine {
    /// The rank that prints it.
    pub rank: usize,
    /// From 0.
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
    pub(crate) fn plain(totals: Totals, out: Box<dyn Write + Send>, every: Duration) -> Self {
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

    /// Says what the first step waits for on a device, until it is done.
    pub fn compiling_kernels(&mut self, device: &str) {
        let text = format!("loading or compiling kernels for {device}");
        match &mut self.show {
            Show::Bar(line) => line.wait_for(text),
            Show::Plain { out, .. } => {
                let _ = out.write_all(format!("{text}\n").as_bytes());
            }
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
                let steps = of_all(line.step, totals.steps());
                let eta =
                    if is_endless(totals.steps()) { String::new() } else { format!("  eta {}", clock(eta)) };
                let line = format!("{epoch}  step {steps}  {loss}  {lr}  {speed}{eta}\n");
                // Errors of the progress output are ignored.
                let _ = out.write_all(line.as_bytes());
            }
            Show::Nothing => {}
        }
    }

    /// Prints the line of an epoch: above the bar as much as the terminal has columns for, elsewhere all of it. `best` is the metric
    /// that ranks checkpoints.
    pub fn epoch(&mut self, event: &EpochEvent, best: &str) {
        let (epochs, terminal) = (self.totals.epochs, screen::columns_of_errors());
        match &mut self.show {
            Show::Bar(line) => {
                let text = terminal.map_or_else(
                    || epoch_summary(event, epochs),
                    |columns| epoch_summary_within(columns, event, epochs, best),
                );
                line.bar.suspend(|| status!("{text}"));
            }
            Show::Plain { out, .. } => {
                let _ = out.write_all(format!("{}\n", epoch_summary(event, epochs)).as_bytes());
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

fn words(line: &StepLine, epochs: u64) -> Words {
    let loss = if line.loss.is_nan() { "skipped".to_owned() } else { significant(line.loss) };
    Words {
        epoch: epoch_of(line.epoch, epochs),
        loss: format!("loss {loss}"),
        lr: format!("lr {}", exponent(line.lr)),
        speed: line.per_sample.rate_words(line.samples_per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        StepLine {
            epoch: (step - 1) / 10,
            step,
            loss: 2.3031,
            lr: 5e-4,
            samples_per_s: 1234.4,
            per_sample: PerSample::default(),
        }
    }

    /// `max_steps` is only the largest number there is, and another rule ends the run.
    #[test]
    fn totals_that_no_run_reaches_are_left_out() {
        let out = Shared::default();
        let totals = Totals { epochs: u64::MAX >> 3, steps: u64::MAX, max_steps: Some(u64::MAX >> 1) };
        Progress::plain(totals, Box::new(out.clone()), Duration::ZERO).step(line(1));
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "epoch 1  step 1  loss 2.303  lr 5e-4  1234 samples/s\n");
        let of = |mfu| PerSample { tokens: Some(64.0), flops: None, mfu };
        let speed = |mfu| words(&StepLine { per_sample: of(mfu), ..line(1) }, 2).speed;
        assert_eq!(speed(None), "79002 tokens/s");
        assert_eq!(speed(Some(0.0003)), "79002 tokens/s, MFU 37.0 %");
    }

    #[test]
    fn tutorial_line_has_the_exact_format() {
        let line = EpochLine { rank: 0, epoch: 0, batch_size: 32, steps: 16 };
        assert_eq!(tutorial_line(line), "[GPU: 0 Epoch: 0, Batch size: 32 | Steps 16]");
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
    fn a_device_says_what_its_first_step_waits_for_and_a_skipped_step_has_no_loss() {
        let out = Shared::default();
        let totals = Totals { epochs: 2, steps: 20, max_steps: None };
        let mut progress = Progress::plain(totals, Box::new(out.clone()), Duration::from_secs(10));
        progress.compiling_kernels("cuda:0");
        progress.step(StepLine { loss: f64::NAN, ..line(1) });
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "loading or compiling kernels for cuda:0");
        assert!(lines[1].starts_with("epoch 1/2  step 1/20  loss skipped  lr 5e-4  "), "{}", lines[1]);

        let mut progress = Progress::bar(totals, ProgressDrawTarget::hidden());
        progress.compiling_kernels("cuda:0");
        let Show::Bar(shown) = &progress.show else { panic!("a bar") };
        assert_eq!(shown.words().epoch, "loading or compiling kernels for cuda:0");
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
