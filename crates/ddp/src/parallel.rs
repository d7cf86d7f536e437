//! A Burn module whose gradients are averaged over the ranks, for training loops of one's own.

use crate::module::{
    Casts, Cursor, ForwardMapper, GradientVisitor, MapCursor, ModuleState, Role, TieMapper, draw_lazy,
};
use crate::same_model::{
    broadcast_ids, broadcast_tensors, broadcast_vec, check_tied, device_of, on_all_ranks, verify_same,
    verify_values,
};
use crate::{BucketLayout, HookSource, HookState, Reducer, ReducerConfig, TapLadder};
use base::error::{Error, Result};
use burn::module::Module;
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn_optim::{GradientsParams, ModuleOptimizer};
use collectives::ProcessGroup;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How gradients are averaged. The same on all ranks, except for `state`.
#[derive(Clone, Debug)]
pub struct DdpOptions {
    /// MiB of gradients in a bucket. Buckets fill in the order in which gradients become ready.
    pub bucket_cap_mb: f64,
    /// MiB of gradients in the first bucket; a small one is sent early.
    pub first_bucket_mb: f64,
    /// Replaces the all-reduce of each bucket, as PyTorch's `register_comm_hook`. It starts in the second step, when the order of
    /// the buckets is known. A group of one rank does not call it.
    pub hook: Option<HookSource>,
    /// Whether all ranks use rank 0's buffers (running statistics and other state that forward passes change). Those that forward
    /// passes read are sent after each step, all of them in [`DistributedDataParallel::valid`].
    pub broadcast_buffers: bool,
    /// What [`DistributedDataParallel::state`] returned when the run that continues here was saved. Rank 0's is used.
    pub state: Option<DdpState>,
}

impl Default for DdpOptions {
    fn default() -> Self {
        let ReducerConfig { bucket_cap_mb, first_bucket_mb, .. } = ReducerConfig::default();
        Self { bucket_cap_mb, first_bucket_mb, hook: None, broadcast_buffers: true, state: None }
    }
}

/// What besides module and optimizer determines the bits of a run that is continued.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DdpState {
    /// Tensor numbers in the order of the buckets; empty before the first step.
    pub bucket_order: Vec<usize>,
    /// The state of the communication hook on all ranks, if it has any.
    pub hook: Option<HookState>,
}

/// A module that every rank trains on its own samples: PyTorch's `DistributedDataParallel` for any Burn module.
///
/// All ranks call the same methods in the same order. [`new`](Self::new), [`backward`](Self::backward),
/// [`valid`](Self::valid) and [`state`](Self::state) are collectives.
///
/// * A parameter without a gradient counts as zero, which PyTorch's `find_unused_parameters` does where another rank has one:
///   optimizers see it in every step, so weight decay applies. The first step that has one says so in the log.
/// * Float tensors are synchronised; integer and boolean tensors of a module are not.
/// * From the first backward pass that follows several forward passes on, gradients are averaged after backward
///   passes, not during them.
/// * After an error the group is unusable, so the process ends or starts anew from a checkpoint.
pub struct DistributedDataParallel<M: Module> {
    /// `None` only while it is changed.
    module: Option<M>,
    state: ModuleState,
    casts: Casts,
    ladder: TapLadder,
    reducer: Reducer,
    device: Device,
    group: Arc<dyn ProcessGroup>,
    broadcast_buffers: bool,
    bucket_order: Vec<usize>,
    /// Forward passes since the last backward pass.
    forward_passes: usize,
    /// Whether every backward pass so far has followed at most one forward pass. A bucket is then full when each
    /// parameter's gradient has arrived once. Otherwise a backward pass may reach several forward passes.
    overlap: bool,
    /// Backward passes since the last average.
    micro: usize,
    /// Whether one of them had a gradient.
    arrived: bool,
}

