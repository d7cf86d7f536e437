//! One rank of a run, from its handoff to its end (`rank`): process group, data, model, optimizer, checkpoint, trainer,
//! in this order.

mod checkpoints;
mod common;
mod connect;
mod ema;
mod endpoint;
mod evaluate;
mod exchange;
mod failure_report;
mod fault;
#[cfg(test)]
mod fields_tests;
mod fit;
#[cfg(test)]
mod fit_tests;
mod generate;
mod hook;
mod intercepted_group;
mod kernels;
mod metrics;
mod notes;
mod optimizer;
#[cfg(test)]
mod own_models_tests;
#[cfg(test)]
mod own_tasks_tests;
mod predict;
mod pretrained;
mod profile;
mod rank;
mod recorder;
mod replicas;
mod resize;
mod resume;
mod same_data;
mod same_devices;
mod snapshot;
mod spec_changes;
mod start_state;
mod state;
mod step_times;
mod stop_at;
mod usage;

#[cfg(test)]
mod burn_modules_tests;
#[cfg(test)]
mod digests_tests;
#[cfg(test)]
mod early_stop_tests;
#[cfg(test)]
mod ema_tests;
#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod hook_tests;
#[cfg(all(test, feature = "learner"))]
mod learner_tests;
#[cfg(test)]
mod max_steps_tests;
#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod notes_tests;
#[cfg(test)]
mod plateau_tests;
#[cfg(test)]
mod ranking_tests;
#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod stop_after_tests;
#[cfg(test)]
mod testing;

pub use evaluate::{Evaluated, Evaluation, Split, Wanted, chosen, evaluate};
pub use fault::{Fault, VARIABLE as FAULT};
pub use generate::{Generator, Sampling};
pub use kernels::keep_kernels;
pub(crate) use metrics::measured;
pub use predict::Predictor;
pub use pretrained::{load_pretrained, weights_are_there};
pub(crate) use rank::{evaluate_external, requeue_on_stop, run, run_external};
pub use recorder::{Recorder, RecorderOptions};
pub use resume::Resume;
pub use same_data::{present as present_data, recorded as recorded_data};
pub(crate) use spec_changes::continues_the_run;
pub(crate) use start_state::{StartState, newest_step, provenance_of};
pub use step_times::{STEP_TIMES, StepTime, StepTimes};
pub use stop_at::STOP_AT;
pub use usage::Usage;

use crate::comm::{CommErrorKind, Phase, Place, ProcessGroup, Wait};
use crate::data::{DataFacts, Dataset, Fingerprint, Splits, transformed};
use crate::device::{Compute, ComputeDevice, Precision, supports_precision};
use crate::error::{Error, Result};
use crate::history::{Accepted, Parent, Start};
use crate::launch::logs::SAID;
use crate::models::{Model, TensorFacts};
use crate::plan::{Plan, Running};
use crate::show;
use crate::telemetry::{ObservedRun, Profile, ProgressMode, forbid_bars};
use crate::train::{Ended, Parts, Position, RunTensors, Settings, Trainer, Updater};
use checkpoints::{Checkpoints, SAVE_DEADLINE};
use common::Common;
use metrics::Reported;
use optimizer::Trained;
use recorder::Files;
use resume::Resumed;
use state::RunFacts;
use std::path::Path;
use std::sync::Arc;

/// Everything that one rank needs to run a plan.
pub struct Job<'a> {
    pub plan: &'a Plan,
    pub group: Arc<dyn ProcessGroup>,
    pub device: ComputeDevice,
    /// Of this rank on its node.
    pub local_rank: usize,
    pub out_dir: &'a Path,
    pub resume: Resume,
    /// Set on rank 0, which writes to the folder.
    pub start: Option<Start<'a>>,
    pub stop: &'a dyn Fn() -> bool,
    /// Called with the error that training failed with, before waiting for anything, such as a save in progress.
    pub failed: &'a dyn Fn(&Error),
    pub recorder: RecorderOptions,
    /// With `--profile`.
    pub profile: Option<Profile>,
}

/// Trains. Before it returns an error, it aborts the group, so that the other ranks end at once.
pub fn train(job: Job<'_>) -> Result<Ended> {
    let report_failure = report_failure(&job);
    train_rank(job).inspect_err(report_failure)
}

/// Called first with an error: other ranks wait for this one, and the run is about to be taken down.
fn report_failure<'a>(job: &Job<'a>) -> impl Fn(&Error) + use<'a> {
    let (group, failed) = (job.group.clone(), job.failed);
    move |error| {
        failed(error);
        group.abort(&error.message);
    }
}

