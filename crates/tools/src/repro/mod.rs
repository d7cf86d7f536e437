//! `ddp-run repro`: whether a run can be repeated. What it recorded of its spec, program, data and machine is compared with the
//! present (`checks`), the run is run again with the numbers of processes that it had (`history`, `repeat`), and what it does is
//! compared to the bit (`same`). Nothing in the run's folder changes.
//!
//! `rehearse` uses what starts runs (`child`, `job`) and compares them, and `bisect` what starts them and their `history`.

mod checks;
mod child;
mod history;
mod job;
mod repeat;
mod report;
mod same;
mod specs;

pub use child::{Child, Trainer, children, send, waits_for};
#[cfg(test)]
pub use history::Unknown;
pub use history::{History, HistoryPart};
pub use job::EditedSpec;
pub use report::ReproReport;
pub use same::{Outcomes, checkpoints as checkpoint_mismatch};

use crate::runs::{RunFolder, RunStatus, ranking};
use ::job::plan::{Plan, WorldRequest};
use ::job::registry::Registry;
use ::job::worker::{JobHandoff, present_data, provenance_of, recorded_data};
use base::display::count;
use base::error::{Error, Result};
use base::files::{WorkFolder, folder as folder_of};
use checkpoint::{Entry, read_state};
use data::Fingerprint;
use ddp::device;
use launch::{OnSecondSignal, StopFlag};
use record::provenance::{Provenance, RunFile};
use record::{Event, RunId, for_each_event};
use repeat::Repeat;
use spec::JobTree;
use specs::Spec;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Numbers of processes that a run may have had.
const WORLDS: RangeInclusive<usize> = 1..=65_536;

/// What is to be repeated.
#[derive(Clone, Debug)]
pub struct Request {
    /// The run's folder.
    pub run: PathBuf,
    /// At most this many steps, rounded up to one that is recorded.
    pub steps: Option<u64>,
    /// For the files of the repetition; without it they are temporary.
    pub out: Option<PathBuf>,
    /// Only compare what is recorded with the present.
    pub checks_only: bool,
    /// Ends the repetition.
    pub stop: StopFlag,
}

/// What is in the folder of the run.
struct Recorded {
    folder: PathBuf,
    starts: RunFile,
    outcomes: Outcomes,
    saved: Vec<Entry>,
    history: History,
    /// The lines of metrics.jsonl that are no events.
    damaged: Vec<usize>,
    /// Everything was trained.
    done: bool,
}

impl Recorded {
    /// # Errors
    /// A file is missing or can't be read (74), or the run is running (2).
    fn read(folder: &Path, registry: &Registry) -> Result<Self> {
        let run = RunFolder::read(folder, &ranking(registry));
        if run.state == RunStatus::Running {
            return Err(Error::usage(format!("{} is running", folder.display()))
                .hint("a run can be repeated when it has ended, or was stopped"));
        }
        let lacks = |name: &str| {
            let why = run.problems.first().map_or_else(|| "it is missing".to_owned(), Clone::clone);
            Error::io(format!("{} can't be repeated without {name}: {why}", folder.display()))
        };
        let starts = run.starts.clone().ok_or_else(|| lacks("run.json"))?;
        let metrics = folder.join("metrics.jsonl");
        let outcomes = Outcomes::read(&metrics)?;
        if outcomes.last_step().is_none() {
            return Err(lacks("a recorded step or epoch in metrics.jsonl"));
        }
        let mut events = Vec::new();
        for_each_event(&metrics, |event| {
            if matches!(event, Event::Resume(_) | Event::Epoch(_)) {
                events.push(event);
            }
        })?;
        let history = History::new(folder, &starts, &events)?;
        if let Some(world) =
            history.worlds().chain([starts.latest.world]).find(|world| !WORLDS.contains(world))
        {
            let what = format!("{} records a start with {world} processes", folder.display());
            return Err(Error::io(what).hint("run.json and metrics.jsonl have their number as `world`"));
        }
        let damaged = same::damaged_lines(&metrics)?;
        let done = run.state == RunStatus::Done;
        Ok(Self {
            folder: folder.to_owned(),
            starts,
            outcomes,
            saved: run.checkpoints,
            history,
            damaged,
            done,
        })
    }

