//! One rank of a run, from its handoff to its end (`rank`): process group, data, model, optimizer, checkpoint, trainer,
//! in this order.

mod checkpoints;
mod connect;
mod ema;
mod endpoint;
mod evaluate;
mod failure_report;
mod fault;
#[cfg(test)]
mod fields_tests;
mod fit;
#[cfg(test)]
mod fit_tests;
mod hook;
mod intercepted_group;
mod kernels;
mod metrics;
mod optimizer;
#[cfg(test)]
mod own_models_tests;
#[cfg(test)]
mod own_tasks_tests;
mod rank;
mod recorder;
mod resize;
mod resume_plan;
mod same_data;
mod same_devices;
mod snapshot;
mod spec_changes;
mod start_state;
mod state;
mod step_times;

#[cfg(test)]
mod early_stop_tests;
#[cfg(test)]
mod ema_tests;
#[cfg(test)]
mod groups_tests;
#[cfg(all(test, feature = "learner"))]
mod learner_tests;
#[cfg(test)]
mod max_steps_tests;
#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod plateau_tests;
#[cfg(test)]
mod ranking_tests;
#[cfg(test)]
mod resize_tests;
#[cfg(test)]
mod testing;

pub use evaluate::{Split, evaluate};
pub use fault::Fault;
pub use kernels::keep_kernels;
pub(crate) use rank::{requeue_on_stop, run, run_external};
pub use recorder::{Recorder, RecorderOptions};
pub use resume_plan::plan_after_resume;
pub(crate) use start_state::{StartState, newest_step, provenance_of};
pub use state::load_pretrained;
pub use step_times::{STEP_TIMES, StepTime, StepTimes};

use crate::checkpoint::{CheckpointStore, Loaded, load_any};
use crate::comm::{CommErrorKind, Phase, Place, ProcessGroup, Wait};
use crate::data::{DataFacts, Dataset, Fingerprint, Splits, transformed};
use crate::device::{Compute, ComputeDevice, Precision, supports_precision};
use crate::error::{Error, Result};
use crate::history::{Accepted, Parent, Start, checkpoints};
use crate::models::Model;
use crate::plan::Plan;
use crate::show;
use crate::train::{Ended, Parts, Position, Trainer, Updater};
use checkpoints::{Checkpoints, SAVE_DEADLINE};
use optimizer::Trained;
use recorder::{Files, reported};
use serde::Serialize;
use serde::de::DeserializeOwned;
use state::RunFacts;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The checkpoint that a run starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The newest valid checkpoint of the run's folder, if any.
    Auto,
    /// None: the run starts over, once.
    Never,
    /// At first this checkpoint, or the newest one of this run folder.
    From(PathBuf),
}

impl Resume {
    pub fn parse(text: &str) -> Self {
        match text {
            "auto" => Resume::Auto,
            "never" => Resume::Never,
            path => Resume::From(path.into()),
        }
    }
}