fn train_rank(job: Job<'_>) -> Result<Ended> {
    let (plan, group, report_failure) = (job.plan, job.group.clone(), report_failure(&job));
    group.note(Place { step: 0, phase: Phase::Data });
    if matches!(job.recorder.progress, ProgressMode::Plain | ProgressMode::None) {
        forbid_bars();
    }
    let splits = open_data(plan, &*group, job.local_rank)?;
    let (facts, fingerprint) = (facts_of(&splits), Fingerprint::of(&splits));
    // One rank's disk may be much slower than another's.
    group.barrier(Wait::WhilePeersLive)?;
    same_data::check_data_sets(&fingerprint, &*group)?;
    let Common { log_every, hosts } = Common::of(plan, &*group)?;
    let settings = Settings { log_every, ..plan.settings() };
    group.note(Place { step: 0, phase: Phase::Setup });
    plan.ranks_by(&splits.train.target())?;
    let on = compute(job.device, plan.precision)?;
    let mut model = plan.model.source.build(&facts, plan.seed, &on)?;
    fit::model(plan, &*splits.train, &*model)?;
    optimizer::freeze(plan, &mut *model)?;
    let mut updater = Updater::new(&plan.optimizer, plan.train.clip_norm, model.entries(), &on.device);
    let Resumed { position, parent, hooks, average } = match group.rank() {
        0 => resume::resume(&job, &fingerprint, splits.train.len(), &mut *model, &mut updater)?,
        _ => Resumed::default(),
    };
    let position = state::share(&mut *model, &mut updater, position, &*group)?
        .unwrap_or_else(|| Position::new(plan.batching(group.world_size())));
    let average = ema::start(plan, &*model, average, &position, &*group)?;
    fit::batches(plan, &position, splits.train.len())?;
    group.note(Place { step: position.step, phase: Phase::Setup });
    // All ranks are ready: from here on the run's folder changes.
    group.barrier(Wait::WhilePeersLive)?;
    let mut recorder = Recorder::new(settings.clone(), group.rank());
    let begun = job.start.is_some_and(|start| start.begun());
    if group.rank() == 0 && accepted(&job, parent.as_ref())? {
        if !begun {
            show_brief(&job, &facts, &position, &*model);
        }
        let trained = Trained::of(model.entries(), &updater);
        let usage = Usage::new(plan, &facts, splits.train.encoding());
        let files = files(&job, &facts, fingerprint, trained, parent, hosts, &usage)?;
        recorder.open(&*group, &position, files, job.recorder)?;
    }
    // Rank 0 may still be copying files to the archive.
    group.barrier(Wait::WhilePeersLive)?;
    recorder.reserve(RunTensors { model: &*model, updater: &updater, average: average.as_ref() })?;
    let (stop, observer) = (job.stop, &mut recorder);
    let parts = Parts { group: group.clone(), splits, model, updater, average, position, stop, observer };
    let mut trainer = Trainer::new(settings, parts)?;
    trainer.restore_hook(hooks)?.iter().for_each(|left_out| warn(left_out));
    let ended = trainer.run().inspect_err(report_failure);
    let early = trainer.ended_early();
    drop(trainer);
    job.profile.iter().for_each(Profile::finish);
    let ended = recorder.finish(ended, early)?;
    final_barrier(&*group, plan)?;
    if let Some(profile) = &job.profile {
        profile::merge(profile, job.out_dir, group.rank(), job.local_rank, group.world_size());
    }
    Ok(ended)
}

/// Waits until all ranks have finished: none may leave while another one needs it. All wait for rank 0, which arrives
/// after everything is saved. Rank 0's deadline starts then and expires first, so if another rank hangs, everything
/// is saved.
///
/// # Errors
/// Rank 0 did not arrive, or a rank was lost. A rank that hangs is not an error any more, except with MPI, whose
/// ranks must all end together.
fn final_barrier(group: &dyn ProcessGroup, plan: &Plan) -> Result<()> {
    let wait = match group.rank() {
        0 => Wait::Deadline,
        // Time for a save in progress and another one.
        _ if plan.checkpoint.asynchronous => {
            Wait::AtMost(plan.distributed.timeout.saturating_add(2 * SAVE_DEADLINE))
        }
        _ => Wait::WhilePeersLive,
    };
    match group.barrier(wait) {
        Err(e)
            if e.kind == CommErrorKind::Timeout
                && e.peer.is_some_and(|peer| peer != 0)
                && group.backend() != "mpi" =>
        {
            warn(&format!("{}; the run is complete and saved", e.message));
            Ok(())
        }
        done => Ok(done?),
    }
}

/// Opens the device.
///
/// # Errors
/// The device does not exist, or does not support this precision (exit 69).
fn compute(device: ComputeDevice, precision: Precision) -> Result<Compute> {
    supports_precision(precision, device)?;
    Ok(Compute { device: device.open(precision)?, dtype: precision.dtype() })
}

