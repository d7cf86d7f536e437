//! Averages gradients over the ranks while the backward pass runs.
//!
//! Buckets follow the order in which rank 0's gradients arrived in the run's first optimizer step. Taps copy gradients
//! into them. In the last micro-batch of an optimizer step a bucket whose gradients are all there goes to the
//! communication thread, strictly in bucket order, which is the same on all ranks. `finish` launches what is left
//! (parameters that took no part contribute zeros and are named once), waits, and averages the last bucket itself: by
//! then the training thread has nothing else to do, and to hand over and back costs two changes of threads.

use super::buckets::{BucketLayout, Slot};
use super::comm_thread::{CommThread, Job};
use super::hook::HookSource;
use super::hook_state::HookState;
use super::tap::GradientSink;
use crate::comm::{CommError, ProcessGroup};
use burn::backend::{BackendTypes, Flex};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One model's gradients. Lives as long as the training.
pub struct Reducer {
    shared: Arc<Shared>,
    comm: Option<CommThread>,
    names: Vec<String>,
    told_unused: bool,
    /// The bucket order is not known yet.
    learning: bool,
}

#[derive(Debug)]
struct Shared {
    layout: BucketLayout,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    buckets: Vec<Bucket>,
    /// Parameters whose gradient has arrived in this micro-batch.
    seen: Vec<bool>,
    /// The same parameters, in order of arrival.
    arrived: Vec<usize>,
    micro: usize,
    syncing: bool,
    next_launch: usize,
    jobs: Option<Sender<Job>>,
    /// While the order is learnt, buckets are averaged without the hook, under which they must never change.
    plain: bool,
}

#[derive(Debug)]
struct Bucket {
    data: Vec<f32>,
    parameters: usize,
    pending: usize,
}

impl Reducer {
    /// `names` by parameter number, for the message about unused parameters. `learn`: `layout` stands in until
    /// [`Reducer::learn_order`]. A process that is alone has nothing to average, so it makes no hook and learns nothing.
    pub fn new(
        layout: BucketLayout,
        learn: bool,
        names: Vec<String>,
        group: Arc<dyn ProcessGroup>,
        hook: Option<&HookSource>,
    ) -> std::io::Result<Self> {
        let alone = group.world_size() == 1;
        let comm = if alone { None } else { Some(CommThread::start(group, hook)?) };
        let learning = learn && !alone;
        let shared = Shared::new(layout, comm.as_ref().map(|c| c.jobs.clone()), learning);
        Ok(Self { shared: Arc::new(shared), comm, names, told_unused: false, learning })
    }

    /// What the taps report to.
    pub fn sink(&self) -> Arc<dyn GradientSink> {
        self.shared.clone()
    }

    /// Call before each micro-batch's backward pass. `micro` counts from 0 in the optimizer step; `last` starts the
    /// synchronisation: no gradient leaves this process before.
    pub fn begin(&self, micro: usize, last: bool) {
        let mut state = self.shared.lock();
        state.micro = micro;
        state.syncing = last;
        if micro == 0 {
            state.next_launch = 0;
        }
        state.seen.fill(false);
        state.arrived.clear();
        for bucket in &mut state.buckets {
            bucket.pending = bucket.parameters;
        }
    }

    /// Ends a micro-batch that is not the last: parameters without a gradient count as zero.
    pub fn end_micro(&mut self) {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        self.zero_unseen(&shared.layout, &mut state);
    }

