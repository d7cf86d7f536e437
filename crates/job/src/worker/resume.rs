//! A start from a checkpoint: which one, and what the run continues with.

use super::initial_state::RunData;
use super::messages::{tell, warn};
use super::parts::RankParts;
use super::pretrained::start_from_weights;
use super::state::Weights;
use super::{RankJob, Usage, ema, hook, optimizer, same_data, spec_changes, state};
use base::display;
use base::error::{Error, Result};
use base::numbers::of_all;
use checkpoint::{CheckpointStore, Loaded, load_any};
use ddp::HookState;
use launch::logs::ALREADY_PRINTED;
use record::history::{Parent, checkpoints, is_within};
use std::path::PathBuf;
use train::models::Model;
use train::training::{Position, TrainSettings, Updater};

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
    /// Reads `--resume`: `auto`, `never` or a path.
    pub fn parse(text: &str) -> Self {
        match text {
            "auto" => Resume::Auto,
            "never" => Resume::Never,
            path => Resume::From(path.into()),
        }
    }

    /// Checks that the path of the checkpoint to start from exists.
    ///
    /// # Errors
    /// Exit 74: it is not.
    pub fn is_there(&self) -> Result<()> {
        match self {
            Resume::From(path) if !path.is_dir() => {
                let what = format!("cannot resume from {}: there is no such folder", path.display());
                Err(Error::checkpoint(what).hint(
                    "`--resume PATH` takes a checkpoint (`runs/NAME/checkpoints/step-…`) or a run's folder",
                ))
            }
            Resume::From(_) | Resume::Auto | Resume::Never => Ok(()),
        }
    }
}

/// The state of a checkpoint besides model and optimizer; nothing at the start of a run.
#[derive(Default)]
pub(super) struct Resumed {
    pub position: Option<Position>,
    pub parent: Option<Parent>,
    pub hooks: Option<HookState>,
    pub average: Option<Weights>,
}

/// Loads the checkpoint that rank 0 starts from, if there is one; else the weights of `model.pretrained`.
pub(super) fn resume(
    job: &RankJob<'_>,
    parts: &RankParts<'_>,
    settings: &TrainSettings,
    data: &RunData,
    model: &mut dyn Model,
    updater: &mut Updater,
) -> Result<Resumed> {
    let Some(loaded) = find_checkpoint(job)? else {
        start_from_weights(parts.model, model, job.out_dir)?;
        return Ok(Resumed::default());
    };
    let saved = state::saved(&loaded)?;
    // The data is compared first, because different data may be the reason for a different model.
    let drop_last = parts.data.loader.drop_last;
    same_data::same_tokens(Usage::encoding_of(&loaded)?, data.splits.train.encoding())?;
    let changed = same_data::since(&saved.data, &data.fingerprint, &saved.position, drop_last)?;
    if let Some(what) = changed {
        warn(&what);
        earlier_best(job, settings, &loaded)?.iter().for_each(|what| warn(what));
    }
    state::restore(parts, &loaded, &saved, job.device, model, updater)?;
    let mut hooks = hook::state(&loaded, &saved.comm_hook);
    if let Some(why) = saved.comm_hook.as_ref().and_then(|layout| layout.has_other_keys(parts.spec()))
        && hooks.take().is_some()
    {
        warn(&why);
    }
    let [frozen, thawed] = saved.trained.changes(parts.optimizer, model.entries());
    let batching = parts.batching(job.group.world_size());
    let (mut position, change) =
        saved.resume_with(batching, parts.train.on_resize, drop_last, data.splits.train.len());
    if (frozen.is_some() || thawed.is_some()) && hooks.take().is_some() {
        warn("the state of the communication hook is left out: other parameters are trained now");
    }
    if thawed.is_some() {
        // Where their gradients arrive among the others has to be learnt.
        position.bucket_order = None;
    }
    let (average, ema) = ema::saved(parts.ema, &loaded, model.entries(), &mut position)?;
    let kept = optimizer::kept(parts.spec(), &loaded.state, &updater.all_slots());
    let changes = [change, kept, frozen, thawed, ema.map(str::to_owned)];
    let job_toml = job.start.map_or("", |start| start.job_toml);
    let epochs = settings.all_epochs(&position, data.splits.train.len());
    announce(parts, settings, &loaded, (&position, epochs), changes, job_toml);
    let parent = Parent {
        step: position.step,
        complete: settings.is_over(&position),
        seconds: loaded.state.wall_seconds,
        checkpoint: loaded.path,
    };
    Ok(Resumed { position: Some(position), parent: Some(parent), hooks, average })
}

/// What is said beside a change of the data, if the run has a best epoch.
fn earlier_best(job: &RankJob<'_>, settings: &TrainSettings, loaded: &Loaded) -> Result<Option<String>> {
    let Some(by) = settings.best.filter(|_| is_within(&loaded.path, job.out_dir)) else { return Ok(None) };
    let store = CheckpointStore::read_only(checkpoints(job.out_dir));
    let best = store.best_score(by, loaded.state.global_step)?;
    Ok(best.map(|_| {
        format!("the best epoch so far, by {by}, was measured on the data as it was before; later ones are compared with it")
    }))
}

/// `resume` applies to the beginning of a run; a restarted run continues from its own checkpoints.
fn find_checkpoint(job: &RankJob<'_>) -> Result<Option<Loaded>> {
    let newest = || CheckpointStore::read_only(checkpoints(job.out_dir)).latest_verified();
    let begun = job.resume != Resume::Auto && job.start.is_some_and(|start| start.begun());
    if begun && let Some(own) = newest()? {
        tracing::info!(target: ALREADY_PRINTED, "`--resume` was applied when this run started");
        info!("this run was already started in this folder; it resumes from its newest checkpoint");
        return Ok(Some(own));
    }
    match &job.resume {
        Resume::Never => Ok(None),
        Resume::Auto => newest(),
        Resume::From(path) => load_any(path).map(Some),
    }
}

/// Prints the resume at the position `here` of a run of `epochs`. `changes`: changes of the batching, what a changed optimizer
/// keeps, what is trained now, and a new or dropped average. `job_toml` is this start's spec.
fn announce(
    parts: &RankParts<'_>,
    settings: &TrainSettings,
    loaded: &Loaded,
    (here, epochs): (&Position, u64),
    changes: [Option<String>; 5],
    job_toml: &str,
) {
    loaded.warnings.iter().for_each(|warning| warn(warning));
    if loaded.state.spec_hash != parts.group.plan_hash {
        let changes = spec_changes::since(parts.spec(), loaded, job_toml);
        let lines: String = changes.iter().map(|line| format!("\n  {line}")).collect();
        warn(&format!("the spec has changed since checkpoint {} was made{lines}", loaded.path.display()));
    }
    let line = format!(
        "resumes at step {} (epoch {}) from {}",
        loaded.state.global_step,
        of_all(settings.epoch_at(here).min(epochs), epochs),
        display::path(&loaded.path)
    );
    for line in [line].into_iter().chain(changes.into_iter().flatten()) {
        tell(&line);
    }
    if settings.is_over(here) {
        let more = match settings.ends_early(here) {
            Some(_) if settings.train.stop_after.is_some_and(|after| here.epoch >= after) => {
                "a larger `train.stop_after` continues"
            }
            Some(_) => "a larger `early_stop.patience` continues",
            None if here.epoch >= settings.epochs => "more `epochs` continue",
            None => "a larger `train.max_steps` continues",
        };
        info!("the run is complete; {more} it, `--resume never` starts over");
    }
}