/// Everything that one rank needs to run a plan.
pub struct Job<'a> {
    pub plan: &'a Plan,
    pub group: Arc<dyn ProcessGroup>,
    pub device: ComputeDevice,
    pub out_dir: &'a Path,
    pub resume: Resume,
    /// Set on rank 0, which writes to the folder.
    pub start: Option<Start<'a>>,
    pub stop: &'a dyn Fn() -> bool,
    /// Called with the error that training failed with, before waiting for anything, such as a save in progress.
    pub failed: &'a dyn Fn(&Error),
    pub recorder: RecorderOptions,
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
    let splits = open_data(plan, &*group)?;
    let (facts, fingerprint) = (facts_of(&splits), Fingerprint::of(&splits));
    // One rank's disk may be much slower than another's.
    group.barrier(Wait::WhilePeersLive)?;
    same_data::check_data_sets(&fingerprint, &*group)?;
    group.note(Place { step: 0, phase: Phase::Setup });
    plan.ranks_by(&splits.train.target())?;
    let on = compute(job.device, plan.precision)?;
    let mut model = plan.model.source.build(&facts, plan.seed, &on)?;
    fit::model(plan, &*splits.train, &*model)?;
    optimizer::freeze(plan, &mut *model)?;
    let mut updater = Updater::new(&plan.optimizer, plan.train.clip_norm, model.entries(), &on.device);
    let (mut position, mut parent, mut hooks, mut averaged) = (None, None, None, None);
    if group.rank() == 0 {
        match find_checkpoint(&job)? {
            Some(loaded) => {
                let saved = state::saved(&loaded)?;
                // The data is compared first, because different data may be the reason for a different model.
                let (before, now) = (&saved.data, &fingerprint);
                let changed = same_data::since(before, now, &saved.position, plan.loader.drop_last)?;
                changed.iter().for_each(|what| warn(what));
                state::restore(plan, &loaded, &saved, job.device, &mut *model, &mut updater)?;
                hooks = hook::state(&loaded, &saved.comm_hook);
                let [frozen, thawed] = saved.trained.changes(plan, model.entries());
                let (mut here, change) = saved.resume_with(plan, group.world_size(), splits.train.len());
                if (frozen.is_some() || thawed.is_some()) && hooks.take().is_some() {
                    warn("the state of the communication hook is left out: other parameters are trained now");
                }
                if thawed.is_some() {
                    // Where their gradients arrive among the others has to be learnt.
                    here.bucket_order = None;
                }
                let (average, ema) = ema::saved(plan, &loaded, model.entries(), &mut here)?;
                averaged = average;
                let kept = optimizer::kept(plan, &loaded.state, &updater.all_slots());
                let changes = [change, kept, frozen, thawed, ema.map(str::to_owned)];
                let job_toml = job.start.map_or("", |start| start.job_toml);
                announce(plan, &loaded, &here, changes, job_toml);
                parent = Some(Parent {
                    step: here.step,
                    complete: plan.settings().is_over(&here),
                    seconds: loaded.state.wall_seconds,
                    checkpoint: loaded.path,
                });
                position = Some(here);
            }
            None => start_from_weights(plan, &mut *model, job.out_dir)?,
        }
    }
    let position = state::share(&mut *model, &mut updater, position, &*group)?
        .unwrap_or_else(|| Position::new(plan.batching(group.world_size())));
    let average = ema::start(plan, &*model, averaged, &position, &*group)?;
    fit::batches(plan, &position, splits.train.len())?;
    group.note(Place { step: position.step, phase: Phase::Setup });
    // All ranks are ready: from here on the run's folder changes.
    group.barrier(Wait::WhilePeersLive)?;
    let mut recorder = Recorder::new(plan.settings(), group.rank());
    if group.rank() == 0 && accepted(&job, parent.as_ref())? {
        let trained = Trained::of(model.entries(), &updater);
        let files = files(&job, &facts, fingerprint, trained, parent)?;
        recorder.open(&*group, &position, files, job.recorder)?;
    }
    // Rank 0 may still be copying files to the archive.
    group.barrier(Wait::WhilePeersLive)?;
    recorder.reserve(&*model, &updater, average.as_ref())?;
    let (stop, observer) = (job.stop, &mut recorder);
    let parts = Parts { group: group.clone(), splits, model, updater, average, position, stop, observer };
    let mut trainer = Trainer::new(plan.settings(), parts)?;
    trainer.restore_hook(hooks)?.iter().for_each(|left_out| warn(left_out));
    let ended = trainer.run().inspect_err(report_failure);
    let early = trainer.ended_early();
    drop(trainer);
    let ended = recorder.finish(ended, early)?;
    final_barrier(&*group, plan)?;
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

/// The `own` of every rank, in rank order. Collective: all ranks call it.
fn gathered<T: Serialize + DeserializeOwned>(own: &T, group: &dyn ProcessGroup) -> Result<Vec<T>> {
    let broken = |e: serde_json::Error| Error::internal(format!("what the ranks exchange is no JSON: {e}"));
    let mut text = serde_json::to_vec(own).map_err(broken)?;
    let mut lengths = vec![0i64; group.world_size()];
    group.all_gather([text.len() as i64].as_slice().into(), lengths.as_mut_slice().into())?;
    // JSON may have spaces at its end.
    text.resize(lengths.iter().max().map_or(0, |longest| *longest as usize), b' ');
    let mut all = vec![0; text.len() * group.world_size()];
    group.all_gather(text.as_slice().into(), all.as_mut_slice().into())?;
    all.chunks(text.len()).map(|text| serde_json::from_slice(text).map_err(broken)).collect()
}

