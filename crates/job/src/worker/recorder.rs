//! Records a rank's events. Every rank logs its epochs; rank 0 also writes metrics, TensorBoard files, checkpoints
//! and the report, and shows progress.

mod observer;

use super::checkpoints::Checkpoints;
use super::metrics::{Reported, epochs_until, metrics_until};
use super::notes::Notes;
use super::replicas::Undecided;
use base::display;
use base::error::{Error, ExitCode, Result};
use base::screen::columns_of_errors;
use checkpoint::RankBy;
use collectives::ProcessGroup;
use data::Encoding;
use launch::logs::ALREADY_PRINTED;
use record::history::{Parent, relative};
use record::{
    CheckpointEvent, DigestWriter, EndEvent, Event, MetricsWriter, ObservedRun, ObserverPlan, Observers,
    Progress, ProgressMode, RestartEvent, ResumeEvent, Stamped, StartOfRun, SummaryOf, TensorBoardWriter,
    Totals, cut_digests, read_events, report, summary,
};
use std::path::{Path, PathBuf};
use std::time::Instant;
use train::training::{Anatomy, Ended, Position, RunTensors, Settings, Stragglers};

/// The reason for a repeated start without a checkpoint.
const NOTHING_SAVED: &str = "nothing was saved";

/// Options of rank 0's recorder.
#[derive(Clone, Debug, Default)]
pub struct RecorderOptions {
    pub progress: ProgressMode,
    /// [`Plan::set_values`](crate::plan::Plan::set_values) of the spec as typed.
    pub set: Vec<String>,
    /// The number and reason of this attempt, if the workers were restarted.
    pub restart: Option<(u64, String)>,
}

/// The parts of rank 0's files.
pub struct Files {
    pub out_dir: PathBuf,
    pub reported: Reported,
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
    settings: Settings,
    rank: usize,
    first: Option<First>,
}

/// The parts that only rank 0 has.
struct First {
    out_dir: PathBuf,
    reported: Reported,
    metrics: MetricsWriter,
    /// With `metrics.digests`.
    digests: Option<DigestWriter>,
    /// With `distributed.check_replicas`.
    undecided: Undecided,
    /// `None` after an error.
    tensorboard: Option<TensorBoardWriter>,
    unshown: Unshown,
    notes: Notes,
    progress: Progress,
    observers: Observers,
    checkpoints: Checkpoints,
    started: Instant,
    /// Training time before this process, in seconds.
    trained: f64,
    /// Values since the last step line.
    window: Window,
    stragglers: Stragglers,
    hosts: Vec<String>,
    last: (u64, u64),
    /// Micro-batches since the beginning of the epoch, or since a resize redistributed its rest.
    micro_batches: u64,
    /// Samples of the epoch that were finished before this process.
    before: f64,
    /// The first error of a callback that can't return one.
    failed: Option<Error>,
    /// What the summary needs; `None` if there is to be none.
    closing: Option<Closing>,
}

struct Closing {
    epochs: u64,
    best: RankBy,
}

/// Failures of files that only pages and TensorBoard read, which are no reason to end a run. The first is a warning.
#[derive(Default)]
struct Unshown(bool);

impl Unshown {
    fn note<T>(&mut self, done: Result<T>) -> Option<T> {
        done.inspect_err(|e| {
            if !std::mem::replace(&mut self.0, true) {
                super::messages::warn(&format!("{}; the run goes on, and its pages lack this", e.message));
            }
        })
        .ok()
    }
}

#[derive(Default)]
struct Window {
    samples: f64,
    seconds: f64,
    data_wait: f64,
}

impl Recorder {
    /// A recorder that writes to its rank's log only.
    pub fn new(settings: Settings, rank: usize) -> Self {
        Self { settings, rank, first: None }
    }

