//! [`Sums`] of a batch whose outputs stay on the device: they are reduced there to a few numbers, which are read on demand.

use super::Sums;
use crate::data::{FieldData, HostBatch};
use crate::device::{Readback, read};
use crate::error::Result;
use crate::models::Target;
use burn::tensor::{Bool, FloatDType, Int, Tensor};

/// The sums of one batch: known, or being computed on the device.
pub struct BatchSums {
    /// What is known on the host.
    known: Sums,
    rest: Option<Rest>,
}

/// The sums that a device computes.
struct Rest {
    /// Mean loss, then `correct` and `top5`, or `absolute` and `squared`. Counts are exact up to 2^24 rows.
    values: Values,
    /// Whether `values` holds counts.
    counts: bool,
}

enum Values {
    OnDevice(Box<Tensor<1>>),
    Pending(Readback),
}

impl BatchSums {
    /// From the mean loss over rows and outputs `[rows, outputs]`, both without autodiff; `batch` is the source of
    /// `target`. `host`: the device computes in host memory.
    pub fn new(
        loss: Tensor<1>,
        outputs: Tensor<2>,
        target: &Target,
        batch: &HostBatch,
        host: bool,
    ) -> Result<Self> {
        if !host {
            return Ok(Self::on_device(loss, outputs, target, batch));
        }
        let [_, width] = outputs.dims();
        let (loss, outputs) = (read(loss)?, read(outputs)?);
        let known = Sums::of_batch(f64::from(loss[0]), batch.len, &outputs, width, &batch.target.data);
        Ok(Self { known, rest: None })
    }

    /// As in [`Sums::of_batch`]. Labels are below the number of outputs, as the loss requires. Errors are summed in f32.
    fn on_device(loss: Tensor<1>, outputs: Tensor<2>, target: &Target, host: &HostBatch) -> Self {
        let outputs = outputs.cast(FloatDType::F32);
        let target = target.clone();
        let mut known = Sums { rows: outputs.dims()[0] as f64, samples: host.len as f64, ..Sums::default() };
        let counts = target.is_index();
        let [first, second] = if counts {
            let above = ranks(outputs, target.flat_index().inner());
            [above.clone().equal_scalar(0), above.lower_scalar(5)].map(count)
        } else {
            match &host.target.data {
                FieldData::Float(targets) => known.add_targets(targets),
                FieldData::Bytes(targets) => known.add_targets(targets),
                FieldData::Index(_) => {}
            }
            let errors = outputs - target.rows().inner().cast(FloatDType::F32);
            [errors.clone().abs(), errors.clone() * errors].map(Tensor::sum)
        };
        let values = Tensor::cat(vec![loss.cast(FloatDType::F32), first, second], 0);
        Self { known, rest: Some(Rest { values: Values::OnDevice(Box::new(values)), counts }) }
    }

    /// Requests the copy from the device now, without waiting for it, so that `read` does not wait for work enqueued
    /// later. See [`Readback::start`].
    pub fn fetch(mut self) -> Result<Self> {
        if let Some(Rest { values: Values::OnDevice(values), counts }) = self.rest {
            self.rest = Some(Rest { values: Values::Pending(Readback::start(*values)?), counts });
        }
        Ok(self)
    }

    /// Returns the sums; waits for the device if they are being computed or copied.
    pub fn read(self) -> Result<Sums> {
        let Some(Rest { values, counts }) = self.rest else { return Ok(self.known) };
        let values = match values {
            Values::OnDevice(values) => read(*values)?,
            Values::Pending(values) => values.wait()?,
        };
        let [loss, first, second] = [0, 1, 2].map(|i| f64::from(values[i]));
        let known = Sums { loss: loss * self.known.rows, ..self.known };
        Ok(match counts {
            true => Sums { correct: first, top5: second, ..known },
            false => Sums { absolute: first, squared: second, ..known },
        })
    }
}

