//! The course of a run according to its metrics, read once from the first line to the last.

use base::error::Result;
use record::{
    EndEvent, EpochEvent, Event, Metrics, RestartEvent, ResumeEvent, StepEvent, for_each_event, rate_of,
};
use std::path::Path;

/// A metric that ranks checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedBy {
    /// With its split: `val.loss`.
    pub metric: String,
    pub prefers_larger: bool,
}

/// The best epoch by that metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    pub epoch: EpochEvent,
    pub value: f64,
}

/// The course of a run up to its last event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Completed optimizer steps.
    pub step: u64,
    /// Completed epochs.
    pub epochs: u64,
    /// At least one step or epoch was trained.
    pub trained: bool,
    pub last_step: Option<StepEvent>,
    pub last_epoch: Option<EpochEvent>,
    pub best: Option<Best>,
    /// The last value of each metric, with its split, in the order of the lines.
    pub measured: Vec<(String, f64)>,
    pub restarts: Vec<RestartEvent>,
    pub resumes: Vec<ResumeEvent>,
    /// The last event, if the run ended with it.
    pub end: Option<EndEvent>,
    /// Seconds of all epochs.
    seconds: f64,
    /// Samples, and the seconds that they took.
    trained_in: (f64, f64),
}

impl Course {
    /// # Errors
    /// Exit code 74: the file can't be read.
    pub fn read(metrics: &Path, by: Option<&RankedBy>) -> Result<Self> {
        let mut course = Self::default();
        for_each_event(metrics, |event| course.add(event, by))?;
        Ok(course)
    }

    pub fn add(&mut self, event: Event, by: Option<&RankedBy>) {
        if !matches!(event, Event::Checkpoint(_)) {
            self.end = None;
        }
        self.step = event.step().unwrap_or(self.step);
        match event {
            Event::Step(step) => {
                self.trained = true;
                self.last_step = Some(step);
            }
            Event::Epoch(epoch) => self.add_epoch(epoch, by),
            Event::Checkpoint(_) | Event::Divergence(_) => {}
            Event::Restart(restart) => self.restarts.push(restart),
            Event::Resume(resume) => self.resumes.push(resume),
            Event::End(end) => {
                self.epochs = end.epoch;
                self.end = Some(end);
            }
        }
    }

    fn add_epoch(&mut self, epoch: EpochEvent, by: Option<&RankedBy>) {
        self.trained = true;
        self.epochs = epoch.completed();
        self.seconds += epoch.seconds;
        let (samples, timed) = epoch.trained();
        self.trained_in = (self.trained_in.0 + samples, self.trained_in.1 + timed);
        let splits = [("train", Some(&epoch.train)), ("val", epoch.val.as_ref())];
        for (split, metrics) in splits {
            for (name, value) in metrics.into_iter().flat_map(Metrics::iter) {
                let name = format!("{split}.{name}");
                match self.measured.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, last)) => *last = value,
                    None => self.measured.push((name, value)),
                }
            }
        }
        if let Some(by) = by {
            let score = |epoch: &EpochEvent| epoch.score(&by.metric, by.prefers_larger);
            let before = self.best.as_ref().and_then(|best| score(&best.epoch));
            let is_best = score(&epoch).is_some_and(|score| before.is_none_or(|best| score.beats(best)));
            if let Some(value) = epoch.value(&by.metric).filter(|_| is_best) {
                self.best = Some(Best { epoch: epoch.clone(), value });
            }
        }
        self.last_epoch = Some(epoch);
    }

    /// The last value of a metric, with its split before its name.
    pub fn last(&self, metric: &str) -> Option<f64> {
        self.measured.iter().find(|(name, _)| name == metric).map(|(_, value)| *value)
    }

    /// Seconds over all starts; of a run that has not ended, the seconds of its epochs.
    pub fn seconds(&self) -> Option<f64> {
        let of_epochs = self.last_epoch.is_some().then_some(self.seconds);
        self.end.as_ref().map(|end| end.seconds).or(of_epochs)
    }

    /// About how many seconds a run of so many epochs or optimizer steps takes until its end; `None` before the end of its first epoch.
    pub fn seconds_left(&self, epochs: u64, max_steps: Option<u64>) -> Option<f64> {
        let last = self.last_epoch.as_ref().filter(|last| last.step > 0)?;
        let (steps, done) = (last.step as f64, last.epoch.saturating_add(1) as f64);
        let all = (steps / done * epochs as f64).min(max_steps.map_or(f64::INFINITY, |max| max as f64));
        Some(self.seconds / steps * (all - self.step as f64).max(0.0))
    }

    /// The samples of all epochs by the seconds of their training, as the run's last lines and its report say; before
    /// the end of the first epoch, the mean of the last steps.
    pub fn samples_per_s(&self) -> Option<f64> {
        match &self.last_epoch {
            Some(_) => rate_of(self.trained_in),
            None => self.last_step.as_ref().map(|step| step.samples_per_s).filter(|rate| rate.is_finite()),
        }
    }

    /// Restarts by a supervisor or a launcher.
    pub fn restart_count(&self) -> usize {
        self.restarts.iter().filter(|restart| restart.attempt > 1).count()
    }
}