    /// Opens the run's files on rank 0. Removes the lines of a resumed run after `position`, because those steps are
    /// repeated.
    pub fn open(
        &mut self,
        group: &dyn ProcessGroup,
        position: &Position,
        files: Files,
        options: RecorderOptions,
    ) -> Result<()> {
        let Files {
            out_dir,
            reported,
            samples,
            checkpoints,
            best,
            parent,
            observers,
            hosts,
            encoding,
            described,
            ..
        } = files;
        let mut observed = files.observed;
        let shows = options.progress != ProgressMode::None;
        let (epochs, max_steps) = (self.settings.epochs, self.settings.train.max_steps);
        let left = position.steps_left(epochs, samples, self.settings.loader.drop_last);
        let totals = Totals { epochs, steps: position.step.saturating_add(left), max_steps };
        let own = parent.as_ref().is_some_and(|parent| parent.is_within(&out_dir));
        let (mut metrics, found) = metrics_until(position, own, &self.settings, &out_dir)?;
        let digests = self.digests(&out_dir, position.step)?;
        let undecided = Undecided::of(found.divergence.clone());
        (observed.step, observed.epochs) = (position.step, epochs_until(position, &self.settings));
        (observed.resumes, observed.restarts) = (parent.is_some(), found.restarts);
        let mut observers = Observers::start(&observers, observed);
        let mut progress = Progress::new(options.progress, totals);
        // An earlier start that saved nothing has only left the event of its end.
        let again = || (parent.is_none() && found.has_events()).then(|| (1, NOTHING_SAVED.to_owned()));
        let restart = options.restart.or_else(again);
        let restart = restart.map(|(attempt, reason)| Event::Restart(RestartEvent { attempt, reason }));
        let resume = parent.as_ref().map(|parent| {
            progress.resume_at(position.step);
            Event::Resume(ResumeEvent {
                step: position.step,
                epoch: position.epoch,
                path: relative(&parent.checkpoint, &out_dir),
                world: group.world_size(),
                global_batch: position.batching.global_batch(),
                accumulate: position.batching.accumulate,
            })
        });
        for event in restart.iter().chain(&resume) {
            let event = Stamped::now(event);
            metrics.write(&event)?;
            observers.pass(&event);
        }
        let tokens = reported.tokens;
        let notes = Notes::open(&out_dir, position.step, best, &self.settings, tokens, encoding);
        let mut unshown = Unshown::default();
        let tensorboard = TensorBoardWriter::create(&out_dir.join("tensorboard"), position.step, &described);
        self.first = Some(First {
            notes,
            reported,
            tensorboard: unshown.note(tensorboard),
            unshown,
            checkpoints,
            out_dir,
            metrics,
            digests,
            undecided,
            progress,
            observers,
            started: Instant::now(),
            trained: parent.map_or(0.0, |parent| parent.seconds),
            window: Window::default(),
            stragglers: Stragglers::default(),
            hosts,
            last: (position.step, position.epoch),
            micro_batches: 0,
            before: 0.0,
            failed: None,
            closing: shows.then_some(Closing { epochs, best }),
        });
        Ok(())
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
        self.first.as_mut().map_or(Ok(()), |first| first.checkpoints.reserve(tensors))
    }

    /// Waits for the save in progress, writes the last event and the report, and passes on the run's end. Calls `failed` with its error
    /// before it waits for observers.
    pub fn finish(
        mut self,
        ended: Result<Ended>,
        early: Option<String>,
        failed: &dyn Fn(&Error) -> bool,
    ) -> Result<Ended> {
        let Some(first) = self.first.take() else { return ended };
        first.finish(ended, early, failed)
    }
}

impl First {
    /// Keeps the first failure; the training loop receives it at the next save.
    fn note<T>(&mut self, done: Result<T>) -> Option<T> {
        match done {
            Ok(value) => Some(value),
            Err(e) => {
                tracing::error!(target: ALREADY_PRINTED, "{}", e.message);
                self.failed.get_or_insert(e);
                None
            }
        }
    }

    fn write(&mut self, event: &Event) {
        let line = Stamped::now(event);
        let done = self.metrics.write(&line);
        self.note(done);
        let written = self.tensorboard.as_mut().map_or(Ok(()), |tensorboard| tensorboard.write(event));
        if self.unshown.note(written).is_none() {
            self.tensorboard = None;
        }
        self.observers.pass(&line);
    }

    fn name_stragglers(&mut self, anatomy: &Anatomy) {
        for slow in self.stragglers.after(anatomy) {
            let host = self
                .hosts
                .get(slow.rank)
                .map_or(String::new(), |host| format!(" on {}", display::name(host)));
            super::messages::warn(&format!("rank {}{host} is slow: {slow}", slow.rank));
        }
    }

    fn saved(&mut self, saved: Option<CheckpointEvent>) {
        let Some(saved) = saved else { return };
        tracing::info!("saved {}: {} bytes in {:.3} s", saved.path, saved.bytes, saved.seconds);
        self.write(&Event::Checkpoint(saved));
    }

    fn finish(
        mut self,
        ended: Result<Ended>,
        early: Option<String>,
        failed: &dyn Fn(&Error) -> bool,
    ) -> Result<Ended> {
        let flushed = self.checkpoints.flush();
        let saved = self.note(flushed).flatten();
        self.saved(saved);
        let ended = match (ended, self.failed.take()) {
            (Ok(_), Some(e)) => Err(e),
            (ended, _) => ended,
        };
        if let Err(e) = &ended {
            failed(e);
        }
        let (reason, code) = match &ended {
            Ok(Ended::Done) => (early.clone().unwrap_or_else(|| "done".to_owned()), ExitCode::Done),
            Ok(Ended::Stopped) => ("stopped".to_owned(), ExitCode::Stopped),
            Err(e) => (e.message.clone(), e.code),
        };
        let (step, epoch) = self.last;
        let seconds = self.trained + self.started.elapsed().as_secs_f64();
        self.progress.finish();
        early.iter().filter(|_| code == ExitCode::Done).for_each(|why| info!("{why}"));
        let end = EndEvent { step, epoch, reason, exit_code: code as u8, seconds };
        self.write(&Event::End(end.clone()));
        let unwritten = self.failed.take().filter(|_| ended.is_ok());
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
        self.observers.finish();
        unwritten.map_or(ended, Err)
    }

    /// Writes the report, and prints the summary of a run that is complete.
    fn conclude(&self, end: &EndEvent) -> Result<()> {
        let written = report::write(&self.out_dir);
        if let Some(Closing { epochs, best }) = self.closing.as_ref().filter(|_| end.exit_code == 0) {
            let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_owned()));
            let program = program.unwrap_or_default();
            let events = read_events(&self.out_dir.join("metrics.jsonl"))?;
            let run = SummaryOf {
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
