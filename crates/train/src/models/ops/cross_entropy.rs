//! Cross-entropy over class indices.

use super::{Flat, buffer, dims, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use kernels::cross_entropy;

/// `torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing)` with mean reduction: `logits` is
/// `[rows, classes]`, `targets` `[rows]`; returns `[1]`.
///
/// Panics in host memory if a target is not a class.
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, smoothing: f64) -> Tensor<1> {
    if !is_host(&logits.device()) {
        return composed(logits, targets, smoothing);
    }
    let [_, classes] = logits.dims();
    let targets = classes_of(targets, classes);
    if !logits.device().is_autodiff() {
        let logits = super::plain(logits);
        let loss = cross_entropy::forward(classes, values(&logits), &targets, smoothing, &mut [], threads());
        recycle(logits);
        return Tensor::from_primitive::<Flex>(tensor(vec![loss], [1]));
    }
    let (logits, node) = super::tracked(logits);
    let mut gradient = buffer(values(&logits).len());
    let loss =
        cross_entropy::forward(classes, values(&logits), &targets, smoothing, &mut gradient, threads());
    recycle(logits);
    let gradient = tensor(gradient, [targets.len(), classes]);
    record(CrossEntropyStep, [node], gradient, tensor(vec![loss], [1]))
}

/// Targets as the kernels take them.
///
/// Panics if one is not a class.
pub(super) fn classes_of(targets: Tensor<1, Int>, classes: usize) -> Vec<u32> {
    numbers_below(classes, targets)
        .unwrap_or_else(|target| panic!("target {target} is not one of the {classes} classes"))
}

/// Numbers of rows or classes as the kernels take them, or the first that is not below `bound`.
pub(super) fn numbers_below(bound: usize, numbers: Tensor<1, Int>) -> Result<Vec<u32>, i64> {
    let below = |number: i64| u32::try_from(number).ok().filter(|n| (*n as usize) < bound).ok_or(number);
    numbers.into_data().iter::<i64>().map(below).collect()
}

/// `(1 - s) * nll + s * mean over classes of -log p`, averaged over rows, from Burn's operations.
fn composed(logits: Tensor<2>, targets: Tensor<1, Int>, smoothing: f64) -> Tensor<1> {
    let [rows, _] = logits.dims();
    let log_p = log_softmax(logits, 1);
    let nll = log_p.clone().gather(1, targets.reshape([rows, 1])).mean().neg();
    if smoothing == 0.0 {
        return nll;
    }
    nll * (1.0 - smoothing) - log_p.mean() * smoothing
}

#[derive(Debug)]
struct CrossEntropyStep;

impl Backward<Flex, 1> for CrossEntropyStep {
    /// The gradient of the loss by the logits.
    type State = Flat;

    fn backward(self, ops: Ops<Flat, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let factor = values(&dy)[0];
        let gradient = match factor {
            1.0 => ops.state.clone(),
            _ => {
                let scaled = values(&ops.state).iter().map(|g| g * factor).collect();
                tensor(scaled, dims(&ops.state))
            }
        };
        register(grads, &ops, [gradient]);
    }
}

#[cfg(test)]
#[path = "cross_entropy_tests.rs"]
mod tests;
