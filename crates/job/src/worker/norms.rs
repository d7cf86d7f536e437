//! Checks that batch norms get more than one value per channel in training, whose variance is otherwise 0.

use super::parts::RankParts;
use base::error::{Error, Result};
use base::panics::catch_model_panic;
use data::{DataFacts, Dataset, FieldData, FieldFacts, FieldKind, HostField};
use ddp::device::drawn;
use std::collections::BTreeMap;
use std::sync::Arc;
use train::models::{Input, Model, Role};
use train::training::Position;

/// Batch norms get more than one value per channel in each micro-batch from this position on.
///
/// # Errors
/// One would get a single value (78), or the device fails.
pub(super) fn check(
    parts: &RankParts<'_>,
    facts: &DataFacts,
    dataset: &dyn Dataset,
    position: &Position,
    model: &mut dyn Model,
) -> Result<()> {
    let (drop_last, batching, samples) = (parts.data.loader.drop_last, &position.batching, dataset.len());
    let settings = parts.settings();
    if settings.is_over(position) {
        return Ok(());
    }
    let epochs = settings.all_epochs(position, samples).min(parts.train.stop_after.unwrap_or(u64::MAX));
    let known = parts.model.source.least_norm_values(facts);
    let (whole, rest) = (batching.algebra(samples, drop_last), position.rest_algebra(samples, drop_last));
    // `max_steps` counts from the start of the run, and the steps of both from their own.
    let left = parts.train.max_steps.map(|max| max.saturating_sub(position.step));
    let left_of_rest = position.steps_left(position.epoch + 1, samples, drop_last);
    let done_of_rest = rest.steps_per_epoch().saturating_sub(left_of_rest);
    let later = left.map(|left| left.saturating_sub(left_of_rest));
    let whole = (position.epoch + 1 < epochs).then_some((whole, later));
    let rest = (rest, left.map(|left| left.saturating_add(done_of_rest)));
    for (algebra, max) in whole.into_iter().chain([rest]) {
        // Of a sample there is at least one.
        let few = algebra.too_few_for_norms(batching, known.unwrap_or(1), max);
        if let Some((why, hint)) = few
            && (known.is_some() || parts.task.own().is_none() && gets_one_value(parts.seed, dataset, model)?)
        {
            return Err(Error::spec(why).hint(hint));
        }
    }
    Ok(())
}

/// The same at the start of a run, for a model that declares how many values its batch norms get.
pub(super) fn least(parts: &RankParts<'_>, facts: &DataFacts, position: &Position) -> Result<()> {
    let known = parts.model.source.least_norm_values(facts).zip(facts.train);
    let few = known.and_then(|(values, samples)| {
        let algebra = position.batching.algebra(samples, parts.data.loader.drop_last);
        algebra.too_few_for_norms(&position.batching, values, parts.train.max_steps)
    });
    few.map_or(Ok(()), |(why, hint)| Err(Error::spec(why).hint(hint)))
}

/// Whether a batch norm gets one value per channel of one sample: it then measures a mean, and no variance. The model is as before.
fn gets_one_value(seed: u64, dataset: &dyn Dataset, model: &mut dyn Model) -> Result<bool> {
    let entries = model.entries().to_vec();
    let measured = |number: usize| entries[number].role == Role::Statistic;
    if !(0..entries.len()).any(measured) {
        return Ok(false);
    }
    let mut before = BTreeMap::new();
    model.read(&measured, &mut |number, values| _ = before.insert(number, values.to_vec()))?;
    model.edit(&measured, &mut |_, values| values.fill(0.0))?;
    let device = model.device().clone();
    let input = Input::from_host(&sample(&dataset.input()), 1, &device);
    let passed = catch_model_panic(|| {
        drawn(&device, seed, || drop(model.forward(input, Arc::new(|_, tensor| tensor))))
    });
    let mut zero = BTreeMap::new();
    let mut see = |number: usize, values: &[f32]| {
        zero.insert(entries[number].name.clone(), values.iter().all(|x| *x == 0.0));
    };
    model.read(&measured, &mut see)?;
    model.edit(&measured, &mut |number, values| values.copy_from_slice(&before[&number]))?;
    let is_one = |(name, no_variance): (&String, &bool)| {
        let mean = name.strip_suffix("running_var").map(|layer| format!("{layer}running_mean"));
        *no_variance && mean.is_some_and(|mean| zero.get(&mean) == Some(&false))
    };
    // Whether the model takes the data was checked before.
    Ok(passed.is_ok() && zero.iter().any(is_one))
}

