//! How good and how fast epochs were, by their events.

use super::EpochEvent;
use base::numbers::{percent, rate};
use checkpoint::Score;

impl EpochEvent {
    /// Completed epochs after it.
    pub fn completed(&self) -> u64 {
        // A damaged line may have any number.
        self.epoch.saturating_add(u64::from(!self.cut))
    }

    /// How good it is by a metric; `None` if that was not measured.
    pub fn score(&self, metric: &str, prefers_larger: bool) -> Option<Score> {
        Score::new(self.value(metric)?, prefers_larger, self.value("val.loss"))
    }

    /// The value of a metric that is named with its split: `val.loss`.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let (split, name) = metric.split_once('.')?;
        match split {
            "train" => self.train.get(name),
            _ => self.val.as_ref()?.get(name),
        }
    }

    /// Samples and seconds of the epoch, of which [`rate_of`] makes a rate.
    pub fn trained(&self) -> (f64, f64) {
        match self.samples_per_s.is_finite() {
            true => (self.seconds * self.samples_per_s, self.seconds),
            false => (0.0, 0.0),
        }
    }

    /// What its samples consist of.
    pub fn per_sample(&self) -> PerSample {
        let of = |rate: Option<f64>| rate.map(|rate| rate / self.samples_per_s).filter(|of| of.is_finite());
        PerSample { tokens: of(self.tokens_per_s), flops: of(self.flops_per_s), mfu: of(self.mfu) }
    }
}

/// What a sample consists of, by which a rate in samples is others, too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerSample {
    /// Of a language model.
    pub tokens: Option<f64>,
    /// The floating-point operations of its training.
    pub flops: Option<f64>,
    /// These as a fraction of what all ranks' devices can do in a second.
    pub mfu: Option<f64>,
}

impl PerSample {
    /// At a rate in samples; `None` where there is none, or no time has passed by the clock.
    pub fn at(self, samples_per_s: f64) -> Self {
        let at = |of: Option<f64>| of.map(|of| of * samples_per_s).filter(|rate| rate.is_finite());
        Self { tokens: at(self.tokens), flops: at(self.flops), mfu: at(self.mfu) }
    }

    /// A rate, in tokens if samples consist of them.
    pub fn rate_words(self, samples_per_s: f64) -> String {
        let Some(tokens) = self.tokens else { return format!("{} samples/s", rate(samples_per_s)) };
        let mfu = self.at(samples_per_s).mfu;
        let mfu = mfu.map_or_else(String::new, |mfu| format!(", MFU {}", percent(mfu)));
        format!("{} tokens/s{mfu}", rate(samples_per_s * tokens))
    }
}

/// The best of these epochs by a metric, and its value.
pub fn best<'a>(
    epochs: impl Iterator<Item = &'a EpochEvent>,
    metric: &str,
    prefers_larger: bool,
) -> Option<(&'a EpochEvent, f64)> {
    let measured = epochs.filter_map(|e| Some((e, e.score(metric, prefers_larger)?)));
    let (best, _) = measured.reduce(|best, next| if next.1.beats(best.1) { next } else { best })?;
    Some((best, best.value(metric)?))
}

/// Samples per second of all these epochs together.
pub fn rate_over<'a>(epochs: impl Iterator<Item = &'a EpochEvent>) -> Option<f64> {
    let trained = epochs.map(EpochEvent::trained);
    rate_of(trained.fold((0.0, 0.0), |(samples, seconds), of| (samples + of.0, seconds + of.1)))
}

/// Samples per second; `None` of a time that is too short to tell.
pub fn rate_of((samples, seconds): (f64, f64)) -> Option<f64> {
    (seconds >= 0.1).then(|| samples / seconds)
}
