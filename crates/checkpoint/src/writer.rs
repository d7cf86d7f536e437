//! Asynchronous saves: the training loop submits a snapshot and continues; a thread writes it.
//!
//! At most one save is in progress, and the next one waits for it, so the loop learns of an error no later than at the
//! next save. A written snapshot is returned and reused for the next save, so there is only one in memory.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::CheckpointConfig;
use super::snapshot::Snapshot;
use super::store::{CheckpointStore, SavedCheckpoint};
use base::error::{Error, Result};

type WriteOutcome = (Result<Option<SavedCheckpoint>>, Snapshot);

/// Completes a snapshot before it is written, on the writing thread.
pub type Finish = Box<dyn FnOnce(&mut Snapshot) -> Result<()> + Send>;

enum WriterTask {
    /// Touch the memory, so that it is mapped.
    Reserve,
    Save(Finish),
}

/// Writes snapshots to a store, and removes after each the checkpoints that are not to be kept.
pub struct AsyncSaver {
    task: Arc<Task>,
    /// `None`: `submit` saves on the calling thread.
    worker: Option<Worker>,
    deadline: Duration,
    /// See [`AsyncSaver::take_spare`].
    spare: Option<Snapshot>,
}

struct Task {
    store: CheckpointStore,
    config: CheckpointConfig,
}

struct Worker {
    jobs: Sender<(Snapshot, WriterTask)>,
    done: Receiver<WriteOutcome>,
    thread: JoinHandle<()>,
    in_flight: bool,
}

impl AsyncSaver {
    /// Saves on a separate thread. `deadline` limits every wait for it: a save that takes longer (on a hung network
    /// disk) is an error.
    pub fn new(store: CheckpointStore, config: CheckpointConfig, deadline: Duration) -> Result<Self> {
        let task = Arc::new(Task { store, config });
        let (jobs, inbox) = bounded::<(Snapshot, WriterTask)>(1);
        let (outbox, done) = bounded::<WriteOutcome>(1);
        let on_thread = Arc::clone(&task);
        let thread = thread::Builder::new()
            .name("checkpoint".into())
            .spawn(move || {
                for (mut snapshot, job) in inbox {
                    let outcome = (on_thread.run(&mut snapshot, job), snapshot);
                    if outbox.send(outcome).is_err() {
                        break;
                    }
                }
            })
            .map_err(|e| Error::internal(format!("cannot start the checkpoint thread: {e}")))?;
        let worker = Some(Worker { jobs, done, thread, in_flight: false });
        Ok(Self { task, worker, deadline, spare: None })
    }

    /// The same interface without a thread: `submit` returns when the checkpoint is on disk.
    pub fn synchronous(store: CheckpointStore, config: CheckpointConfig) -> Self {
        let task = Arc::new(Task { store, config });
        Self { task, worker: None, deadline: Duration::MAX, spare: None }
    }

    #[cfg(test)]
    fn store(&self) -> &CheckpointStore {
        &self.task.store
    }

    /// Makes `snapshot` the spare one and touches its memory in the background, so that the first save is as fast as
    /// later ones.
    pub fn reserve(&mut self, snapshot: Snapshot) -> Result<()> {
        self.flush()?;
        self.start(snapshot, WriterTask::Reserve)?;
        Ok(())
    }

    /// Waits for the previous save, then submits `snapshot`, which is finished, checked and written. Returns the save
    /// completed since the last call: the previous one, or this one if synchronous.
    ///
    /// # Errors
    /// The error of the previous save (`ErrorKind::Io`, or `ErrorKind::NonFinite` for values that
    /// are not finite); `snapshot` is not saved then.
    pub fn submit(&mut self, snapshot: Snapshot, finish: Finish) -> Result<Option<SavedCheckpoint>> {
        let before = self.flush()?;
        Ok(self.start(snapshot, WriterTask::Save(finish))?.or(before))
    }

    /// Returns the save completed since the last call, without waiting.
    pub fn poll(&mut self) -> Result<Option<SavedCheckpoint>> {
        let outcome = self.worker.as_mut().map_or(Ok(None), |w| w.receive(Duration::ZERO))?;
        self.note(outcome)
    }

    /// Waits until no save is in progress. Call this before the process exits.
    pub fn flush(&mut self) -> Result<Option<SavedCheckpoint>> {
        let deadline = self.deadline;
        let outcome = self.worker.as_mut().map_or(Ok(None), |w| w.wait(deadline))?;
        self.note(outcome)
    }

