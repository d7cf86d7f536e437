//! Averages gradients over the ranks while the backward pass runs.
//!
//! Buckets follow the order in which rank 0's gradients arrived in the run's first optimizer step. Taps copy gradients
//! into them, but a bucket of one gradient can take its memory; a single process has a bucket for each. In the last
//! micro-batch of an optimizer step, each complete bucket goes to the communication thread, in bucket order, which is the
//! same on all ranks. `finish` launches the remaining buckets (unused parameters contribute zeros and are reported once),
//! waits, and averages the last bucket on the training thread, which is idle by then: handing it over and back would cost
//! two thread switches.
//!
//! Gradients in device memory stay there (`on_device`). For a group that works in host memory, launching a bucket
//! requests its copy, and the communication thread waits for it.

use super::buckets::{BucketLayout, Slot};
use super::collector::{Collector, CollectorState, GradientMemory, Relay};
use super::comm_thread::{BucketValues, CommThread};
use super::hook::HookSource;
use super::hook_state::HookState;
use super::in_place;
use super::on_device::DeviceGradients;
use super::tap::GradientSink;
use crate::device::{Readback, is_host};
use base::error::Error;
use burn::tensor::{Device, Tensor};
use collectives::{CommError, ProcessGroup, ReduceOp, lock};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long gradients were averaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AveragingTime {
    /// For which the training thread waited, in [`Reducer::finish`].
    pub exposed: Duration,
    /// The communication time of all buckets, including waits for slower ranks. Zero for a single process, and for gradients on a device, whose
    /// work the host does not see.
    pub total: Duration,
}

/// One model's gradients. Lives as long as the training.
pub struct Reducer {
    collector: Arc<Collector>,
    /// Leads to `collector`.
    relay: Arc<Relay>,
    comm: Option<CommThread>,
    /// The name of the hook in specs.
    hook: String,
    names: Vec<String>,
    warned_unused: bool,
    /// The bucket order is not known yet.
    learning: bool,
    /// How long `finish` took since the last [`Reducer::take_averaging_time`].
    exposed: Duration,
}

impl Reducer {
    /// `names`: by parameter number, for the message about unused parameters. `learn`: `layout` is provisional until
    /// [`Reducer::learn_order`]. `device`: where the gradients are. A single process has nothing to average, so it
    /// creates no hook and learns no order.
    pub fn new(
        layout: BucketLayout,
        device: &Device,
        learn: bool,
        names: Vec<String>,
        group: Arc<dyn ProcessGroup>,
        hook: Option<&HookSource>,
    ) -> std::io::Result<Self> {
        let device = (!is_host(device)).then(|| device.clone().without_autodiff());
        let in_place = device.is_some().then(|| in_place::for_group(&group)).flatten();
        Self::over(
            layout,
            GradientMemory::new(device, in_place, group.world_size(), hook),
            learn,
            names,
            group,
            hook,
        )
    }

    pub(super) fn over(
        layout: BucketLayout,
        memory: GradientMemory,
        learn: bool,
        names: Vec<String>,
        group: Arc<dyn ProcessGroup>,
        hook: Option<&HookSource>,
    ) -> std::io::Result<Self> {
        let alone = group.world_size() == 1;
        let name = hook.filter(|_| !alone).map_or("none", HookSource::name).to_owned();
        let hook = hook.filter(|_| memory.in_place.is_none());
        let comm = if alone { None } else { Some(CommThread::start(group, hook)?) };
        let learning = learn && !alone;
        // What is not sent need not be packed.
        let layout = if alone && memory.is_host() { layout.apart() } else { layout };
        let jobs = comm.as_ref().map(|c| c.jobs.clone());
        let collector = Arc::new(Collector::new(layout, memory, jobs, learning));
        Ok(Self {
            relay: Arc::new(Relay(Mutex::new(collector.clone()))),
            collector,
            comm,
            hook: name,
            names,
            warned_unused: false,
            learning,
            exposed: Duration::ZERO,
        })
    }

