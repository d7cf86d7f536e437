//! Averages buckets with a group that operates on device memory.

use super::device_hook::DeviceHook;
use super::hook::HookSource;
use super::hook_state::{self, HookState};
use crate::device::read;
use base::error::Error;
use burn::tensor::{Device, Tensor, TensorData};
use collectives::{CommError, ProcessGroup};
use std::sync::Arc;

/// Averages flat tensors in place, in the order of the calls, which is the same on all ranks.
pub(super) trait InPlace: Send + Sync {
    /// Enqueues the mean of `tensor` over all ranks and returns before it is computed. The result is valid for
    /// operations launched after [`InPlace::fence`] and must not be used before. `tensor` must be the only handle.
    fn average(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CommError>;
    /// Makes everything that is launched later wait for the averages so far.
    fn fence(&self) -> Result<(), CommError>;
}

/// `group`, if it has collectives in its device's memory.
pub(super) fn for_group(group: &Arc<dyn ProcessGroup>) -> Option<Arc<dyn InPlace>> {
    group.device_collectives()?;
    on_cuda(group)
}

/// Only CUDA has such groups.
#[cfg(not(feature = "cuda"))]
fn on_cuda(_: &Arc<dyn ProcessGroup>) -> Option<Arc<dyn InPlace>> {
    None
}

#[cfg(feature = "cuda")]
fn on_cuda(group: &Arc<dyn ProcessGroup>) -> Option<Arc<dyn InPlace>> {
    use base::error::ErrorKind;
    use collectives::{CommErrorKind, DeviceCollectives, ReduceOp};

    struct OnCuda(Arc<dyn ProcessGroup>);

    impl OnCuda {
        fn collectives(&self) -> Result<&dyn DeviceCollectives, CommError> {
            let none = "this group has no collectives in device memory";
            self.0.device_collectives().ok_or_else(|| CommError::new(CommErrorKind::Misuse, None, none))
        }
    }

    impl InPlace for OnCuda {
        fn average(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CommError> {
            let slice = crate::device::slice(&tensor).map_err(|e| {
                let kind = match e.kind {
                    ErrorKind::Unavailable => CommErrorKind::Unavailable,
                    _ => CommErrorKind::Misuse,
                };
                CommError { hint: e.hint, ..CommError::new(kind, None, e.message) }
            })?;
            self.collectives()?.all_reduce(slice, ReduceOp::Mean)?;
            Ok(tensor)
        }

        fn fence(&self) -> Result<(), CommError> {
            self.collectives()?.fence()
        }
    }

    Some(Arc::new(OnCuda(group.clone())))
}

/// One step's buckets in flight, and the hook applied to them.
pub(super) struct InPlaceBuckets {
    by: Arc<dyn InPlace>,
    world_size: usize,
    hook: Option<Box<dyn DeviceHook>>,
    launched: Vec<Tensor<1>>,
    /// Error of the first launch that failed.
    failed: Option<CommError>,
}

impl InPlaceBuckets {
    /// `None` if the hook has no device form. A single process creates no hook.
    pub fn new(by: Arc<dyn InPlace>, world_size: usize, hook: Option<&HookSource>) -> Option<Self> {
        let hook = match hook.filter(|_| world_size > 1) {
            Some(source) => Some(source.make_on_device()?),
            None => None,
        };
        Some(Self { by, world_size, hook, launched: Vec::new(), failed: None })
    }

    /// Discards the previous step.
    pub fn begin(&mut self) {
        self.launched.clear();
    }

    /// Launches the next bucket, without the hook if `plain`. Returns false once a launch has failed.
    pub fn launch(&mut self, flat: Tensor<1>, plain: bool) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let sent = match &mut self.hook {
            Some(hook) if !plain => hook.send(self.launched.len(), flat, self.world_size),
            _ => flat,
        };
        match self.by.average(sent) {
            Ok(average) => self.launched.push(average),
            Err(failed) => self.failed = Some(failed),
        }
        self.failed.is_none()
    }

    /// The averages of all launched buckets, in order, for operations launched after this.
    ///
    /// # Errors
    /// The first launch that failed.
    pub fn finish(&mut self, plain: bool) -> Result<Vec<Tensor<1>>, CommError> {
        if let Some(failed) = self.failed.clone() {
            return Err(failed);
        }
        self.by.fence()?;
        let averages = std::mem::take(&mut self.launched);
        Ok(match &mut self.hook {
            Some(hook) if !plain => {
                averages.into_iter().enumerate().map(|(bucket, sum)| hook.receive(bucket, sum)).collect()
            }
            _ => averages,
        })
    }

    /// The mean of `value` over the ranks, for operations launched after this.
    pub fn agree(&self, value: Tensor<1>) -> Result<Tensor<1>, CommError> {
        let mean = self.by.average(value)?;
        self.by.fence()?;
        Ok(mean)
    }

    /// As [`super::CommHook::rescale`].
    pub fn rescale(&mut self, factor: f32) {
        self.hook.iter_mut().for_each(|hook| hook.rescale(factor));
    }

    /// As [`super::comm_thread::CommThread::gather_hooks`].
    pub fn gather_hooks(
        &self,
        name: &str,
        buckets: &[usize],
        group: &dyn ProcessGroup,
    ) -> Result<Option<HookState>, Error> {
        let Some(hook) = &self.hook else { return Ok(None) };
        let state = |bucket| hook.state(bucket).map_or_else(|| Ok(Vec::new()), read);
        hook_state::gather(name, buckets, &state, group)
    }

    /// As [`super::comm_thread::CommThread::scatter_hooks`].
    pub fn scatter_hooks(
        &mut self,
        buckets: usize,
        values: Vec<Vec<Vec<f32>>>,
        device: &Device,
        group: &dyn ProcessGroup,
    ) -> Result<(), CommError> {
        let Some(hook) = &mut self.hook else { return Ok(()) };
        let mut restore = |bucket, state: Vec<f32>| {
            let len = state.len();
            hook.restore(bucket, Tensor::from_data(TensorData::new(state, [len]), device));
        };
        hook_state::scatter(&mut restore, buckets, values, group)
    }
}
