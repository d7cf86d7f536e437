//! A plan with what only the opened data set tells.

use super::{Plan, Sizes};
use data::DataFacts;
use train::models::TensorFacts;
use train::training::Batching;

impl Plan {
    /// This plan for the opened data: its facts, and the model's tensors for them, with steps grouped by `batching`. Values and hash remain
    /// those of the spec.
    pub fn with_data(&self, facts: DataFacts, tensors: &[TensorFacts], batching: &Batching) -> Plan {
        let mut plan = self.clone();
        if let Some(samples) = facts.train {
            plan.batch = batching.algebra(samples, plan.loader.drop_last);
        }
        plan.dataset.facts = facts;
        let caps = plan.reducer.bucket_caps();
        plan.sizes = Some(Sizes::new(tensors, &plan.optimizer, plan.ema.is_some(), caps, &plan.world));
        plan
    }

    /// Samples that a run trains on in all, with those that are repeated; `None` if this depends on the data.
    pub fn total_samples(&self) -> Option<u64> {
        let (steps, per_epoch) = (self.total_steps()?, self.batch.steps_per_epoch?);
        let world = self.world.world_size;
        let of_epoch = self.batch.taken_per_rank(world).saturating_mul(world) as u64;
        let (epochs, rest) = match per_epoch as u64 {
            0 => return Some(0),
            each => (steps / each, steps % each),
        };
        // The last step of an epoch may be smaller.
        let rest = rest.saturating_mul(self.batch.global_batch as u64);
        Some(epochs.saturating_mul(of_epoch).saturating_add(rest))
    }
}
