//! `ddp-run sweep`: several runs of one spec that differ in some of its keys. What is run is `prepare`d from the settings
//! (`expand`, `share`, `fork`, `lengths`); `schedule`, a state machine, says what runs next; `children` are processes of this program, each an
//! ordinary run in a separate folder; `state` is the file from which a killed sweep continues. At the end there is a table
//! (`outcome`) and a page (`page`, `heat`).

mod children;
mod expand;
mod flags;
mod fork;
mod heat;
mod lengths;
mod outcome;
mod page;
mod prepare;
mod progress;
mod scale;
mod schedule;
mod share;
mod state;

pub use flags::Flags;
pub use outcome::{json, text};
pub use prepare::{Prepared, prepare};

use crate::runs::Ranking;
use base::display::count;
use base::error::{Error, IoContext, Result};
use base::files::{self, LockedFile};
use children::Children;
use launch::{ExitCode, StopFlag};
use progress::Progress;
use record::{Event, read_events};
use schedule::{ChildState, Ended, Schedule};
use state::File;
use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// For how long a killed sweep's children may still hold its lock.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval between attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(20);
/// The page in the sweep's folder.
const PAGE: &str = "sweep.html";

/// A sweep that has ended.
pub struct SweepOutcome {
    /// The sweep's folder.
    pub folder: PathBuf,
    /// Path of `sweep.html`.
    pub page: PathBuf,
    /// Final content of `sweep.json`.
    pub file: File,
    /// The children from the best to the worst, by number.
    ranking: Vec<usize>,
    /// `WorkerFailed` if a run has failed, `Stopped` if one is unfinished, else `Done`.
    pub code: ExitCode,
}

/// Runs the children that are not done, and writes `sweep.json` and `sweep.html`. Call it from the main thread: the children die
/// with the calling thread.
///
/// # Errors
/// Another sweep is in the folder (78), or one is running there (74); a file can't be written (74). A child that fails is not an error.
pub fn run(prepared: Prepared, ranking: Ranking<'_>, stop: &StopFlag) -> Result<SweepOutcome> {
    let folder = prepared.folder.clone();
    if crate::runs::RunFolder::is_one(&folder) {
        return Err(Error::spec(format!("{} is the folder of a run", folder.display()))
            .hint("`--out DIR` puts the sweep elsewhere"));
    }
    let spec = folder.join(state::SPEC);
    if File::read(&folder)?.is_none() {
        files::replaces_no_other(&spec, &[])?;
        files::replaces_no_other(&folder.join(PAGE), &[])?;
    }
    std::fs::create_dir_all(folder.join(children::LOGS)).doing("create", &folder)?;
    let _lock = lock(&folder)?;
    let mut file = prepared.file();
    if let Some(before) = File::read(&folder)? {
        file.continues(&before, &folder)?;
    }
    let behind = prepared.behind();
    let children = file.children.iter().zip(behind).map(|(record, behind)| record.child(behind)).collect();
    let schedule = Schedule::new(prepared.rules, children);
    let mut running = Running { prepared: &prepared, schedule, file, ranking, unranked: false };
    // Before the spec, which is known by it as the sweep's.
    running.save()?;
    files::replace(&spec, prepared.spec_toml.as_bytes())?;
    let progress = Progress::new(&running.file, &running.schedule);
    let mut processes = Children::new(&prepared, stop)?;
    running.until_all_ended(&mut processes, &progress)?;
    progress.finish();
    running.outcome()
}

/// What changes while the sweep runs.
struct Running<'a> {
    prepared: &'a Prepared,
    schedule: Schedule,
    file: File,
    ranking: Ranking<'a>,
    /// A run has measured nothing that tells which runs are to continue.
    unranked: bool,
}