/// Rank 0 prepares the files, without a deadline; then every rank opens them.
fn open_data(plan: &Plan, group: &dyn ProcessGroup) -> Result<Splits> {
    if group.rank() == 0 {
        let prepared = plan.dataset.source.prepare(&mut |line| {
            tracing::info!("{line}");
            say!("{}", show::message(line));
        });
        prepared.map_err(Error::of_data)?;
    }
    group.barrier(Wait::WhilePeersLive)?;
    let splits = plan.dataset.source.open().map_err(Error::of_data)?;
    let splits = transformed(splits, &plan.transforms);
    if group.rank() == 0 {
        for line in splits.train.remarks() {
            tracing::info!("{line}");
            say!("{}", show::message(&line));
        }
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

/// `resume` applies to the beginning of a run; a restarted run continues from its own checkpoints.
fn find_checkpoint(job: &Job<'_>) -> Result<Option<Loaded>> {
    let newest = || CheckpointStore::read_only(checkpoints(job.out_dir)).latest_verified();
    let begun = job.resume != Resume::Auto && job.start.is_some_and(|start| start.begun());
    if begun && let Some(own) = newest()? {
        tracing::info!("`--resume` was applied when this run started");
        say!("this run was already started in this folder; it resumes from its newest checkpoint");
        return Ok(Some(own));
    }
    match &job.resume {
        Resume::Never => Ok(None),
        Resume::Auto => newest(),
        Resume::From(path) => load_any(path).map(Some),
    }
}

fn warn(warning: &str) {
    tracing::warn!("{warning}");
    say!("warning: {warning}");
}

/// Prints the resume. `changes`: changes of the batching, what a changed optimizer keeps, what is trained now, and a new or
/// dropped average. `job_toml` is this start's spec.
fn announce(plan: &Plan, loaded: &Loaded, here: &Position, changes: [Option<String>; 5], job_toml: &str) {
    loaded.warnings.iter().for_each(|warning| warn(warning));
    if loaded.state.spec_hash != plan.hash {
        let what =
            spec_changes::since(plan, loaded, job_toml).map_or_else(String::new, |what| format!(": {what}"));
        warn(&format!("the spec has changed since checkpoint {} was made{what}", loaded.path.display()));
    }
    let state = &loaded.state;
    let line = format!(
        "resumes at step {} (epoch {}) from {}",
        state.global_step,
        state.epochs_completed,
        loaded.path.display()
    );
    for line in [line].into_iter().chain(changes.into_iter().flatten()) {
        tracing::info!("{line}");
        say!("{line}");
    }
    let settings = plan.settings();
    if settings.is_over(here) {
        let more = match settings.ends_early(here) {
            Some(_) => "a larger `early_stop.patience` continues",
            None if here.epoch >= plan.epochs => "more `epochs` continue",
            None => "a larger `train.max_steps` continues",
        };
        say!("the run is complete; {more} it, `--resume never` starts over");
    }
}

/// Accepts this start in the run's folder; `false` if nothing needs to be written.
fn accepted(job: &Job<'_>, parent: Option<&Parent>) -> Result<bool> {
    let start = job.start.ok_or_else(|| Error::internal("rank 0 has no provenance of its start"))?;
    Ok(start.accept(parent)? == Accepted::Begins)
}

/// The files that rank 0 records to.
fn files(
    job: &Job<'_>,
    facts: &DataFacts,
    data: Fingerprint,
    trained: Trained,
    parent: Option<Parent>,
) -> Result<Files> {
    let (plan, out_dir) = (job.plan, job.out_dir);
    let made = RunFacts { plan: plan.clone(), device: job.device, trained, data };
    Ok(Files {
        out_dir: out_dir.to_owned(),
        reported: reported(&plan.task, plan.metrics.top5, facts),
        samples: facts.train.unwrap_or(0),
        checkpoints: Checkpoints::open(&plan.checkpoint, plan.save_every, made, out_dir)?,
        parent,
        observers: plan.observers.clone(),
    })
}

fn start_from_weights(plan: &Plan, model: &mut dyn Model, out_dir: &Path) -> Result<()> {
    let Some(path) = &plan.model.pretrained else { return Ok(()) };
    let own = checkpoints(out_dir).canonicalize();
    if own.is_ok_and(|own| path.canonicalize().is_ok_and(|path| path.starts_with(own))) {
        let what = format!(
            "{} is in this run's own folder, which is moved when the run starts over",
            path.display()
        );
        return Err(Error::spec(what)
            .hint("copy the weights elsewhere, or write the run to another folder with `--out DIR`"));
    }
    let left_out = state::load_pretrained(model, path, plan.model.pretrained_strict)?;
    let mut line = format!("starts from the weights in {}", path.display());
    if !left_out.is_empty() {
        line.push_str(&format!("; left out:\n{left_out}"));
    }
    tracing::info!("{line}");
    say!("{line}");
    Ok(())
}
