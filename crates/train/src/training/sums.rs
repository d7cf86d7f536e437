//! Sums from which every reported metric is computed as a ratio. They are added over batches and ranks, so that a
//! metric is exact with any number of ranks and bit-equal after a resume.

use crate::tasks::MetricFacts;
use collectives::{CommError, ProcessGroup, ReduceOp};
use data::FieldData;
use kernels::head::rank_of;
use record::nan_if_null;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Running sums in f64. `loss` is weighted by rows (samples; tokens for a language model).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Mean losses of the batches, each times its rows.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// What `loss` is summed over: samples, tokens, or what the task counts.
    pub rows: f64,
    /// Number of samples.
    pub samples: f64,
    /// Rows whose label has the highest score.
    pub correct: f64,
    /// Rows whose label has one of the five highest scores.
    pub top5: f64,
    /// Sums of absolute errors, squared errors, targets and squared targets, over all elements.
    #[serde(deserialize_with = "nan_if_null")]
    pub absolute: f64,
    /// Sum of squared errors.
    #[serde(deserialize_with = "nan_if_null")]
    pub squared: f64,
    /// Sum of targets.
    #[serde(deserialize_with = "nan_if_null")]
    pub target: f64,
    /// Sum of squared targets.
    #[serde(deserialize_with = "nan_if_null")]
    pub target_squared: f64,
    /// Number of target values in these four sums.
    pub elements: f64,
    /// Cross-entropy and rows of sequences, where `loss` is smoothed.
    #[serde(default, skip_serializing_if = "Ratio::is_empty")]
    pub unsmoothed: Ratio,
    /// The task's metrics, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ratios: BTreeMap<String, Ratio>,
}

/// The sums behind a metric of the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    #[serde(deserialize_with = "nan_if_null")]
    pub numerator: f64,
    #[serde(deserialize_with = "nan_if_null")]
    pub denominator: f64,
}

impl Ratio {
    fn is_empty(&self) -> bool {
        self.denominator == 0.0
    }
}

impl Sums {
    /// Sums of nothing, for these metrics of the task.
    pub fn of_metrics(metrics: &[MetricFacts]) -> Self {
        let ratios = metrics.iter().map(|metric| (metric.name.clone(), Ratio::default())).collect();
        Self { ratios, ..Self::default() }
    }

    /// The numbers, in one order on all ranks.
    pub fn numbers(&mut self) -> impl Iterator<Item = &mut f64> {
        let Sums {
            loss,
            rows,
            samples,
            correct,
            top5,
            absolute,
            squared,
            target,
            target_squared,
            elements,
            unsmoothed,
            ratios,
        } = self;
        let fixed = [loss, rows, samples, correct, top5, absolute, squared, target, target_squared, elements];
        let ratios = std::iter::once(unsmoothed).chain(ratios.values_mut());
        fixed.into_iter().chain(ratios.flat_map(|r| [&mut r.numerator, &mut r.denominator]))
    }

    /// Adds the sums of further batches; a metric that only one of the two has counts as zero in the other.
    pub fn add(&mut self, other: &Sums) {
        let mut other = other.clone();
        // A metric that only one of them has is zero in the other.
        for name in self.ratios.keys() {
            other.ratios.entry(name.clone()).or_default();
        }
        for name in other.ratios.keys() {
            self.ratios.entry(name.clone()).or_default();
        }
        self.numbers().zip(other.numbers()).for_each(|(a, b)| *a += *b);
    }

    /// Adds the sums of all ranks, and with them further numbers, in one all-reduce. Each rank has the same metrics.
    pub fn all_reduce(&mut self, more: &mut [f64], group: &dyn ProcessGroup) -> Result<(), CommError> {
        let mut all: Vec<f64> = self.numbers().map(|number| *number).chain(more.iter().copied()).collect();
        group.all_reduce(all.as_mut_slice().into(), ReduceOp::Sum)?;
        self.numbers().chain(more).zip(all).for_each(|(number, sum)| *number = sum);
        Ok(())
    }

    /// The sums of one batch, without its loss, from its outputs `[rows, outputs]`, row-major, and its targets.
    pub fn of_batch(samples: usize, outputs: &[f32], width: usize, target: &FieldData) -> Self {
        let rows = outputs.len() / width.max(1);
        let mut sums = Sums { rows: rows as f64, samples: samples as f64, ..Sums::default() };
        match target {
            FieldData::Index(labels) => {
                for (row, label) in outputs.chunks_exact(width.max(1)).zip(labels) {
                    let above = rank_of(row, *label as usize);
                    sums.correct += f64::from(above == 0);
                    sums.top5 += f64::from(above < 5);
                }
            }
            FieldData::Float(targets) => sums.add_errors(outputs, targets),
            FieldData::Bytes(targets) => sums.add_errors(outputs, targets),
        }
        sums
    }

