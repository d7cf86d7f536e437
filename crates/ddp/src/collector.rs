//! Receives gradients from the taps and collects one step's gradients in buckets, which are launched in order as they
//! fill up.

use super::buckets::{BucketLayout, Slot};
use super::comm_thread::{BucketJob, BucketJobs, BucketValues};
use super::hook::HookSource;
use super::in_place::{InPlace, InPlaceBuckets};
use super::on_device::DeviceGradients;
use super::tap::GradientSink;
use crate::buffers::{exchange, recycle};
use crate::device::Gradient;
use burn::backend::{BackendTypes, Flex};
use burn::tensor::Device;
use collectives::{CommError, lock};
use kernels::reduction::{Operation, Reduce};
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) struct Collector {
    pub layout: BucketLayout,
    state: Mutex<CollectorState>,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("layout", &self.layout).finish_non_exhaustive()
    }
}

pub(super) struct CollectorState {
    pub buckets: Vec<Bucket>,
    /// Parameters whose gradient has arrived in this micro-batch.
    seen: Vec<bool>,
    /// The same parameters, in order of arrival.
    arrived: Vec<usize>,
    micro: usize,
    syncing: bool,
    next_launch: usize,
    jobs: Option<BucketJobs>,
    /// While the order is learnt, buckets are averaged without the hook, because buckets must not change under a hook.
    pub plain: bool,
    /// The gradients, if they are not in host memory; `Bucket::data` is empty then.
    pub on_device: Option<DeviceGradients>,
    /// Set if the group averages in device memory.
    pub in_place: Option<InPlaceBuckets>,
}

#[derive(Debug)]
pub(super) struct Bucket {
    /// Its gradients in host memory; empty from [`Reducer::release`](super::Reducer::release) until the first of them arrives.
    pub data: Vec<f32>,
    /// Elements of its gradients.
    len: usize,
    /// It is being averaged.
    away: bool,
    parameters: usize,
    pending: usize,
}

/// Where gradients are stored, and what averages them there.
pub(super) struct GradientMemory {
    /// `None`: host memory.
    device: Option<Device>,
    pub in_place: Option<InPlaceBuckets>,
}

impl GradientMemory {
    pub fn new(
        device: Option<Device>,
        in_place: Option<Arc<dyn InPlace>>,
        world_size: usize,
        hook: Option<&HookSource>,
    ) -> Self {
        Self { device, in_place: in_place.and_then(|by| InPlaceBuckets::new(by, world_size, hook)) }
    }

    pub fn is_host(&self) -> bool {
        self.device.is_none()
    }
}

impl Collector {
    pub fn new(layout: BucketLayout, memory: GradientMemory, jobs: Option<BucketJobs>, plain: bool) -> Self {
        let GradientMemory { device, in_place } = memory;
        let buckets = layout.buckets.iter().enumerate().map(|(b, len)| Bucket {
            data: Vec::new(),
            len: *len,
            away: false,
            parameters: layout.slots.iter().flatten().filter(|s| s.bucket == b).count(),
            pending: 0,
        });
        let state = CollectorState {
            buckets: buckets.collect(),
            seen: vec![false; layout.slots.len()],
            arrived: Vec::new(),
            micro: 0,
            syncing: false,
            next_launch: 0,
            jobs,
            plain,
            on_device: device.map(|device| DeviceGradients::new(device, &layout)),
            in_place,
        };
        Self { layout, state: Mutex::new(state) }
    }

    /// A panic in a tap ends the worker, so data behind a poisoned lock is never used for an update.
    pub fn lock(&self) -> MutexGuard<'_, CollectorState> {
        lock(&self.state)
    }
}

/// Where taps send gradients. A graph may be older than the collector, which
/// [`Reducer::learn_order`](super::Reducer::learn_order) replaces.
#[derive(Debug)]
pub(super) struct Relay(pub Mutex<Arc<Collector>>);

impl GradientSink for Relay {
    fn ready(&self, parameter: usize, gradient: Gradient) {
        let collector = lock(&self.0).clone();
        collector.ready(parameter, gradient);
    }
}

impl GradientSink for Collector {
    fn ready(&self, parameter: usize, gradient: Gradient) {
        let Some(slot) = self.layout.slots[parameter] else { return };
        let mut state = self.lock();
        let first = !state.seen[parameter];
        state.seen[parameter] = true;
        if first {
            state.arrived.push(parameter);
        }
        match gradient {
            Gradient::Host(gradient) => {
                let contiguous = gradient.to_contiguous();
                // Then the only handle is left, and its memory can be used again.
                drop(gradient);
                state.add(slot, contiguous, first);
            }
            Gradient::Device(gradient) => {
                // The only handle, so that sums can be computed in place.
                if let Some(all) = &mut state.on_device {
                    all.add(parameter, gradient);
                }
            }
        }
        let bucket = &mut state.buckets[slot.bucket];
        bucket.pending = bucket.pending.saturating_sub(1);
        if state.syncing {
            state.launch_ready(false);
        }
    }
}

impl Bucket {
    /// The place of a gradient.
    ///
    /// # Panics
    /// The bucket is being averaged.
    fn room(&mut self, slot: Slot) -> &mut [f32] {
        assert!(!self.away, "a gradient arrived after its bucket was sent");
        if self.data.is_empty() {
            self.data = vec![0.0; self.len];
        }
        &mut self.data[slot.offset..slot.offset + slot.len]
    }
}

