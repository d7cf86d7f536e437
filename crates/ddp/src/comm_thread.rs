//! The communication thread, which averages full buckets during the backward pass, optionally with a hook.

use super::hook::{CommHook, HookSource};
use super::hook_state::{self, HookState};
use crate::device::Readback;
use base::error::Error;
use base::panics;
use collectives::{CommError, ProcessGroup, ReduceOp, lock};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A bucket's gradients, in host memory or being copied to it.
pub(super) enum BucketValues {
    Host(Vec<f32>),
    /// Being copied from a device, or the error.
    Copying(Result<Readback, Error>),
}

impl BucketValues {
    /// # Errors
    /// A device error; no collective has failed.
    pub fn wait(self) -> Result<Vec<f32>, Error> {
        match self {
            BucketValues::Host(data) => Ok(data),
            BucketValues::Copying(values) => values.and_then(Readback::wait).map_err(|e| {
                Error::new(e.kind, format!("a gradient could not be read from its device: {}", e.message))
            }),
        }
    }
}

/// A full bucket for the communication thread.
pub(super) struct BucketJob {
    pub bucket: usize,
    pub data: BucketValues,
    /// Whether to bypass the hook.
    pub plain: bool,
}

/// Jobs for the communication thread; `None` ends it.
pub(super) type BucketJobs = Sender<Option<BucketJob>>;

type Reduced = Result<(usize, Vec<f32>), Error>;

pub(super) struct CommThread {
    pub jobs: BucketJobs,
    pub group: Arc<dyn ProcessGroup>,
    results: Receiver<Reduced>,
    hook: Option<Arc<Hook>>,
    /// How long both threads have averaged buckets, in nanoseconds.
    averaged: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// A rank's hook. The communication thread holds the lock while it averages, the training thread while it saves or
/// restores. A panic in a hook ends the communication thread and thereby the run.
type Hook = Mutex<Box<dyn CommHook>>;

fn average(
    hook: Option<&Hook>,
    bucket: usize,
    data: &mut [f32],
    group: &dyn ProcessGroup,
    averaged: &AtomicU64,
) -> Result<(), CommError> {
    let begun = Instant::now();
    let done = match hook {
        Some(hook) => lock(hook).average(bucket, data, group),
        None => group.all_reduce(data.into(), ReduceOp::Mean),
    };
    averaged.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
    done
}

impl CommThread {
    pub fn start(group: Arc<dyn ProcessGroup>, hook: Option<&HookSource>) -> std::io::Result<Self> {
        let hook = hook.map(|source| Arc::new(Mutex::new(source.make())));
        let (jobs, inbox) = channel::<Option<BucketJob>>();
        let (outbox, results) = channel();
        let averaged = Arc::<AtomicU64>::default();
        let (of_thread, its_hook, its_time) = (group.clone(), hook.clone(), averaged.clone());
        let thread = std::thread::Builder::new().name("ddp-comm".into()).spawn(move || {
            while let Ok(Some(BucketJob { bucket, data, plain })) = inbox.recv() {
                let hook = its_hook.as_deref().filter(|_| !plain);
                let done = data.wait().and_then(|mut data| {
                    average(hook, bucket, &mut data, &*of_thread, &its_time)?;
                    Ok((bucket, data))
                });
                if outbox.send(done).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, group, results, hook, averaged, thread: Some(thread) })
    }

    /// Averages a bucket on the calling thread, while the communication thread is idle.
    pub fn average(&self, bucket: usize, data: &mut [f32], plain: bool) -> Result<(), CommError> {
        average(self.hook.as_deref().filter(|_| !plain), bucket, data, &*self.group, &self.averaged)
    }

    /// How long buckets were averaged since the last call, on both threads.
    pub fn take_averaged(&self) -> Duration {
        Duration::from_nanos(self.averaged.swap(0, Relaxed))
    }

    /// Waits for the next averaged bucket, in the order of the jobs.
    ///
    /// # Errors
    /// That of the average; an internal one with the message of a panic, such as one in the hook.
    pub fn next(&mut self) -> Reduced {
        self.results.recv().unwrap_or_else(|_| {
            let panic = self.thread.take().and_then(|thread| thread.join().err());
            let how =
                panic.map_or("ended".to_owned(), |panic| format!("panicked: {}", panics::message(&*panic)));
            Err(Error::internal(format!("the communication thread {how}")))
        })
    }

    /// As [`CommHook::rescale`]; call it between two steps.
    pub fn rescale(&self, factor: f32) {
        self.hook.iter().for_each(|hook| lock(hook).rescale(factor));
    }

    /// Gathers the hooks' state of all ranks on rank 0, if there is any. A collective.
    pub fn gather_hooks(&self, name: &str, buckets: &[usize]) -> Result<Option<HookState>, Error> {
        let Some(hook) = &self.hook else { return Ok(None) };
        let of_bucket = lock(hook);
        hook_state::gather(name, buckets, &|b| Ok(of_bucket.state(b).to_vec()), &*self.group)
    }

    /// Scatters rank 0's `values`: each rank's hook gets its part. A collective.
    pub fn scatter_hooks(&self, buckets: usize, values: Vec<Vec<Vec<f32>>>) -> Result<(), CommError> {
        let Some(hook) = &self.hook else { return Ok(()) };
        let mut hook = lock(hook);
        hook_state::scatter(&mut |bucket, state| hook.restore(bucket, state), buckets, values, &*self.group)
    }
}

impl Drop for CommThread {
    /// Waits for the thread, which also owns the group: the last owner sends the goodbye to the peers, and a process that
    /// exits without it looks dead to ranks still in the last barrier.
    fn drop(&mut self) {
        // Taps of a graph that still exists hold senders too, so the channel does not close by itself.
        let _ = self.jobs.send(None);
        // A panicking rank aborts the group only later; until then the thread may be waiting for its peers.
        if std::thread::panicking() {
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;
    use collectives::SoloGroup;

    #[test]
    fn a_failed_readback_of_a_gradient_is_reported_as_a_device_error() {
        let mut comm = CommThread::start(Arc::new(SoloGroup::default()), None).unwrap();
        let data = BucketValues::Copying(Err(Error::unavailable("the device failed: it is lost")));
        comm.jobs.send(Some(BucketJob { bucket: 0, data, plain: true })).unwrap();
        let failed = comm.next().unwrap_err();
        assert_eq!(failed.kind, ErrorKind::Unavailable);
        assert!(failed.message.ends_with("the device failed: it is lost"), "{}", failed.message);
    }
}