    /// Takes the last written or reserved snapshot, so that the next save reuses its memory: touching fresh memory
    /// costs more than the copy itself. `None` while it is being written.
    pub fn take_spare(&mut self) -> Option<Snapshot> {
        self.spare.take()
    }

    /// Passes the job to the thread, or runs it here if there is none.
    fn start(&mut self, mut snapshot: Snapshot, job: WriterTask) -> Result<Option<SavedCheckpoint>> {
        let Some(worker) = &mut self.worker else {
            let result = self.task.run(&mut snapshot, job);
            return self.note(Some((result, snapshot)));
        };
        worker.jobs.send((snapshot, job)).map_err(|_| thread_exited())?;
        worker.in_flight = true;
        Ok(None)
    }

    fn note(&mut self, outcome: Option<WriteOutcome>) -> Result<Option<SavedCheckpoint>> {
        let Some((result, snapshot)) = outcome else { return Ok(None) };
        self.spare = Some(snapshot);
        result
    }
}

impl Task {
    fn run(&self, snapshot: &mut Snapshot, job: WriterTask) -> Result<Option<SavedCheckpoint>> {
        let WriterTask::Save(finish) = job else {
            snapshot.touch();
            return Ok(None);
        };
        let _span = tracing::trace_span!("checkpoint").entered();
        finish(snapshot)?;
        snapshot.check_finite()?;
        let saved = self.store.save(snapshot)?;
        // The checkpoint is saved; a failed clean-up does not stop training.
        if let Err(e) = self.store.retain(&self.config) {
            tracing::warn!("{e}");
        }
        Ok(Some(saved))
    }
}

impl Worker {
    /// `None` if no save is in progress.
    fn wait(&mut self, deadline: Duration) -> Result<Option<WriteOutcome>> {
        let started = Instant::now();
        let outcome = self.receive(deadline)?;
        if self.in_flight {
            let waited = started.elapsed().as_secs_f64();
            let what =
                format!("a checkpoint was not written within {waited:.0} s; the disk may have stalled");
            return Err(Error::checkpoint(what).cause(io::Error::from(io::ErrorKind::TimedOut)));
        }
        Ok(outcome)
    }

    /// `None` if no save is in progress, or it is not complete after `timeout`.
    fn receive(&mut self, timeout: Duration) -> Result<Option<WriteOutcome>> {
        if !self.in_flight {
            return Ok(None);
        }
        match self.done.recv_timeout(timeout) {
            Ok(outcome) => {
                self.in_flight = false;
                Ok(Some(outcome))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(thread_exited()),
        }
    }
}

impl Drop for AsyncSaver {
    /// Completes a save in progress: an early return from the loop must not lose it.
    fn drop(&mut self) {
        let Some(mut worker) = self.worker.take() else { return };
        match worker.wait(self.deadline) {
            Ok(outcome) => {
                if let Some((Err(e), _)) = outcome {
                    tracing::error!("{e}");
                }
                drop(worker.jobs);
                let _ = worker.thread.join();
            }
            Err(e) => tracing::error!("{e}"),
        }
    }
}

fn thread_exited() -> Error {
    Error::internal("the checkpoint thread exited unexpectedly")
}

#[cfg(test)]
mod tests {
    use super::super::fault::{Fault, FaultyFs};
    use super::super::testing::{same, scratch, snapshot, steps};
    use super::*;
    use base::error::ErrorKind;

    fn unchanged() -> Finish {
        Box::new(|_| Ok(()))
    }

    const SOON: Duration = Duration::from_secs(60);

    fn saving() -> (tempfile::TempDir, AsyncSaver) {
        let dir = scratch();
        let store = CheckpointStore::open(dir.path()).unwrap();
        (dir, AsyncSaver::new(store, CheckpointConfig::default(), SOON).unwrap())
    }

    fn gated(deadline: Duration) -> (tempfile::TempDir, Sender<()>, AsyncSaver) {
        let dir = scratch();
        let (gate, closed) = bounded(8);
        let store = CheckpointStore::open_with(dir.path(), Arc::new(FaultyFs::gated(closed))).unwrap();
        let saver = AsyncSaver::new(store, CheckpointConfig::default(), deadline).unwrap();
        (dir, gate, saver)
    }

