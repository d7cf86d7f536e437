//! Communication hooks, which replace the plain all-reduce of a bucket, as PyTorch's `register_comm_hook` does.
//! `[distributed] comm_hook` names one, and each rank creates its own instance from the keys in `[distributed.hook]`.

use super::device_hook::{DeviceErrorFeedback, DeviceHook};
use super::error_feedback::{ErrorFeedback, Half, divisor};
use collectives::{CommError, ProcessGroup};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use spec::Fields;
use std::fmt;
use std::sync::Arc;

/// Turns each rank's gradients of a bucket into one result for all ranks, on the communication thread.
///
/// State that a hook keeps between steps is saved in checkpoints with [`CommHook::state`] and restored with
/// [`CommHook::restore`], so that a resumed run is bit-equal to an uninterrupted one. The first optimizer step of a
/// run, which learns the order of the buckets, does not use the hook: buckets never change while a hook is active.
///
/// ```
/// use collectives::{CommError, ProcessGroup, ReduceOp};
/// use ddp_run_ddp::CommHook;
///
/// /// Averages what each rank has limited.
/// struct Limited {
///     /// Largest gradient of one number on one rank.
///     limit: f32,
/// }
///
/// impl CommHook for Limited {
///     fn average(
///         &mut self,
///         _bucket: usize,
///         gradients: &mut [f32],
///         group: &dyn ProcessGroup,
///     ) -> Result<(), CommError> {
///         // What is not finite stays so.
///         for g in gradients.iter_mut().filter(|g| g.is_finite()) {
///             *g = g.clamp(-self.limit, self.limit);
///         }
///         group.all_reduce(gradients.into(), ReduceOp::Mean)
///     }
/// }
/// ```
pub trait CommHook: Send {
    /// Replaces `gradients`, this rank's, with what the optimizer gets: the same bits on all ranks, usually the mean.
    /// Called for every bucket in each optimizer step, in the same order on all ranks. A gradient that is not finite
    /// must not become finite, because the run ends on it.
    ///
    /// # Errors
    /// The first failed collective.
    fn average(
        &mut self,
        bucket: usize,
        gradients: &mut [f32],
        group: &dyn ProcessGroup,
    ) -> Result<(), CommError>;

    /// State on which later averages of `bucket` on this rank depend; any length, empty if none.
    fn state(&self, _bucket: usize) -> &[f32] {
        &[]
    }

    /// Restores what [`CommHook::state`] returned for `bucket` when the checkpoint was saved. Not called for empty state.
    fn restore(&mut self, _bucket: usize, _state: Vec<f32>) {}

    /// From now on gradients are `factor` times as large, a power of two: the loss scale of `precision = "f16"` has
    /// changed, or the run goes on in another precision.
    fn rescale(&mut self, _factor: f32) {}
}

/// Reads the keys of one hook, `[distributed.hook]`; `None` after a problem.
pub type HookKind = Arc<dyn Fn(&mut Fields<'_>) -> Option<HookSource> + Send + Sync>;

/// The [`HookKind`] of the hooks that `make` makes from the keys of `C`.
pub fn hook_kind<C, H, F>(name: &str, make: F) -> HookKind
where
    C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    H: CommHook + 'static,
    F: Fn(&C) -> H + Send + Sync + 'static,
{
    let (name, make) = (name.to_owned(), Arc::new(make));
    Arc::new(move |fields| {
        let (config, make) = (fields.parse::<C>()?, make.clone());
        Some(HookSource::new(&name, move || make(&config)))
    })
}

type Make = dyn Fn() -> Box<dyn CommHook> + Send + Sync;
type MakeOnDevice = dyn Fn() -> Box<dyn DeviceHook> + Send + Sync;

/// A hook's name in specs, and its constructor with the keys of the spec.
#[derive(Clone)]
pub struct HookSource {
    name: String,
    make: Arc<Make>,
    make_on_device: Option<Arc<MakeOnDevice>>,
    /// The largest value that it can send, if less than f32's.
    largest: Option<f32>,
}

impl HookSource {
    /// A hook named `name` in specs; `make` creates the instance of one rank.
    pub fn new<H: CommHook + 'static>(name: &str, make: impl Fn() -> H + Send + Sync + 'static) -> Self {
        Self {
            name: name.to_owned(),
            make: Arc::new(move || Box::new(make())),
            make_on_device: None,
            largest: None,
        }
    }

    /// Adds the form for gradients averaged in device memory. For a hook without it, gradients are copied to the host.
    fn on_device<H: DeviceHook + 'static>(mut self, make: impl Fn() -> H + Send + Sync + 'static) -> Self {
        self.make_on_device = Some(Arc::new(move || Box::new(make())));
        self
    }

    /// `bf16` and `f16`: half the bytes, with error feedback.
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

    /// The [`HookKind`] of this one.
    pub fn without_keys(self) -> HookKind {
        Arc::new(move |_| Some(self.clone()))
    }

    /// The hook's name in `[distributed] comm_hook`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gradients above this become infinite when sent between `world` ranks; `None`: no limit below f32's.
    pub fn largest(&self, world: usize) -> Option<f32> {
        Some(self.largest? * divisor(world))
    }

    /// Creates an instance for one rank, without state.
    pub fn make(&self) -> Box<dyn CommHook> {
        (self.make)()
    }

    pub(crate) fn make_on_device(&self) -> Option<Box<dyn DeviceHook>> {
        self.make_on_device.as_ref().map(|make| make())
    }
}

impl fmt::Debug for HookSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookSource").field(&self.name).finish()
    }
}
