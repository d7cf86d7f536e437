//! The `gloo` engine: collectives between CPU processes, through shared memory within a host and over TCP between
//! hosts. It has no threads: a blocked call makes the progress. Every wait has a deadline, and every failure reaches
//! all ranks at once and names the same culprit on all of them. There is one exception: if a connection breaks between
//! two ranks that both stay alive, each reports the other as lost, and the remaining ranks report the first failure that
//! they receive ("detected by rank …").
//!
//! From the outside in: [`GlooGroup`] takes the lock; `topology` chooses an algorithm, `operations` calls it; `local`
//! and `chunks` work in a host's memory (`shm`), `hierarchy`, `ring`, `tree` and `selectable` over links between ranks;
//! `stream` moves their bytes; `engine` holds the call, `wait` waits and reads control messages, `header_check` checks the
//! peers' headers, `probe` finds late ranks; `failure_detector` does both outside of calls, for an engine that uses this
//! group for control; `link`, `wire`, `lanes` and, shared by all engines, `header` and `control` are the transport; `shared` is
//! what other threads may use during a call.

mod chunks;
mod engine;
mod failure_detector;
mod header_check;
mod hierarchy;
mod lanes;
mod link;
mod local;
mod operations;
mod options;
mod probe;
mod ring;
mod selectable;
mod setup;
mod shared;
pub mod shm;
mod stream;
#[cfg(test)]
mod tests;
mod topology;
mod tree;
mod wait;
mod wire;

pub use options::{AlgorithmChoice, GlooOptions, Transport};
pub use topology::{SMALL, all_reduce_algorithm};

use super::rendezvous::RendezvousConfig;
use super::{
    Call, CallRecord, CommError, CommErrorKind, FailureDetector, FlightRecorder, ProcessGroup, StepPhase,
    calls::lock,
    control,
    execute::{Shared as _, execute},
    header, messages,
};
use control::Control;
use engine::Engine;
use header::Header;
use shared::GlooShared;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use topology::Topology;

/// A process group of CPU processes. Dropping it leaves the group in order: the other ranks fail only if they still need this one.
pub struct GlooGroup {
    timeout: Duration,
    topology: Topology,
    choice: AlgorithmChoice,
    /// Header fields that all calls of this group have in common.
    base: Header,
    shared: Arc<GlooShared>,
    engine: Mutex<Engine>,
}

impl GlooGroup {
    /// Connects to all other ranks; blocks for at most `init_timeout`.
    pub fn connect(mut config: RendezvousConfig, options: GlooOptions) -> Result<Self, CommError> {
        let (engine, topology) = setup::set_up(&mut config, &options)?;
        Ok(Self {
            timeout: config.timeout,
            topology,
            choice: options.algorithm,
            base: engine.header,
            shared: engine.shared.clone(),
            engine: Mutex::new(engine),
        })
    }

    /// From now on this many answers of peers end the wait for answers to a probe, and no timeout does: every live peer is
    /// counted, however busy the machine is.
    #[cfg(test)]
    pub fn count_answers(&self, answers: usize) {
        lock(&self.engine).answers = Some(answers);
    }

    /// The header of a call; the algorithm follows from the operation and the size of the buffer.
    fn header(&self, call: &Call<'_>) -> Header {
        let header = call.header(self.base);
        let bytes = header.count as usize * header.dtype.size();
        Header { algorithm: self.topology.choose(self.choice, header.operation, bytes), ..header }
    }
}

impl ProcessGroup for GlooGroup {
    fn rank(&self) -> usize {
        self.shared.calls.rank
    }
    fn world_size(&self) -> usize {
        self.topology.world
    }
    fn backend(&self) -> &'static str {
        "gloo"
    }

    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        let header = self.header(&call);
        let mut engine = lock(&self.engine);
        execute(&mut *engine, call, header, self.timeout, |engine, call| engine.run(call, &self.topology))
    }

    fn abort(&self, why: &str) {
        let rank = self.rank();
        self.shared.fail(CommErrorKind::Aborted, Some(rank), &messages::aborted(rank, why));
    }

    fn flight_recorder(&self) -> Option<&dyn FlightRecorder> {
        Some(self)
    }

    fn failure_detector(&self) -> Option<&dyn FailureDetector> {
        Some(self)
    }
}

impl FlightRecorder for GlooGroup {
    fn note(&self, place: StepPhase) {
        self.shared.note(place);
    }

    fn place(&self) -> StepPhase {
        self.shared.calls.place()
    }

    fn history(&self) -> Vec<CallRecord> {
        self.shared.calls.history()
    }
}

impl Drop for GlooGroup {
    fn drop(&mut self) {
        if self.shared.failure().is_none() {
            let frame = Control::Goodbye.frame();
            self.shared.control.iter().flatten().for_each(|c| c.send(&frame));
        }
        let engine = self.engine.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for link in engine.links.iter().flatten() {
            link.wire.streams().iter().for_each(|s| drop(s.shutdown(Shutdown::Write)));
        }
        for control in self.shared.control.iter().flatten() {
            let _ = control.stream.shutdown(Shutdown::Write);
            // Closing a socket with unread bytes resets the connection, and the reset could overtake the goodbye.
            while control.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {}
        }
    }
}