    /// Ends the optimizer step: returns with all buckets averaged over the ranks.
    ///
    /// # Errors
    /// The first failed collective. Gradients are unusable then.
    pub fn finish(&mut self) -> Result<(), CommError> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        self.zero_unseen(&shared.layout, &mut state);
        state.launch_ready(true);
        let Some(comm) = &self.comm else { return Ok(()) };
        let Some(last) = state.buckets.len().checked_sub(1) else { return Ok(()) };
        for _ in 0..last {
            let (bucket, data) = comm.next()?;
            state.buckets[bucket].data = data;
        }
        let plain = state.plain;
        comm.average(last, &mut state.buckets[last].data, plain)?;
        Ok(())
    }

    /// After the first optimizer step and the use of its gradients: lays the buckets out in the order in which rank 0's gradients
    /// arrived in its last micro-batch, and returns it; `None` when the order is known already. Call it on all ranks alike.
    ///
    /// # Errors
    /// The first failed collective.
    pub fn learn_order(&mut self) -> Result<Option<Vec<usize>>, CommError> {
        let Some(comm) = self.comm.as_ref().filter(|_| self.learning) else { return Ok(None) };
        let own = self.shared.layout.reordered(&self.shared.lock().arrived).order();
        let mut order: Vec<i64> = own.iter().map(|p| *p as i64).collect();
        comm.group.broadcast((&mut order).into(), 0)?;
        let order: Vec<usize> = order.iter().map(|p| *p as usize).collect();
        let layout = self.shared.layout.reordered(&order);
        self.shared = Arc::new(Shared::new(layout, Some(comm.jobs.clone()), false));
        self.learning = false;
        Ok(Some(order))
    }

    /// Calls `f` with every bucket, mutable, in order.
    pub fn with_buckets<T>(&self, f: impl FnOnce(&mut [&mut [f32]]) -> T) -> T {
        let mut state = self.shared.lock();
        let mut slices: Vec<&mut [f32]> = state.buckets.iter_mut().map(|b| b.data.as_mut_slice()).collect();
        f(&mut slices)
    }

    /// Where parameter `index` lies in the buckets.
    pub fn slot(&self, index: usize) -> Option<Slot> {
        self.shared.layout.slots[index]
    }

    /// What all ranks' hooks carry to the next step, on rank 0; `None` on the others, and where hooks have no state. Call it on
    /// all ranks alike, between two optimizer steps.
    ///
    /// # Errors
    /// The first failed collective.
    pub fn hook_state(&self) -> Result<Option<HookState>, CommError> {
        let Some(comm) = &self.comm else { return Ok(None) };
        comm.gather_hooks(&self.shared.layout.buckets)
    }

    /// Gives the ranks' hooks back what [`Reducer::hook_state`] saw when a checkpoint was saved; `saved` counts on rank 0 alone.
    /// Says why a state is left out that belongs to no hook of this run. Call it on all ranks alike, before the first step.
    ///
    /// # Errors
    /// The first failed collective.
    pub fn restore_hook(&mut self, saved: Option<HookState>) -> Result<Option<String>, CommError> {
        let world = self.comm.as_ref().map_or(1, |comm| comm.group.world_size());
        let name = self.comm.as_ref().and_then(CommThread::hook_name).unwrap_or("none");
        let buckets = &self.shared.layout.buckets;
        let left_out = saved.as_ref().and_then(|saved| {
            let why = saved.misfit(name, world, buckets)?;
            Some(format!(
                "the checkpoint's state of the communication hook `{}` is left out: {why}",
                saved.name
            ))
        });
        if let Some(comm) = &self.comm {
            let values = saved.filter(|_| left_out.is_none()).map_or_else(Vec::new, |saved| saved.values);
            comm.scatter_hooks(buckets, values)?;
        }
        Ok(left_out)
    }

    fn zero_unseen(&mut self, layout: &BucketLayout, state: &mut State) {
        let mut unused = Vec::new();
        for (parameter, slot) in layout.slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            if state.seen[parameter] {
                continue;
            }
            unused.push(self.names.get(parameter).map(String::as_str).unwrap_or("?"));
            let bucket = &mut state.buckets[slot.bucket];
            if state.micro == 0 {
                bucket.data[slot.offset..slot.offset + slot.len].fill(0.0);
            }
            bucket.pending = 0;
        }
        if !unused.is_empty() && !self.told_unused {
            self.told_unused = true;
            tracing::warn!("no gradient for {}: they contribute zeros", unused.join(", "));
        }
    }
}

impl Shared {
    fn new(layout: BucketLayout, jobs: Option<Sender<Job>>, plain: bool) -> Self {
        let buckets = layout.buckets.iter().enumerate().map(|(b, len)| Bucket {
            data: vec![0.0; *len],
            parameters: layout.slots.iter().flatten().filter(|s| s.bucket == b).count(),
            pending: 0,
        });
        let state = State {
            buckets: buckets.collect(),
            seen: vec![false; layout.slots.len()],
            arrived: Vec::new(),
            micro: 0,
            syncing: false,
            next_launch: 0,
            jobs,
            plain,
        };
        Self { layout, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a tap ends the worker; the data behind a poisoned lock is never used for an update.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GradientSink for Shared {
    fn ready(&self, parameter: usize, gradient: <Flex as BackendTypes>::FloatTensorPrimitive) {
        let Some(slot) = self.layout.slots[parameter] else { return };
        let gradient = gradient.to_contiguous();
        let values = &gradient.storage::<f32>()[..slot.len];
        let mut state = self.lock();
        let micro = state.micro;
        let first = !state.seen[parameter];
        state.seen[parameter] = true;
        if first {
            state.arrived.push(parameter);
        }
        let bucket = &mut state.buckets[slot.bucket];
        let room = &mut bucket.data[slot.offset..slot.offset + slot.len];
        if micro == 0 && first {
            room.copy_from_slice(values);
        } else {
            room.iter_mut().zip(values).for_each(|(sum, g)| *sum += g);
        }
        bucket.pending = bucket.pending.saturating_sub(1);
        if state.syncing {
            state.launch_ready(false);
        }
    }
}

impl State {
    /// Sends buckets that are full, or all that are left, to the communication thread, in order; but for the last one.
    fn launch_ready(&mut self, all: bool) {
        let Some(jobs) = &self.jobs else { return };
        while self.next_launch + 1 < self.buckets.len() {
            let bucket = &mut self.buckets[self.next_launch];
            if bucket.pending > 0 && !all {
                return;
            }
            // A closed channel shows as a missing result in `finish`.
            let data = std::mem::take(&mut bucket.data);
            let _ = jobs.send(Job { bucket: self.next_launch, data, plain: self.plain });
            self.next_launch += 1;
        }
    }
}
