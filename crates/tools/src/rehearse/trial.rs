//! One run with a fault, from its start to the end of its last attempt, and what it cost.

use super::matrix::Fault;
use super::watch::{Course, held_worker};
use crate::repro::{Child, Outcomes, Trainer, checkpoint_mismatch, send, waits_for};
use base::error::{Error, IoContext, Result};
use checkpoint::CheckpointStore;
use job::worker::FAULT;
use launch::{ExitCode, StopFlag};
use record::history::checkpoints;
use record::{Event, read_events};
use rustix::process::Signal;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialVerdict {
    /// The run came to its end, with the bits of an undisturbed one.
    Survived,
    /// It came to its end with other bits.
    OtherBits,
    /// It did not come to its end.
    Failed,
    /// The run has no such moment.
    NotReached,
}

/// A fault and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialResult {
    /// Description of the fault, as in `kill rank 1 in forward`.
    pub fault: String,
    /// Outcome of the run.
    pub verdict: TrialVerdict,
    /// Of each start of the command; `None` if it was killed.
    pub exit_codes: Vec<Option<i32>>,
    /// Steps that were trained again.
    pub steps_repeated: Option<u64>,
    /// From the fault to the first new step, or to the end of a run with no further step; for what ends the run, to its end.
    pub seconds: Option<f64>,
    /// What the user should know.
    pub note: String,
}

/// Where trials are played, and what they are compared with.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The reduced spec.
    pub spec: PathBuf,
    /// Whether this process was asked to end.
    pub stop: StopFlag,
    /// For the run folders.
    pub folder: PathBuf,
    pub world: usize,
    /// The undisturbed run's folder.
    pub whole: PathBuf,
    /// The flags of a run with a silent rank.
    pub silent: Vec<String>,
    /// A run that takes longer hangs.
    pub limit: Duration,
}

/// What one start of the command did.
struct Attempt {
    code: Option<i32>,
    hangs: bool,
    course: Course,
    took: Duration,
    told: String,
}

impl Stage {
    /// Plays a fault of one node's run.
    ///
    /// # Errors
    /// Files can't be read or written (74).
    pub fn play(&self, fault: &Fault, number: usize) -> Result<TrialResult> {
        let out = self.folder.join(format!("trial-{number}"));
        let trainer = Trainer::new(&self.spec, &out, self.world, &self.stop);
        let (variable, rank) = fault.variable(self.world);
        let faulty = trainer.clone().variable(FAULT, variable);
        match fault {
            Fault::Rank { kill, .. } => {
                let silent = self.silent.iter().filter(|_| !kill).map(String::as_str);
                let attempt = self.attempt(&faulty.flags(silent).flags(["--max-restarts", "1"]), rank)?;
                self.recovered(fault, &out, attempt)
            }
            Fault::FullDisk => {
                let first = self.attempt(&faulty, rank)?;
                self.resumed(fault, &trainer, first, ExitCode::Io)
            }
            Fault::StopRequest => {
                let first = self.held(&faulty, rank, Signal::TERM)?;
                self.resumed(fault, &trainer, first, ExitCode::Stopped)
            }
            Fault::SupervisorKilled => {
                let first = self.held(&faulty, rank, Signal::KILL)?;
                self.resumed(fault, &trainer, first, ExitCode::Done)
            }
            Fault::LostNode => Err(Error::internal("a lost node is no fault of one node's run")),
        }
    }

    /// A start in which `rank` fails.
    fn attempt(&self, trainer: &Trainer, rank: usize) -> Result<Attempt> {
        let mut child = trainer.start()?;
        let mut course = Course::new(&trainer.out, rank);
        let status = child.watch(|child| {
            course.look(child.age());
            Ok(child.age() < self.limit)
        })?;
        Ok(Attempt::new(&child, status, course))
    }

    /// A start in which `rank` is held in the middle of a step until its supervisor has had `signal` and has passed it on.
    fn held(&self, trainer: &Trainer, rank: usize, signal: Signal) -> Result<Attempt> {
        let mut child = trainer.start()?;
        let mut course = Course::new(&trainer.out, rank);
        let mut held = None;
        let status = child.watch(|child| {
            course.look(child.age());
            match held {
                None => {
                    held = held_worker(child.pid());
                    if held.is_some() {
                        course.strikes_now(child.age());
                        send(child.pid(), signal);
                    }
                }
                // It learns of it before its next step: the run can't come to its end before.
                Some(rank) if waits_for(rank, signal) => send(rank, Signal::CONT),
                Some(_) => {}
            }
            Ok(child.age() < self.limit)
        })?;
        Ok(Attempt::new(&child, status, course))
    }

    /// A supervised run that came back by itself.
    fn recovered(&self, fault: &Fault, out: &Path, attempt: Attempt) -> Result<TrialResult> {
        let done = attempt.code == Some(ExitCode::Done as i32);
        let Some((struck, _)) = attempt.course.struck else {
            let verdict = if done { TrialVerdict::NotReached } else { TrialVerdict::Failed };
            let note = if done { "the run has no such moment".to_owned() } else { attempt.why() };
            return Ok(attempt.tried(fault, verdict, None, None, note));
        };
        let back = attempt.course.recovered.unwrap_or(attempt.took);
        let seconds = Some(back.saturating_sub(struck).as_secs_f64());
        if !done {
            let why = attempt.why();
            return Ok(attempt.tried(fault, TrialVerdict::Failed, None, seconds, why));
        }
        let reached = attempt.course.reached();
        let repeated = attempt.course.restarts_from(out)?.map(|from| reached.saturating_sub(from));
        let (verdict, note) = self.compared(out)?;
        Ok(attempt.tried(fault, verdict, Some(repeated.unwrap_or(0)), seconds, note))
    }

