//! `ddp-run repro`: whether a run can be repeated. What it recorded of its spec, program, data and machine is compared with the
//! present (`checks`), the run is run again with the numbers of processes that it had (`history`, `repeat`), and what it does is
//! compared to the bit (`same`). Nothing in the run's folder changes.
//!
//! `rehearse` uses what starts runs (`child`, `job`) and compares them, and `bisect` what starts them and their `history`.

mod checks;
mod child;
mod history;
mod job;
mod place;
mod repeat;
mod report;
mod same;

pub use child::{Child, Trainer, children, send};
pub use history::{History, Part};
pub use job::Job;
pub use report::Report;
pub use same::{Outcomes, checkpoints as checkpoint_mismatch};

use crate::checkpoint::{Entry, read_state};
use crate::data::Fingerprint;
use crate::device;
use crate::error::{Error, Result};
use crate::files;
use crate::history::spec_of;
use crate::launch::{JobHandoff, OnSecondSignal, StopFlag};
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::runs::{RunFolder, State, ranking};
use crate::show::count;
use crate::spec::JobTree;
use crate::telemetry::provenance::{Provenance, RunFile};
use crate::telemetry::{Event, RunId, for_each_event};
use crate::worker::{present_data, provenance_of, recorded_data};
use place::Place;
use repeat::Repeat;
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
    /// Those that its steps were trained with, as [`History::specs`] has their hashes.
    specs: Vec<String>,
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
        if run.state == State::Running {
            return Err(Error::usage(format!("{} is running", folder.display()))
                .hint("a run can be repeated when it has ended, or was stopped"));
        }
        let lacks = |name: &str| {
            let why = run.problems.first().map_or_else(|| "it is missing".to_owned(), Clone::clone);
            Error::checkpoint(format!("{} can't be repeated without {name}: {why}", folder.display()))
        };
        let starts = run.starts.clone().ok_or_else(|| lacks("run.json"))?;
        let job_toml = files::read_text(&folder.join("job.toml")).map_err(|_| lacks("job.toml"))?;
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
        let history = History::of(folder, &starts, &events);
        if let Some(world) =
            history.worlds().chain([starts.latest.world]).find(|world| !WORLDS.contains(world))
        {
            let what = format!("{} records a start with {world} processes", folder.display());
            return Err(
                Error::checkpoint(what).hint("run.json and metrics.jsonl have their number as `world`")
            );
        }
        let specs = history.spec_texts(folder, &job_toml)?;
        let damaged = same::damaged_lines(&metrics)?;
        let done = run.state == State::Done;
        Ok(Self {
            folder: folder.to_owned(),
            starts,
            specs,
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

    /// The spec of a start, as an index of its specs: the last one where its own is not known.
    fn spec_of(&self, start: &Provenance) -> usize {
        let known = self.history.specs.iter().position(|hash| *hash == start.spec_hash);
        known.unwrap_or_else(|| self.last_spec())
    }

    fn last_spec(&self) -> usize {
        self.history.parts.last().map_or(0, |part| part.spec)
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
pub fn run(request: &Request, registry: &Registry, tell: &mut dyn FnMut(&str)) -> Result<Report> {
    let recorded = Recorded::read(&request.run, registry)?;
    Place::check(request, &recorded.folder)?;
    let last = &recorded.starts.latest;
    let plan = planned(&recorded, recorded.last_spec(), last.world, registry)?;
    let starts = recorded.starts.since_beginning();
    let mut hashes = Vec::new();
    for start in &starts {
        hashes.push(match recorded.spec_of(start) {
            spec if spec == recorded.last_spec() => plan.hash.clone(),
            spec => planned(&recorded, spec, start.world, registry)?.hash,
        });
    }
    let mut checks = checks::all(&starts, &present(&plan, &recorded), hashes);
    let data = present_data(&plan);
    checks.push(checks::data(recorded.data().as_ref(), data.as_ref().ok()));
    let mut unknown = recorded.history.unknown.clone();
    unknown.extend(not_recorded(&plan, &starts));
    unknown.extend(recorded.unread());
    let until = recorded.until(request.steps);
    let mut report = Report {
        run: recorded.folder.clone(),
        checks,
        unknown,
        parts: recorded.history.up_to(until).to_vec(),
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
    let jobs: Vec<Job> =
        recorded.specs.iter().map(|spec| Job::parse(spec).map(Job::on_its_own)).collect::<Result<_>>()?;
    // From now on a signal does not end this process at once: the folder is removed first.
    request.stop.on_second(OnSecondSignal::Exit);
    let place = Place::make(request)?;
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

/// The plan of one of the recorded specs on as many processes as a start had.
fn planned(recorded: &Recorded, spec: usize, world: usize, registry: &Registry) -> Result<Plan> {
    let own = Some(spec).filter(|spec| *spec != recorded.last_spec());
    let own = own.and_then(|spec| spec_of(&recorded.folder, &recorded.history.specs[spec]));
    let file = own.unwrap_or_else(|| recorded.folder.join("job.toml")).display().to_string();
    let tree = JobTree::parse(&file, &recorded.specs[spec], &[])?;
    let request = WorldRequest { devices: device::count, ..WorldRequest::of(world) };
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
