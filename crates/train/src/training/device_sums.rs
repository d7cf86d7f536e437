//! [`Sums`] of a batch whose outputs stay on the device: they are reduced there to a few numbers, which are read on demand.

use super::sums::{Ratio, Sums};
use crate::models::Target;
use crate::tasks::{Measured, StepOutput, Term};
use base::error::Result;
use burn::tensor::{Bool, FloatDType, Int, Tensor};
use data::{FieldData, HostBatch};
use ddp::device::{Readback, read};

/// The sums of one batch: known, or being computed on the device.
pub struct BatchSums {
    /// What is known on the host.
    known: Sums,
    rest: Option<PendingSums>,
    /// [`HostBatch::target_scale`].
    target_scale: f64,
}

/// The sums that a device computes.
struct PendingSums {
    values: DeviceValues,
    /// What each of `values` is. Counts are exact up to 2^24 rows.
    kinds: Vec<SumKind>,
}

enum SumKind {
    MeanLoss,
    Unsmoothed,
    Correct,
    Top5,
    Absolute,
    Squared,
    Numerator(String),
    Denominator(String),
}

enum DeviceValues {
    OnDevice(Box<Tensor<1>>),
    Pending(Readback),
}

impl BatchSums {
    /// From the output of a step without autodiff; `batch` is the source of `target`. `host`: the device computes in host
    /// memory.
    pub fn new(output: StepOutput, target: &Target, batch: &HostBatch, host: bool) -> Result<Self> {
        output.check()?;
        let StepOutput { loss, measured, ratios, unsmoothed, .. } = output;
        let target_scale = batch.target_scale;
        let mut known = Sums { samples: batch.len as f64, ..Sums::default() };
        let mut values = vec![(SumKind::MeanLoss, loss)];
        values.extend(unsmoothed.map(|mean| (SumKind::Unsmoothed, mean)));
        match measured {
            Measured::Count(count) => known.rows = count as f64,
            // No target is trained: the only row is a placeholder.
            Measured::Rows(_) | Measured::Scored(..)
                if target.trained().is_some_and(|trained| trained.count() == 0) => {}
            Measured::Scored(sums, rows) => {
                known.rows = rows as f64;
                (known.correct, known.top5) = (sums.correct as f64, sums.top5 as f64);
            }
            Measured::Rows(outputs) if host => {
                let [_, width] = outputs.dims();
                let labels = target.trained().map_or(&batch.target.data, |trained| &trained.labels);
                known = Sums::of_batch(batch.len, &read(outputs)?, width, labels);
            }
            Measured::Rows(outputs) => values.extend(rows(&mut known, outputs, target, batch)),
        }
        for (name, [numerator, denominator]) in ratios {
            let ratio = known.ratios.entry(name.clone()).or_default();
            match numerator {
                Term::Known(value) => ratio.numerator = value,
                Term::Computed(value) => values.push((SumKind::Numerator(name.clone()), value)),
            }
            match denominator {
                Term::Known(value) => ratio.denominator = value,
                Term::Computed(value) => values.push((SumKind::Denominator(name), value)),
            }
        }
        let (kinds, values): (Vec<SumKind>, Vec<Tensor<1>>) = values.into_iter().unzip();
        if host {
            let values: Result<Vec<f32>> = values.into_iter().map(|value| Ok(read(value)?[0])).collect();
            return Ok(Self { known: with(known, kinds, values?), rest: None, target_scale });
        }
        let values = Tensor::cat(values.into_iter().map(|value| value.cast(FloatDType::F32)).collect(), 0);
        Ok(Self {
            known,
            rest: Some(PendingSums { values: DeviceValues::OnDevice(Box::new(values)), kinds }),
            target_scale,
        })
    }

    /// What the loss is the mean over: always known.
    pub fn rows(&self) -> f64 {
        self.known.rows
    }

    /// Requests the copy from the device now, without waiting for it, so that `read` does not wait for work enqueued
    /// later. See [`Readback::start`].
    pub fn fetch(mut self) -> Result<Self> {
        if let Some(PendingSums { values: DeviceValues::OnDevice(values), kinds }) = self.rest {
            self.rest = Some(PendingSums { values: DeviceValues::Pending(Readback::start(*values)?), kinds });
        }
        Ok(self)
    }

