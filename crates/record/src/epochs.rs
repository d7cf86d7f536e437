//! How good and how fast epochs were, by their events.

use super::EpochEvent;
use base::numbers::rate;
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

    /// `None` if its samples are not of tokens.
    pub fn tokens_per_sample(&self) -> Option<f64> {
        self.tokens_per_s.map(|tokens| tokens / self.samples_per_s).filter(|tokens| tokens.is_finite())
    }
}

/// A rate, in tokens if samples consist of them.
pub fn rate_words(samples_per_s: f64, tokens_per_sample: Option<f64>) -> String {
    match tokens_per_sample {
        Some(tokens) => format!("{} tokens/s", rate(samples_per_s * tokens)),
        None => format!("{} samples/s", rate(samples_per_s)),
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
