//! The standard task: compares the rows of outputs of any model with the targets.

use super::{AnyTask, Batch, Lighter, Loss, Metric, MetricFacts, StepContext, StepOutput, Term};
use crate::models::{
    AnyNet, Decoder, Target, TrainedRows, cross_entropy, decoder, has_many_logits, head_cross_entropy, logits,
};
use base::error::{Error, Result};
use burn::tensor::Tensor;
use std::sync::Arc;

/// Classification, regression and language modelling: by the loss, and by what the targets are.
pub(super) struct Rows {
    pub loss: Arc<dyn Loss>,
    /// The label smoothing, if the loss is cross-entropy.
    pub smoothing: Option<f64>,
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
        let sequences = batch.target.shape().len() > 1;
        let counted = batch.target.trained().map(TrainedRows::count);
        let device = batch.target.device();
        // A language model's last layer is the largest, and only for the rows that are trained.
        let decoder = decoder(net);
        let rows = match decoder {
            Some(decoder) => decoder.hidden(batch.input),
            None => net.forward(batch.input),
        };
        let (rows, target) = match batch.target.trained() {
            None => (rows, batch.target),
            Some(trained) => (trained.select(rows), trained.target(&device)),
        };
        let head = decoder.map(Decoder::head);
        let outputs = match (head, self.smoothing) {
            (Some(head), Some(smoothing)) if self.metrics.is_empty() && has_many_logits(&rows, &head) => {
                let count = rows.dims()[0];
                let (loss, sums) = head_cross_entropy(rows, head, target.flat_index(), smoothing);
                let mut output = StepOutput::scored(loss, sums, count);
                output.by_count = counted.is_some();
                if smoothing > 0.0 {
                    let mean = (sums.unsmoothed / count as f64) as f32;
                    output.unsmoothed =
                        Some(Tensor::from_floats([mean], &output.loss.device().without_autodiff()));
                }
                return Ok(output);
            }
            (Some(head), _) => logits(rows, head),
            (None, _) => rows,
        };
        if counted.is_some() && context.lighter.is_some() {
            return Err(Error::spec("images are mixed, and the data set leaves targets out")
                .hint("remove `mixup` and `cutmix` from `[train]`"));
        }
        let loss = mixed_loss(&*self.loss, outputs.clone(), target.clone(), context.lighter.clone());
        let target = target.without_autodiff();
        let mut output = StepOutput::of_rows(loss, outputs.clone());
        output.by_count = counted.is_some();
        // Of sequences, whose perplexity is that of the plain loss.
        if self.smoothing.is_some_and(|smoothing| smoothing > 0.0) && sequences {
            let labels = target.clone().flat_index();
            output.unsmoothed = Some(cross_entropy(outputs.clone().inner(), labels, 0.0));
        }
        for (name, metric) in &self.metrics {
            let [numerator, denominator] = match counted {
                Some(0) => [Term::Known(0.0), Term::Known(0.0)],
                _ => metric.measure(outputs.clone().inner(), target.clone()),
            };
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
