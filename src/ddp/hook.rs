//! Communication hooks: what replaces the plain all-reduce of a bucket. PyTorch's `register_comm_hook`, made declarative:
//! `[distributed] comm_hook` names one, and each rank makes its own.

use super::device_hook::{DeviceErrorFeedback, DeviceHook};
use super::error_feedback::{ErrorFeedback, Half, divisor};
use crate::comm::{CommError, ProcessGroup};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;
use std::sync::Arc;

/// Turns each rank's gradients of a bucket into one result for all ranks, on the communication thread.
///
/// What a hook keeps from step to step is part of the run: it goes into checkpoints through [`CommHook::state`] and comes
/// back through [`CommHook::restore`], so that a resumed run has the bits of one that was never interrupted. The first
/// optimizer step of a run, in which the order of the buckets is learnt, goes by without it: buckets never change under a hook.
pub trait CommHook: Send {
    /// Replaces `gradients`, this rank's, by what the optimizer gets: the same bits on all ranks, usually the mean. Called for
    /// every bucket in each optimizer step, in order, on all ranks alike. A gradient that is not finite must not
    /// become finite: the run ends by it.
    ///
    /// # Errors
    /// The first failed collective.
    fn average(
        &mut self,
        bucket: usize,
        gradients: &mut [f32],
        group: &dyn ProcessGroup,
    ) -> Result<(), CommError>;

    /// What this rank's later averages of `bucket` depend on; of any length, empty when on nothing.
    fn state(&self, _bucket: usize) -> &[f32] {
        &[]
    }

    /// Takes back what [`CommHook::state`] gave for `bucket` when the checkpoint was saved. Not called when there was nothing.
    fn restore(&mut self, _bucket: usize, _state: Vec<f32>) {}

    /// From here on gradients are `factor` times as large, a power of two: the loss scale of `precision = "f16"` has changed.
    fn rescale(&mut self, _factor: f32) {}
}

type Make = dyn Fn() -> Box<dyn CommHook> + Send + Sync;
type MakeOnDevice = dyn Fn() -> Box<dyn DeviceHook> + Send + Sync;

/// A hook's name in specs, and how a rank makes its own.
#[derive(Clone)]
pub struct HookSource {
    name: String,
    make: Arc<Make>,
    make_on_device: Option<Arc<MakeOnDevice>>,
    /// The largest value that it carries, where that is less than f32 does.
    largest: Option<f32>,
}

impl HookSource {
    pub fn new<H: CommHook + 'static>(name: &str, make: impl Fn() -> H + Send + Sync + 'static) -> Self {
        Self {
            name: name.to_owned(),
            make: Arc::new(move || Box::new(make())),
            make_on_device: None,
            largest: None,
        }
    }

    /// Adds the form for gradients that are averaged in the device's memory. A hook without it takes them through the host.
    pub fn on_device<H: DeviceHook + 'static>(
        mut self,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> Self {
        self.make_on_device = Some(Arc::new(move || Box::new(make())));
        self
    }

    /// Half the bytes on the wire, with error feedback.
    pub fn standard() -> [Self; 2] {
        fn half<H: Half>(name: &str) -> HookSource
        where
            [H]: HalfFloatSliceExt,
        {
            HookSource::new(name, ErrorFeedback::<H>::default).on_device(DeviceErrorFeedback::<H>::default)
        }
        // bf16 has the range of f32.
        [half::<bf16>("bf16"), HookSource { largest: Some(f16::LARGEST), ..half::<f16>("f16") }]
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Beyond which a gradient becomes infinite on its way between `world` ranks; `None`: only where it is so already.
    pub fn largest(&self, world: usize) -> Option<f32> {
        Some(self.largest? * divisor(world))
    }

    pub fn make(&self) -> Box<dyn CommHook> {
        (self.make)()
    }

    pub fn make_on_device(&self) -> Option<Box<dyn DeviceHook>> {
        self.make_on_device.as_ref().map(|make| make())
    }
}

impl fmt::Debug for HookSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookSource").field(&self.name).finish()
    }
}
