//! Trains the ranks of a plan in this process, where a test sees each step.

use ddp_run::Result;
use ddp_run::hook::ProcessGroup;
use ddp_run::testing::{
    BatchAlgebra, Compute, HookState, Model, Observer, Plan, Position, RunTensors, StepReport, Sums, Trainer,
    TrainerParts, Updater,
};
use std::sync::Arc;
use std::time::Duration;

struct EachStep<F>(F);

impl<F: FnMut(&Position, &StepReport)> Observer for EachStep<F> {
    fn epoch_begins(&mut self, _: &Position, _: &BatchAlgebra) {}
    fn step(&mut self, position: &Position, report: &StepReport) {
        (self.0)(position, report);
    }
    fn epoch(&mut self, _: &Position, _: &Sums, _: Option<&Sums>, _: Duration, _: Duration, _: f64) {}
    fn save(&mut self, _: &Position, _: RunTensors<'_>, _: Option<HookState>, _: f64) -> Result<()> {
        Ok(())
    }
}

/// Trains one rank from the start to the end and returns its model, which `prepare` gets before. `order` is that of the
/// buckets; `None` learns it.
pub fn train_steps(
    plan: &Plan,
    group: Arc<dyn ProcessGroup>,
    on: &Compute,
    order: Option<&[usize]>,
    prepare: impl FnOnce(&mut dyn Model),
    step: impl FnMut(&Position, &StepReport),
) -> Box<dyn Model> {
    let splits = plan.dataset.source.open().unwrap();
    let mut model = plan.model.source.build(&plan.dataset.facts, plan.seed, on).unwrap();
    prepare(&mut *model);
    let updater = Updater::new(&plan.optimizer, plan.train.clip_norm, model.entries(), &on.device);
    let fresh = Position::new(plan.batching(group.world_size()));
    let position = Position { bucket_order: order.map(<[usize]>::to_vec), ..fresh };
    let parts = TrainerParts {
        group,
        splits,
        model,
        updater,
        average: None,
        position,
        best: None,
        stop: &|| false,
        observer: &mut EachStep(step),
    };
    let mut trainer = Trainer::new(plan.settings(), parts).unwrap();
    trainer.run().unwrap();
    trainer.into_model()
}