    #[test]
    fn submit_returns_before_the_write_and_the_next_submit_waits() {
        let (_dir, gate, mut saver) = gated(SOON);
        assert_eq!(saver.submit(snapshot(1, 0), unchanged()).unwrap(), None);
        assert_eq!(saver.poll().unwrap(), None);
        assert_eq!(steps(saver.store()), [] as [u64; 0]);
        gate.send(()).unwrap();
        let first = saver.submit(snapshot(2, 0), unchanged()).unwrap().unwrap();
        assert_eq!((first.step, steps(saver.store())), (1, vec![1]));
        assert_eq!(saver.take_spare(), Some(snapshot(1, 0)));
        gate.send(()).unwrap();
        assert_eq!(saver.flush().unwrap().unwrap().step, 2);
        assert_eq!(saver.flush().unwrap(), None);
        assert_eq!(steps(saver.store()), [1, 2]);
    }

    #[test]
    fn dropping_the_saver_completes_the_save_in_progress() {
        let (dir, gate, mut saver) = gated(SOON);
        saver.submit(snapshot(3, 0), unchanged()).unwrap();
        gate.send(()).unwrap();
        drop(saver);
        let loaded = CheckpointStore::read_only(dir.path()).latest_verified().unwrap().unwrap();
        assert!(same(&loaded, &snapshot(3, 0)));
    }

    #[test]
    fn a_stalled_disk_is_an_error_at_the_deadline() {
        let (_dir, gate, mut saver) = gated(Duration::from_millis(20));
        saver.submit(snapshot(1, 0), unchanged()).unwrap();
        let e = saver.flush().unwrap_err();
        assert_eq!(e.kind, ErrorKind::Io);
        assert!(e.message.contains("the disk may have stalled"), "{e}");
        gate.send(()).unwrap();
    }

    #[test]
    fn a_failed_save_is_reported_once_by_the_next_call() {
        let dir = scratch();
        let fs = FaultyFs::new(Fault::ErrorAt(4, libc::ENOSPC));
        let store = CheckpointStore::open_with(dir.path(), Arc::new(fs)).unwrap();
        let mut saver = AsyncSaver::new(store, CheckpointConfig::default(), SOON).unwrap();
        assert_eq!(saver.submit(snapshot(1, 0), unchanged()).unwrap(), None);
        let e = saver.submit(snapshot(2, 0), unchanged()).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Io);
        assert!(e.message.contains("step-00000001"), "{e}");
        assert_eq!(saver.flush().unwrap(), None);
        saver.submit(snapshot(3, 0), unchanged()).unwrap();
        assert_eq!(saver.flush().unwrap().unwrap().step, 3);
        assert_eq!(steps(saver.store()), [3]);
    }

    #[test]
    fn rejects_non_finite_snapshots_and_keeps_the_earlier_checkpoint() {
        let (_dir, mut saver) = saving();
        saver.submit(snapshot(1, 0), unchanged()).unwrap();
        let spoil: Finish = Box::new(|snapshot| {
            let weight = snapshot.model.bytes_mut("layer1.0.conv1.weight").unwrap();
            weight[..4].copy_from_slice(&f32::NAN.to_le_bytes());
            Ok(())
        });
        saver.submit(snapshot(2, 0), spoil).unwrap();
        let e = saver.flush().unwrap_err();
        assert_eq!(e.kind, ErrorKind::NonFinite);
        assert_eq!(steps(saver.store()), [1]);
        assert!(saver.take_spare().is_some(), "its memory is lost");
    }

    #[test]
    fn reserved_memory_is_returned_as_the_spare() {
        let (_dir, mut saver) = saving();
        let new = snapshot(1, 0);
        let place = new.model.get("layer1.0.conv1.weight").unwrap().bytes.as_ptr();
        saver.reserve(new).unwrap();
        assert_eq!(saver.flush().unwrap(), None);
        let spare = saver.take_spare().unwrap();
        assert_eq!(spare.model.get("layer1.0.conv1.weight").unwrap().bytes.as_ptr(), place);
        assert_eq!(steps(saver.store()), [] as [u64; 0]);
    }

    #[test]
    fn synchronous_saver_saves_and_applies_retention() {
        let dir = scratch();
        let store = CheckpointStore::open(dir.path()).unwrap();
        let mut saver =
            AsyncSaver::synchronous(store, CheckpointConfig { keep_last: 2, ..CheckpointConfig::default() });
        for step in 1..=4 {
            assert_eq!(saver.submit(snapshot(step, 0), unchanged()).unwrap().unwrap().step, step);
        }
        assert_eq!(steps(saver.store()), [3, 4]);
        assert_eq!((saver.poll().unwrap(), saver.flush().unwrap()), (None, None));
    }
}