/// A sample whose values differ.
fn sample(field: &FieldFacts) -> HostField {
    let numbers = (0..field.shape.iter().product::<usize>()).map(|i| i.wrapping_mul(2_654_435_761) % 1009);
    let data = match field.kind {
        FieldKind::Float => FieldData::Float(numbers.map(|n| n as f32 / 504.0 - 1.0).collect()),
        FieldKind::Index(bound) => FieldData::Index(numbers.map(|n| (n % bound.max(1)) as i64).collect()),
    };
    HostField { shape: field.shape.clone(), data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::plan::testing::resolved;
    use crate::registry::Registry;
    use crate::worker::compute::compute;
    use burn::module::Module;
    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Tensor};
    use ddp::device::ComputeDevice;
    use train::models::{ALL, Net};
    use train::training::Batching;

    /// Of 12 numbers, the norm gets 12 channels of one value, or 4 of three.
    #[derive(Module, Debug)]
    struct Normed {
        layer: Linear,
        norm: BatchNorm,
        head: Linear,
        each: usize,
    }

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Config {
        each: usize,
    }

    impl Normed {
        fn new(config: &Config, _: &DataFacts, device: &Device) -> Self {
            Self {
                layer: LinearConfig::new(20, 12).init(device),
                norm: BatchNormConfig::new(12 / config.each).init(device),
                head: LinearConfig::new(12, 1).init(device),
                each: config.each,
            }
        }
    }

    impl Net for Normed {
        fn forward(&self, input: Input) -> Tensor<2> {
            let x = self.layer.forward(input.rows());
            let [rows, width] = x.dims();
            let x = self.norm.forward(x.reshape([rows, width / self.each, self.each]));
            self.head.forward(x.reshape([rows, width]))
        }
    }

    #[test]
    fn a_users_batch_norm_of_one_value_per_channel_is_found() {
        let registry = Registry::standard().model("normed", Normed::new);
        for (each, expected) in [(1, true), (3, false)] {
            let spec = format!(
                "name = 'a'\nbatch_size = 4\noptimizer.name = 'sgd'\ndataset.name = 'random'\n\
                 [model]\nname = 'normed'\neach = {each}\n"
            );
            let plan = resolved(&registry, &spec, &["dataset.samples=33"], 1).unwrap();
            let (parts, splits) = (RankParts::new(&plan), plan.dataset.source.open().unwrap());
            let on = compute(ComputeDevice::Cpu, parts.precision).unwrap();
            let mut model = parts.model.source.build(&plan.dataset.facts, 1, &on).unwrap();
            let values = |model: &dyn Model| {
                let mut all = Vec::new();
                model.read(ALL, &mut |_, values| all.extend_from_slice(values)).unwrap();
                all
            };
            let before = values(&*model);
            let mut found = |plan: &Plan, position: &Position| {
                let facts = &plan.dataset.facts;
                check(&RankParts::new(plan), facts, &*splits.train, position, &mut *model).is_err()
            };
            let begun = |batch| Position::new(Batching::new(1, batch, 1));
            assert_eq!(found(&plan, &begun(4)), expected, "the last of 33 samples");
            assert_eq!(found(&plan, &begun(1)), expected);
            assert!(!found(&plan, &begun(5)), "three are left");
            // A sample of the epoch is done, the others are whole micro-batches, and later epochs have the one again.
            for (epochs, stop_after, expected) in [(1, None, false), (2, None, expected), (2, Some(1), false)]
            {
                let mut plan = resolved(&registry, &spec, &["dataset.samples=33"], 1).unwrap();
                (plan.epochs, plan.train.stop_after) = (Some(epochs), stop_after);
                let position = Position { start: 1, ..begun(4) };
                assert_eq!(found(&plan, &position), expected, "{epochs} epochs, {stop_after:?}");
            }
            assert_eq!(values(&*model), before, "the model is as before");
        }
    }
}