impl Running<'_> {
    fn until_all_ended(&mut self, processes: &mut Children<'_>, progress: &Progress) -> Result<()> {
        let mut reported = false;
        loop {
            while let Some((at, slot)) = self.schedule.start() {
                self.begin(at, slot, processes)?;
            }
            progress.show(&self.file, &self.schedule);
            if self.schedule.is_over() {
                return Ok(());
            }
            let happened = processes.wait()?;
            if happened.stop {
                self.schedule.stop();
            }
            for (at, ended) in happened.ended {
                self.end(at, ended, progress)?;
            }
            if self.schedule.stopping() && !std::mem::replace(&mut reported, true) {
                let running = self.schedule.running().count();
                if running > 0 {
                    progress.say(&format!("stopping: {} to save and end", count(running, "run")));
                }
                if !self.unranked {
                    progress.say("the same command continues the sweep");
                }
                processes.stop();
            }
        }
    }

    fn begin(&mut self, at: usize, slot: usize, processes: &mut Children<'_>) -> Result<()> {
        let (rung, behind) = (self.schedule.children()[at].rung, self.schedule.children()[at].behind);
        let folder = self.prepared.folder_of(at);
        let before = behind.filter(|behind| self.schedule.children()[*behind].state == ChildState::Done);
        // One that was started before has a folder, if only with logs; and the other run may have been removed.
        let is_there = |before: &usize| crate::runs::RunFolder::is_one(&self.prepared.folder_of(*before));
        if let Some(before) = before.filter(|before| !folder.exists() && is_there(before)) {
            fork::remove_begun(&folder)?;
            fork::copy(&self.prepared.folder_of(before), &folder)?;
            self.file.children[at].continues = Some(self.file.children[before].name.clone());
        }
        // Before it runs: a child that has begun is known.
        self.save()?;
        processes.start(at, slot, rung)
    }

    fn end(&mut self, at: usize, ended: children::End, progress: &Progress) -> Result<()> {
        let ended = match ended {
            children::End::Done => Ended::Done(self.value(at)),
            children::End::Stopped => Ended::Stopped,
            children::End::Failed(code) => Ended::Failed(code),
        };
        // Without a value, the first runs would continue, not the best.
        if self.prepared.rules.rungs > 1 && ended == Ended::Done(None) && !self.is_measured(at)? {
            self.unranked = true;
            self.schedule.stop();
        }
        self.schedule.ended(at, ended);
        self.save()?;
        progress.ended(&self.file, at, ended, &self.prepared.log_of(at));
        Ok(())
    }

    /// The best value of the metric in a child's metrics.
    fn value(&self, at: usize) -> Option<f64> {
        let run = crate::runs::RunFolder::read(&self.prepared.folder_of(at), self.ranking);
        run.course.best.map(|best| best.value)
    }

    /// Whether a child has measured the metric, if only as NaN.
    fn is_measured(&self, at: usize) -> Result<bool> {
        let events = read_events(&self.prepared.folder_of(at).join("metrics.jsonl"))?;
        let has_value = |event: &Event| match event {
            Event::Epoch(epoch) => epoch.value(&self.file.metric).is_some(),
            _ => false,
        };
        Ok(events.iter().any(has_value))
    }

    fn save(&mut self) -> Result<()> {
        for (record, child) in self.file.children.iter_mut().zip(self.schedule.children()) {
            record.take(child);
        }
        self.file.write(&self.prepared.folder)
    }

    fn outcome(self) -> Result<SweepOutcome> {
        if self.unranked {
            return Err(prepare::not_ranked(&self.file.metric));
        }
        let folder = self.prepared.folder.clone();
        let ranking = self.schedule.ranking();
        let page = folder.join(PAGE);
        let html = page::render(&self.file, &ranking, &self.prepared.warnings());
        files::replace(&page, html.as_bytes())?;
        let code = match () {
            () if self.schedule.has(ChildState::Failed) => ExitCode::WorkerFailed,
            () if self.schedule.is_unfinished() => ExitCode::Stopped,
            () => ExitCode::Done,
        };
        Ok(SweepOutcome { folder, page, file: self.file, ranking, code })
    }
}

/// One sweep at a time writes to a folder; the kernel releases the lock when the process dies.
fn lock(folder: &Path) -> Result<LockedFile> {
    let path = folder.join("sweep.lock");
    let begun = Instant::now();
    let file = base::files::open_with(&path, std::fs::File::options().create(true).write(true));
    let file = file.doing("create", &path)?;
    // Any other error means a file system without locks.
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if begun.elapsed() >= PATIENCE {
            return Err(Error::io(format!("another sweep is writing to {}", folder.display()))
                .hint("`--out DIR` writes elsewhere"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(LockedFile(file))
}