    /// Returns the sums; waits for the device if they are being computed or copied.
    pub fn read(self) -> Result<Sums> {
        let Some(PendingSums { values, kinds }) = self.rest else {
            return Ok(self.known.in_units(self.target_scale));
        };
        let values = match values {
            DeviceValues::OnDevice(values) => read(*values)?,
            DeviceValues::Pending(values) => values.wait()?,
        };
        Ok(with(self.known, kinds, values).in_units(self.target_scale))
    }
}

/// As in [`Sums::of_batch`]. Labels are below the number of outputs, as the loss requires. Errors are summed in f32.
fn rows(
    known: &mut Sums,
    outputs: Tensor<2>,
    target: &Target,
    batch: &HostBatch,
) -> [(SumKind, Tensor<1>); 2] {
    known.rows = outputs.dims()[0] as f64;
    let outputs = outputs.cast(FloatDType::F32);
    let target = match target.trained() {
        Some(trained) => trained.target(&outputs.device()),
        None => target.clone().without_autodiff(),
    };
    if target.is_index() {
        let above = ranks(outputs, target.flat_index());
        let [correct, top5] = [above.clone().equal_scalar(0), above.lower_scalar(5)].map(count);
        return [(SumKind::Correct, correct), (SumKind::Top5, top5)];
    }
    match &batch.target.data {
        FieldData::Float(targets) => known.add_targets(targets),
        FieldData::Bytes(targets) => known.add_targets(targets),
        FieldData::Index(_) => {}
    }
    let errors = outputs - target.rows().cast(FloatDType::F32);
    let [absolute, squared] = [errors.clone().abs(), errors.clone() * errors].map(Tensor::sum);
    [(SumKind::Absolute, absolute), (SumKind::Squared, squared)]
}