    /// A run that ended with `expected`, or was killed where that is `Done`, and is started again.
    fn resumed(
        &self,
        fault: &Fault,
        trainer: &Trainer,
        first: Attempt,
        expected: ExitCode,
    ) -> Result<TrialResult> {
        let Some((struck, step)) = first.course.struck else {
            let note = match first.code == Some(ExitCode::Done as i32) {
                true => "the run ended before".to_owned(),
                false => first.why(),
            };
            return Ok(first.tried(fault, TrialVerdict::NotReached, None, None, note));
        };
        let killed = expected == ExitCode::Done;
        let seconds = (!killed).then(|| first.took.saturating_sub(struck).as_secs_f64());
        let as_it_should = if killed { first.code.is_none() } else { first.code == Some(expected as i32) };
        if !as_it_should || first.hangs {
            let why = first.why();
            return Ok(first.tried(fault, TrialVerdict::Failed, None, seconds, why));
        }
        // A stop request takes the step that is under way with it.
        let reached = step.max(Outcomes::read(&trainer.out.join("metrics.jsonl"))?.last_step().unwrap_or(0));
        let second = self.attempt(trainer, 0)?;
        let mut tried = if second.code == Some(ExitCode::Done as i32) {
            let resumed = resumed_at(&trainer.out)?.unwrap_or(0);
            let (verdict, note) = self.compared(&trainer.out)?;
            first.tried(fault, verdict, Some(reached.saturating_sub(resumed)), seconds, note)
        } else {
            first.tried(fault, TrialVerdict::Failed, None, seconds, second.why())
        };
        tried.exit_codes.push(second.code);
        Ok(tried)
    }

    /// Compares a run that is done with the undisturbed one.
    pub fn compared(&self, out: &Path) -> Result<(TrialVerdict, String)> {
        let outcomes = |folder: &Path| Outcomes::read(&folder.join("metrics.jsonl"));
        let mut differs = outcomes(&self.whole)?.differs(&outcomes(out)?);
        let newest = |folder: &Path| {
            let saved = CheckpointStore::read_only(checkpoints(folder)).list()?;
            saved
                .into_iter()
                .next_back()
                .ok_or_else(|| Error::checkpoint(format!("there is no checkpoint in {}", folder.display())))
        };
        if differs.is_none() {
            let [whole, own] = [newest(&self.whole)?, newest(out)?];
            differs = checkpoint_mismatch(whole.step, &whole.path, &own.path, true)?;
        }
        Ok(match differs {
            None => (TrialVerdict::Survived, String::new()),
            Some(first) => (
                TrialVerdict::OtherBits,
                format!(
                    "step {}: {} is {}, undisturbed {}",
                    first.step, first.what, first.now, first.recorded
                ),
            ),
        })
    }
}

impl Attempt {
    fn new(child: &Child, status: Option<std::process::ExitStatus>, course: Course) -> Self {
        let code = status.and_then(|status| status.code());
        Self { code, hangs: status.is_none(), course, took: child.age(), told: child.told() }
    }

    /// The first line of the error, or what else is known.
    fn why(&self) -> String {
        why(&self.told, self.hangs, self.took)
    }

    fn tried(
        &self,
        fault: &Fault,
        verdict: TrialVerdict,
        steps_repeated: Option<u64>,
        seconds: Option<f64>,
        note: String,
    ) -> TrialResult {
        let exit_codes = vec![self.code];
        TrialResult { fault: fault.name(), verdict, exit_codes, steps_repeated, seconds, note }
    }
}

/// Why a run did not come to its end, from what it said.
pub fn why(told: &str, hangs: bool, took: Duration) -> String {
    if hangs {
        return format!("it hung and was killed after {} s", took.as_secs());
    }
    let error = told.lines().find_map(|line| line.strip_prefix("error: "));
    error.or_else(|| told.lines().last()).unwrap_or("it said nothing").to_owned()
}

/// The step of the run's last resume; `None` if it started over.
pub fn resumed_at(out: &Path) -> Result<Option<u64>> {
    let events = read_events(&out.join("metrics.jsonl"))?;
    Ok(events.iter().rev().find_map(|event| match event {
        Event::Resume(resume) => Some(resume.step),
        _ => None,
    }))
}

/// Runs the reduced spec without a fault, and returns the time until its first step, its longest step after that, and its whole time.
///
/// # Errors
/// The run fails, with its exit code.
pub fn undisturbed(trainer: &Trainer) -> Result<[Duration; 3]> {
    let mut child = trainer.start()?;
    let metrics = trainer.out.join("metrics.jsonl");
    let (mut last, mut begun) = (0, Instant::now());
    let (mut first, mut longest) = (None, Duration::ZERO);
    let status = child.watch(|child| {
        let step = Outcomes::read(&metrics)?.last_step().unwrap_or(0);
        if step > last {
            match first {
                None => first = Some(child.age()),
                Some(_) => longest = longest.max(begun.elapsed()),
            }
            (last, begun) = (step, Instant::now());
        }
        Ok(true)
    })?;
    let took = child.age();
    match status {
        Some(status) if status.success() => Ok([first.unwrap_or(took), longest.max(begun.elapsed()), took]),
        Some(status) => Err(child.failed(status, "the undisturbed run")),
        None => Err(Error::internal("the undisturbed run was not watched to its end")),
    }
}

/// Removes a trial's folder; what can't be removed stays.
pub fn clear(folder: &Path) -> Result<()> {
    match folder.exists() {
        true => std::fs::remove_dir_all(folder).doing("remove", folder),
        false => Ok(()),
    }
}
