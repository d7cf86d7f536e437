//! A process group that intercepts every call and every place.

use collectives::{
    Call, CallRecord, CommError, CommErrorKind, DeviceCollectives, DeviceSlice, FailureDetector,
    FlightRecorder, ProcessGroup, ReduceOp, StepPhase,
};
use std::sync::Arc;

/// The interceptor that an [`InterceptedGroup`] calls.
pub trait Intercept: Send + Sync {
    /// Before a collective, by its name.
    fn before_call(&self, _name: &'static str) {}

    /// After the group has recorded a place.
    fn at_place(&self, place: StepPhase);
}

pub struct InterceptedGroup<I> {
    inner: Arc<dyn ProcessGroup>,
    pub(super) intercept: I,
}

impl<I: Intercept> InterceptedGroup<I> {
    pub fn new(inner: Arc<dyn ProcessGroup>, intercept: I) -> Self {
        Self { inner, intercept }
    }

    fn device(&self) -> Result<&dyn DeviceCollectives, CommError> {
        let none = || CommError::new(CommErrorKind::Misuse, None, "the group has no collectives on a device");
        self.inner.device_collectives().ok_or_else(none)
    }
}

impl<I: Intercept> ProcessGroup for InterceptedGroup<I> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn world_size(&self) -> usize {
        self.inner.world_size()
    }
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        self.intercept.before_call(call.name());
        self.inner.call(call)
    }
    fn abort(&self, why: &str) {
        self.inner.abort(why);
    }
    fn flight_recorder(&self) -> Option<&dyn FlightRecorder> {
        Some(self)
    }
    fn device_collectives(&self) -> Option<&dyn DeviceCollectives> {
        self.inner.device_collectives().map(|_| self as &dyn DeviceCollectives)
    }
    fn failure_detector(&self) -> Option<&dyn FailureDetector> {
        self.inner.failure_detector()
    }
}

impl<I: Intercept> FlightRecorder for InterceptedGroup<I> {
    fn note(&self, place: StepPhase) {
        self.inner.note(place);
        self.intercept.at_place(place);
    }
    fn place(&self) -> StepPhase {
        self.inner.place()
    }
    fn history(&self) -> Vec<CallRecord> {
        self.inner.history()
    }
}

impl<I: Intercept> DeviceCollectives for InterceptedGroup<I> {
    fn all_reduce(&self, buffer: DeviceSlice, op: ReduceOp) -> Result<(), CommError> {
        self.intercept.before_call("all_reduce");
        self.device()?.all_reduce(buffer, op)
    }
    fn fence(&self) -> Result<(), CommError> {
        self.device()?.fence()
    }
    fn check(&self) -> Result<(), CommError> {
        self.device()?.check()
    }
}
