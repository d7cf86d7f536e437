//! A training from its data to its last barrier.

use super::capacity::Capacity;
use super::checkpoints::{Checkpoints, SAVE_DEADLINE};
use super::complete;
use super::exchange::gathered;
use super::initial_state::{InitialState, RunData};
use super::messages::warn;
use super::metrics::Reported;
use super::optimizer::Trained;
use super::profile;
use super::recorder::RecordedFiles;
use super::state::RunFacts;
use super::{RankParts, Recorder, RecorderOptions, Resume, Usage};
use crate::plan::{Plan, Running};
use base::display;
use base::error::{Error, Result};
use base::screen::forbid_bars;
use collectives::{CommErrorKind, Phase, ProcessGroup, StepPhase, Wait};
use data::DataFacts;
use ddp::device::ComputeDevice;
use record::history::{Accepted, Parent, Start};
use record::{ObservedRun, Profile, ProgressMode, StartOfRun, host_name};
use std::path::Path;
use std::sync::Arc;
use train::models::{Model, Role, TensorFacts};
use train::training::{Position, RunTensors, TrainSettings, Trainer, TrainerParts, TrainingEnd};

/// Everything that one rank needs to run a plan.
pub struct RankJob<'a> {
    /// The resolved job, equal on all ranks.
    pub plan: &'a Plan,
    /// Process group of all ranks of the run.
    pub group: Arc<dyn ProcessGroup>,
    /// Device that this rank computes on.
    pub device: ComputeDevice,
    /// The number of this rank on its node.
    pub local_rank: usize,
    /// Folder of the run.
    pub out_dir: &'a Path,
    /// Checkpoint to start from.
    pub resume: Resume,
    /// Set on rank 0, which writes to the folder.
    pub start: Option<Start<'a>>,
    /// Whether a stop is requested; called at each optimizer step.
    pub stop: &'a dyn Fn() -> bool,
    /// Called with the error that training ended with, before waiting for anything, such as a save in progress. Returns whether the run
    /// has failed.
    pub failed: &'a dyn Fn(&Error) -> bool,
    /// Progress display, values to show and the reason of a restart.
    pub recorder: RecorderOptions,
    /// With `--profile`.
    pub profile: Option<Profile>,
}

/// Trains. Before it returns the error of a failed run, it aborts the group, so that the other ranks end at once.
pub fn train(job: RankJob<'_>) -> Result<TrainingEnd> {
    let report_failure = report_failure(&job);
    train_rank(job).inspect_err(|error| {
        report_failure(error);
    })
}

/// Called first with an error: other ranks wait for this one, and the run is about to be taken down. Returns whether the run has failed.
fn report_failure<'a>(job: &RankJob<'a>) -> impl Fn(&Error) -> bool + use<'a> {
    let (group, failed) = (job.group.clone(), job.failed);
    move |error| {
        let has_failed = failed(error);
        if has_failed {
            group.abort(&error.message);
        }
        has_failed
    }
}

