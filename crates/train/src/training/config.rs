//! `[train]`: loss, accumulation, clipping, evaluation.

use super::{BufferSync, Details, EarlyStop, Mixing, OnResize, Position};
use crate::optim::Schedule;
use crate::tasks::{AnyTask, Loss, Own, StandardLoss, StandardTask};
use base::display::count;
use checkpoint::{Every, OnPreempt, RankBy};
use data::{FieldFacts, FieldKind, LoaderConfig};
use ddp::device::Precision;
use ddp::{HookSource, ReducerConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{EverySteps, Fields, choice};
use std::sync::Arc;

/// `[train]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct TrainConfig {
    /// Loss to minimise.
    pub loss: LossChoice,
    /// Label smoothing; only with `cross-entropy`. Default 0.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub label_smoothing: Option<f64>,
    /// Mixup (Zhang et al. 2018) of training images of one class each, with this `alpha`, as torchvision's `MixUp`: each image
    /// of a micro-batch is mixed with the one before it, and the loss is that with the mixed labels (cross-entropy, or by
    /// weight that of `[loss]`). Training accuracy counts the label with the larger weight.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub mixup: Option<f64>,
    /// CutMix (Yun et al. 2019) with this `alpha`, as torchvision's `CutMix`: a part of each image comes from the one before
    /// it. With `mixup` too, each micro-batch takes either with the same probability.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub cutmix: Option<f64>,
    /// Micro-batches per optimizer step, without synchronisation between them. The gradient is the mean over the
    /// samples of the step, so a short micro-batch at the end of an epoch weighs less.
    #[default = 1]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub accumulate: usize,
    /// Largest global L2 norm of the gradients.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub clip_norm: Option<f64>,
    /// Ends the run after this many optimizer steps, in mid-epoch too, with an evaluation. A larger value continues it
    /// there.
    #[schemars(range(min = 1))]
    pub max_steps: Option<u64>,
    /// Ends the run, saved, after this many epochs, while learning-rate schedules remain those of all `epochs`. A larger value, or
    /// none, continues it, with the same results as without a pause.
    #[schemars(range(min = 1), extend("x-changes-results" = false))]
    pub stop_after: Option<u64>,
    /// Epochs between evaluations; 0 is never. Otherwise the last epoch has one, too; if it is not due, it counts for neither `[early_stop]`
    /// nor `reduce-on-plateau`.
    #[default = 1]
    pub eval_every: u64,
    /// How ranks synchronise running state of the model, such as batch-norm statistics, which each rank computes from its
    /// own samples.
    pub buffers: BufferSync,
    /// What to do when the run resumes with another number of processes.
    #[schemars(extend("x-changes-results" = false))]
    pub on_resize: OnResize,
}

choice! {
    /// Loss to minimise.
    LossChoice:
    /// `cross-entropy` for classes and tokens, `mse` for numbers.
    Auto = "auto",
    /// `torch.nn.functional.cross_entropy`.
    CrossEntropy = "cross-entropy",
    /// `torch.nn.functional.mse_loss`.
    Mse = "mse",
}

impl TrainConfig {
    /// Reads `[train]` and chooses the loss for the data set's targets, as far as they are known. The loss is `None`
    /// after a problem, or if another table of the spec has one.
    pub fn read(
        fields: &mut Fields<'_>,
        target: Option<&FieldFacts>,
        own: &Own,
    ) -> (Option<StandardLoss>, Self) {
        let config: Self = fields.config();
        if let Some(table) = own.replaces_loss() {
            let why = format!("with `{table}`, which has the loss");
            // A resolved spec has `auto`.
            if config.loss != LossChoice::Auto {
                fields.misplaced(&["loss"], &why);
            }
            fields.misplaced(&["label_smoothing"], &why);
            return (None, config);
        }
        let loss = config.choose_loss(target, own.standard_task());
        match &loss {
            Err(why) => fields.problem("loss", why),
            Ok(StandardLoss::Mse) if config.label_smoothing.is_some() => {
                let why = "label smoothing requires cross-entropy; the loss is mse";
                fields.problem_with_key("label_smoothing", why);
            }
            Ok(StandardLoss::CrossEntropy { label_smoothing }) if !fields.has("label_smoothing") => {
                fields.note_resolved("label_smoothing", *label_smoothing);
            }
            Ok(_) => {}
        }
        (loss.ok(), config)
    }

    /// How images are mixed; `None` if they are not.
    pub fn mixing(&self) -> Option<Mixing> {
        let Self { mixup, cutmix, .. } = *self;
        (mixup.is_some() || cutmix.is_some()).then_some(Mixing { mixup, cutmix })
    }

