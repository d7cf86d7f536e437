//! Rank 0's checkpoints: copies the run's state into reserved memory, from which another thread writes it.

use super::snapshot;
use super::state::RunFacts;
use base::error::Result;
use checkpoint::{AsyncSaver, CheckpointConfig, CheckpointStore, Every, SavedCheckpoint, Snapshot};
use ddp::HookState;
use record::CheckpointEvent;
use record::history;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use train::training::{Position, RunTensors};

/// A save that takes longer indicates a failed disk.
pub(super) const SAVE_DEADLINE: Duration = Duration::from_secs(600);

/// The saver, and the training thread's data about the save in progress.
pub struct Checkpoints {
    save_every: Every,
    made: RunFacts,
    out_dir: PathBuf,
    saver: AsyncSaver,
    /// Completed epochs, and how long the training step waited.
    under_way: Option<(u64, Duration)>,
}

impl Checkpoints {
    pub fn open(
        config: &CheckpointConfig,
        save_every: Every,
        made: RunFacts,
        out_dir: &Path,
    ) -> Result<Self> {
        let store = CheckpointStore::open(history::checkpoints(out_dir))?;
        let saver = match config.asynchronous {
            true => AsyncSaver::new(store, config.clone(), SAVE_DEADLINE)?,
            false => AsyncSaver::synchronous(store, config.clone()),
        };
        Ok(Self { save_every, made, out_dir: out_dir.to_owned(), saver, under_way: None })
    }

    /// Allocates memory for a copy of the run's state, so that the first save does not delay a step more than later ones.
    pub fn reserve(&mut self, tensors: RunTensors<'_>) -> Result<()> {
        match self.save_every {
            Every::Never => Ok(()),
            _ => self.saver.reserve(snapshot::empty(tensors)?),
        }
    }

    /// The checkpoint that was completed since the last call; does not block.
    pub fn poll(&mut self) -> Result<Option<CheckpointEvent>> {
        Ok(self.saver.poll()?.map(|saved| self.event(&saved)))
    }

    /// Waits for the save in progress.
    pub fn flush(&mut self) -> Result<Option<CheckpointEvent>> {
        Ok(self.saver.flush()?.map(|saved| self.event(&saved)))
    }

    /// Copies the state and starts writing it, after `before_write`. No save may be in progress. The step has been
    /// waiting since `begun`. Returns the checkpoint if it is already complete.
    pub fn save(
        &mut self,
        begun: Instant,
        position: &Position,
        tensors: RunTensors<'_>,
        hook: Option<HookState>,
        seconds: f64,
        before_write: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Option<CheckpointEvent>> {
        let mut copy = match self.saver.take_spare() {
            Some(spare) => spare,
            None => snapshot::empty(tensors)?,
        };
        snapshot::copy(&mut copy, position, tensors)?;
        copy.usage = Some(self.made.usage.clone());
        copy.state = snapshot::state(&self.made, position, hook.as_ref(), seconds)?;
        let (entries, slots) = (tensors.model.entries().to_vec(), tensors.updater.all_slots());
        let finish = move |snapshot: &mut Snapshot| {
            before_write()?;
            snapshot::finish(snapshot, &entries, &slots, hook.as_ref())
        };
        let saved = self.saver.submit(copy, Box::new(finish))?;
        self.under_way = Some((position.epoch, begun.elapsed()));
        Ok(saved.map(|saved| self.event(&saved)))
    }

    fn event(&mut self, saved: &SavedCheckpoint) -> CheckpointEvent {
        let (epoch, held_up) = self.under_way.take().unzip();
        CheckpointEvent {
            step: saved.step,
            epoch: epoch.unwrap_or(0),
            path: history::relative(&saved.path, &self.out_dir),
            bytes: saved.bytes,
            seconds: saved.seconds,
            held_up_s: held_up.map(|d| d.as_secs_f64()),
        }
    }
}
