//! Rank 0's checkpoints: copies of the run's state into memory that is kept for them, on their way to the disk.

use super::snapshot;
use super::state::Made;
use crate::checkpoint::{AsyncSaver, CheckpointConfig, CheckpointStore, Every, Saved, Snapshot};
use crate::ddp::HookState;
use crate::error::Result;
use crate::history;
use crate::models::Model;
use crate::telemetry::CheckpointEvent;
use crate::train::{Position, Updater};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A save that takes longer means a dead disk.
pub(super) const SAVE_DEADLINE: Duration = Duration::from_secs(600);

/// The saver, and what only the training thread knows of the save under way.
pub struct Checkpoints {
    save_every: Every,
    made: Made,
    out_dir: PathBuf,
    saver: AsyncSaver,
    /// Epochs completed, and how long the training step waited.
    under_way: Option<(u64, Duration)>,
}

impl Checkpoints {
    pub fn open(config: &CheckpointConfig, save_every: Every, made: Made, out_dir: &Path) -> Result<Self> {
        let store = CheckpointStore::open(history::checkpoints(out_dir))?;
        let saver = match config.asynchronous {
            true => AsyncSaver::new(store, config.retention(), SAVE_DEADLINE)?,
            false => AsyncSaver::synchronous(store, config.retention()),
        };
        Ok(Self { save_every, made, out_dir: out_dir.to_owned(), saver, under_way: None })
    }

    /// Has memory ready for a copy of the run's state, so that the first save holds no step up longer than the others do.
    pub fn reserve(&mut self, model: &dyn Model, updater: &Updater) -> Result<()> {
        match self.save_every {
            Every::Never => Ok(()),
            _ => self.saver.reserve(snapshot::empty(model, updater)?),
        }
    }

    /// The checkpoint that has become complete since the last call, without waiting.
    pub fn poll(&mut self) -> Result<Option<CheckpointEvent>> {
        let saved = self.saver.poll()?;
        Ok(saved.map(|saved| self.event(&saved)))
    }

    /// Waits until nothing is under way.
    pub fn flush(&mut self) -> Result<Option<CheckpointEvent>> {
        let saved = self.saver.flush()?;
        Ok(saved.map(|saved| self.event(&saved)))
    }

    /// Copies the state and has it written, after `before_write`. Nothing may be under way. The step has been held up since
    /// `begun`. Returns the checkpoint if it is complete already.
    #[allow(clippy::too_many_arguments)]
    pub fn save(
        &mut self,
        begun: Instant,
        position: &Position,
        model: &dyn Model,
        updater: &Updater,
        hook: Option<HookState>,
        seconds: f64,
        before_write: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Option<CheckpointEvent>> {
        let mut copy = match self.saver.take_spare() {
            Some(spare) => spare,
            None => snapshot::empty(model, updater)?,
        };
        snapshot::copy(&mut copy, position, model, updater)?;
        copy.state = snapshot::state(&self.made, position, hook.as_ref(), seconds)?;
        let (entries, slots) = (model.entries().to_vec(), updater.slots());
        let finish = move |snapshot: &mut Snapshot| {
            before_write()?;
            snapshot::finish(snapshot, &entries, slots, hook.as_ref())
        };
        let saved = self.saver.submit(copy, Box::new(finish))?;
        self.under_way = Some((position.epoch, begun.elapsed()));
        Ok(saved.map(|saved| self.event(&saved)))
    }

    fn event(&mut self, saved: &Saved) -> CheckpointEvent {
        let (epoch, held_up) = self.under_way.take().unzip();
        CheckpointEvent {
            step: saved.step,
            epoch: epoch.unwrap_or(0),
            path: saved.path.strip_prefix(&self.out_dir).unwrap_or(&saved.path).display().to_string(),
            bytes: saved.bytes,
            seconds: saved.seconds,
            held_up_s: held_up.map(|d| d.as_secs_f64()),
        }
    }
}
