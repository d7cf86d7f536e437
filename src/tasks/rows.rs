//! The standard task: compares the rows of outputs of any model with the targets.

use super::{AnyTask, Batch, Loss, Metric, MetricFacts, StepContext, StepOutput};
use crate::error::Result;
use crate::models::AnyNet;
use std::sync::Arc;

/// Classification, regression and language modelling: by the loss, and by what the targets are.
pub(super) struct Rows {
    pub loss: Arc<dyn Loss>,
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

    fn step(&self, net: &AnyNet, batch: Batch, _: &StepContext<'_>) -> Result<StepOutput> {
        let outputs = net.forward(batch.input);
        let loss = self.loss.of(outputs.clone(), batch.target.clone());
        let target = batch.target.without_autodiff();
        let mut output = StepOutput::of_rows(loss, outputs.clone());
        for (name, metric) in &self.metrics {
            let [numerator, denominator] = metric.measure(outputs.clone().inner(), target.clone());
            output = output.metric(name, numerator, denominator);
        }
        Ok(output)
    }
}
