//! Assembles batches ahead of the training step. Worker threads fill host buffers, which the consumer returns for reuse.
//! The batches depend only on the data set, the order and the options, never on the number of workers or their speed.
//! If a batch fails, or a worker panics, the error takes the place of that batch.

use super::assemble::BatchAssembler;
use super::transforms::ImageTransform;
use super::{Dataset, HostBatch};
use base::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use sampler::Order;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Upper bound on the wait for a batch. Only storage that hangs takes longer.
const DEADLINE: Duration = Duration::from_secs(600);
/// How long a dropped loader waits for its threads. They finish a sample first, and only storage that hangs takes longer.
const LEAVE: Duration = Duration::from_secs(5);

/// How a [`Loader`] divides an order into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples per batch, at least 1.
    pub batch_size: usize,
    /// Part of every [`SampleKey`](super::SampleKey).
    pub seed: u64,
    /// Part of every [`SampleKey`](super::SampleKey).
    pub epoch: u64,
    /// First batch to return: the position of a resumed run. Seeking is O(1).
    pub start_batch: usize,
    /// Threads that assemble batches; 0 assembles each batch in the calling thread.
    pub workers: usize,
    /// Batches assembled ahead by all workers together, at least 1.
    pub prefetch: usize,
}

/// The batches of one epoch, in order. Assembly starts in `new`, so a loader created early (for the next epoch, before
/// validation) has its first batches ready. Dropping it stops its threads and joins those that do not hang.
pub struct Loader {
    assembler: Arc<BatchAssembler>,
    pool: Option<WorkerPool>,
    /// The next batch to return.
    next: usize,
    /// One past the last batch.
    end: usize,
    spare: Vec<HostBatch>,
}

/// The worker threads and their queues.
struct WorkerPool {
    jobs: Option<Sender<(usize, HostBatch)>>,
    results: Receiver<(usize, Result<HostBatch>)>,
    threads: Vec<JoinHandle<()>>,
    /// The next batch to submit.
    submitted: usize,
    /// Batches completed out of order.
    ready: BTreeMap<usize, Result<HostBatch>>,
    /// [`DEADLINE`].
    deadline: Duration,
    /// [`LEAVE`].
    leave: Duration,
}

impl Loader {
    /// Batches of `dataset` in `order`. If `stored`, an image data set returns stored bytes and draws, and
    /// [`Self::transform`] is to be applied on the device; other data sets are not affected.
    pub fn new(
        dataset: Arc<dyn Dataset>,
        order: impl Order + 'static,
        options: LoaderOptions,
        stored: bool,
    ) -> Result<Self> {
        let size = options.batch_size.max(1);
        let end = order.len().div_ceil(size);
        if options.start_batch > end {
            let what = format!(
                "cannot resume at batch {} of the epoch: the data set has only {end} batches for this rank",
                options.start_batch
            );
            return Err(Error::data(what).hint(
                "restore the data set that the checkpoint was saved with, or start over with `--resume never`",
            ));
        }
        let options = LoaderOptions { batch_size: size, ..options };
        let assembler = Arc::new(BatchAssembler::new(dataset, Box::new(order), options, stored));
        let pool = match options.workers.min(end - options.start_batch) {
            0 => None,
            threads => Some(WorkerPool::start(&assembler, threads)?),
        };
        let mut loader = Self { assembler, pool, next: options.start_batch, end, spare: Vec::new() };
        loader.submit();
        Ok(loader)
    }

    /// The transform to apply on the device, if batches contain stored images.
    pub fn transform(&self) -> Option<&ImageTransform> {
        self.assembler.images().map(|images| images.transform())
    }

    /// Whether the next batch is complete, so that `next` does not wait.
    pub fn ready(&mut self) -> bool {
        self.pool.as_mut().is_some_and(|pool| pool.is_done(self.next))
    }

    /// Returns a batch's buffers for reuse.
    pub fn recycle(&mut self, batch: HostBatch) {
        self.spare.push(batch);
        self.submit();
    }

