//! Checks of combinations that can't work; each problem is reported at the value to change.

use super::{BatchAlgebra, World};
use base::display::count;
use base::error::Error;
use checkpoint::{CheckpointConfig, Every, OnPreempt, RankBy, StandardMetric};
use collectives::Backend;
use data::{DataFacts, FieldFacts, FieldKind};
use ddp::device::{DeviceSpec, Precision};
use record::{MetricsConfig, Top5};
use spec::Fields;
use train::models::TensorFacts;
use train::optim::{OptimizerPlan, Schedule};
use train::tasks::{MetricFacts, StandardLoss, StandardTask, TaskPlan};
use train::training::{Batching, TrainConfig};

pub(super) fn backend_and_device(root: &mut Fields<'_>, backend: Backend, device: DeviceSpec, world: &World) {
    if backend != Backend::Nccl {
        return;
    }
    let per_node = world.nproc_per_node;
    if matches!(device, DeviceSpec::Cpu | DeviceSpec::Wgpu(_)) {
        root.problem_with_hint(
            "backend",
            format!("nccl needs CUDA devices, but `device = \"{device}\"`"),
            "`backend = \"gloo\"` works with every device",
        );
    } else if let DeviceSpec::Cuda(Some(index)) = device
        && per_node > 1
    {
        let message = format!(
            "nccl needs a CUDA device for each of {per_node} processes, but `device` names only cuda:{index}"
        );
        root.problem_with_hint("backend", message, "`device = \"cuda\"` gives each process its own");
    }
}

/// Our CPU kernels are f32 only, and only CUDA has TF32.
pub(super) fn precision_and_device(root: &mut Fields<'_>, precision: Precision, device: DeviceSpec) {
    let fits = match (precision, device) {
        (Precision::F32, _) | (_, DeviceSpec::Auto | DeviceSpec::Cuda(_)) => true,
        (Precision::F16 | Precision::Bf16, DeviceSpec::Wgpu(_)) => true,
        (_, DeviceSpec::Cpu) | (Precision::Tf32, DeviceSpec::Wgpu(_)) => false,
    };
    if !fits {
        let message = format!("`device = \"{device}\"` does not support `{}`", precision.name());
        root.problem_with_hint("precision", message, "`precision = \"f32\"` works on every device");
    }
}

/// The loss scale multiplies a loss before its backward pass, and a step that runs that itself gives nothing to multiply.
pub(super) fn precision_and_task(root: &mut Fields<'_>, precision: Precision, task: Option<&TaskPlan>) {
    if let Some(name) =
        task.filter(|task| precision == Precision::F16 && task.runs_backward()).and_then(TaskPlan::own)
    {
        let message =
            format!("the task `{name}` runs its backward pass itself, so its loss can't be scaled for f16");
        root.problem_with_hint("precision", message, "`precision = \"bf16\"` needs no loss scale");
    }
}

/// Checks that each of a node's `processes` has its own device, unless the spec allows sharing.
pub(super) fn devices_suffice(
    device: DeviceSpec,
    processes: usize,
    devices: usize,
    share: bool,
) -> Result<(), Error> {
    let there = match device {
        // Without devices, `auto` is the CPU, which all processes share.
        DeviceSpec::Cpu => return Ok(()),
        DeviceSpec::Auto if devices == 0 => return Ok(()),
        DeviceSpec::Auto | DeviceSpec::Cuda(None) | DeviceSpec::Wgpu(None) => devices,
        DeviceSpec::Cuda(Some(index)) | DeviceSpec::Wgpu(Some(index)) => usize::from(index < devices),
    };
    if there > 0 && (share || processes <= there) {
        return Ok(());
    }
    if there == 0 {
        let what = format!("device `{device}` is missing: this machine has {devices} of this kind");
        return Err(Error::unavailable(what).hint("`device = \"cpu\"` computes on the CPU"));
    }
    let devices = count(there, "device");
    Err(Error::usage(format!(
        "{processes} processes on this machine need a device each, and it has {devices}"
    ))
    .hint("start as many processes as there are devices, or set `share_devices = true` in `[launch]`"))
}

