//! The average of a model's weights, kept where the model is. An evaluation swaps it in.

use super::Ema;
use super::optimizer_state::OptimizerState;
use crate::models::{Model, Role, StateEntry};
use crate::optim::{average, average_on_device};
use base::error::Result;
use burn::tensor::Device;
use ddp::device::is_host;

/// Averages of the parameters, frozen ones included, and of batch-norm statistics (as timm's `ModelEmaV3` and `AveragedModel(use_buffers=True)`
/// have them). Other buffers are the model's own.
pub struct WeightAverage {
    ema: Ema,
    averaged: Vec<bool>,
    /// One array per averaged tensor, none for the others.
    values: OptimizerState,
}

impl WeightAverage {
    /// The weights of `model`, where the model is.
    pub fn new(model: &dyn Model, ema: Ema) -> Result<Self> {
        let device = (!is_host(model.device())).then(|| model.device().clone().without_autodiff());
        Self::on(device, model, ema)
    }

    /// In host memory without a `device`.
    fn on(device: Option<Device>, model: &dyn Model, ema: Ema) -> Result<Self> {
        let averaged: Vec<bool> = model.entries().iter().map(is_averaged).collect();
        let lengths = |e: &StateEntry| is_averaged(e).then(|| e.numel()).into_iter().collect();
        let mut values = OptimizerState::zeros(model.entries().iter().map(lengths), device);
        let mut done = Ok(());
        model.read(&|index| averaged[index], &mut |index, weights| {
            let copied = values.edit(index, |_, own| {
                own.copy_from_slice(weights);
                Ok(())
            });
            if done.is_ok() {
                done = copied;
            }
        })?;
        done.map(|()| Self { ema, averaged, values })
    }

    /// One array per averaged tensor, in the module's layout.
    pub fn values_mut(&mut self) -> &mut OptimizerState {
        &mut self.values
    }

    /// Calls `see` with the average of tensor `index`, or with the model's `own` values if it has none.
    pub fn read<T>(&self, index: usize, own: &[f32], see: impl FnOnce(&[f32]) -> T) -> Result<T> {
        if self.averaged[index] { self.values.read(index, 0, see) } else { Ok(see(own)) }
    }

    /// Follows the weights after optimizer step number `step`, from 1, if an update is due. `updates` counts them.
    pub(super) fn follow(&mut self, model: &mut dyn Model, step: u64, updates: &mut u64) -> Result<()> {
        if !self.ema.is_due(step) {
            return Ok(());
        }
        *updates += 1;
        let share = self.ema.share(*updates);
        let Self { averaged, values, .. } = self;
        if let OptimizerState::Host(_) = values {
            return model.read(&|index| averaged[index], &mut |index, weights| {
                values.slices(index).iter_mut().for_each(|own| average(own, weights, share));
            });
        }
        model.replace(&|index| averaged[index], &mut |index, weights| {
            for own in values.tensors(index) {
                // The placeholder is another handle, which costs nothing.
                let before = std::mem::replace(own, weights.clone());
                *own = average_on_device(before, weights.clone(), share);
            }
            weights
        });
        Ok(())
    }

    /// Exchanges the average and the model's weights.
    pub(super) fn swap(&mut self, model: &mut dyn Model) -> Result<()> {
        let Self { averaged, values, .. } = self;
        if let OptimizerState::Host(_) = values {
            return model.edit(&|index| averaged[index], &mut |index, weights| {
                values.slices(index).iter_mut().for_each(|own| own.swap_with_slice(weights));
            });
        }
        model.replace(&|index| averaged[index], &mut |index, mut weights| {
            values.tensors(index).iter_mut().for_each(|own| std::mem::swap(own, &mut weights));
            weights
        });
        Ok(())
    }
}

fn is_averaged(entry: &StateEntry) -> bool {
    entry.role != Role::Buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{ALL, Input, Net, NetModel};
    use burn::module::{Module, Param};
    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
    use burn::tensor::Tensor;
    use ddp::device::Compute;
    use spec::testing::read;

    #[derive(Module, Debug)]
    struct Normed {
        linear: Linear,
        norm: BatchNorm,
        scale: Param<Tensor<1>>,
    }

    impl Net for Normed {
        fn forward(&self, input: Input) -> Tensor<2> {
            self.norm.forward(self.linear.forward(input.rows())) * self.scale.val().unsqueeze()
        }
    }

    /// A model with weights, running statistics and a frozen parameter.
    fn model() -> NetModel<Normed> {
        let build = |device: &Device| Normed {
            linear: LinearConfig::new(3, 2).init(device),
            norm: BatchNormConfig::new(2).init(device),
            scale: Param::from_tensor(Tensor::ones([2], device)).no_grad(),
        };
        NetModel::new(&Compute::host(), 1, |device| Ok(build(device))).unwrap()
    }

    fn ema(keys: &str) -> Ema {
        read(keys, Ema::read).0.unwrap()
    }

    fn values(model: &dyn Model) -> Vec<Vec<f32>> {
        let mut all = vec![Vec::new(); model.entries().len()];
        model.read(ALL, &mut |index, values| all[index] = values.to_vec()).unwrap();
        all
    }

    /// What a model evaluates: the average, or its own tensors where there is none.
    fn averages(of: &WeightAverage, model: &dyn Model) -> Vec<Vec<f32>> {
        let own = values(model);
        own.iter().enumerate().map(|(index, own)| of.read(index, own, <[f32]>::to_vec).unwrap()).collect()
    }

    #[test]
    fn parameters_and_statistics_are_averaged_and_swapped_in_host_memory_and_on_a_device() {
        let ema = ema("decay = 0.75\nevery = 2");
        for device in [None, Some(Device::flex())] {
            let mut model = model();
            let roles: Vec<Role> = model.entries().iter().map(|e| e.role).collect();
            for role in [Role::Parameter, Role::Statistic, Role::Frozen] {
                assert!(roles.contains(&role), "{roles:?}");
            }
            let mut average = WeightAverage::on(device, &model, ema).unwrap();
            assert_eq!(averages(&average, &model), values(&model));
            let (mut updates, mut expected) = (0, Vec::new());
            for step in 1..=5 {
                model.edit(ALL, &mut |_, own| own.iter_mut().for_each(|v| *v += step as f32)).unwrap();
                average.follow(&mut model, step, &mut updates).unwrap();
                let now = values(&model);
                if step == 1 {
                    expected = now;
                } else if step % 2 == 1 {
                    for (old, new) in expected.iter_mut().flatten().zip(now.iter().flatten()) {
                        *old += (new - *old) * 0.25;
                    }
                }
            }
            assert_eq!(updates, 3);
            let own = values(&model);
            let is_averaged = |index: usize| roles[index] != Role::Buffer;
            for (index, own) in own.iter().enumerate().filter(|(index, _)| !is_averaged(*index)) {
                expected[index] = own.clone();
            }
            assert_eq!(averages(&average, &model), expected);
            average.swap(&mut model).unwrap();
            assert_eq!(values(&model), expected);
            // A swapped model is evaluated.
            drop(model.evaluator());
            average.swap(&mut model).unwrap();
            assert_eq!((values(&model), averages(&average, &model)), (own, expected));
        }
    }
}