    /// Submits batches up to `prefetch` ahead of the consumer.
    fn submit(&mut self) {
        let limit = self.end.min(self.next + self.assembler.options.prefetch.max(1));
        let Some(pool) = &mut self.pool else { return };
        let Some(jobs) = &pool.jobs else { return };
        while pool.submitted < limit {
            let buffers = self.spare.pop().unwrap_or_else(|| self.assembler.buffers());
            if jobs.send((pool.submitted, buffers)).is_err() {
                return; // all workers have exited; `next` reports it
            }
            pool.submitted += 1;
        }
    }

    fn make(&mut self) -> Result<HostBatch> {
        match &mut self.pool {
            Some(pool) => pool.take(self.next),
            None => {
                let buffers = self.spare.pop().unwrap_or_else(|| self.assembler.buffers());
                self.assembler.assemble_caught(self.next, buffers)
            }
        }
    }
}

impl Iterator for Loader {
    type Item = Result<HostBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let batch = self.make();
        self.next += 1;
        if batch.is_err() {
            self.next = self.end; // batches after an error are not returned
        }
        self.submit();
        Some(batch)
    }
}

impl Drop for Loader {
    /// Leaves threads behind that hang: the caller may be on its way to report why the run fails.
    fn drop(&mut self) {
        self.assembler.stop.store(true, Relaxed);
        let Some(pool) = &mut self.pool else { return };
        pool.jobs = None;
        let deadline = Instant::now() + pool.leave;
        let ended = loop {
            match pool.results.recv_deadline(deadline) {
                Ok(_) => {}
                Err(why) => break why == RecvTimeoutError::Disconnected,
            }
        };
        if !ended {
            return;
        }
        for thread in pool.threads.drain(..) {
            let _ = thread.join(); // panics were caught inside
        }
    }
}

impl WorkerPool {
    fn start(assembler: &Arc<BatchAssembler>, threads: usize) -> Result<Self> {
        let (jobs, queue) = unbounded::<(usize, HostBatch)>();
        let (done, results) = unbounded();
        let mut pool = Self {
            jobs: Some(jobs),
            results,
            threads: Vec::with_capacity(threads),
            submitted: assembler.options.start_batch,
            ready: BTreeMap::new(),
            deadline: DEADLINE,
            leave: LEAVE,
        };
        for i in 0..threads {
            let (assembler, queue, done) = (assembler.clone(), queue.clone(), done.clone());
            let spawned = std::thread::Builder::new().name(format!("data-{i}")).spawn(move || {
                for (number, buffers) in queue {
                    let _span = tracing::trace_span!("batch", number).entered();
                    if assembler.stop.load(Relaxed)
                        || done.send((number, assembler.assemble_caught(number, buffers))).is_err()
                    {
                        return;
                    }
                }
            });
            match spawned {
                Ok(thread) => pool.threads.push(thread),
                // Fewer workers are slower, with the same result.
                Err(_) if i > 0 => break,
                Err(e) => return Err(Error::internal(format!("cannot start a data-loading thread: {e}"))),
            }
        }
        Ok(pool)
    }

    fn is_done(&mut self, number: usize) -> bool {
        self.ready.extend(self.results.try_iter());
        self.ready.contains_key(&number)
    }

    /// Waits for batch `number`.
    fn take(&mut self, number: usize) -> Result<HostBatch> {
        let deadline = Instant::now() + self.deadline;
        loop {
            if let Some(batch) = self.ready.remove(&number) {
                return batch;
            }
            match self.results.recv_deadline(deadline) {
                Ok((done, batch)) => {
                    self.ready.insert(done, batch);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::internal("the data-loading threads exited unexpectedly"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let what = format!("batch {number} was not read within {} s", self.deadline.as_secs());
                    // As with other errors of storage, a restart may help.
                    return Err(Error::io(what)
                        .cause(std::io::Error::from(std::io::ErrorKind::TimedOut))
                        .hint("check the file system of the data set"));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "loader_tests.rs"]
mod tests;