impl CollectorState {
    /// Starts a micro-batch; number 0 starts a new step.
    pub fn begin(&mut self, micro: usize, last: bool) {
        self.micro = micro;
        self.syncing = last;
        if micro == 0 {
            self.next_launch = 0;
            self.on_device.iter_mut().for_each(DeviceGradients::clear);
            self.in_place.iter_mut().for_each(InPlaceBuckets::begin);
        }
        self.seen.fill(false);
        self.arrived.clear();
        for bucket in &mut self.buckets {
            bucket.pending = bucket.parameters;
        }
    }

    /// Counts parameters without a gradient in this micro-batch as zero and returns their numbers.
    pub fn zero_unseen(&mut self, layout: &BucketLayout) -> Vec<usize> {
        let mut unseen = Vec::new();
        for (parameter, slot) in layout.slots.iter().enumerate() {
            let Some(slot) = slot.filter(|_| !self.seen[parameter]) else { continue };
            unseen.push(parameter);
            let bucket = &mut self.buckets[slot.bucket];
            if self.micro == 0 && self.on_device.is_none() {
                bucket.room(slot).fill(0.0);
            }
            bucket.pending = 0;
        }
        unseen
    }

    /// Frees the gradients in host memory.
    pub fn release(&mut self) {
        self.buckets.iter_mut().for_each(|bucket| bucket.data = Vec::new());
    }

    /// Parameters in the order in which their gradients arrived in this micro-batch.
    pub fn arrived(&self) -> &[usize] {
        &self.arrived
    }

    /// Adds a gradient in host memory, which must be contiguous; `first`: the parameter's first one in this micro-batch.
    fn add(&mut self, slot: Slot, gradient: <Flex as BackendTypes>::FloatTensorPrimitive, first: bool) {
        let replace = self.micro == 0 && first;
        let bucket = &mut self.buckets[slot.bucket];
        let mut gradient = gradient;
        // A bucket of one gradient takes it as it is, if that saves the copy.
        if replace && slot.len == bucket.len {
            match exchange(gradient, &mut bucket.data) {
                Ok(()) => return,
                Err(returned) => gradient = returned,
            }
        }
        let values = &gradient.storage::<f32>()[..slot.len];
        let room = bucket.room(slot);
        if replace {
            room.copy_from_slice(values);
        } else {
            f32::combine(Operation::Sum, room, values, None);
        }
        recycle(gradient);
    }

    /// Takes a bucket out to be averaged.
    pub fn take(&mut self, bucket: usize) -> BucketValues {
        match &mut self.on_device {
            Some(gradients) => BucketValues::Copying(gradients.download(bucket)),
            None => {
                let bucket = &mut self.buckets[bucket];
                bucket.away = true;
                BucketValues::Host(std::mem::take(&mut bucket.data))
            }
        }
    }

    /// Puts an averaged bucket back.
    pub fn put(&mut self, bucket: usize, data: Vec<f32>) {
        match &mut self.on_device {
            Some(gradients) => gradients.upload(bucket, data),
            None => {
                let bucket = &mut self.buckets[bucket];
                (bucket.data, bucket.away) = (data, false);
            }
        }
    }

    /// Takes the memory for another layout. Nothing may be averaged here afterwards.
    pub fn take_memory(&mut self) -> GradientMemory {
        let device = self.on_device.as_ref().map(|gradients| gradients.device().clone());
        GradientMemory { device, in_place: self.in_place.take() }
    }

    /// Launches full buckets, or all remaining ones, in order, to be averaged in device memory.
    fn launch_in_place(&mut self, all: bool) {
        let (Some(in_place), Some(gradients)) = (&mut self.in_place, &mut self.on_device) else { return };
        while self.next_launch < self.buckets.len() {
            let full = self.buckets[self.next_launch].pending == 0;
            if !(full || all) || !in_place.launch(gradients.flatten(self.next_launch), self.plain) {
                return;
            }
            self.next_launch += 1;
        }
    }

    /// Ends a step in device memory: operations launched after this read the averages.
    pub fn finish_in_place(&mut self) -> Result<(), CommError> {
        let (Some(in_place), Some(gradients)) = (&mut self.in_place, &mut self.on_device) else {
            return Ok(());
        };
        // Only after `finish`: copying a part could launch at once.
        for (bucket, flat) in in_place.finish(self.plain)?.into_iter().enumerate() {
            gradients.put(bucket, flat);
        }
        Ok(())
    }

    /// Launches full buckets, or all remaining ones, in order: in device memory, or on the communication thread, which
    /// does not get the last one.
    pub fn launch_ready(&mut self, all: bool) {
        if self.in_place.is_some() {
            return self.launch_in_place(all);
        }
        let Some(jobs) = self.jobs.clone() else { return };
        while self.next_launch + 1 < self.buckets.len() {
            let bucket = self.next_launch;
            if self.buckets[bucket].pending > 0 && !all {
                return;
            }
            // A closed channel is reported by `finish` as a missing result.
            let _ = jobs.send(Some(BucketJob { bucket, data: self.take(bucket), plain: self.plain }));
            self.next_launch += 1;
        }
    }
}