/// For each row, the number of outputs ranked before the label's, `[rows, 1]`: the order of [`Sums::of_batch`], without
/// sorting.
fn ranks(outputs: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<2, Int> {
    let shape @ [rows, width] = outputs.dims();
    let labels = labels.reshape([rows, 1]);
    let own = outputs.clone().gather(1, labels.clone());
    let (nan, own_nan) = (outputs.clone().is_nan(), own.clone().is_nan().expand(shape));
    let own = own.expand(shape);
    let columns = Tensor::<1, Int>::arange(0..width as i64, &outputs.device()).reshape([1, width]);
    let earlier = columns.expand(shape).lower(labels.expand(shape));
    let higher =
        outputs.clone().greater(own.clone()).bool_or(nan.clone().bool_and(own_nan.clone().bool_not()));
    let equal = outputs.equal(own).bool_or(nan.bool_and(own_nan));
    higher.bool_or(equal.bool_and(earlier)).int().sum_dim(1)
}

/// Summed as integers: exact.
fn count(mask: Tensor<2, Bool>) -> Tensor<1> {
    mask.int().sum().cast(FloatDType::F32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::HostField;
    use burn::tensor::{Device, TensorData};

    fn batch(shape: Vec<usize>, data: FieldData, len: usize) -> HostBatch {
        let input = HostField { shape: vec![], data: FieldData::Float(vec![]) };
        HostBatch { len, input, target: HostField { shape, data }, indices: vec![], draws: vec![] }
    }

    /// The sums computed on the device and on the host. Targets have autodiff, outputs no longer do.
    fn both(outputs: &[f32], width: usize, host: &HostBatch) -> (Sums, Sums) {
        let device = Device::flex().autodiff();
        let rows = outputs.len() / width;
        let target = Target::from_host(&host.target, host.len, &device);
        let on_device =
            Tensor::<2>::from_data(TensorData::new(outputs.to_vec(), [rows, width]), &device.inner());
        let loss = Tensor::<1>::from_floats([0.75], &on_device.device());
        let sums = |here| {
            let sums = BatchSums::new(loss.clone(), on_device.clone(), &target, host, here).unwrap();
            assert_eq!(sums.rest.is_none(), here);
            let again = BatchSums::new(loss.clone(), on_device.clone(), &target, host, here).unwrap();
            let fetched = again.fetch().unwrap().fetch().unwrap().read().unwrap();
            let sums = sums.read().unwrap();
            assert_eq!(fetched, sums);
            sums
        };
        (sums(false), sums(true))
    }

    /// Scores from a small set, so that ties, infinities and NaN meet the labels in every order.
    #[test]
    fn label_ranks_equal_the_host() {
        let scores = [0.0, -0.0, 1.0, -1.0, 2.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let mut state = 1u64;
        let mut draw = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let (mut correct, mut top5) = (0.0, 0.0);
        for width in [1, 2, 3, 5, 6, 11] {
            let rows = 400;
            let outputs: Vec<f32> = (0..rows * width).map(|_| scores[draw(scores.len())]).collect();
            let labels: Vec<i64> = (0..rows).map(|_| draw(width) as i64).collect();
            // Row by row: in sums, two errors could cancel.
            for (row, label) in outputs.chunks(width).zip(&labels) {
                let host = batch(vec![], FieldData::Index(vec![*label]), 1);
                let (got, expected) = both(row, width, &host);
                assert_eq!(got, expected, "{row:?} with label {label}");
            }
            let (got, expected) = both(&outputs, width, &batch(vec![], FieldData::Index(labels), rows));
            assert_eq!(got, expected);
            (correct, top5) = (correct + got.correct / rows as f64, top5 + got.top5 / rows as f64);
        }
        assert!(correct > 1.0 && correct < 5.0 && top5 > 4.0 && top5 < 6.0, "{correct} {top5}");
    }

    #[test]
    fn rows_of_a_language_model_are_tokens() {
        let host = batch(vec![3], FieldData::Index(vec![0, 1, 0, 1, 1, 0]), 2);
        let outputs = [2.0, 1.0, 2.0, 1.0, 1.0, 2.0, 0.0, 3.0, 3.0, 3.0, 3.0, 3.0];
        let (got, expected) = both(&outputs, 2, &host);
        assert_eq!(got, expected);
        assert_eq!((got.samples, got.rows, got.correct, got.loss), (2.0, 6.0, 3.0, 4.5));
    }

    #[test]
    fn errors_of_a_regression() {
        let targets: Vec<f32> = (0..60).map(|i| 100.0 + (i as f32 * 0.7).sin()).collect();
        let outputs: Vec<f32> = (0..60).map(|i| 100.0 + (i as f32 * 0.9).cos()).collect();
        for (shape, width) in [(vec![], 1), (vec![3], 3)] {
            let host = batch(shape, FieldData::Float(targets.clone()), 60 / width);
            let (got, expected) = both(&outputs, width, &host);
            assert!((got.absolute / expected.absolute - 1.0).abs() < 1e-6, "{got:?}");
            assert!((got.squared / expected.squared - 1.0).abs() < 1e-6, "{got:?}");
            // A small variance about a large mean keeps its precision: targets are summed in f64.
            assert!((got.r2() - expected.r2()).abs() < 1e-5, "{} {}", got.r2(), expected.r2());
            assert_eq!(
                Sums { absolute: 0.0, squared: 0.0, ..got },
                Sums { absolute: 0.0, squared: 0.0, ..expected }
            );
        }
    }
}