    /// Lines that can't be compared.
    fn unread(&self) -> Option<String> {
        let first = self.damaged.first()?;
        let lines = count(self.damaged.len(), "line");
        Some(format!("{lines} of metrics.jsonl, the first is line {first}: no event"))
    }

    /// The fingerprint of the data in the newest checkpoint that has one.
    fn data(&self) -> Option<Fingerprint> {
        self.saved.iter().rev().find_map(|saved| recorded_data(&read_state(&saved.path).ok()?))
    }

    /// The hash of each start's spec as this program reads it: of the last one where its own is not known. `plan` is that of the last one.
    ///
    /// # Errors
    /// The program does not take one of them (78).
    fn hashes_now(&self, starts: &[&Provenance], plan: &Plan, registry: &Registry) -> Result<Vec<String>> {
        let mut known = BTreeMap::from([(self.history.last_spec().hash.as_str(), plan.hash.clone())]);
        for start in starts {
            let own = self.history.specs.iter().find(|spec| spec.hash == start.spec_hash);
            if let Some(spec) = own.filter(|spec| !known.contains_key(spec.hash.as_str())) {
                known.insert(&spec.hash, planned(spec, start.world, registry)?.hash);
            }
        }
        let now = |start: &&Provenance| known.get(start.spec_hash.as_str()).unwrap_or(&plan.hash).clone();
        Ok(starts.iter().map(now).collect())
    }

    /// The step at which the repetition ends; `None` where the run ends by itself.
    fn until(&self, steps: Option<u64>) -> Option<u64> {
        let last = self.outcomes.last_step()?;
        let asked = steps.map(|steps| self.outcomes.step_from(steps).unwrap_or(last));
        asked.filter(|step| *step < last).or((!self.done).then_some(last))
    }
}

/// Compares what is recorded with the present, repeats the run and compares it. Call it from the main thread.
///
/// # Errors
/// The run can't be read (74), the present program does not take its spec or its data is gone (78), the repetition fails, or
/// this process was asked to end (75).
pub fn run(request: &Request, registry: &Registry, tell: &mut dyn FnMut(&str)) -> Result<ReproReport> {
    let recorded = Recorded::read(&request.run, registry)?;
    usable(request, &recorded.folder)?;
    let plan = planned(recorded.history.last_spec(), recorded.starts.latest.world, registry)?;
    let starts = recorded.starts.since_beginning();
    let hashes = recorded.hashes_now(&starts, &plan, registry)?;
    let mut checks = checks::all(&starts, &present(&plan, &recorded), hashes);
    let data = present_data(&plan);
    checks.push(checks::data(recorded.data().as_ref(), data.as_ref().ok()));
    let until = recorded.until(request.steps);
    let mut unknown = recorded.history.unknown_of(0, until);
    unknown.extend(not_recorded(&plan, &starts));
    unknown.extend(recorded.unread());
    let mut report = ReproReport {
        run: recorded.folder.clone(),
        checks,
        unknown,
        parts: recorded.history.up_to(until).to_vec(),
        hashes: recorded.history.specs.iter().map(|spec| spec.hash.clone()).collect(),
        until,
        recorded_last_step: recorded.outcomes.last_step().unwrap_or(0),
        folder: None,
        compared: None,
    };
    if let Err(error) = data {
        tell(&report.heading(false));
        return Err(with_start_folder(error));
    }
    tell(&report.heading(!request.checks_only));
    if request.checks_only {
        return Ok(report);
    }
    let origin = recorded.history.origin.as_deref();
    if let Some(gone) = origin.filter(|path| !path.exists()) {
        let what = format!("the run began with checkpoint {}, which is gone", gone.display());
        return Err(Error::checkpoint(what).hint("restore it at this path; it can't be repeated without"));
    }
    let jobs: Vec<EditedSpec> =
        recorded.history.specs.iter().map(|spec| spec.job.clone().on_its_own()).collect();
    // From now on a signal does not end this process at once: the folder is removed first.
    request.stop.on_second(OnSecondSignal::Exit);
    let place = WorkFolder::new(request.out.as_deref(), "ddp-run-repro")?;
    let repeat = Repeat {
        outcomes: &recorded.outcomes,
        saved: &recorded.saved,
        parts: &report.parts,
        origin,
        jobs: &jobs,
        until,
        folder: place.path(),
        prune: request.out.is_none(),
        stop: &request.stop,
    };
    let (done, out) = (repeat.run(), repeat.out());
    let compared = match done {
        Ok(compared) => compared,
        Err(e) if request.stop.requested() => return Err(e),
        Err(e) => return Err(place.kept_after(e)),
    };
    report.folder = (request.out.is_some() || compared.first_difference.is_some()).then_some(out);
    if report.folder.is_some() {
        place.keep();
    }
    report.compared = Some(compared);
    Ok(report)
}