/// Where the model's tensors are known before the data is read; else `job/worker/optimizer.rs` checks this.
pub(super) fn groups(root: &mut Fields<'_>, optimizer: &OptimizerPlan, tensors: Option<&[TensorFacts]>) {
    for misfit in tensors.map(|tensors| optimizer.misfits(tensors)).unwrap_or_default() {
        let path: Vec<&str> = misfit.path.iter().map(String::as_str).collect();
        root.problem_at(&path, misfit.message);
    }
}

pub(super) fn batches(root: &mut Fields<'_>, batch: &BatchAlgebra, batching: &Batching, drop_last: bool) {
    let (Some(samples), Some(per_rank)) = (batch.train_samples, batch.samples_per_rank) else { return };
    let micro = batch.micro_batches();
    let Batching { world: ranks, batch_size, accumulate, .. } = *batching;
    if samples == 0 {
        root.problem("dataset", "the split leaves no training samples");
    } else if micro == 0 && drop_last {
        let message = format!(
            "larger than the {per_rank} samples of each of {ranks} ranks; with `drop_last` an epoch would have no batch, found {batch_size}"
        );
        root.problem("batch_size", message);
    } else if accumulate as u64 > micro {
        let message =
            format!("more than the {micro} batches that a rank has in an epoch, found {accumulate}");
        root.problem_at(&["train", "accumulate"], message);
    }
}

/// A job that is requeued must save something, or it never makes progress.
pub(super) fn requeue(root: &mut Fields<'_>, requeue: bool, save_every: Every, on_preempt: OnPreempt) {
    if requeue && save_every == Every::Never && on_preempt == OnPreempt::Exit {
        let message = "a requeued job that saves nothing would start over each time: `save_every = \"never\"` and \
                       `checkpoint.on_preempt = \"exit\"`";
        root.problem_at(&["launch", "requeue"], message);
    }
}

/// Checks that checkpoints can be ranked by `best`, and resolves `keep_best`.
pub(super) fn ranking(
    fields: &mut Fields<'_>,
    config: &mut CheckpointConfig,
    facts: &DataFacts,
    eval_every: u64,
) {
    let unranked = never_measured(config.best, facts, eval_every);
    if let Some(why) = unranked.filter(|_| config.keep_best.is_some_and(|keep| keep > 0)) {
        fields.problem("keep_best", format!("needs `{}`, which is never measured: {why}", config.best));
    } else if let Some(why) = facts.target.as_ref().and_then(|target| unmeasured(config.best, target)) {
        fields.problem("best", why);
    }
    if config.keep_best.is_none() {
        config.keep_best = Some(usize::from(unranked.is_none()));
        fields.note_resolved("keep_best", i64::from(unranked.is_none()));
    }
}

/// Checks that the task measures the metric that `key` names, and completes it by the task's declaration. `None` after a
/// problem.
pub(super) fn metric(
    fields: &mut Fields<'_>,
    key: &str,
    metric: RankBy,
    task: &TaskPlan,
    target: Option<&FieldFacts>,
) -> Option<RankBy> {
    let measured = measured(task);
    let found = measured.iter().find(|known| known.name() == metric.name());
    if found.is_none() {
        let fits = |known: &&RankBy| target.is_none_or(|target| unmeasured(**known, target).is_none());
        fields.unknown_name(key, &measured.iter().filter(fits).map(|known| known.name()).collect::<Vec<_>>());
    }
    found.copied()
}

/// The metrics that a task may measure.
fn measured(task: &TaskPlan) -> Vec<RankBy> {
    let standard = StandardMetric::ALL.into_iter().filter(|metric| match metric {
        StandardMetric::ValLoss | StandardMetric::TrainLoss => true,
        StandardMetric::ValPerplexity => task.standard().is_some(),
        // A task may have metrics of these names.
        _ => task.own().is_none(),
    });
    let mut all: Vec<RankBy> = standard.map(RankBy::Standard).collect();
    for split in ["val", "train"] {
        let own =
            |metric: MetricFacts| RankBy::own(&format!("{split}.{}", metric.name), metric.prefers_larger);
        all.extend(task.metrics().into_iter().map(own));
    }
    all
}

