//! The outputs of a checkpoint's model for inputs that are in no data set.

use super::compute::compute;
use super::parts::RankParts;
use super::{Usage, state};
use base::error::{Error, Result};
use base::panics::catch_model_panic;
use checkpoint::Loaded;
use data::{
    Dataset, FieldData, FieldFacts, FieldKind, FieldMut, FieldsMut, HostField, SampleKey, SampleMut, Splits,
    TransformPlan, transformed,
};
use ddp::device::{ComputeDevice, Precision, read, supports_precision};
use std::sync::Arc;
use train::models::{Evaluator, Input, TensorFacts};

/// A model with a checkpoint's weights.
pub struct Predictor {
    evaluator: Evaluator,
    /// The model's name.
    name: String,
    transforms: Vec<TransformPlan>,
    seed: u64,
    input: FieldFacts,
    target: FieldFacts,
}

impl Predictor {
    /// With the averaged weights, if there are some and they are wanted.
    ///
    /// # Errors
    /// Exit code 78: a user-defined task reads the model's outputs. 74: the weights don't fit the model. 69: the device.
    pub fn new(
        parts: &RankParts<'_>,
        usage: &Usage,
        loaded: &Loaded,
        averaged: bool,
        device: ComputeDevice,
    ) -> Result<Self> {
        if let Some(task) = parts.task.own() {
            let what =
                format!("the model is trained by the task `{task}`, whose outputs only that task knows");
            return Err(Error::spec(what).hint("only models without a user-defined `[task]` can predict"));
        }
        let (Some(input), Some(target)) = (usage.facts.input.clone(), usage.facts.target.clone()) else {
            let what = format!("checkpoint {} does not say what its model takes", loaded.path.display());
            return Err(Error::checkpoint(what));
        };
        if let Some(Err(why)) = usage.encoding.as_ref().map(|encoding| encoding.fits(&input)) {
            let what =
                format!("the encoding of data set `{}` does not match its samples: {why}", parts.data.name);
            return Err(Error::spec(what).hint("a data set of your own says it by `Dataset::encoding`"));
        }
        // Weights are f32: a device without the precision of training computes in f32.
        let possible = supports_precision(parts.precision, device).is_ok();
        let on = compute(device, if possible { parts.precision } else { Precision::F32 })?;
        // Sizes of the model follow from the facts, which whoever wrote the file has chosen.
        let fits = |tensors: Vec<TensorFacts>| state::has_tensors(loaded.weights(averaged), &tensors);
        parts.model.source.tensors_for(&usage.facts).and_then(fits).map_err(|e| state::unfit(loaded, e))?;
        let mut model = parts.model.source.build(&usage.facts, parts.seed, &on)?;
        state::put_model(&mut *model, loaded.weights(averaged)).map_err(|e| state::unfit(loaded, e))?;
        let (name, transforms) = (parts.model.name.clone(), parts.data.transforms.to_vec());
        Ok(Self { evaluator: model.evaluator(), name, transforms, seed: parts.seed, input, target })
    }

    /// For models with a special use, such as generating text.
    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    /// One row of outputs per input. `first` counts the inputs before these, for transforms that draw numbers.
    ///
    /// # Errors
    /// The model does not take them (78), or the device fails (69).
    pub fn outputs(&self, first: u64, inputs: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        let count = inputs.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let width: usize = self.input.shape.iter().product();
        if let Some(other) = inputs.iter().map(Vec::len).find(|len| *len != width) {
            let what = format!("an input has {other} numbers, and samples have {width}");
            return Err(Error::spec(what));
        }
        let data = FieldData::Float(self.transformed(first, inputs)?);
        let field = HostField { shape: self.input.shape.clone(), data };
        let input = Input::from_host(&field, count, &self.evaluator.device());
        let name = &self.name;
        let outputs = catch_model_panic(|| self.evaluator.forward(input))
            .map_err(|why| Error::spec(format!("model `{name}` does not accept these inputs: {why}")))?;
        let [rows, width] = outputs.dims();
        if rows != count || width == 0 {
            let what = format!("model `{name}` returns {rows} rows of {width} outputs for {count} inputs");
            return Err(Error::spec(what).hint("predictions need one row per input"));
        }
        Ok(read(outputs)?.chunks_exact(width).map(<[f32]>::to_vec).collect())
    }

