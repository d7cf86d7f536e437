//! [`NcclGroup`]: the control group's calls, and those on the device.

use super::engine::Engine;
use super::{NcclConfig, join, watchdog};
use crate::comm::{
    CallRecord, CommError, DeviceCollectives, Place, ProcessGroup, ReduceOp, SliceMut, SliceRef, Wait, Watch,
};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Calls that `history` gives.
const HISTORY: usize = 64;

/// A process group whose ranks have a GPU each. Drop it to leave in peace; that waits for what is under way.
pub struct NcclGroup {
    engine: Arc<Engine>,
    control: Arc<dyn ProcessGroup>,
    /// Some until the group is dropped.
    watchdog: Option<JoinHandle<()>>,
}

impl NcclGroup {
    /// As [`connect`](super::connect).
    pub fn connect(control: Arc<dyn ProcessGroup>, config: &NcclConfig) -> Result<Self> {
        let engine = Arc::new(join::join(control.clone(), config)?);
        let watchdog = watchdog::start(engine.clone())
            .map_err(|e| Error::internal(format!("cannot start NCCL's watchdog thread: {e}")))?;
        Ok(Self { engine, control, watchdog: Some(watchdog) })
    }

    /// Runs a call of the control group, unless this one has failed; its failure is that of both.
    fn by_control(
        &self,
        call: impl FnOnce(&dyn ProcessGroup) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        self.engine.check()?;
        call(&*self.control).map_err(|error| self.engine.fail(error))
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
    fn all_reduce(&self, buf: SliceMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        self.by_control(|c| c.all_reduce(buf, op))
    }
    fn reduce(&self, buf: SliceMut<'_>, op: ReduceOp, root: usize) -> Result<(), CommError> {
        self.by_control(|c| c.reduce(buf, op, root))
    }
    fn broadcast(&self, buf: SliceMut<'_>, root: usize) -> Result<(), CommError> {
        self.by_control(|c| c.broadcast(buf, root))
    }
    fn all_gather(&self, input: SliceRef<'_>, output: SliceMut<'_>) -> Result<(), CommError> {
        self.by_control(|c| c.all_gather(input, output))
    }
    fn reduce_scatter(
        &self,
        input: SliceRef<'_>,
        output: SliceMut<'_>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        self.by_control(|c| c.reduce_scatter(input, output, op))
    }
    fn barrier(&self, wait: Wait) -> Result<(), CommError> {
        self.by_control(|c| c.barrier(wait))
    }
    fn send(&self, buf: SliceRef<'_>, to: usize, tag: u32) -> Result<(), CommError> {
        self.by_control(|c| c.send(buf, to, tag))
    }
    fn recv(&self, buf: SliceMut<'_>, from: usize, tag: u32) -> Result<(), CommError> {
        self.by_control(|c| c.recv(buf, from, tag))
    }
    /// Ends the control group, and with it the communicator.
    fn abort(&self, why: &str) {
        self.engine.broken(why);
    }
    fn note(&self, place: Place) {
        self.engine.calls.note(place);
        self.control.note(place);
    }
    fn place(&self) -> Place {
        self.control.place()
    }
    /// Calls of both kinds, by the time at which they began; each kind has numbers of its own.
    fn history(&self) -> Vec<CallRecord> {
        let mut calls = self.control.history();
        calls.extend(self.engine.calls.history());
        calls.sort_by_key(|call| call.started);
        calls.drain(..calls.len().saturating_sub(HISTORY));
        calls
    }
    fn device_collectives(&self) -> Option<&dyn DeviceCollectives> {
        Some(&*self.engine)
    }
    fn watch(&self) -> Option<&dyn Watch> {
        self.control.watch()
    }
}

impl Drop for NcclGroup {
    fn drop(&mut self) {
        if let Some(thread) = self.watchdog.take() {
            watchdog::stop(&self.engine, thread);
        }
    }
}