/// Checks that the named task is for the data, as far as they are known; [`TaskPlan::fits`] checks this later.
pub(super) fn task(root: &mut Fields<'_>, task: Option<StandardTask>, facts: &DataFacts) {
    if let Some(Err(why)) = task.map(|task| task.fits(facts.input.as_ref(), facts.target.as_ref())) {
        root.problem_at(&["task", "name"], why);
    }
}

/// Mixup and cutmix mix images, and their labels by cross-entropy.
pub(super) fn mixing(root: &mut Fields<'_>, train: &TrainConfig, task: Option<&TaskPlan>, facts: &DataFacts) {
    let Some(mixing) = train.mixing() else { return };
    let why = match task {
        Some(task) if task.standard() == Some(StandardLoss::Mse) => {
            Some("requires cross-entropy; the loss is mse".to_owned())
        }
        Some(task) if task.own().is_some() => {
            Some("has no effect with `[task]`, which has the loss".to_owned())
        }
        _ => mixing.unfit(facts.input.as_ref(), facts.target.as_ref()),
    };
    for (key, set) in [("mixup", mixing.mixup), ("cutmix", mixing.cutmix)] {
        if let Some(why) = why.as_ref().filter(|_| set.is_some()) {
            root.problem_with_key_at(&["train", key], format!("`{key}` {why}"));
        }
    }
}

/// Checks that the metric of `[early_stop]` is measured.
pub(super) fn early_stop(fields: &mut Fields<'_>, metric: RankBy, facts: &DataFacts, eval_every: u64) {
    if let Some(why) = never_measured(metric, facts, eval_every) {
        fields.problem("patience", format!("needs `{metric}`, which is never measured: {why}"));
    } else if let Some(why) = facts.target.as_ref().and_then(|target| unmeasured(metric, target)) {
        fields.problem("metric", why);
    }
}

/// Checks that the metric of a schedule is measured, and completes it by the task's declaration.
pub(super) fn plateau(
    root: &mut Fields<'_>,
    schedule: &mut Schedule,
    task: Option<&TaskPlan>,
    facts: &DataFacts,
    eval_every: u64,
) {
    let (Some(rule), Some(task)) = (schedule.on_plateau(), task) else { return };
    let named = rule.metric;
    // It is in the last table, whose keys have been read.
    let mut last = 0;
    root.tables("scheduler", &mut |fields, index| {
        fields.ignore_rest();
        last = index;
    });
    root.tables("scheduler", &mut |fields, index| {
        fields.ignore_rest();
        if index != last {
            return;
        }
        let Some(metric) = metric(fields, "metric", named, task, facts.target.as_ref()) else { return };
        schedule.rank_by(metric);
        let never = never_measured(metric, facts, eval_every);
        let never = never.map(|why| format!("needs `{metric}`, which is never measured: {why}"));
        if let Some(why) =
            never.or_else(|| facts.target.as_ref().and_then(|target| unmeasured(metric, target)))
        {
            fields.problem(if fields.has("metric") { "metric" } else { "name" }, why);
        }
    });
}

/// Why a run never measures `metric`; `None` if it may.
pub(super) fn never_measured(metric: RankBy, facts: &DataFacts, eval_every: u64) -> Option<&'static str> {
    match metric.name().starts_with("train.") {
        true => None,
        false => never_evaluated(facts, eval_every),
    }
}

/// Why a run never measures the validation split; `None` if it may.
pub(super) fn never_evaluated(facts: &DataFacts, eval_every: u64) -> Option<&'static str> {
    // A data set that knows its size has no validation split if it reports `None` or 0.
    let none = facts.val == Some(0) || facts.val.is_none() && facts.train.is_some();
    match (none, eval_every) {
        (true, _) => Some("the data set has no validation split (`dataset.val_split`)"),
        (_, 0) => Some("`train.eval_every = 0` turns evaluation off"),
        _ => None,
    }
}

