//! Runs the parts of a run again, and compares what they do while they do it.

use super::child::{Child, Trainer};
use super::history::HistoryPart;
use super::job::EditedSpec;
use super::same::{self, EventKind, Mismatch, Outcomes, StepOutcome, Tail};
use base::display::count;
use base::error::{Error, IoContext, Result};
use checkpoint::{CheckpointStore, Entry};
use job::worker::STOP_AT;
use launch::{ExitCode, StopFlag};
use record::MetricsWriter;
use record::history::checkpoints;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two lines about the progress.
const TELL: Duration = Duration::from_secs(10);

/// What is repeated, and where.
pub struct Repeat<'a> {
    pub outcomes: &'a Outcomes,
    /// Of the recorded run.
    pub saved: &'a [Entry],
    pub parts: &'a [HistoryPart],
    /// The checkpoint of another run that it begins with.
    pub origin: Option<&'a Path>,
    /// The specs of the parts.
    pub jobs: &'a [EditedSpec],
    /// The steps end here; `None`: where the run ends.
    pub until: Option<u64>,
    /// For its files.
    pub folder: &'a Path,
    /// Remove checkpoints that nothing needs any more.
    pub prune: bool,
    pub stop: &'a StopFlag,
}

/// What was compared, up to the first difference.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Compared {
    pub step_events: u64,
    pub epoch_events: u64,
    /// The steps of the checkpoints.
    pub checkpoints: Vec<u64>,
    /// The last step that was compared.
    pub last_step: u64,
    pub first_difference: Option<Mismatch>,
    /// What could not be compared, a line each.
    pub not_compared: Vec<String>,
}

/// The state of a repetition.
struct Watched<'a> {
    repeat: &'a Repeat<'a>,
    out: PathBuf,
    tail: Tail,
    seen: BTreeSet<(u64, EventKind)>,
    looked_at: BTreeSet<u64>,
    /// Events that the recorded run lacks.
    beside: BTreeSet<(u64, EventKind)>,
    told: Instant,
    done: Compared,
}

impl Repeat<'_> {
    /// The run's folder of the repetition.
    pub fn out(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Call it from the main thread.
    ///
    /// # Errors
    /// The run fails where the recorded one did not, with its exit code; files can't be read or written (74).
    pub fn run(&self) -> Result<Compared> {
        let mut watched = Watched {
            repeat: self,
            out: self.out(),
            tail: Tail::default(),
            seen: BTreeSet::new(),
            looked_at: BTreeSet::new(),
            beside: BTreeSet::new(),
            told: Instant::now(),
            done: Compared::default(),
        };
        for at in 0..self.parts.len() {
            watched.part(at)?;
            if watched.done.first_difference.is_some() {
                return Ok(watched.done);
            }
        }
        watched.missing();
        Ok(watched.done)
    }

    /// The step at which part number `at` is told to stop. The end of an epoch is saved when it is measured, so that part goes on to the
    /// first step behind it.
    fn stop_at(&self, at: usize) -> Option<u64> {
        let next = self.parts.get(at + 1);
        next.map_or(self.until, |next| Some(next.from.saturating_add(u64::from(next.at_epoch_end))))
    }

    /// The run of part number `at`.
    fn trainer(&self, at: usize) -> Result<Trainer> {
        let mut job = self.jobs[self.parts[at].spec].clone();
        job.set("checkpoint.keep_last", 0i64).set("checkpoint.on_preempt", "save");
        if self.parts.get(at + 1).is_some_and(|next| next.at_epoch_end) {
            job.set("save_every", 1i64);
        }
        let spec = self.folder.join("job.toml");
        fs::write(&spec, job.text()).doing("write", &spec)?;
        let resume = match (at, self.origin) {
            (0, Some(origin)) => origin.display().to_string(),
            (0, None) => "never".to_owned(),
            _ => "auto".to_owned(),
        };
        let trainer = Trainer::new(&spec, &self.out(), self.parts[at].world, self.stop).flags([
            "--resume",
            &resume,
            "--accept-changes",
        ]);
        Ok(match self.stop_at(at) {
            Some(step) => trainer.variable(STOP_AT, step),
            None => trainer,
        })
    }
}