    /// Targets unknown before the data is read are those of the named task, else classes; [`Loss::fits`] checks this later.
    fn choose_loss(
        &self,
        target: Option<&FieldFacts>,
        task: Option<StandardTask>,
    ) -> Result<StandardLoss, String> {
        let numbers = match target {
            Some(target) => target.kind == FieldKind::Float,
            None => task.is_some_and(StandardTask::has_numbers),
        };
        let loss = match self.loss {
            LossChoice::Mse => StandardLoss::Mse,
            LossChoice::Auto if numbers => StandardLoss::Mse,
            LossChoice::Auto | LossChoice::CrossEntropy => {
                StandardLoss::CrossEntropy { label_smoothing: self.label_smoothing.unwrap_or(0.0) }
            }
        };
        match (target, task) {
            (Some(target), _) => {
                loss.fits(target).map_err(|e| format!("{}; {}", e.message, e.hint.unwrap_or_default()))?;
            }
            (None, Some(task)) => task.has_loss(loss)?,
            (None, None) => {}
        }
        Ok(loss)
    }
}

/// All settings of the training loop.
#[derive(Clone)]
pub struct TrainSettings {
    /// Seed of sample order, augmentation, mixing and dropout.
    pub seed: u64,
    /// `u64::MAX` where only `max_steps` ends the run.
    pub epochs: u64,
    /// Type of the forward and backward passes; with f16 the loss is scaled.
    pub precision: Precision,
    /// Order of the samples, and how batches are assembled.
    pub loader: LoaderConfig,
    /// What the run minimises and measures.
    pub task: Arc<dyn AnyTask>,
    /// The `[train]` table.
    pub train: TrainConfig,
    /// When to end without improvement; `None`: never.
    pub early_stop: Option<EarlyStop>,
    /// Base learning rate, which the schedule scales.
    pub lr: f64,
    /// How the learning rate changes during the run.
    pub schedule: Schedule,
    /// How gradients are packed into buckets and averaged.
    pub reducer: ReducerConfig,
    /// Replaces the plain all-reduce of gradients; `None`: not replaced.
    pub comm_hook: Option<HookSource>,
    /// How often to save a checkpoint.
    pub save_every: Every,
    /// What ranks checkpoints, if the best are kept: an epoch that is the best so far is saved.
    pub best: Option<RankBy>,
    /// Whether a run that is asked to stop saves a checkpoint before it does.
    pub on_preempt: OnPreempt,
    /// Optimizer steps per step event.
    pub log_every: u64,
    /// What evaluations collect in addition to the metrics.
    pub details: Details,
    /// Steps whose inputs, gradients and state are digested.
    pub digests: EverySteps,
    /// Steps after which all ranks compare digests of their state.
    pub check_replicas: EverySteps,
}

impl TrainSettings {
    /// Whether optimizer step `step` has a step event.
    pub fn logs(&self, step: u64) -> bool {
        step.is_multiple_of(self.log_every.max(1))
    }

    /// Epochs of the whole run, for messages: where only `max_steps` ends it, as many as that takes from this position on.
    pub fn all_epochs(&self, position: &Position, samples: usize) -> u64 {
        let by_steps = || position.epochs_of(self.train.max_steps, samples, self.loader.drop_last);
        Some(self.epochs).filter(|epochs| *epochs != u64::MAX).unwrap_or_else(by_steps)
    }

    /// The epoch of a position, from 1: the one that continues there, or the last one of a complete run.
    pub fn epoch_at(&self, position: &Position) -> u64 {
        let ended = self.is_over(position) && position.step_in_epoch == 0;
        position.epoch + u64::from(!ended)
    }

    /// Whether the run is complete.
    pub fn is_over(&self, position: &Position) -> bool {
        position.is_over(self.epochs, self.train.max_steps) || self.ends_early(position).is_some()
    }

    /// Why the run ends before its epochs and steps are done; `None` if it continues.
    pub fn ends_early(&self, position: &Position) -> Option<String> {
        let here = self.between_epochs(position)?;
        let stopped = self.early_stop.as_ref().and_then(|rule| rule.ends(here.early_stop.as_ref()));
        stopped.or_else(|| self.pauses(here))
    }

    /// Whether `train.stop_after` ends the run here, with epochs left.
    pub fn is_paused(&self, position: &Position) -> bool {
        self.between_epochs(position).is_some_and(|here| self.pauses(here).is_some())
    }

    /// A position before an epoch that is to be trained.
    fn between_epochs<'a>(&self, position: &'a Position) -> Option<&'a Position> {
        Some(position).filter(|p| p.step_in_epoch == 0 && !p.is_over(self.epochs, self.train.max_steps))
    }

    /// Why a run that has more epochs ends at this position, the end of an epoch.
    fn pauses(&self, here: &Position) -> Option<String> {
        let after = self.train.stop_after.filter(|after| here.epoch >= *after)?;
        let all = if self.epochs == u64::MAX { String::new() } else { format!(" of {}", self.epochs) };
        Some(format!("it was to end after {}{all}", count(here.epoch.min(after) as usize, "epoch")))
    }
}
