//! Records a rank's events. Every rank logs its epochs; rank 0 also writes metrics, TensorBoard files, checkpoints
//! and the report, and shows progress.

mod event_log;
mod observer;
mod step_counts;

use self::event_log::EventLog;
use self::step_counts::{SlowRanks, StepCounts};
use super::checkpoints::Checkpoints;
use super::metrics::{Reported, epochs_until, metrics_until};
use super::notes::Notes;
use super::replicas::Undecided;
use base::display;
use base::error::{Error, Result};
use base::screen::columns_of_errors;
use checkpoint::RankBy;
use collectives::ProcessGroup;
use data::Encoding;
use ddp::device::ComputeDevice;
use launch::ExitCode;
use launch::logs::ALREADY_PRINTED;
use record::history::{Parent, relative};
use record::{
    CheckpointEvent, DigestWriter, EndEvent, Event, ObservedRun, ObserverPlan, Observers, Progress,
    ProgressMode, RestartEvent, ResumeEvent, StartOfRun, SummaryFacts, Totals, cut_digests, read_events,
    report, summary,
};
use std::path::{Path, PathBuf};
use std::time::Instant;
use train::training::{Position, RunTensors, TrainSettings, TrainingEnd};

/// The reason for a repeated start without a checkpoint.
const NOTHING_SAVED: &str = "nothing was saved";

/// Options of rank 0's recorder.
#[derive(Clone, Debug, Default)]
pub struct RecorderOptions {
    /// How progress is shown on standard error.
    pub progress: ProgressMode,
    /// [`Plan::set_values`](crate::plan::Plan::set_values) of the spec as typed.
    pub set: Vec<String>,
    /// The number and reason of this attempt, if the workers were restarted.
    pub restart: Option<(u64, String)>,
}

/// The files of rank 0's recorder, and what it writes to them.
pub struct RecordedFiles {
    pub out_dir: PathBuf,
    pub reported: Reported,
    pub device: ComputeDevice,
    /// Samples per epoch.
    pub samples: usize,
    pub checkpoints: Checkpoints,
    /// The metric that ranks checkpoints.
    pub best: RankBy,
    pub parent: Option<Parent>,
    pub observers: Vec<ObserverPlan>,
    /// The name of each rank's host.
    pub hosts: Vec<String>,
    /// The encoding of the data.
    pub encoding: Option<Encoding>,
    /// What observers receive about the run, without its position.
    pub observed: ObservedRun,
    /// What TensorBoard receives about it.
    pub described: StartOfRun,
}

/// The observer of one rank.
pub struct Recorder {
    settings: TrainSettings,
    rank: usize,
    /// On rank 0, of a run that has something to record.
    run: Option<RunRecord>,
}

/// What only rank 0 records.
struct RunRecord {
    out_dir: PathBuf,
    reported: Reported,
    /// The same of the validation split, since its first evaluation.
    reported_of_val: Option<Reported>,
    events: EventLog,
    /// With `metrics.digests`.
    digests: Option<DigestWriter>,
    /// With `distributed.check_replicas`.
    undecided: Undecided,
    notes: Notes,
    progress: Progress,
    checkpoints: Checkpoints,
    time: TrainingTime,
    counts: StepCounts,
    slow_ranks: SlowRanks,
    /// What the summary needs; `None` if there is to be none.
    closing: Option<Closing>,
}

/// The time of a training.
struct TrainingTime {
    started: Instant,
    /// Seconds before this process.
    before: f64,
}

struct Closing {
    epochs: u64,
    best: RankBy,
}

impl Recorder {
    /// A recorder that writes to its rank's log only.
    pub fn new(settings: TrainSettings, rank: usize) -> Self {
        Self { settings, rank, run: None }
    }

    /// Opens the run's files on rank 0. Removes the lines of a resumed run after `position`, because those steps are
    /// repeated.
    pub fn open(
        &mut self,
        group: &dyn ProcessGroup,
        position: &Position,
        files: RecordedFiles,
        options: RecorderOptions,
    ) -> Result<()> {
        let RecordedFiles { out_dir, reported, checkpoints, best, parent, encoding, mut observed, .. } =
            files;
        let (step, epochs) = (position.step, self.settings.epochs);
        let own = parent.as_ref().is_some_and(|parent| parent.is_within(&out_dir));
        let (metrics, found) = metrics_until(position, own, &self.settings, &out_dir)?;
        let digests = self.digests(&out_dir, step)?;
        (observed.step, observed.epochs) = (step, epochs_until(position, &self.settings));
        (observed.resumes, observed.restarts) = (parent.is_some(), found.restarts);
        let mut events = EventLog::new(metrics, Observers::start(&files.observers, observed));
        let mut progress = Progress::new(options.progress, self.totals(position, files.samples));
        // An earlier start that saved nothing has only left the event of its end.
        let again = || (parent.is_none() && found.has_events()).then(|| (1, NOTHING_SAVED.to_owned()));
        if let Some((attempt, reason)) = options.restart.or_else(again) {
            events.begin(&Event::Restart(RestartEvent { attempt, reason }))?;
        }
        if let Some(parent) = &parent {
            progress.resume_at(step);
            let path = relative(&parent.checkpoint, &out_dir);
            events.begin(&resume_event(position, path, group.world_size()))?;
        }
        if files.device != ComputeDevice::Cpu {
            progress.compiling_kernels(&files.device.to_string());
        }
        let notes = Notes::open(&out_dir, step, best, &self.settings, reported.tokens, encoding);
        events.open_tensorboard(&out_dir, step, &files.described);
        let shows = options.progress != ProgressMode::None;
        let before = parent.map_or(0.0, |parent| parent.seconds);
        self.run = Some(RunRecord {
            out_dir,
            reported,
            reported_of_val: None,
            events,
            digests,
            undecided: Undecided::new(found.divergence),
            notes,
            progress,
            checkpoints,
            time: TrainingTime { started: Instant::now(), before },
            counts: StepCounts::new(position),
            slow_ranks: SlowRanks::new(files.hosts),
            closing: shows.then_some(Closing { epochs, best }),
        });
        Ok(())
    }