impl Watched<'_> {
    fn part(&mut self, at: usize) -> Result<()> {
        let (stop_at, next) = (self.repeat.stop_at(at), self.repeat.parts.get(at + 1));
        let mut child = self.repeat.trainer(at)?.start()?;
        let status = child.watch(|child| {
            self.look(child, stop_at, next)?;
            Ok(self.done.first_difference.is_none())
        })?;
        let Some(status) = status.filter(|_| self.done.first_difference.is_none()) else { return Ok(()) };
        let ended = status.code().and_then(ExitCode::from_status);
        if !matches!(ended, Some(ExitCode::Done | ExitCode::Stopped)) {
            return Err(child.failed(status, "the repetition"));
        }
        next.map_or(Ok(()), |next| self.go_back_to(next.from))
    }

    /// The next part resumes at `step`. What is behind it is removed here and not by its start, so that its metrics only grow.
    fn go_back_to(&mut self, step: u64) -> Result<()> {
        MetricsWriter::cut_after(&self.out.join("metrics.jsonl"), step)?;
        self.tail = Tail::default();
        let saved = CheckpointStore::read_only(checkpoints(&self.out)).list()?;
        for later in saved.iter().filter(|entry| entry.step > step) {
            fs::remove_dir_all(&later.path).doing("remove", &later.path)?;
        }
        match saved.iter().any(|entry| entry.step == step) {
            true => Ok(()),
            false => Err(Error::checkpoint(format!(
                "the recorded run was resumed at step {step}, but its repetition saved nothing there"
            ))),
        }
    }

    /// Compares what is new.
    fn look(&mut self, child: &Child, stop_at: Option<u64>, next: Option<&HistoryPart>) -> Result<()> {
        let (metrics, mut tail, mut new) = (self.out.join("metrics.jsonl"), self.tail, Vec::new());
        tail.read(&metrics, |outcome| new.push(outcome))?;
        self.tail = tail;
        let last = next.map(|next| next.from).or(stop_at);
        new.retain(|outcome| last.is_none_or(|last| outcome.step <= last));
        let mut found: Vec<Mismatch> = new.iter().filter_map(|outcome| self.compare(outcome)).collect();
        found.extend(self.compare_checkpoints(stop_at, last, next)?);
        self.done.first_difference = found.into_iter().min_by_key(|mismatch| mismatch.step);
        if self.told.elapsed() >= TELL && self.done.first_difference.is_none() {
            self.told = Instant::now();
            status!("step {} after {} s, identical so far", self.done.last_step, child.age().as_secs());
        }
        Ok(())
    }

    fn compare(&mut self, now: &StepOutcome) -> Option<Mismatch> {
        let Some(recorded) = self.repeat.outcomes.matching(now) else {
            self.beside.insert((now.step, now.kind));
            return None;
        };
        // A resumed part has the lines of the parts before it.
        if self.seen.insert((now.step, now.kind)) {
            match now.kind {
                EventKind::Step => self.done.step_events += 1,
                EventKind::Epoch => self.done.epoch_events += 1,
            }
            self.done.last_step = self.done.last_step.max(now.step);
        }
        recorded.differs(now)
    }

    /// `last`: the last step of this part. It may stop one step later, and the recorded checkpoint of that step is of the next part.
    fn compare_checkpoints(
        &mut self,
        stop_at: Option<u64>,
        last: Option<u64>,
        next: Option<&HistoryPart>,
    ) -> Result<Option<Mismatch>> {
        let present = CheckpointStore::read_only(checkpoints(&self.out)).list()?;
        let mut found = None;
        for entry in present.iter().filter(|entry| last.is_none_or(|last| entry.step <= last)) {
            if !self.looked_at.insert(entry.step) {
                continue;
            }
            let Some(recorded) = self.repeat.saved.iter().find(|saved| saved.step == entry.step) else {
                continue;
            };
            // A stop saves the end of an epoch before it is measured; a run that goes on from there saves it again.
            let measured = self.repeat.outcomes.has_epoch_at(entry.step);
            let whole = stop_at != Some(entry.step) || !measured;
            match same::checkpoints(entry.step, &recorded.path, &entry.path, whole) {
                Ok(None) => self.done.checkpoints.push(entry.step),
                Ok(mismatch) => found = found.or(mismatch),
                Err(e) => self.done.not_compared.push(e.message),
            }
        }
        if self.repeat.prune {
            let needed = |entry: &Entry| next.is_some_and(|next| next.from == entry.step);
            let newest = present.last().map(|entry| entry.step);
            for old in present.iter().filter(|entry| Some(entry.step) != newest && !needed(entry)) {
                // The next look removes what is still there.
                let _ = fs::remove_dir_all(&old.path);
            }
        }
        Ok(found)
    }

    /// What the repetition has, and the recorded run has not: `metrics.log_every` was another one, or lines are gone.
    fn not_recorded(&mut self) {
        for kind in [EventKind::Step, EventKind::Epoch] {
            let mut of = self.beside.iter().filter(|(_, its)| *its == kind).map(|(step, _)| *step);
            let Some(first) = of.next() else { continue };
            let (what, more) = (kind.noun(), of.count());
            self.done.not_compared.push(format!(
                "{} of the repetition, the first at step {first}: the recorded run has none there",
                count(more + 1, what)
            ));
        }
    }

    /// What the recorded run has, and the repetition has not.
    fn missing(&mut self) {
        let until = self.repeat.until;
        let due = |it: &&StepOutcome| match (until, it.kind) {
            (None, _) => true,
            (Some(last), EventKind::Step) => it.step <= last,
            // A stop does not wait for the end of the epoch.
            (Some(last), EventKind::Epoch) => it.step < last,
        };
        let begin = self.repeat.parts[0].from;
        let mut due = self.repeat.outcomes.iter().filter(due).filter(|it| it.step > begin);
        let missing = due.find(|it| !self.seen.contains(&(it.step, it.kind)));
        self.done.first_difference = missing.map(|it| it.lone("there", "missing"));
        self.not_recorded();
        let within = |step: u64| step > begin && until.is_none_or(|until| step <= until);
        let left: Vec<&Entry> = self
            .repeat
            .saved
            .iter()
            .filter(|saved| within(saved.step) && !self.looked_at.contains(&saved.step))
            .collect();
        if let [first, ..] = left[..] {
            self.done.not_compared.push(format!(
                "{} of the recorded run, the first at step {}: the repetition saved nothing there",
                count(left.len(), "checkpoint"),
                first.step
            ));
        }
    }
}
