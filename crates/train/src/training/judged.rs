//! The prediction for each sample: the predicted class, its probability, and the loss. On a device it is computed there, and three
//! numbers a row are copied.

use crate::models::Target;
use crate::tasks::Measured;
use base::error::{Error, Result};
use burn::tensor::{Bool, FloatDType, Int, Tensor};
use data::{FieldData, HostBatch};
use ddp::device::{Readback, read};
use std::cmp::Ordering;

/// A sample of a class, and the model's prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// The index of the sample in its split.
    pub index: u64,
    /// Its class.
    pub label: usize,
    /// The class with the largest output, the first of equal ones, and NaN before all others, as in the accuracy.
    pub predicted: usize,
    /// The probability of `predicted`, by the softmax of the outputs.
    pub probability: f32,
    /// `-ln` of the probability of `label`.
    pub loss: f32,
}

impl Judged {
    /// Descending by loss, NaN first; of equal losses the first sample comes first.
    pub fn worse(&self, other: &Self) -> Ordering {
        // A NaN may have either sign.
        let key = |loss: f32| if loss.is_nan() { f32::NAN.abs() } else { loss };
        let (own, others) = (key(self.loss), key(other.loss));
        others.total_cmp(&own).then(self.index.cmp(&other.index))
    }
}

/// The judged samples of one batch: known, or being computed on the device.
pub(super) struct BatchJudged {
    indices: Vec<u64>,
    labels: Vec<i64>,
    values: JudgedValues,
}

enum JudgedValues {
    Known(Vec<f32>),
    Coming(Readback),
}

impl BatchJudged {
    /// For a batch whose targets are one class per sample; `None` if the outputs are not one row per sample. `host`: the device computes
    /// in host memory. On a device the copy is requested now, as by [`Readback::start`].
    pub fn new(measured: &Measured, target: &Target, batch: &HostBatch, host: bool) -> Result<Option<Self>> {
        let (Measured::Rows(outputs), FieldData::Index(labels)) = (measured, &batch.target.data) else {
            return Ok(None);
        };
        let [rows, width] = outputs.dims();
        if target.trained().is_some() || rows != batch.indices.len() || rows != labels.len() || width == 0 {
            return Ok(None);
        }
        let values = if host {
            let outputs = read(outputs.clone())?;
            let rows = outputs.chunks_exact(width).zip(labels);
            JudgedValues::Known(rows.flat_map(|(row, label)| judged(row, *label as usize)).collect())
        } else {
            let outputs = outputs.clone().cast(FloatDType::F32);
            JudgedValues::Coming(Readback::start(on_device(outputs, target.clone().flat_index().inner()))?)
        };
        Ok(Some(Self { indices: batch.indices.clone(), labels: labels.clone(), values }))
    }

    /// In the order of the batch; waits for the device.
    pub fn read(self) -> Result<Vec<Judged>> {
        let Self { indices, labels, values } = self;
        let values = match values {
            JudgedValues::Known(values) => values,
            JudgedValues::Coming(values) => values.wait()?,
        };
        if values.len() != 3 * indices.len() {
            return Err(Error::internal("the device returned another number of values than was asked for"));
        }
        let samples = indices.into_iter().zip(labels).zip(values.chunks_exact(3));
        Ok(samples
            .map(|((index, label), values)| Judged {
                index,
                label: label as usize,
                predicted: values[0] as usize,
                probability: values[1],
                loss: values[2],
            })
            .collect())
    }
}

/// The predicted class, its probability, and the loss.
fn judged(row: &[f32], label: usize) -> [f32; 3] {
    let mut predicted = 0;
    for (class, score) in row.iter().enumerate() {
        let best = row[predicted];
        if !best.is_nan() && (score.is_nan() || *score > best) {
            predicted = class;
        }
    }
    let largest = f64::from(row[predicted]);
    let sum: f64 = row.iter().map(|score| (f64::from(*score) - largest).exp()).sum();
    let own = row.get(label).map_or(f64::NAN, |own| f64::from(*own) - largest);
    [predicted as f32, (1.0 / sum) as f32, (sum.ln() - own) as f32]
}

