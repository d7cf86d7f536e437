//! Named metrics from the sums of an epoch or an evaluation, and the metrics file of a run.

use super::Evaluation;
use super::messages::warn;
use super::parts::RankParts;
use base::error::{Error, Result};
use data::{DataFacts, Dataset, FieldKind};
use record::{Assertion, ExistingMetrics, Metrics, MetricsWriter, PerSample, Top5};
use spec::did_you_mean;
use std::path::Path;
use train::tasks::{StandardLoss, TaskPlan};
use train::training::{Position, Sums, TrainSettings};

/// The loss of tokens in bits for each byte of text, which does not depend on what a token is.
const BITS_PER_BYTE: &str = "bits_per_byte";

/// The metrics to report besides the loss and the task's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reported {
    /// The metrics of the targets' kind.
    pub standard: bool,
    pub top5: bool,
    /// The loss is the cross-entropy of tokens: `perplexity`, and the outputs are scores of the tokens that follow.
    pub tokens: bool,
    /// The mean number of bytes of text that a token of the evaluated split stands for, if that is known: `bits_per_byte`.
    pub bytes_per_token: Option<f64>,
    /// What a sample consists of.
    pub per_sample: PerSample,
}

impl Reported {
    /// The metrics of a job.
    pub fn new(task: &TaskPlan, top5: Top5, facts: &DataFacts) -> Self {
        let classes = match facts.target.as_ref().map(|t| t.kind) {
            Some(FieldKind::Index(classes)) => classes,
            _ => 0,
        };
        let cross_entropy = matches!(task.standard(), Some(StandardLoss::CrossEntropy { .. }));
        let tokens = facts.target.as_ref().filter(|target| cross_entropy && !target.shape.is_empty());
        Self {
            standard: task.own().is_none(),
            top5: classes > 0 && top5.applies(classes),
            tokens: tokens.is_some(),
            bytes_per_token: None,
            per_sample: PerSample {
                tokens: tokens.map(|target| target.shape.iter().product::<usize>() as f64),
                ..PerSample::default()
            },
        }
    }

    /// With the floating-point operations of a sample, of a model of tokens, and `peak`: how many all ranks can do in a second.
    pub fn with_flops(mut self, flops: Option<f64>, peak: Option<f64>) -> Self {
        self.per_sample.flops = flops.filter(|_| self.tokens);
        self.per_sample.mfu = self.per_sample.flops.zip(peak).map(|(flops, peak)| flops / peak);
        self
    }

    /// For the metrics of this split.
    ///
    /// # Errors
    /// The samples can't be read.
    pub fn of(self, dataset: &dyn Dataset) -> Result<Self> {
        let bytes_per_token = if self.tokens { dataset.bytes_per_target()? } else { None };
        Ok(Self { bytes_per_token, ..self })
    }
}

/// The loss, the metrics for the targets' kind (accuracies for classes, errors for floats), and those of the task.
pub fn named(sums: &Sums, reported: Reported) -> Vec<(&str, f64)> {
    let mut metrics = vec![("loss", sums.mean_loss())];
    match reported.standard {
        true if sums.elements > 0.0 => {
            metrics.extend([("mae", sums.mae()), ("mse", sums.squared / sums.elements), ("r2", sums.r2())]);
        }
        true => {
            metrics.push(("accuracy", sums.accuracy()));
            metrics.extend(reported.top5.then(|| ("top5", sums.top5())));
            metrics.extend(reported.tokens.then(|| ("perplexity", sums.perplexity())));
            let bits = |bytes| (BITS_PER_BYTE, sums.perplexity().log2() / bytes);
            metrics.extend(reported.bytes_per_token.map(bits));
        }
        false => {}
    }
    metrics
        .extend(sums.ratios.iter().map(|(name, ratio)| (name.as_str(), ratio.numerator / ratio.denominator)));
    metrics
}

/// The names that [`named`] may give for a job, as far as its data are known.
pub fn names(parts: &RankParts<'_>) -> Vec<String> {
    let facts = parts.data.facts;
    let kind = facts.target.as_ref().map(|target| target.kind);
    let reported = Reported::new(parts.task, parts.metrics.top5, facts);
    let mut names = vec!["loss"];
    if reported.standard && !matches!(kind, Some(FieldKind::Index(_))) {
        names.extend(["mae", "mse", "r2"]);
    }
    if reported.standard && kind != Some(FieldKind::Float) {
        names.push("accuracy");
        names.extend((reported.top5 || kind.is_none()).then_some("top5"));
        if reported.tokens || kind.is_none() {
            names.extend(["perplexity", BITS_PER_BYTE]);
        }
    }
    let own = parts.task.metrics().into_iter().map(|metric| metric.name.to_string());
    names.into_iter().map(str::to_owned).chain(own).collect()
}

/// Checks before the run that it measures the metrics of its assertions, `split.name`.
///
/// # Errors
/// The name of a metric is unknown, or the metric is never measured (exit code 2).
pub fn measured(parts: &RankParts<'_>, assertions: &[Assertion]) -> Result<()> {
    let names = names(parts);
    let known =
        ["val", "train"].iter().flat_map(|split| names.iter().map(move |name| format!("{split}.{name}")));
    // The training split's samples are not read for it.
    let known: Vec<String> = known.filter(|name| *name != format!("train.{BITS_PER_BYTE}")).collect();
    for Assertion { metric, .. } in assertions {
        let wrong = |why: &str| Error::usage(format!("--assert: `{metric}` {why}"));
        if !known.contains(metric) {
            let others = did_you_mean(metric, known.iter().map(String::as_str));
            return Err(wrong(&format!("is not a metric of this job{others}")));
        }
        if let Some(why) = parts.never_evaluated().filter(|_| metric.starts_with("val.")) {
            return Err(wrong(&format!("is never measured: {why}")));
        }
    }
    Ok(())
}

/// The same for an event.
pub fn metrics(sums: &Sums, reported: Reported) -> Metrics {
    let mut metrics = Metrics::new(sums.mean_loss()).samples(sums.samples as u64);
    for (name, value) in named(sums, reported) {
        metrics = metrics.with(name, value);
    }
    metrics
}

/// The same as an [`Evaluation`].
pub fn evaluation(sums: &Sums, reported: Reported) -> Evaluation {
    let metrics = named(sums, reported).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Evaluation { metrics, samples: sums.samples as u64, classes: None, of: None, warnings: Vec::new() }
}

/// The run's metrics up to `position`, from its `own` checkpoint or another one. Prints a warning about invalid lines.
pub fn metrics_until(
    position: &Position,
    own: bool,
    settings: &TrainSettings,
    out_dir: &Path,
) -> Result<(MetricsWriter, ExistingMetrics)> {
    let mut metrics = MetricsWriter::open(&out_dir.join("metrics.jsonl"))?;
    let found = metrics.truncate_after(position.step, epochs_until(position, settings))?;
    found.warnings(position.step, settings.log_every.max(1), own).iter().for_each(|what| warn(what));
    Ok((metrics, found))
}

/// The epochs whose lines stay.
pub fn epochs_until(position: &Position, settings: &TrainSettings) -> u64 {
    // If `max_steps` ended an epoch early and there are no more steps, the epoch's line stays.
    let cut = position.step_in_epoch > 0 && settings.is_over(position);
    position.epoch + u64::from(cut)
}
