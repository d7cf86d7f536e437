//! One optimizer step over averaged gradients: norm, clipping, then each parameter's fused in-place update.

use crate::ddp::{Reducer, Slot};
use crate::error::{Error, ExitCode, Result};
use crate::models::{Model, StateEntry};
use crate::optim::{Optimizer, OptimizerPlan, clip_coefficient, global_norm};

/// An optimizer and its state: for each slot (such as `exp_avg`) one array per trainable parameter, in the module's layout.
pub struct Updater {
    optimizer: Box<dyn Optimizer>,
    clip_norm: Option<f64>,
    /// `[parameter][slot]`; empty for buffers.
    state: Vec<Vec<Vec<f32>>>,
}

/// What a step did, for the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Updated {
    /// L2 norm of all gradients before clipping.
    pub grad_norm: f64,
}

impl Updater {
    pub fn new(plan: &OptimizerPlan, clip_norm: Option<f64>, entries: &[StateEntry]) -> Self {
        let optimizer = plan.build();
        let slots = optimizer.slots().len();
        let zeros = |e: &StateEntry| match e.trainable {
            true => {
                (0..slots).map(|s| vec![0.0; optimizer.slot_shape(s, &e.shape).iter().product()]).collect()
            }
            false => Vec::new(),
        };
        Self { clip_norm, state: entries.iter().map(zeros).collect(), optimizer }
    }

    /// Names of the state arrays of a parameter.
    pub fn slots(&self) -> &'static [&'static str] {
        self.optimizer.slots()
    }

    /// Shape of state array `slot` of a parameter of this shape.
    pub fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        self.optimizer.slot_shape(slot, shape)
    }

    /// The state arrays of parameter `index`, in the order of [`Updater::slots`].
    pub fn state(&self, index: usize) -> &[Vec<f32>] {
        &self.state[index]
    }

    pub fn state_mut(&mut self, index: usize) -> &mut [Vec<f32>] {
        &mut self.state[index]
    }

    /// Applies optimizer step number `step` (from 1). Gradients are sums over `micro_batches`, averaged over ranks.
    ///
    /// # Errors
    /// A gradient that is not finite: nothing has been changed then. All ranks hold the same averaged gradients, so all
    /// of them see it in the same step.
    pub fn apply(
        &mut self,
        model: &mut dyn Model,
        reducer: &Reducer,
        step: u64,
        lr: f64,
        micro_batches: usize,
    ) -> Result<Updated> {
        let mean = 1.0 / micro_batches as f64;
        let shapes: Vec<Vec<usize>> = model.entries().iter().map(StateEntry::module_shape).collect();
        reducer.with_buckets(|buckets| {
            let slices: Vec<&[f32]> = buckets.iter().map(|b| &**b).collect();
            let gradient = |slot: Slot| &slices[slot.bucket][slot.offset..slot.offset + slot.len];
            // By parameter, so that the sum does not depend on the order of the buckets.
            let all = (0..shapes.len()).filter_map(|index| reducer.slot(index));
            let grad_norm = global_norm(all.map(gradient)) * mean;
            if !grad_norm.is_finite() {
                return Err(not_finite(step, grad_norm));
            }
            let clip = self.clip_norm.map_or(1.0, |max| clip_coefficient(grad_norm, max));
            let scale = clip * mean as f32;
            let (optimizer, state) = (&*self.optimizer, &mut self.state);
            model.edit(&mut |index, values| {
                let Some(slot) = reducer.slot(index) else { return };
                let mut arrays: Vec<&mut [f32]> = state[index].iter_mut().map(Vec::as_mut_slice).collect();
                optimizer.update(step, lr, scale, &shapes[index], values, gradient(slot), &mut arrays);
            });
            Ok(Updated { grad_norm })
        })
    }
}

fn not_finite(step: u64, norm: f64) -> Error {
    let message =
        format!("the gradient of step {step} is not finite (norm {norm}); nothing was updated or saved");
    Error::new(ExitCode::NonFinite, message)
        .hint("a lower learning rate, `train.clip_norm`, or a look at the data of this step usually helps")
}