/// The same for all rows of `outputs`, `[rows, outputs]`, row by row: `[3 * rows]`. Classes are exact up to 2^24.
fn on_device(outputs: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    let shape @ [rows, width] = outputs.dims();
    let columns =
        Tensor::<1, Int>::arange(0..width as i64, &outputs.device()).reshape([1, width]).expand(shape);
    let first = |mask: Tensor<2, Bool>| columns.clone().mask_fill(mask.bool_not(), width as i64).min_dim(1);
    let nan = outputs.clone().is_nan();
    let largest = outputs.clone().mask_fill(nan.clone(), f32::NEG_INFINITY).max_dim(1);
    let first_nan = first(nan);
    let first_largest = first(outputs.clone().equal(largest.clone().expand(shape)));
    let predicted = first_largest.mask_where(first_nan.clone().lower_scalar(width as i64), first_nan);
    let shifted = outputs - largest.expand(shape);
    let sum = shifted.clone().exp().sum_dim(1);
    let loss = sum.clone().log() - shifted.gather(1, labels.reshape([rows, 1]));
    Tensor::cat(vec![predicted.cast(FloatDType::F32), sum.recip(), loss], 1).reshape([3 * rows])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    /// Both ways, for each row with each label.
    fn both(outputs: &[f32], width: usize) -> Vec<([f32; 3], [f32; 3])> {
        let device = Device::flex();
        let mut all = Vec::new();
        for label in 0..width {
            let rows = outputs.len() / width;
            let tensor = Tensor::<2>::from_data(TensorData::new(outputs.to_vec(), [rows, width]), &device);
            let labels =
                Tensor::<1, Int>::from_data(TensorData::new(vec![label as i64; rows], [rows]), &device);
            let there = read(on_device(tensor, labels)).unwrap();
            for (row, there) in outputs.chunks_exact(width).zip(there.chunks_exact(3)) {
                all.push((judged(row, label), [there[0], there[1], there[2]]));
            }
        }
        all
    }

    #[test]
    fn a_device_judges_as_the_host_does() {
        let scores = [0.0, 1.5, -2.0, 0.25, 1.5, -0.0, 3.0, 2.0, 3.0];
        for width in [1, 3, 9] {
            for (here, there) in both(&scores, width) {
                assert_eq!(here[0], there[0], "{here:?} {there:?}");
                assert!((here[1] - there[1]).abs() < 1e-6 && (here[2] - there[2]).abs() < 1e-5);
            }
        }
        // Scores that are not finite have no probability, but a prediction.
        let inf = f32::INFINITY;
        for (row, predicted) in [
            ([1.0, f32::NAN, 2.0, f32::NAN], 1.0),
            ([1.0, inf, inf, 0.0], 1.0),
            ([-inf, -inf, -inf, -inf], 0.0),
            ([-inf, 0.0, -inf, 0.0], 1.0),
        ] {
            for (here, there) in both(&row, 4) {
                assert_eq!((here[0], there[0]), (predicted, predicted), "{row:?}");
            }
        }
    }

    #[test]
    fn the_loss_is_the_cross_entropy() {
        // Probabilities 1/7, 4/7, 2/7.
        let row = [1.0_f32.ln(), 4.0_f32.ln(), 2.0_f32.ln()];
        for (label, probability) in [1.0_f32, 4.0, 2.0].into_iter().enumerate() {
            let [predicted, of_predicted, loss] = judged(&row, label);
            assert_eq!(predicted, 1.0);
            assert!(
                (of_predicted - 4.0 / 7.0).abs() < 1e-6 && (loss + (probability / 7.0).ln()).abs() < 1e-6
            );
        }
        // Scores whose exponentials would be infinite.
        let [_, probability, loss] = judged(&[1000.0, 0.0], 1);
        assert_eq!((probability, loss), (1.0, 1000.0));
    }

    #[test]
    fn the_worst_come_first_and_ties_go_by_index() {
        let of = |index, loss| Judged { index, label: 0, predicted: 0, probability: 0.5, loss };
        let mut all =
            [of(4, 1.0), of(3, -f32::NAN), of(2, 2.0), of(1, f32::NAN), of(0, 1.0), of(5, f32::INFINITY)];
        all.sort_by(Judged::worse);
        assert_eq!(all.map(|one| one.index), [1, 3, 5, 2, 0, 4]);
    }
}