impl<M: Module> DistributedDataParallel<M> {
    /// Checks that all ranks have the same module and options, and gives all of them rank 0's values, buffers and
    /// parameter ids, by which Burn's optimizers store their state. Values of lazy parameters are drawn here, in the
    /// order of the module.
    ///
    /// Ranks that are threads build a module each: clones share running state, such as that of a batch norm.
    ///
    /// # Errors
    /// On all ranks, with a message that names the rank: a module or an option that differs between ranks; a tensor
    /// that is not f32 or whose device has no autodiff, or has gradient checkpointing; tensors with one parameter id
    /// and different values. A failed collective or device.
    pub fn new(module: M, group: Arc<dyn ProcessGroup>, options: DdpOptions) -> Result<Self> {
        draw_lazy(&module);
        let checked = device_of(&module).and_then(|device| {
            let state = ModuleState::from_module(&module, str::to_owned);
            check_tied(&module, &state, &device)?;
            Ok((device, state))
        });
        let (device, state) = on_all_ranks(checked, &*group)?;
        verify_same(&options, &state.entries, &*group)?;
        let (module, sent) = broadcast_tensors(module, &state, &|_| true, &*group);
        sent?;
        let module = broadcast_ids(module, &state, &*group)?;

        let DdpOptions { bucket_cap_mb, first_bucket_mb, hook, broadcast_buffers, state: saved } = options;
        let saved = saved.unwrap_or_default();
        let order: Vec<i64> = saved.bucket_order.iter().map(|number| *number as i64).collect();
        let bucket_order: Vec<usize> =
            broadcast_vec(order, 0, &*group)?.into_iter().map(|number| number as usize).collect();
        let caps = ReducerConfig { bucket_cap_mb, first_bucket_mb, ..Default::default() }.bucket_caps();
        let sizes: Vec<Option<usize>> =
            state.entries.iter().map(|e| e.trainable().then(|| e.numel())).collect();
        let layout = BucketLayout::in_order(&sizes, &bucket_order, caps);
        let names = state.entries.iter().map(|e| e.name.clone()).collect();
        let learn = bucket_order.is_empty();
        let mut reducer = Reducer::new(layout, &device, learn, names, group.clone(), hook.as_ref())
            .map_err(|e| Error::internal(format!("cannot start the communication thread: {e}")))?;
        if let Some(ignored) = reducer.restore_hook(saved.hook)? {
            tracing::warn!("{ignored}");
        }
        Ok(Self {
            casts: Casts::new(&state.entries, DType::F32, |_| true),
            ladder: TapLadder::new(sizes.len(), &device),
            module: Some(module),
            state,
            reducer,
            device: device.without_autodiff(),
            group,
            broadcast_buffers,
            bucket_order,
            forward_passes: 0,
            overlap: true,
            micro: 0,
            arrived: false,
        })
    }

    /// The module as it is on this rank, for reading and saving. Its buffers are this rank's between two calls of
    /// [`valid`](Self::valid).
    pub fn module(&self) -> &M {
        self.module.as_ref().expect("the module is only away while it is changed")
    }

    /// The module, after training. Its buffers are this rank's since the last [`valid`](Self::valid): call that first for rank 0's.
    pub fn into_module(mut self) -> M {
        self.module.take().expect("the module is only away while it is changed")
    }

    /// The group over which gradients are averaged.
    pub fn group(&self) -> &Arc<dyn ProcessGroup> {
        &self.group
    }

    /// Calls `pass` with the module of one training pass. Only gradients of results that were computed with this module are
    /// averaged. Models that draw random numbers (dropout) should draw others on each rank: seed the device by rank.
    ///
    /// Run one backward pass for each forward pass, on a loss that depends on its parameters: add several losses first. Burn panics
    /// in a second pass over the same graph, and in a pass over a loss without one.
    pub fn forward<T>(&mut self, pass: impl FnOnce(&M) -> T) -> T {
        self.forward_passes += 1;
        let tap = Arc::new(self.ladder.taps(self.reducer.sink()));
        let cursor = MapCursor::new(&self.state);
        let mut taps = ForwardMapper { cursor, tap: Some(tap), casts: &self.casts };
        let tapped = self.module().clone().map(&mut taps);
        let result = pass(&tapped);
        // Burn keeps changes of running state apart until somebody reads them; `valid` does.
        if self.has(Role::is_buffer) {
            drop(self.module().valid());
        }
        result
    }

    /// Runs the backward pass and averages the gradients over the ranks while it runs. Returns the averages, which are equal to
    /// the bit on all ranks, for an optimizer of `burn-optim`. After [`backward_no_sync`](Self::backward_no_sync), the averages of
    /// the sums of all passes since the last average.
    ///
    /// # Errors
    /// The first failed collective or device error: a rank is lost, has aborted, or is late. No gradient of this rank
    /// has come from `forward` since the last average, which aborts the group.
    pub fn backward(&mut self, loss: Tensor<1>) -> Result<GradientsParams> {
        self.begin(true);
        drop(loss.backward());
        self.finish()
    }

    /// Runs the backward pass and adds its gradients to those of this rank, without communication: PyTorch's `no_sync`. For
    /// micro-batches before the last one of an optimizer step. Sums are averaged over the ranks, not over micro-batches: divide
    /// the loss by their number for that.
    pub fn backward_no_sync(&mut self, loss: Tensor<1>) {
        self.begin(false);
        drop(loss.backward());
        self.finish_no_sync();
    }

    /// Before a backward pass; `average`: it is the last one of its step.
    pub(crate) fn begin(&mut self, average: bool) {
        self.overlap &= std::mem::take(&mut self.forward_passes) <= 1;
        self.reducer.begin(self.micro, average && self.overlap);
    }

