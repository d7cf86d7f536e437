//! A checkpoint that is to be used apart from its run: its weights, its job, and what its use needs besides them.

use super::spec_args::OverrideArgs;
use base::error::{Error, Result};
use checkpoint::{Loaded, find_store, load_any};
use job::plan::{Plan, Purpose, WorldRequest};
use job::registry::Registry;
use job::worker::Usage;
use record::history::checkpoints;
use std::path::{Path, PathBuf};

pub(super) struct Used {
    pub loaded: Loaded,
    pub plan: Plan,
    pub usage: Usage,
}

impl Used {
    /// The checkpoint that `chosen` names (`best`, `last`, or a path) of the run in `place`; or `place` itself.
    ///
    /// # Errors
    /// Exit 74: there is no such checkpoint. 78: its job names what this program lacks; or it is of an earlier version, and its
    /// data is not there.
    pub fn open(place: &Path, chosen: Option<&Path>, registry: &Registry) -> Result<Self> {
        if place.is_file() {
            let what = format!("{} is a file; expected a run's folder or a checkpoint", place.display());
            return Err(Error::usage(what).hint("a run's folder is `runs/NAME`"));
        }
        let loaded = load_chosen(place, chosen)?;
        let used = Self::new(loaded, registry)?;
        match find_store(place) {
            Some(store) if is_best(chosen) => Self::new(store.best(used.plan.checkpoint.best)?, registry),
            None if is_best(chosen) => {
                let what = format!("{} is one checkpoint; `best` is one of a run's", place.display());
                Err(Error::usage(what).hint("pass the run's folder"))
            }
            _ => Ok(used),
        }
    }

    fn new(loaded: Loaded, registry: &Registry) -> Result<Self> {
        let (usage, plan) = match &loaded.usage {
            Some(text) => Usage::read(text, &loaded, registry)?,
            None => of_its_run(&loaded, registry)?,
        };
        Ok(Self { loaded, plan, usage })
    }

    /// The folder of the run that the checkpoint is in, if it is in one.
    pub fn run(&self) -> Option<PathBuf> {
        run_of(&self.loaded)
    }
}

fn is_best(chosen: Option<&Path>) -> bool {
    chosen == Some(Path::new("best"))
}

/// The checkpoint that `chosen` names (`last`, or a path) of the run in `place`; the last one for `best`, which only the run's job tells.
///
/// # Errors
/// Exit 74: there is no such checkpoint.
pub(super) fn load_chosen(place: &Path, chosen: Option<&Path>) -> Result<Loaded> {
    match chosen {
        Some(path) if !is_best(chosen) && path != Path::new("last") => {
            // Its name alone is enough, among the run's.
            let among = checkpoints(place).join(path);
            load_any(if !path.exists() && among.is_dir() { &among } else { path })
        }
        _ => load_any(place),
    }
}

fn run_of(loaded: &Loaded) -> Option<PathBuf> {
    let run = loaded.path.parent()?.parent()?.to_owned();
    (checkpoints(&run) == loaded.path.parent()?).then_some(run)
}

/// What the use of a checkpoint of an earlier version needs: its job is in its run's folder, the rest in its data.
fn of_its_run(loaded: &Loaded, registry: &Registry) -> Result<(Usage, Plan)> {
    let job = run_of(loaded).map(|run| run.join("job.toml")).filter(|job| job.is_file());
    let Some(job) = job else {
        let what = format!(
            "checkpoint {} is of an earlier version: it does not say what its use needs",
            loaded.path.display()
        );
        return Err(Error::checkpoint(what).hint(
            "it can be used in its run's folder (`job.toml` beside `checkpoints/`), while its data exists",
        ));
    };
    let plan = OverrideArgs::default().plan(&job, registry, WorldRequest::new(1).to(Purpose::Use))?;
    Ok((Usage::of_data(&plan)?, plan))
}
