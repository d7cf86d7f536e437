//! Helpers for the tests of this module.

use super::schedule::{self, Schedule};
use super::{Optimizer, OptimizerPlan, standard_kinds};
use spec::Fields;
pub use spec::testing::read;

/// Reads an `[optimizer]` table.
pub fn optimizer(fields: &mut Fields<'_>) -> Option<OptimizerPlan> {
    OptimizerPlan::configure(fields, standard_kinds().into_iter())
}

/// The optimizer of a table without problems.
pub fn plan(spec: &str) -> OptimizerPlan {
    let (plan, problems) = read(spec, optimizer);
    assert_eq!(problems, "", "{spec}");
    plan.expect("a known name")
}

/// Reads the `[scheduler]` tables of a spec.
pub fn scheduler(root: &mut Fields<'_>) -> Schedule {
    Schedule::configure(root, schedule::standard_kinds().into_iter())
}

/// The schedule of a spec without problems.
pub fn schedule(spec: &str) -> Schedule {
    let (schedule, problems) = read(spec, scheduler);
    assert_eq!(problems, "", "{spec}");
    schedule
}

/// The gradient of element `i` at step `t`, computed in f32 as in the PyTorch script.
pub fn gradient(i: usize, t: u64) -> f32 {
    ((0.7 * i as f64 + 0.3 * t as f64).sin() * (1.0 + 0.1 * i as f64)) as f32
}

pub fn start(i: usize) -> f32 {
    (i as f64).cos() as f32
}

/// Twenty steps on six parameters of this shape. Gradients are passed doubled, with a `scale` of one half.
pub fn twenty_steps(optimizer: &dyn Optimizer, lr: f64, shape: &[usize]) -> Vec<f32> {
    let mut param: Vec<f32> = (0..6).map(start).collect();
    let slots = 0..optimizer.slots().len();
    let mut state: Vec<Vec<f32>> =
        slots.map(|slot| vec![0.0; optimizer.slot_shape(slot, shape).iter().product()]).collect();
    for t in 1..=20 {
        let grad: Vec<f32> = (0..6).map(|i| 2.0 * gradient(i, t)).collect();
        let mut state: Vec<&mut [f32]> = state.iter_mut().map(Vec::as_mut_slice).collect();
        optimizer.update(t, lr, 0.5, shape, &mut param, &grad, &mut state);
    }
    param
}