    /// The values after the spec's `[[transform]]`s, as an evaluation applies them.
    fn transformed(&self, first: u64, inputs: Vec<Vec<f32>>) -> Result<Vec<f32>> {
        if self.transforms.is_empty() {
            return Ok(inputs.concat());
        }
        let count = inputs.len() as u64;
        let set: Arc<dyn Dataset> =
            Arc::new(Inputs { first, inputs, input: self.input.clone(), target: self.target.clone() });
        let splits = Splits { train: set.clone(), val: Some(set), test: None };
        let set = transformed(splits, &self.transforms).val;
        let set = set.ok_or_else(|| Error::internal("a split got lost"))?;
        let width = self.input.shape.iter().product();
        let (mut values, mut floats, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        let targets: usize = self.target.shape.iter().product();
        for sample in first..first + count {
            let mut input: Vec<f32> = vec![0.0; width];
            floats.resize(targets, 0.0);
            indices.resize(targets, 0);
            let target = match self.target.kind {
                FieldKind::Float => FieldMut::Float(&mut floats),
                FieldKind::Index(_) => FieldMut::Index(&mut indices),
            };
            let to = SampleMut { input: FieldMut::Float(&mut input), target, fields: FieldsMut::default() };
            set.write(SampleKey { seed: self.seed, epoch: 0, sample }, to)?;
            values.extend(input);
        }
        Ok(values)
    }
}

/// Inputs as a data set, whose targets are zero.
struct Inputs {
    first: u64,
    inputs: Vec<Vec<f32>>,
    input: FieldFacts,
    target: FieldFacts,
}

impl Dataset for Inputs {
    fn len(&self) -> usize {
        self.inputs.len()
    }
    fn input(&self) -> FieldFacts {
        self.input.clone()
    }
    fn target(&self) -> FieldFacts {
        self.target.clone()
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        if let FieldMut::Float(input) = to.input {
            input.copy_from_slice(&self.inputs[(key.sample - self.first) as usize]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::worker::testing::{SPEC, TestRun, fixed};
    use burn::module::Module;
    use burn::nn::Linear;
    use burn::tensor::{Device, Tensor};
    use data::Encoding;
    use train::models::Net;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Config {}

    #[derive(Module, Debug)]
    struct Mine {
        fc: Linear,
    }

    impl Net for Mine {
        fn forward(&self, input: Input) -> Tensor<2> {
            self.fc.forward(input.rows())
        }
    }

    fn registry() -> Registry {
        Registry::standard().model("mine", |_: &Config, _, device: &Device| Mine { fc: fixed(4, 1, device) })
    }

    #[test]
    fn a_users_model_predicts_with_the_weights_of_the_checkpoint() {
        let run = TestRun::with(registry(), SPEC);
        run.train(1, &["model.name=mine"]).unwrap();
        let loaded = run.loaded();
        let text = loaded.usage.as_deref().unwrap();
        let (usage, plan) = Usage::read(text, &loaded, &registry()).unwrap();
        let predictor =
            Predictor::new(&RankParts::new(&plan), &usage, &loaded, true, ComputeDevice::Cpu).unwrap();
        let inputs = vec![vec![1.0, -2.0, 0.5, 4.0], vec![0.0, 0.0, 1.0, 0.0]];
        let outputs = predictor.outputs(0, inputs.clone()).unwrap();
        let weight = loaded.model.get("fc.weight").unwrap().to_f32_vec();
        for (input, output) in inputs.iter().zip(&outputs) {
            let expected: f32 = input.iter().zip(&weight).map(|(x, w)| x * w).sum();
            assert!(output.len() == 1 && (output[0] - expected).abs() < 1e-5, "{output:?}, {expected}");
        }
        assert!(predictor.outputs(2, Vec::new()).unwrap().is_empty());
        // A user-defined data set may describe its samples wrongly.
        let mut other = usage.clone();
        let Some(Encoding::Table(table)) = &mut other.encoding else { panic!("it is one of numbers") };
        table.columns.pop();
        let error =
            Predictor::new(&RankParts::new(&plan), &other, &loaded, true, ComputeDevice::Cpu).err().unwrap();
        assert!(error.message.contains("it gives [3] numbers, and samples are [4] numbers"), "{error}");
        // A program without the model reports it.
        let error = Usage::read(text, &loaded, &Registry::standard()).unwrap_err();
        assert!(error.message.contains("mine"), "{error}");
    }
}
