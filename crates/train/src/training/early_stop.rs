//! `[early_stop]`: ends a run whose metric no longer improves. The rule is that of Lightning's `EarlyStopping`.

use super::Sums;
use base::display::count;
use base::numbers::metric_words;
use checkpoint::{RankBy, StandardMetric};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spec::Fields;

/// `[early_stop]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EarlyStopConfig {
    /// Metric that has to improve, one of those of `checkpoint.best`. Default: `val.loss`.
    metric: Option<RankBy>,
    /// Ends the run, saved, after this many evaluations in a row without an improvement. Without it no run ends early; a
    /// larger value continues one that did.
    #[schemars(range(min = 1))]
    patience: Option<u64>,
    /// An improvement is larger than this. Default: 0.
    #[schemars(range(min = 0.0))]
    min_delta: Option<f64>,
}

/// When to end a run early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStop {
    /// The metric that has to improve.
    pub metric: RankBy,
    patience: u64,
    min_delta: f64,
}

/// Part of a run's position: equal on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlyStopState {
    metric: String,
    /// `None` if no value was finite.
    best: Option<f64>,
    /// Evaluations since the best one.
    waited: u64,
}

impl EarlyStop {
    /// Reads `[early_stop]`; `None` without `patience`.
    pub fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let EarlyStopConfig { metric, patience, min_delta } = fields.config();
        let Some(patience) = patience else {
            if !fields.has("patience") {
                fields.misplaced(&["metric", "min_delta"], "without `patience`, the evaluations to wait");
            }
            return None;
        };
        let metric = fields.or_default("metric", metric, RankBy::default());
        Some(Self { metric, patience, min_delta: fields.or_default("min_delta", min_delta, 0.0) })
    }

    /// The waiting after an epoch with these sums; unchanged if the metric was not measured.
    pub(super) fn after(
        &self,
        before: Option<EarlyStopState>,
        train: &Sums,
        val: Option<&Sums>,
    ) -> Option<EarlyStopState> {
        let Some(value) = value(self.metric, train, val) else { return before };
        let name = self.metric.name();
        // After a change of the metric the wait begins anew.
        let before = before.filter(|before| before.metric == name);
        let best = before.as_ref().and_then(|before| before.best);
        let improves = best.is_none_or(|best| match self.metric.prefers_larger() {
            true => value > best + self.min_delta,
            false => value < best - self.min_delta,
        });
        Some(match improves && value.is_finite() {
            true => EarlyStopState { metric: name.to_owned(), best: Some(value), waited: 0 },
            false => {
                let waited = before.map_or(0, |before| before.waited) + 1;
                EarlyStopState { metric: name.to_owned(), best, waited }
            }
        })
    }

    /// Why the run ends; `None` if it continues.
    pub(super) fn ends(&self, waiting: Option<&EarlyStopState>) -> Option<String> {
        let EarlyStopState { metric, best, waited } = waiting?;
        if *metric != self.metric.name() || *waited < self.patience {
            return None;
        }
        let evaluations = count(*waited as usize, "evaluation");
        let best = best.map_or("it was never finite".to_owned(), |best| {
            format!("the best was {}", metric_words(metric, best))
        });
        Some(format!("early stop: {metric} has not improved in {evaluations}, {best}"))
    }
}

/// The value of a metric; `None` if it was not measured.
pub(super) fn value(metric: RankBy, train: &Sums, val: Option<&Sums>) -> Option<f64> {
    let metric = match metric {
        RankBy::Standard(metric) => metric,
        RankBy::Own(metric) => {
            let (of_val, name) = metric.split()?;
            let ratio = if of_val { val? } else { train }.ratios.get(name)?;
            return Some(ratio.numerator / ratio.denominator);
        }
    };
    Some(match metric {
        StandardMetric::TrainLoss => train.mean_loss(),
        StandardMetric::ValLoss => val?.mean_loss(),
        StandardMetric::ValAccuracy => val?.accuracy(),
        StandardMetric::ValTop5 => val?.top5(),
        StandardMetric::ValMae => val?.mae(),
        StandardMetric::ValR2 => val?.r2(),
        StandardMetric::ValPerplexity => val?.perplexity(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: RankBy = RankBy::Standard(StandardMetric::ValLoss);

    fn sums(loss: f64, correct: f64) -> Sums {
        Sums { loss: loss * 10.0, rows: 10.0, samples: 10.0, correct, ..Sums::default() }
    }

    /// The evaluation, counted from 1, after which a run with these losses ends.
    fn end(rule: EarlyStop, losses: &[f64]) -> Option<usize> {
        let mut waiting = None;
        let ends = |loss: &f64| {
            waiting = rule.after(waiting.take(), &sums(1.0, 0.0), Some(&sums(*loss, 10.0 - loss)));
            // A checkpoint keeps it.
            let saved = serde_json::to_string(&waiting).unwrap();
            assert_eq!(serde_json::from_str::<Option<EarlyStopState>>(&saved).unwrap(), waiting);
            rule.ends(waiting.as_ref()).is_some()
        };
        losses.iter().position(ends).map(|i| i + 1)
    }

    #[test]
    fn a_run_ends_when_its_metric_has_not_improved_for_patience_evaluations() {
        for metric in [LOSS, RankBy::Standard(StandardMetric::ValAccuracy)] {
            let rule = |patience, min_delta| EarlyStop { metric, patience, min_delta };
            assert_eq!(end(rule(1, 0.0), &[5.0, 4.0, 4.0, 3.0]), Some(3));
            assert_eq!(end(rule(2, 0.0), &[5.0, 4.0, 4.0, 3.0, 3.0, 2.5, 2.5, 2.5]), Some(8));
            assert_eq!(end(rule(3, 0.0), &[5.0, 4.0, 4.0, 3.0]), None);
        }
        let rule = EarlyStop { metric: LOSS, patience: 2, min_delta: 0.5 };
        // Improvements of exactly `min_delta` don't count; the third is more than it below the first.
        assert_eq!(end(rule, &[5.0, 4.5, 4.25, 4.0, 3.75]), Some(5));
    }

    #[test]
    fn what_is_not_finite_is_no_improvement() {
        let rule = EarlyStop { metric: LOSS, patience: 2, min_delta: 0.0 };
        assert_eq!(end(rule, &[f64::NAN, 1.0, f64::NAN, f64::NEG_INFINITY]), Some(4));
        assert_eq!(end(rule, &[f64::INFINITY, f64::NAN]), Some(2));
    }

    #[test]
    fn an_epoch_without_the_metric_counts_for_nothing_and_another_metric_begins_anew() {
        let rule = EarlyStop { metric: LOSS, patience: 2, min_delta: 0.0 };
        let once = |waiting| rule.after(waiting, &sums(1.0, 0.0), Some(&sums(2.0, 0.0)));
        let waiting = once(once(None));
        assert_eq!(waiting.as_ref().unwrap().waited, 1);
        assert_eq!(rule.after(waiting.clone(), &sums(1.0, 0.0), None), waiting);
        let other = EarlyStop { metric: RankBy::Standard(StandardMetric::TrainLoss), ..rule };
        assert_eq!(other.ends(once(waiting.clone()).as_ref()), None);
        let anew = other.after(once(waiting), &sums(1.0, 0.0), None).unwrap();
        assert_eq!((anew.metric.as_str(), anew.best, anew.waited), ("train.loss", Some(1.0), 0));
    }
}