fn train_rank(job: RankJob<'_>) -> Result<TrainingEnd> {
    let (parts, group, report_failure) = (RankParts::new(job.plan), job.group.clone(), report_failure(&job));
    group.note(StepPhase { step: 0, phase: Phase::Data });
    if matches!(job.recorder.progress, ProgressMode::Plain | ProgressMode::None) {
        forbid_bars();
    }
    let data = RunData::open(&job, &parts)?;
    let flops = parts.model.source.training_flops(&data.facts);
    let capacity =
        flops.and_then(|_| Capacity::measured(job.device, parts.precision, parts.group.share_devices));
    let of_ranks = gathered(&(parts.metrics.log_every, host_name(), capacity), &*group)?;
    let peak = Capacity::total(of_ranks.iter().map(|(_, host, capacity)| (host.as_str(), capacity.as_ref())));
    let (log_every, hosts): (Vec<u64>, Vec<String>) =
        of_ranks.into_iter().map(|(log_every, host, _)| (log_every, host)).unzip();
    // Rank 0's: under a launcher each rank has its own command line, and a logged step has one more
    // collective.
    let settings = TrainSettings { log_every: log_every[0], ..parts.settings() };
    group.note(StepPhase { step: 0, phase: Phase::Setup });
    let mut start = InitialState::new(&job, &parts, &settings, &data)?;
    group.note(StepPhase { step: start.position.step, phase: Phase::Setup });
    // All ranks are ready: from here on the run's folder changes.
    group.barrier(Wait::WhilePeersLive)?;
    let is_frozen = start.model.entries().iter().any(|entry| entry.role == Role::Frozen);
    let reported = Reported::new(parts.task, parts.metrics.top5, &data.facts);
    let reported = reported.with_flops(flops.filter(|_| !is_frozen), peak);
    let mut recorder = open_recorder(&job, &parts, &settings, &data, &mut start, hosts, reported)?;
    // Rank 0 may still be copying files to the archive.
    group.barrier(Wait::WhilePeersLive)?;
    let InitialState { model, updater, average, position, best, hooks, .. } = start;
    recorder.reserve(RunTensors { model: &*model, updater: &updater, average: average.as_ref() })?;
    let (splits, stop, observer) = (data.splits, job.stop, &mut recorder);
    let trainer_parts = TrainerParts {
        group: group.clone(),
        splits,
        model,
        updater,
        average,
        position,
        best,
        stop,
        observer,
    };
    let mut trainer = Trainer::new(settings, trainer_parts)?;
    trainer.restore_hook(hooks)?.iter().for_each(|left_out| warn(left_out));
    let ended = match trainer.run() {
        Err(error) if !report_failure(&error) => Ok(TrainingEnd::Stopped),
        ended => ended,
    };
    let early = trainer.ended_early();
    drop(trainer);
    job.profile.iter().for_each(Profile::finish);
    let ended = recorder.finish(ended, early, &report_failure)?;
    final_barrier(&*group, &parts)?;
    if let Some(profile) = &job.profile {
        profile::merge(profile, job.out_dir, group.rank(), job.local_rank, group.world_size());
    }
    Ok(ended)
}

/// The recorder of this rank. On rank 0 the run's folder accepts the start, and its files are
/// opened unless nothing is left to do.
fn open_recorder(
    job: &RankJob<'_>,
    parts: &RankParts<'_>,
    settings: &TrainSettings,
    data: &RunData,
    start: &mut InitialState,
    hosts: Vec<String>,
    reported: Reported,
) -> Result<Recorder> {
    let (rank, parent) = (job.group.rank(), start.parent.take());
    let epochs = settings.all_epochs(&start.position, data.splits.train.len());
    let mut recorder = Recorder::new(TrainSettings { epochs, ..settings.clone() }, rank);
    if rank != 0 {
        return Ok(recorder);
    }
    let begun = job.start.is_some_and(|start| start.begun());
    if accepted(job, parent.as_ref())? {
        if !begun {
            show_brief(job, &data.facts, &start.position, &*start.model);
        }
        let trained = Trained::new(start.model.entries(), &start.updater);
        let usage = Usage::new(job.plan, &data.facts, data.splits.train.encoding());
        let files = files(job, reported, data, trained, parent, hosts, &usage)?;
        recorder.open(&*job.group, &start.position, files, job.recorder.clone())?;
    } else if parent.is_some_and(|from| from.is_within(job.out_dir)) {
        job.start.iter().for_each(|start| complete::tidy(start, parts.checkpoint));
    }
    Ok(recorder)
}

