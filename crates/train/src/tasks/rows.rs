//! The standard task: compares the rows of outputs of any model with the targets.

use super::{AnyTask, Batch, Lighter, Loss, Metric, MetricFacts, StepContext, StepOutput};
use crate::models::{AnyNet, Target, cross_entropy};
use base::error::Result;
use burn::tensor::Tensor;
use std::sync::Arc;

/// Classification, regression and language modelling: by the loss, and by what the targets are.
pub(super) struct Rows {
    pub loss: Arc<dyn Loss>,
    /// The loss is cross-entropy with label smoothing.
    pub smoothed: bool,
    /// By name.
    pub metrics: Vec<(String, Arc<dyn Metric>)>,
}

impl AnyTask for Rows {
    fn metrics(&self) -> Vec<MetricFacts> {
        let facts = |(name, metric): &(String, Arc<dyn Metric>)| MetricFacts {
            name: name.clone(),
            prefers_larger: metric.prefers_larger(),
        };
        self.metrics.iter().map(facts).collect()
    }

    fn step(&self, net: &AnyNet, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let outputs = net.forward(batch.input);
        let loss = mixed_loss(&*self.loss, outputs.clone(), batch.target.clone(), context.lighter.clone());
        let target = batch.target.without_autodiff();
        let mut output = StepOutput::of_rows(loss, outputs.clone());
        // Of sequences, whose perplexity is that of the plain loss.
        if self.smoothed && target.shape().len() > 1 {
            let labels = target.clone().flat_index();
            output.unsmoothed = Some(cross_entropy(outputs.clone().inner(), labels, 0.0));
        }
        for (name, metric) in &self.metrics {
            let [numerator, denominator] = metric.measure(outputs.clone().inner(), target.clone());
            output = output.metric(name, numerator, denominator);
        }
        Ok(output)
    }
}

/// The loss of a mixed batch: against either label, by weight. It equals `torch.nn.functional.cross_entropy` with the mixed
/// one-hot labels as probabilities, with label smoothing too, because that is linear in the probabilities.
pub fn mixed_loss(loss: &dyn Loss, output: Tensor<2>, target: Target, lighter: Option<Lighter>) -> Tensor<1> {
    let Some(Lighter { target: other, weight }) = lighter else { return loss.of(output, target) };
    loss.of(output.clone(), target) * (1.0 - weight) + loss.of(output, other) * weight
}