    /// After the last backward pass of a step.
    pub(crate) fn finish(&mut self) -> Result<GradientsParams> {
        self.reducer.finish()?;
        let arrived = std::mem::take(&mut self.arrived) || self.reducer.has_arrived();
        if !arrived && self.has(|role| role == Role::Parameter) {
            let message = "no gradient has come from `forward`";
            self.group.abort(message);
            return Err(
                Error::internal(message).hint("compute the loss with the module that `forward` passes")
            );
        }
        let gradients = self.gradients();
        self.reducer.release();
        if let Some(order) = self.reducer.learn_order()? {
            self.bucket_order = order;
        }
        self.micro = 0;
        // Gradients of a backward pass that the caller runs himself must not start a collective.
        self.reducer.begin(0, false);
        self.broadcast(|role| role == Role::Buffer)?;
        Ok(gradients)
    }

    /// After another backward pass of a step.
    pub(crate) fn finish_no_sync(&mut self) {
        self.arrived |= self.reducer.has_arrived();
        self.reducer.end_micro();
        self.micro += 1;
    }

    fn gradients(&self) -> GradientsParams {
        let mut on_device = self.reducer.take_from_device();
        self.reducer.with_buckets(|buckets| {
            let mut gradient = |number: usize| match &mut on_device {
                Some(gradients) => gradients[number].take(),
                None => {
                    let slot = self.reducer.slot(number)?;
                    let values = buckets[slot.bucket][slot.offset..][..slot.len].to_vec();
                    Some(Tensor::from_data(TensorData::new(values, [slot.len]), (&self.device, DType::F32)))
                }
            };
            let (cursor, into) = (Cursor::new(&self.state), GradientsParams::new());
            let mut visitor = GradientVisitor { cursor, gradient: &mut gradient, into };
            self.module().visit(&mut visitor);
            visitor.into
        })
    }

    /// Updates the module with an optimizer of `burn-optim`. All ranks start with equal optimizers and so end with equal bits.
    pub fn step(
        &mut self,
        optimizer: &mut ModuleOptimizer,
        lr: impl Into<ModuleLearningRate>,
        gradients: GradientsParams,
    ) {
        self.module = self.module.take().map(|module| optimizer.step(lr, module, gradients));
        self.tie();
    }

    /// The module for evaluation: without autodiff, with the same buffers on all ranks (rank 0's) unless
    /// [`DdpOptions::broadcast_buffers`] is off. Call it on all ranks.
    ///
    /// # Errors
    /// A failed collective or device.
    pub fn valid(&mut self) -> Result<M> {
        self.broadcast(Role::is_buffer)?;
        Ok(self.module().valid())
    }

    /// What a checkpoint needs besides module and optimizer, on rank 0; `None` on the other ranks. Call it on all ranks, between
    /// two steps.
    ///
    /// # Errors
    /// Parameters differ between ranks (`ErrorKind::Diverged`), with a message that names a rank. A
    /// failed collective or device.
    pub fn state(&self) -> Result<Option<DdpState>> {
        verify_values(self.module(), &self.state, &*self.group)?;
        let hook = self.reducer.hook_state()?;
        Ok((self.group.rank() == 0).then(|| DdpState { bucket_order: self.bucket_order.clone(), hook }))
    }

    /// The module's device, without autodiff.
    #[cfg(feature = "learner")]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Replaces the module by one of the same structure.
    #[cfg(feature = "learner")]
    pub(crate) fn set_module(&mut self, module: M) {
        self.module = Some(module);
        self.tie();
    }

    fn has(&self, role: impl Fn(Role) -> bool) -> bool {
        self.state.entries.iter().any(|entry| role(entry.role))
    }

    /// Makes tied parameters equal again.
    fn tie(&mut self) {
        if self.state.entries.iter().any(|entry| !entry.aliases.is_empty()) {
            let mut mapper = TieMapper { cursor: MapCursor::new(&self.state) };
            self.module = self.module.take().map(|module| module.map(&mut mapper));
        }
    }

    /// Sends rank 0's tensors of the selected roles to all ranks, if buffers are sent at all.
    fn broadcast(&mut self, selected: impl Fn(Role) -> bool) -> Result<()> {
        if !self.broadcast_buffers || self.group.world_size() == 1 || !self.has(&selected) {
            return Ok(());
        }
        let which = |number: usize| selected(self.state.entries[number].role);
        let module = self.module.take().expect("the module is only away while it is changed");
        let (module, sent) = broadcast_tensors(module, &self.state, &which, &*self.group);
        self.module = Some(module);
        sent
    }
}