/// Waits until all ranks have finished: none may leave while another one needs it. All wait for rank 0, which arrives
/// after everything is saved. Rank 0's deadline starts then and expires first, so if another rank hangs, everything
/// is saved.
///
/// # Errors
/// Rank 0 did not arrive, or a rank was lost. A rank that hangs is not an error any more, except with MPI, whose
/// ranks must all end together.
fn final_barrier(group: &dyn ProcessGroup, parts: &RankParts<'_>) -> Result<()> {
    let wait = match group.rank() {
        0 => Wait::Deadline,
        // Time for a save in progress and another one.
        _ if parts.checkpoint.asynchronous => Wait::Longer(2 * SAVE_DEADLINE),
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

/// Prints a summary of the training, but not again after a restart.
fn show_brief(job: &RankJob<'_>, facts: &DataFacts, position: &Position, model: &dyn Model) {
    let (plan, options) = (job.plan, &job.recorder);
    if options.progress == ProgressMode::None {
        return;
    }
    for (key, why) in plan.warnings_of_values() {
        warn(&format!("`{key}`: {why}"));
    }
    let tensors: Vec<TensorFacts> = model.entries().iter().map(TensorFacts::from_entry).collect();
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
    status!("{}", display::message(&brief));
}

/// Accepts this start in the run's folder; `false` if nothing needs to be written.
fn accepted(job: &RankJob<'_>, parent: Option<&Parent>) -> Result<bool> {
    let start = job.start.ok_or_else(|| Error::internal("rank 0 has no provenance of its start"))?;
    Ok(start.accept(parent)? == Accepted::Begins)
}

/// What observers receive about the run.
fn observed(job: &RankJob<'_>) -> ObservedRun {
    let mut run = ObservedRun::default();
    RankParts::new(job.plan).name.clone_into(&mut run.name);
    run.folder = job.out_dir.to_owned();
    run.spec = job.plan.flat();
    run.run = job.start.and_then(|start| serde_json::to_value(start.provenance).ok()).unwrap_or_default();
    let shown = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    run.set = changed(job).filter_map(|key| Some(format!("{key}={}", shown(run.spec.get(key)?)))).collect();
    run
}

/// The keys that the command line or the environment sets.
fn changed<'a>(job: &'a RankJob<'_>) -> impl Iterator<Item = &'a String> {
    let set = job.start.map(|start| start.provenance.set.iter()).into_iter().flatten();
    set.filter(|(_, origin)| *origin != "spec" && !origin.starts_with("base ")).map(|(key, _)| key)
}

/// What TensorBoard shows of the run, and compares it with others by: what its results depend on, and what was set for this start. Observers
/// may have tokens.
fn described(job: &RankJob<'_>, world: usize) -> StartOfRun {
    let changed: Vec<&String> = changed(job).collect();
    let compared = |key: &String| job.plan.changes_results(key) || changed.contains(&key);
    let mut values = job.plan.flat();
    values.retain(|key, _| compared(key) && key != "name" && !key.starts_with("observer."));
    values.insert("world".to_owned(), world.into());
    StartOfRun { spec: job.plan.to_toml(), values }
}

/// The files that rank 0 records to.
fn files(
    job: &RankJob<'_>,
    reported: Reported,
    data: &RunData,
    trained: Trained,
    parent: Option<Parent>,
    hosts: Vec<String>,
    usage: &Usage,
) -> Result<RecordedFiles> {
    let (parts, out_dir) = (RankParts::new(job.plan), job.out_dir);
    let described = described(job, hosts.len());
    let made = RunFacts::new(&parts, job.device, trained, data.fingerprint.clone(), usage.json()?.into());
    Ok(RecordedFiles {
        out_dir: out_dir.to_owned(),
        device: job.device,
        reported,
        samples: data.facts.train.unwrap_or(0),
        checkpoints: Checkpoints::open(parts.checkpoint, parts.save_every, made, out_dir)?,
        best: parts.checkpoint.best,
        parent,
        observers: parts.observers.to_vec(),
        hosts,
        encoding: usage.encoding.clone(),
        observed: observed(job),
        described,
    })
}
