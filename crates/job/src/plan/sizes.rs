//! Resources that the model needs: memory, disk, and traffic between processes.

use super::{Plan, World};
use ddp::{BucketCaps, BucketLayout};
use serde::Serialize;
use train::models::{Role, TensorFacts};
use train::optim::OptimizerPlan;

/// All values are f32. Bytes are per rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Elements of parameters (not of buffers).
    pub parameters: u64,
    /// Of these, elements of trainable parameters: neither the model nor `[[optimizer.group]]` freezes them.
    pub trainable: u64,
    /// Elements of buffers, such as batch-norm statistics.
    pub buffers: u64,
    /// Parameters and buffers.
    pub model_bytes: u64,
    /// Gradients of the trainable parameters.
    pub gradient_bytes: u64,
    /// State of the optimizer for the trainable parameters.
    pub optimizer_bytes: u64,
    /// The average of the weights (`[ema]`): that of all tensors but buffers that are no statistics.
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
        let tensors = self.model.source.tensors_for(&self.dataset.facts).ok()?;
        let layout = BucketLayout::new(&gradients(&tensors, &self.optimizer), self.reducer.bucket_caps());
        Some(layout.buckets.iter().map(|elements| in_bytes(*elements as u64)).collect())
    }
}

/// Elements of each tensor's gradient; `None` for tensors that are not trained.
fn gradients(tensors: &[TensorFacts], optimizer: &OptimizerPlan) -> Vec<Option<usize>> {
    tensors.iter().map(|t| is_trained(t, optimizer).then(|| numel(t))).collect()
}

fn is_trained(t: &TensorFacts, optimizer: &OptimizerPlan) -> bool {
    t.role == Role::Parameter && optimizer.rule_of(t.names()).is_some()
}

/// No machine has as many; a spec may ask for them.
fn numel(t: &TensorFacts) -> usize {
    t.shape.iter().fold(1, |n: usize, size| n.saturating_mul(*size))
}

fn in_bytes(elements: u64) -> u64 {
    elements.saturating_mul(BYTES)
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

impl Sizes {
    pub(super) fn new(
        tensors: &[TensorFacts],
        optimizer: &OptimizerPlan,
        averages: bool,
        caps: BucketCaps,
        world: &World,
    ) -> Self {
        let is_trained = |t: &TensorFacts| is_trained(t, optimizer);
        let total = |meant: &dyn Fn(&TensorFacts) -> bool| -> u64 {
            sum(tensors.iter().filter(|t| meant(t)).map(|t| numel(t) as u64))
        };
        let (trainable, buffers) = (total(&is_trained), total(&|t| t.role.is_buffer()));
        let parameters = total(&|t| !t.role.is_buffer());
        let rules = optimizer.rules();
        let state_of =
            |t: &TensorFacts| optimizer.rule_of(t.names()).map(|rule| rules[rule].state_len(&t.shape));
        let state = tensors.iter().filter(|t| is_trained(t)).filter_map(state_of);
        let state = in_bytes(sum(state.map(|len| len as u64)));
        let gradients = gradients(tensors, optimizer);
        let (model_bytes, gradient_bytes) =
            (in_bytes(parameters.saturating_add(buffers)), in_bytes(trainable));
        let average_bytes = averages.then(|| in_bytes(total(&|t| t.role != Role::Buffer)));
        let w = world.world_size as u128;
        let all_reduced = 2 * (w - 1) * u128::from(gradient_bytes) / w;
        let copies = if averages { model_bytes } else { 0 };
        Self {
            parameters,
            trainable,
            buffers,
            model_bytes,
            gradient_bytes,
            optimizer_bytes: state,
            average_bytes,
            checkpoint_bytes: sum([model_bytes, state, copies].into_iter()),
            buckets: BucketLayout::new(&gradients, caps).buckets.len(),
            all_reduce_bytes_per_step: u64::try_from(all_reduced).unwrap_or(u64::MAX),
        }
    }
}