    fn add_errors<T: Copy + Into<f64>>(&mut self, outputs: &[f32], targets: &[T]) {
        self.add_targets(&targets[..targets.len().min(outputs.len())]);
        for (y, t) in outputs.iter().zip(targets) {
            let error = f64::from(*y) - (*t).into();
            self.absolute += error.abs();
            self.squared += error * error;
        }
    }

    pub(super) fn add_targets<T: Copy + Into<f64>>(&mut self, targets: &[T]) {
        for &t in targets {
            let t = t.into();
            self.target += t;
            self.target_squared += t * t;
            self.elements += 1.0;
        }
    }

    /// Errors and targets in units of which one of the present ones has `scale`.
    pub fn in_units(mut self, scale: f64) -> Self {
        if scale != 1.0 {
            [&mut self.absolute, &mut self.target].into_iter().for_each(|sum| *sum *= scale);
            [&mut self.squared, &mut self.target_squared].into_iter().for_each(|sum| *sum *= scale * scale);
        }
        self
    }

    /// Mean loss per row; NaN without rows.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.rows
    }
    /// Share of rows whose label has the highest score, 0 to 1; NaN without rows.
    pub fn accuracy(&self) -> f64 {
        self.correct / self.rows
    }
    /// Share of rows whose label has one of the five highest scores, 0 to 1; NaN without rows.
    pub fn top5(&self) -> f64 {
        self.top5 / self.rows
    }
    /// Mean absolute error per target value; NaN without target values.
    pub fn mae(&self) -> f64 {
        self.absolute / self.elements
    }
    /// Coefficient of determination, over all elements. NaN for targets that are all equal, as far as the sums can tell.
    pub fn r2(&self) -> f64 {
        let total = self.target_squared - self.target * self.target / self.elements;
        if total > 1e-12 * self.target_squared { 1.0 - self.squared / total } else { f64::NAN }
    }
    /// `exp` of the mean cross-entropy, without label smoothing.
    pub fn perplexity(&self) -> f64 {
        match &self.unsmoothed {
            none if none.is_empty() => self.mean_loss().exp(),
            Ratio { numerator, denominator } => (numerator / denominator).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_breaks_ties_like_argmax() {
        let labels = FieldData::Index(vec![1, 0, 0]);
        let sums = Sums::of_batch(3, &[1.0, 2.0, 3.0, 3.0, f32::NAN, f32::NAN], 2, &labels);
        assert_eq!((sums.correct, sums.rows), (3.0, 3.0));
        let sums = Sums::of_batch(2, &[3.0, 3.0, 0.0, f32::NAN], 2, &FieldData::Index(vec![1, 0]));
        assert_eq!(sums.correct, 0.0);
    }

    #[test]
    fn non_finite_sums_round_trip_as_nan() {
        let ratios = [("own".to_owned(), Ratio { numerator: f64::NAN, denominator: f64::NAN })].into();
        let mut sums = Sums { ratios, ..Sums::default() };
        sums.numbers().for_each(|sum| *sum = f64::NAN);
        (sums.rows, sums.squared) = (3.0, f64::INFINITY);
        for counted in [&mut sums.samples, &mut sums.correct, &mut sums.top5, &mut sums.elements] {
            *counted = 2.0;
        }
        let mut back: Sums = serde_json::from_value(serde_json::to_value(sums).unwrap()).unwrap();
        assert_eq!(
            back.numbers().map(|sum| *sum).filter(|sum| !sum.is_nan()).collect::<Vec<_>>(),
            [3.0, 2.0, 2.0, 2.0, 2.0]
        );
    }

    #[test]
    fn r2_is_one_for_a_perfect_fit_and_zero_for_the_mean() {
        let targets = FieldData::Float(vec![1.0, 2.0, 3.0]);
        assert_eq!(Sums::of_batch(3, &[1.0, 2.0, 3.0], 1, &targets).r2(), 1.0);
        assert!(Sums::of_batch(3, &[2.0, 2.0, 2.0], 1, &targets).r2().abs() < 1e-12);
    }

    #[test]
    fn sums_of_parts_are_the_sums_of_the_whole() {
        let outputs = [0.1, 0.9, 0.8, 0.2];
        let whole = Sums::of_batch(2, &outputs, 2, &FieldData::Index(vec![1, 1]));
        let mut parts = Sums::of_batch(1, &outputs[..2], 2, &FieldData::Index(vec![1]));
        parts.add(&Sums::of_batch(1, &outputs[2..], 2, &FieldData::Index(vec![1])));
        assert_eq!(whole, parts);
        assert_eq!(whole.accuracy(), 0.5);
    }
}