    /// What the progress counts to, from `position` on.
    fn totals(&self, position: &Position, samples: usize) -> Totals {
        let (epochs, max_steps) = (self.settings.epochs, self.settings.train.max_steps);
        let left = position.steps_left(epochs, samples, self.settings.loader.drop_last);
        Totals { epochs, steps: position.step.saturating_add(left), max_steps }
    }

    /// The writer of digests, if there are to be some. The lines of steps that are repeated are removed in any case.
    fn digests(&self, out_dir: &Path, step: u64) -> Result<Option<DigestWriter>> {
        match self.settings.digests.is_never() {
            true => cut_digests(out_dir, step).map(|()| None),
            false => DigestWriter::open(out_dir, step).map(Some),
        }
    }

    /// Allocates memory for saves at the start of the run; see `checkpoints`.
    pub fn reserve(&mut self, tensors: RunTensors<'_>) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| run.checkpoints.reserve(tensors))
    }

    /// Waits for the save in progress, writes the last event and the report, and passes on the run's end. Calls `failed` with its error
    /// before it waits for observers.
    pub fn finish(
        mut self,
        ended: Result<TrainingEnd>,
        early: Option<String>,
        failed: &dyn Fn(&Error) -> bool,
    ) -> Result<TrainingEnd> {
        let Some(run) = self.run.take() else { return ended };
        run.finish(ended, early, failed)
    }
}

fn resume_event(position: &Position, path: String, world: usize) -> Event {
    let Position { step, epoch, batching, .. } = *position;
    let (global_batch, accumulate) = (batching.global_batch(), batching.accumulate);
    Event::Resume(ResumeEvent { step, epoch, path, world, global_batch, accumulate })
}

impl RunRecord {
    fn saved(&mut self, saved: Option<CheckpointEvent>) {
        let Some(saved) = saved else { return };
        tracing::info!("saved {}: {} bytes in {:.3} s", saved.path, saved.bytes, saved.seconds);
        self.events.write(&Event::Checkpoint(saved));
    }

    fn finish(
        mut self,
        ended: Result<TrainingEnd>,
        early: Option<String>,
        failed: &dyn Fn(&Error) -> bool,
    ) -> Result<TrainingEnd> {
        let saved = self.events.keep_error(self.checkpoints.flush()).flatten();
        self.saved(saved);
        let ended = match (ended, self.events.take_error()) {
            (Ok(_), Some(e)) => Err(e),
            (ended, _) => ended,
        };
        if let Err(e) = &ended {
            failed(e);
        }
        let (reason, code) = match &ended {
            Ok(TrainingEnd::Done) => (early.clone().unwrap_or_else(|| "done".to_owned()), ExitCode::Done),
            Ok(TrainingEnd::Stopped) => ("stopped".to_owned(), ExitCode::Stopped),
            Err(e) => (e.message.clone(), e.kind.into()),
        };
        let (step, epoch) = self.counts.last;
        let seconds = self.time.before + self.time.started.elapsed().as_secs_f64();
        self.progress.finish();
        early.iter().filter(|_| code == ExitCode::Done).for_each(|why| info!("{why}"));
        let end = EndEvent { step, epoch, reason, exit_code: code as u8, seconds };
        self.events.write(&Event::End(end.clone()));
        let unwritten = self.events.take_error().filter(|_| ended.is_ok());
        if let Some(e) = &unwritten {
            failed(e);
        }
        if unwritten.is_none()
            && let Err(e) = self.conclude(&end)
        {
            // Whoever concludes the run tries again, and warns.
            tracing::warn!(target: ALREADY_PRINTED, "cannot write the report: {}", e.message);
        }
        // At last: a run of several ranks that has failed is taken down in about a second.
        self.events.observers.finish();
        unwritten.map_or(ended, Err)
    }

    /// Writes the report, and prints the summary of a run that is complete.
    fn conclude(&self, end: &EndEvent) -> Result<()> {
        let written = report::write(&self.out_dir);
        if let Some(Closing { epochs, best }) = self.closing.as_ref().filter(|_| end.exit_code == 0) {
            let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_owned()));
            let program = program.unwrap_or_default();
            let events = read_events(&self.out_dir.join("metrics.jsonl"))?;
            let run = SummaryFacts {
                dir: &self.out_dir,
                program: &program.to_string_lossy(),
                epochs: *epochs,
                best: (best.name(), best.prefers_larger()),
                columns: columns_of_errors(),
            };
            status!("{}", display::message(&summary(&events, end, &run)));
        }
        written.map(drop)
    }
}