/// `known` with the values that were computed.
fn with(mut known: Sums, kinds: Vec<SumKind>, values: Vec<f32>) -> Sums {
    for (kind, value) in kinds.into_iter().zip(values) {
        let value = f64::from(value);
        match kind {
            SumKind::MeanLoss => known.loss = value * known.rows,
            SumKind::Unsmoothed => {
                known.unsmoothed = Ratio { numerator: value * known.rows, denominator: known.rows };
            }
            SumKind::Correct => known.correct = value,
            SumKind::Top5 => known.top5 = value,
            SumKind::Absolute => known.absolute = value,
            SumKind::Squared => known.squared = value,
            SumKind::Numerator(name) => known.ratios.entry(name).or_default().numerator = value,
            SumKind::Denominator(name) => known.ratios.entry(name).or_default().denominator = value,
        }
    }
    known
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
    use crate::models::{LinearNet, Model, NetModel};
    use crate::tasks::{Batch, Own, StandardLoss, StepContext};
    use burn::tensor::{Device, TensorData};
    use collectives::SoloGroup;
    use data::{HostField, UNTRAINED};
    use ddp::device::Compute;
    use std::collections::BTreeMap;

    fn batch(shape: Vec<usize>, data: FieldData, len: usize) -> HostBatch {
        let input = HostField { shape: vec![], data: FieldData::Float(vec![]) };
        let (target, fields) = (HostField { shape, data }, BTreeMap::new());
        HostBatch {
            len,
            input,
            target,
            fields,
            target_scale: 1.0,
            has_untrained: false,
            indices: vec![],
            draws: vec![],
        }
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
            let sums = || {
                let output = StepOutput::of_rows(loss.clone(), on_device.clone())
                    .metric("halves", loss.clone() * 0.5, 2usize)
                    .metric("rows", 3.0, loss.clone());
                BatchSums::new(output, &target, host, here).unwrap()
            };
            let (again, sums) = (sums(), sums());
            assert_eq!(sums.rest.is_none(), here);
            let fetched = again.fetch().unwrap().fetch().unwrap().read().unwrap();
            let sums = sums.read().unwrap();
            assert_eq!(fetched, sums);
            let ratio = |name| sums.ratios[name];
            assert_eq!((ratio("halves").numerator, ratio("halves").denominator), (0.375, 2.0));
            assert_eq!((ratio("rows").numerator, ratio("rows").denominator), (3.0, 0.75));
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

    /// R² has no unit.
    #[test]
    fn errors_are_in_the_units_of_the_data() {
        let sums_of = |target_scale| {
            let host = HostBatch { target_scale, ..batch(vec![], FieldData::Float(vec![1.0, 2.0, 4.0]), 3) };
            let (on_device, on_host) = both(&[1.5, 2.0, 3.0], 1, &host);
            assert_eq!(on_device, on_host);
            on_host
        };
        let (scaled, own) = (sums_of(1.0), sums_of(8.0));
        assert_eq!((own.mae(), own.squared), (8.0 * scaled.mae(), 64.0 * scaled.squared));
        assert_eq!((own.r2(), own.loss), (scaled.r2(), scaled.loss));
    }

    /// Untrained targets count nowhere, also where no target is trained.
    #[test]
    fn only_trained_targets_are_counted() {
        let model = NetModel::new(&Compute::host(), 1, |device| Ok(LinearNet::new(2, 3, device))).unwrap();
        let evaluator = model.evaluator();
        let task =
            Own::default().plan(Some(StandardLoss::CrossEntropy { label_smoothing: 0.1 })).unwrap().build();
        let sums = |inputs: &[f32], labels: &[i64], untrained: bool, here: bool| {
            let mut host = batch(vec![1], FieldData::Index(labels.to_vec()), labels.len());
            host.has_untrained = untrained;
            let field = HostField { shape: vec![2], data: FieldData::Float(inputs.to_vec()) };
            let device = evaluator.device();
            let [input, mut target] =
                [&field, &host.target].map(|field| Target::from_host(field, host.len, &device));
            if untrained {
                target = target.with_untrained(&host.target);
            }
            let batch = Batch { input, target: target.clone(), fields: BTreeMap::new() };
            let context = SoloGroup::default();
            let output = task.step(evaluator.net(), batch, &StepContext::new(false, &context)).unwrap();
            assert_eq!(output.counted(&target).is_some(), untrained);
            Sums { samples: 0.0, ..BatchSums::new(output, &target, &host, here).unwrap().read().unwrap() }
        };
        for here in [true, false] {
            let left = sums(&[1.0, -2.0, 9.0, 9.0, 0.5, 3.0], &[1, UNTRAINED, 2], true, here);
            let expected = sums(&[1.0, -2.0, 0.5, 3.0], &[1, 2], false, here);
            assert_eq!(left, expected);
            assert_eq!(left.rows, 2.0);
            let nothing = sums(&[1.0, -2.0], &[UNTRAINED], true, here);
            assert_eq!(nothing, Sums::default(), "{nothing:?}");
        }
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
    fn perplexity_is_that_of_the_loss_without_label_smoothing() {
        let model = NetModel::new(&Compute::host(), 1, |device| Ok(LinearNet::new(2, 3, device))).unwrap();
        let evaluator = model.evaluator();
        let host = batch(vec![1], FieldData::Index(vec![1, 0]), 2);
        let input = HostField { shape: vec![2], data: FieldData::Float(vec![1.0, -2.0, 0.5, 3.0]) };
        let sums = |label_smoothing, here| {
            let loss = StandardLoss::CrossEntropy { label_smoothing };
            let task = Own::default().plan(Some(loss)).unwrap().build();
            let [input, target] =
                [&input, &host.target].map(|field| Target::from_host(field, 2, &evaluator.device()));
            let batch = Batch { input, target: target.clone(), fields: BTreeMap::new() };
            let context = SoloGroup::default();
            let output = task.step(evaluator.net(), batch, &StepContext::new(false, &context)).unwrap();
            let mut sums = BatchSums::new(output, &target, &host, here).unwrap().read().unwrap();
            sums.add(&sums.clone());
            sums
        };
        for here in [true, false] {
            let (plain, smoothed) = (sums(0.0, here), sums(0.4, here));
            assert!((smoothed.mean_loss() - plain.mean_loss()).abs() > 1e-3, "{smoothed:?}");
            assert_eq!(smoothed.perplexity(), plain.mean_loss().exp(), "{smoothed:?}");
            assert_eq!(plain.perplexity(), plain.mean_loss().exp());
        }
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