/// Rank 0 prepares the files, then the first rank of each other node, which finds nothing to do where nodes share them; all without
/// a deadline. Then every rank opens them.
fn open_data(plan: &Plan, group: &dyn ProcessGroup, local_rank: usize) -> Result<Splits> {
    let mut tell = |line: &str| {
        tracing::info!(target: SAID, "{line}");
        inform!("{}", show::message(line));
    };
    if group.rank() == 0 {
        plan.dataset.source.prepare(&mut tell).map_err(Error::of_data)?;
    }
    group.barrier(Wait::WhilePeersLive)?;
    if group.rank() != 0 && local_rank == 0 {
        plan.dataset.source.prepare(&mut tell).map_err(Error::of_data)?;
    }
    group.barrier(Wait::WhilePeersLive)?;
    let splits = plan.dataset.source.open().map_err(Error::of_data)?;
    let splits = transformed(splits, &plan.transforms);
    if group.rank() == 0 {
        splits.train.remarks().iter().for_each(|line| tell(line));
    }
    fit::samples(&plan.dataset.name, &splits)?;
    Ok(splits)
}

/// The facts known from the open data sets.
fn facts_of(splits: &Splits) -> DataFacts {
    let len = |set: &Option<Arc<dyn Dataset>>| set.as_ref().map(|s| s.len());
    DataFacts {
        input: Some(splits.train.input()),
        target: Some(splits.train.target()),
        fields: splits.train.fields(),
        train: Some(splits.train.len()),
        val: len(&splits.val),
        test: len(&splits.test),
    }
}

fn warn(warning: &str) {
    tracing::warn!(target: SAID, "{warning}");
    say!("warning: {warning}");
}

fn tell(line: &str) {
    tracing::info!(target: SAID, "{line}");
    inform!("{line}");
}

/// Prints what is about to be trained, but not again after a restart.
fn show_brief(job: &Job<'_>, facts: &DataFacts, position: &Position, model: &dyn Model) {
    let (plan, options) = (job.plan, &job.recorder);
    if options.progress == ProgressMode::None {
        return;
    }
    for (key, why) in plan.warnings() {
        warn(&format!("`{key}`: {why}"));
    }
    let tensors: Vec<TensorFacts> = model.entries().iter().map(TensorFacts::of).collect();
    let brief = plan.brief(&Running {
        facts,
        tensors: &tensors,
        position,
        device: job.device.to_string(),
        backend: job.group.backend(),
        threads: rayon::current_num_threads(),
        out_dir: job.out_dir,
        set: &options.set,
    });
    say!("{}", show::message(&brief));
}

/// Accepts this start in the run's folder; `false` if nothing needs to be written.
fn accepted(job: &Job<'_>, parent: Option<&Parent>) -> Result<bool> {
    let start = job.start.ok_or_else(|| Error::internal("rank 0 has no provenance of its start"))?;
    Ok(start.accept(parent)? == Accepted::Begins)
}

/// What observers are told of the run.
fn observed(job: &Job<'_>) -> ObservedRun {
    let mut run = ObservedRun::default();
    run.name.clone_from(&job.plan.name);
    run.folder = job.out_dir.to_owned();
    run.spec = job.plan.flat();
    run.run = job.start.and_then(|start| serde_json::to_value(start.provenance).ok()).unwrap_or_default();
    let set = job.start.map(|start| start.provenance.set.iter()).into_iter().flatten();
    let changed = set.filter(|(_, origin)| *origin != "spec" && !origin.starts_with("base "));
    let shown = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    run.set = changed.filter_map(|(key, _)| Some(format!("{key}={}", shown(run.spec.get(key)?)))).collect();
    run
}

/// The files that rank 0 records to.
fn files(
    job: &Job<'_>,
    facts: &DataFacts,
    data: Fingerprint,
    trained: Trained,
    parent: Option<Parent>,
    hosts: Vec<String>,
    usage: &Usage,
) -> Result<Files> {
    let (plan, out_dir) = (job.plan, job.out_dir);
    let made =
        RunFacts { plan: plan.clone(), device: job.device, trained, data, usage: usage.json()?.into() };
    Ok(Files {
        out_dir: out_dir.to_owned(),
        reported: Reported::of(&plan.task, plan.metrics.top5, facts),
        samples: facts.train.unwrap_or(0),
        checkpoints: Checkpoints::open(&plan.checkpoint, plan.save_every, made, out_dir)?,
        best: plan.checkpoint.best,
        parent,
        observers: plan.observers.clone(),
        hosts,
        encoding: usage.encoding.clone(),
        observed: observed(job),
    })
}
