//! Resources that the model needs: memory, disk, and traffic between processes.

use super::{Plan, World};
use crate::ddp::{BucketCaps, BucketLayout};
use crate::models::{Role, TensorFacts};
use crate::optim::OptimizerPlan;
use serde::Serialize;

/// All values are f32. Bytes are per rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Elements of parameters (not of buffers).
    pub parameters: u64,
    /// Of these, elements of trainable parameters: neither the model nor `[[optimizer.group]]` freezes them.
    pub trainable: u64,
    /// Elements of buffers, such as batch-norm statistics.
    pub buffers: u64,
    pub model_bytes: u64,
    pub gradient_bytes: u64,
    pub optimizer_bytes: u64,
    /// The average of the weights (`[ema]`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_bytes: Option<u64>,
    /// Tensors of one checkpoint.
    pub checkpoint_bytes: u64,
    /// Gradient buckets; each is one all-reduce per step.
    pub buckets: usize,
    /// Bytes sent by each rank per optimizer step with a ring: 2 (w - 1) / w of the gradients.
    pub all_reduce_bytes_per_step: u64,
}

const BYTES: u64 = size_of::<f32>() as u64;

impl Plan {
    /// Bytes of each gradient bucket, in the order in which the backward pass fills them, as long as no other order has been
    /// learnt; `None` if the model's size depends on data that has not been read.
    pub fn bucket_bytes(&self) -> Option<Vec<u64>> {
        let tensors = self.model.source.tensors()?;
        let layout = BucketLayout::new(&gradients(&tensors, &self.optimizer), self.reducer.bucket_caps());
        Some(layout.buckets.iter().map(|elements| *elements as u64 * BYTES).collect())
    }
}

/// Elements of each tensor's gradient; `None` for tensors that are not trained.
fn gradients(tensors: &[TensorFacts], optimizer: &OptimizerPlan) -> Vec<Option<usize>> {
    tensors.iter().map(|t| is_trained(t, optimizer).then(|| numel(t))).collect()
}

fn is_trained(t: &TensorFacts, optimizer: &OptimizerPlan) -> bool {
    t.role == Role::Parameter && optimizer.rule_of(t.names()).is_some()
}

fn numel(t: &TensorFacts) -> usize {
    t.shape.iter().product()
}

impl Sizes {
    pub(super) fn of(
        tensors: &[TensorFacts],
        optimizer: &OptimizerPlan,
        averages: bool,
        caps: BucketCaps,
        world: &World,
    ) -> Self {
        let is_trained = |t: &TensorFacts| is_trained(t, optimizer);
        let total = |meant: &dyn Fn(&TensorFacts) -> bool| -> u64 {
            tensors.iter().filter(|t| meant(t)).map(|t| numel(t) as u64).sum()
        };
        let (trainable, buffers) = (total(&is_trained), total(&|t| t.role.is_buffer()));
        let parameters = total(&|t| !t.role.is_buffer());
        let rules = optimizer.rules();
        let state_of =
            |t: &TensorFacts| optimizer.rule_of(t.names()).map(|rule| rules[rule].state_len(&t.shape));
        let state: u64 =
            tensors.iter().filter(|t| is_trained(t)).filter_map(state_of).map(|len| len as u64).sum();
        let gradients = gradients(tensors, optimizer);
        let w = world.world_size as u64;
        let model_bytes = (parameters + buffers) * BYTES;
        let average_bytes = averages.then_some(model_bytes);
        Self {
            parameters,
            trainable,
            buffers,
            model_bytes,
            gradient_bytes: trainable * BYTES,
            optimizer_bytes: state * BYTES,
            average_bytes,
            checkpoint_bytes: model_bytes + state * BYTES + average_bytes.unwrap_or(0),
            buckets: BucketLayout::new(&gradients, caps).buckets.len(),
            all_reduce_bytes_per_step: (2 * (w - 1) * trainable * BYTES) / w,
        }
    }
}