    /// Where the taps send gradients.
    pub fn sink(&self) -> Arc<dyn GradientSink> {
        self.relay.clone()
    }

    /// Call before each micro-batch's backward pass. `micro` counts from 0 in the optimizer step; `last` enables
    /// synchronisation, and no gradient leaves this process before.
    pub fn begin(&self, micro: usize, last: bool) {
        self.collector.lock().begin(micro, last);
    }

    /// Whether a gradient has arrived in this micro-batch.
    pub fn has_arrived(&self) -> bool {
        !self.collector.lock().arrived().is_empty()
    }

    /// Ends a micro-batch that is not the last: parameters without a gradient count as zero.
    pub fn end_micro(&mut self) {
        let collector = self.collector.clone();
        let mut state = collector.lock();
        self.warn_unused(&state.zero_unseen(&collector.layout));
    }

    /// Ends the optimizer step: returns with all buckets averaged over the ranks.
    ///
    /// # Errors
    /// The first failed collective, or a device error. The gradients are invalid then.
    pub fn finish(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let done = self.finish_buckets();
        self.exposed += begun.elapsed();
        done
    }

    /// The times since the last call.
    pub fn take_averaging_time(&mut self) -> AveragingTime {
        let on_device = self.collector.lock().on_device.is_some();
        let comm = self.comm.as_ref().filter(|_| !on_device);
        let total = comm.map_or(Duration::ZERO, CommThread::take_averaged);
        AveragingTime { exposed: std::mem::take(&mut self.exposed), total }
    }

    fn finish_buckets(&mut self) -> Result<(), Error> {
        let collector = self.collector.clone();
        let mut state = collector.lock();
        self.warn_unused(&state.zero_unseen(&collector.layout));
        state.launch_ready(true);
        if state.in_place.is_some() {
            return Ok(state.finish_in_place()?);
        }
        let Some(comm) = &mut self.comm else { return Ok(()) };
        let Some(last) = state.buckets.len().checked_sub(1) else { return Ok(()) };
        for _ in 0..last {
            let (bucket, data) = comm.next()?;
            state.put(bucket, data);
        }
        let mut data = state.take(last).wait()?;
        comm.average(last, &mut data, state.plain)?;
        state.put(last, data);
        Ok(())
    }

    /// Rebuilds the buckets in the order in which rank 0's gradients arrived in the last micro-batch, and returns the
    /// order; `None` if it is known already. Call on all ranks, after the first optimizer step has used its gradients.
    ///
    /// # Errors
    /// The first failed collective.
    pub fn learn_order(&mut self) -> Result<Option<Vec<usize>>, CommError> {
        let Some(comm) = self.comm.as_ref().filter(|_| self.learning) else { return Ok(None) };
        let own = self.collector.layout.reordered(self.collector.lock().arrived()).order();
        let mut order: Vec<i64> = own.iter().map(|p| *p as i64).collect();
        comm.group.broadcast((&mut order).into(), 0)?;
        let order: Vec<usize> = order.iter().map(|p| *p as usize).collect();
        let layout = self.collector.layout.reordered(&order);
        let memory = self.collector.lock().take_memory();
        self.collector = Arc::new(Collector::new(layout, memory, Some(comm.jobs.clone()), false));
        *lock(&self.relay.0) = self.collector.clone();
        self.learning = false;
        Ok(Some(order))
    }

    /// Takes the gradients in device memory, flat, by parameter; `None` for a model in host memory.
    pub fn take_from_device(&self) -> Option<Vec<Option<Tensor<1>>>> {
        self.collector.lock().on_device.as_mut().map(DeviceGradients::take)
    }

    /// The mean of `value` over the ranks, so that all ranks get the same bits even if each computed it with different
    /// kernels. `value` must be the only handle. Call on all ranks, between `finish` and the next step.
    ///
    /// # Errors
    /// The first failed collective, or a device error.
    pub fn agree(&self, value: Tensor<1>) -> Result<Tensor<1>, Error> {
        let Some(comm) = &self.comm else { return Ok(value) };
        if let Some(in_place) = &self.collector.lock().in_place {
            return Ok(in_place.agree(value)?);
        }
        let device = value.device();
        let mut values = BucketValues::Copying(Readback::start(value)).wait()?;
        comm.group.all_reduce((&mut values).into(), ReduceOp::Mean)?;
        Ok(Tensor::from_data(values.as_slice(), &device))
    }