pub(super) fn map_location(fields: &mut Fields<'_>, config: &CheckpointConfig) {
    let device = |name: &str| DeviceSpec::parse(name).is_some_and(|device| device != DeviceSpec::Auto);
    let message = |name: &str| format!("not a device: `{name}`; expected `cpu`, `cuda:N` or `wgpu:N`");
    for (from, to) in config.map_location.iter().flatten() {
        if !device(from) {
            fields.problem_with_key_at(&["map_location", from], message(from));
        }
        if !device(to) {
            fields.problem_at(&["map_location", from], message(to));
        }
    }
}

/// Checks whether top-5 accuracy applies to the data set's targets, and resolves `auto` as far as they are known.
pub(super) fn top5(fields: &mut Fields<'_>, config: &mut MetricsConfig, target: Option<&FieldFacts>) {
    let Some(target) = target else { return };
    match target.kind {
        FieldKind::Index(classes) => {
            if config.top5 == Top5(Some(true)) && classes <= 5 {
                fields.problem("top5", format!("top-5 accuracy of {classes} classes is always 1"));
            }
            config.top5 = Top5(Some(config.top5.applies(classes)));
        }
        FieldKind::Float => {
            if config.top5 == Top5(Some(true)) {
                fields.problem(
                    "top5",
                    "top-5 accuracy needs class targets; the data set's targets are numbers",
                );
            }
            config.top5 = Top5(Some(false));
        }
    }
}

/// Why `metric` is not measured for such targets; `None` if it is.
pub(super) fn unmeasured(metric: RankBy, target: &FieldFacts) -> Option<String> {
    use StandardMetric::{ValAccuracy, ValMae, ValPerplexity, ValR2, ValTop5};
    let RankBy::Standard(metric) = metric else { return None };
    match (metric, target.kind) {
        (ValAccuracy | ValTop5 | ValPerplexity, FieldKind::Float) => {
            Some(format!("`{metric}` needs class targets; the data set's targets are numbers"))
        }
        (ValMae | ValR2, FieldKind::Index(_)) => {
            Some(format!("`{metric}` needs numbers as targets; the data set's targets are classes"))
        }
        (ValTop5, FieldKind::Index(classes)) if classes <= 5 => {
            Some(format!("`{metric}` of {classes} classes is always 1: use \"val.accuracy\""))
        }
        (ValPerplexity, FieldKind::Index(_)) if target.shape.is_empty() => Some(format!(
            "`{metric}` is measured for tokens only; \"val.loss\" ranks classes in the same order"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    #[test]
    fn requires_a_device_per_process_unless_sharing_is_allowed() {
        let fits = |device, processes, devices, share| {
            devices_suffice(device, processes, devices, share).map_err(|e| e.kind)
        };
        let (cpu, auto, cuda, one) =
            (DeviceSpec::Cpu, DeviceSpec::Auto, DeviceSpec::Cuda(None), DeviceSpec::Cuda(Some(1)));
        assert_eq!(fits(cpu, 64, 2, false), Ok(()));
        assert_eq!(fits(auto, 64, 0, false), Ok(()));
        assert_eq!(fits(auto, 3, 2, false), Err(ErrorKind::Usage));
        assert_eq!(fits(cuda, 2, 2, false), Ok(()));
        assert_eq!(fits(cuda, 3, 2, false), Err(ErrorKind::Usage));
        assert_eq!(fits(cuda, 3, 2, true), Ok(()));
        assert_eq!(fits(cuda, 1, 0, true), Err(ErrorKind::Unavailable));
        assert_eq!(fits(one, 1, 2, false), Ok(()));
        assert_eq!(fits(one, 2, 2, false), Err(ErrorKind::Usage));
        assert_eq!(fits(one, 1, 1, false), Err(ErrorKind::Unavailable));
    }
}