/// Checks the folder that is given for the repetition.
///
/// # Errors
/// It is not empty, or in the run's folder (2).
fn usable(request: &Request, run: &Path) -> Result<()> {
    let hint = "the repetition gets a folder of its own";
    let Some(out) = request.out.as_deref() else { return Ok(()) };
    if real(out).zip(real(run)).is_some_and(|(out, run)| out.starts_with(run)) {
        let what = format!("--out {}: it is in the folder of the run", out.display());
        return Err(Error::usage(what).hint(hint));
    }
    WorkFolder::check(Some(out), hint)
}

/// The path without links, of a file that may not be there yet.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(real(folder_of(path))?.join(path.file_name()?)))
}

/// The plan of one of the recorded specs on as many processes as a start had.
fn planned(spec: &Spec, world: usize, registry: &Registry) -> Result<Plan> {
    let tree = JobTree::parse(&spec.file.display().to_string(), &spec.text, &[]);
    let request = WorldRequest { devices: device::count, ..WorldRequest::new(world) };
    Ok(Plan::resolve(&tree, registry, request)?)
}

fn with_start_folder(error: Error) -> Error {
    let own = error.hint.clone().map_or_else(String::new, |hint| format!("{hint}; "));
    error.hint(own + "relative paths of a spec start where its run was started: start `repro` there, too")
}

/// What a start would record now, of a spec in the folder that the recorded spec was in.
fn present(plan: &Plan, recorded: &Recorded) -> Provenance {
    let of_toml = |word: &&String| word.ends_with(".toml") && Path::new(word.as_str()).exists();
    let spec = recorded.starts.latest.argv.iter().skip(1).find(of_toml).cloned();
    let spec_name = spec.unwrap_or_else(|| recorded.folder.join("job.toml").display().to_string());
    let job = JobHandoff { spec_name, ..JobHandoff::default() };
    // All processes are on this machine.
    let mut here = plan.clone();
    here.world.nnodes = 1;
    here.world.nproc_per_node = here.world.world_size;
    let mut present = provenance_of(&here, &job, "ddp-run", RunId::default());
    if checks::nodes(&recorded.starts.latest) > 1 {
        // The devices of one node are compared.
        present.devices.truncate(recorded.starts.latest.devices.len());
    }
    present
}

/// What results may depend on, and nothing records.
fn not_recorded(plan: &Plan, starts: &[&Provenance]) -> Vec<String> {
    let mut lines = Vec::new();
    if starts.iter().any(|start| start.git.as_ref().is_some_and(|git| git.dirty == Some(true))) {
        lines.push("files were changed since the commit; their contents are not recorded".to_owned());
    }
    if plan.is_set("model.pretrained") {
        lines.push("the contents of the weights in `model.pretrained` are not recorded".to_owned());
    }
    lines
}