    /// Calls `f` with all buckets, mutable, in order; for a model in host memory.
    pub fn with_buckets<T>(&self, f: impl FnOnce(&mut [&mut [f32]]) -> T) -> T {
        let mut state = self.collector.lock();
        let mut slices: Vec<&mut [f32]> = state.buckets.iter_mut().map(|b| b.data.as_mut_slice()).collect();
        f(&mut slices)
    }

    /// Frees the gradients in host memory, which the next step's replace: call when an optimizer step has used them. Until the next
    /// [`Reducer::finish`] there are none.
    pub fn release(&self) {
        self.collector.lock().release();
    }

    /// Position of parameter `index` in the buckets.
    pub fn slot(&self, index: usize) -> Option<Slot> {
        self.collector.layout.slots[index]
    }

    /// Tells the hook that gradients are `factor` times as large from the next step on. Call on all ranks, after `finish`.
    pub fn rescale(&self, factor: f32) {
        match &mut self.collector.lock().in_place {
            Some(in_place) => in_place.rescale(factor),
            None => self.comm.iter().for_each(|comm| comm.rescale(factor)),
        }
    }

    /// Gathers the state of all ranks' hooks on rank 0; `None` on the other ranks, and if the hooks have none. Call on
    /// all ranks, between two optimizer steps.
    ///
    /// # Errors
    /// The first failed collective, or a device error.
    pub fn hook_state(&self) -> Result<Option<HookState>, Error> {
        let Some(comm) = &self.comm else { return Ok(None) };
        let buckets = &self.collector.layout.buckets;
        match &self.collector.lock().in_place {
            Some(in_place) => in_place.gather_hooks(&self.hook, buckets, &*comm.group),
            None => comm.gather_hooks(&self.hook, buckets),
        }
    }

    /// Restores the hooks' state that [`Reducer::hook_state`] returned when the checkpoint was saved; only rank 0's
    /// `saved` is used. Returns the reason if the state does not fit this run's hook and is ignored. Call on all ranks,
    /// before the first step.
    ///
    /// # Errors
    /// The first failed collective.
    pub fn restore_hook(&mut self, saved: Option<HookState>) -> Result<Option<String>, CommError> {
        let mut state = self.collector.lock();
        let world = self.comm.as_ref().map_or(1, |comm| comm.group.world_size());
        let buckets = &self.collector.layout.buckets;
        let ignored = saved.as_ref().and_then(|saved| {
            let why = saved.mismatch(&self.hook, world, buckets)?;
            Some(format!(
                "the checkpoint's state of the communication hook `{}` is ignored: {why}",
                saved.name
            ))
        });
        let Some(comm) = &self.comm else { return Ok(ignored) };
        let values = saved.filter(|_| ignored.is_none()).map_or_else(Vec::new, |saved| saved.values);
        let CollectorState { in_place, on_device, .. } = &mut *state;
        match (in_place, on_device) {
            (Some(in_place), Some(gradients)) => {
                in_place.scatter_hooks(buckets.len(), values, gradients.device(), &*comm.group)?;
            }
            _ => comm.scatter_hooks(buckets.len(), values)?,
        }
        Ok(ignored)
    }

    /// Reports the parameters without a gradient, once.
    fn warn_unused(&mut self, unused: &[usize]) {
        if !unused.is_empty() && !self.warned_unused {
            self.warned_unused = true;
            let name = |parameter: &usize| self.names.get(*parameter).map(String::as_str).unwrap_or("?");
            let unused: Vec<&str> = unused.iter().map(name).collect();
            tracing::warn!("no gradient for {}: zeros are used instead", unused.join(", "));
        }
    }
}
