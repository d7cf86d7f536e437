//! [`NcclGroup`]: the control group's calls, and those on the device.

use super::engine::Engine;
use super::{join, watchdog};
use crate::calls::HISTORY;
use crate::{
    Call, CallRecord, CommError, DeviceCollectives, DistributedConfig, FailureDetector, FlightRecorder,
    ProcessGroup, StepPhase,
};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A process group whose ranks have one GPU each. Dropping it leaves the group in order and waits for the collectives in flight.
pub(super) struct NcclGroup {
    engine: Arc<Engine>,
    control: Arc<dyn ProcessGroup>,
    /// Some until the group is dropped.
    watchdog: Option<JoinHandle<()>>,
}

impl NcclGroup {
    /// See [`connect`](super::connect).
    pub(super) fn connect(
        control: Arc<dyn ProcessGroup>,
        device: usize,
        limits: &DistributedConfig,
    ) -> Result<Self, CommError> {
        let engine = Arc::new(join::join(control.clone(), device, limits)?);
        let watchdog = watchdog::start(engine.clone())
            .map_err(|e| CommError::unavailable(format!("cannot start NCCL's watchdog thread: {e}")))?;
        Ok(Self { engine, control, watchdog: Some(watchdog) })
    }
}

impl ProcessGroup for NcclGroup {
    fn rank(&self) -> usize {
        self.control.rank()
    }
    fn world_size(&self) -> usize {
        self.control.world_size()
    }
    fn backend(&self) -> &'static str {
        "nccl"
    }
    /// Runs on the control group, unless this group has failed; a failure of the control group is also this group's.
    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        self.engine.check()?;
        self.control.call(call).map_err(|error| self.engine.fail(error))
    }
    /// Ends the control group, and with it the communicator.
    fn abort(&self, why: &str) {
        self.engine.abort(why);
    }
    fn flight_recorder(&self) -> Option<&dyn FlightRecorder> {
        Some(self)
    }
    fn device_collectives(&self) -> Option<&dyn DeviceCollectives> {
        Some(&*self.engine)
    }
    fn failure_detector(&self) -> Option<&dyn FailureDetector> {
        self.control.failure_detector()
    }
}

impl FlightRecorder for NcclGroup {
    fn note(&self, place: StepPhase) {
        self.engine.calls.note(place);
        self.control.note(place);
    }
    fn place(&self) -> StepPhase {
        self.control.place()
    }
    /// Calls of both kinds, by start time; each kind has its own sequence numbers.
    fn history(&self) -> Vec<CallRecord> {
        let mut calls = self.control.history();
        calls.extend(self.engine.calls.history());
        calls.sort_by_key(|call| call.started);
        calls.drain(..calls.len().saturating_sub(HISTORY));
        calls
    }
}

impl Drop for NcclGroup {
    fn drop(&mut self) {
        if let Some(thread) = self.watchdog.take() {
            watchdog::stop(&self.engine, thread);
        }
    }
}
