//! The process group of a run with one process: every collective is the identity and never waits. It keeps the rules of
//! the other groups (invalid calls are rejected, an aborted group stays unusable), so that code that works with one
//! rank works with many.

use super::calls::lock;
use super::{Call, CallRecord, CommError, CommErrorKind, FlightRecorder, ProcessGroup, StepPhase, messages};
use std::sync::{Mutex, OnceLock};

/// World size 1, rank 0.
#[derive(Debug, Default)]
pub struct SoloGroup {
    failed: OnceLock<CommError>,
    place: Mutex<StepPhase>,
}

impl ProcessGroup for SoloGroup {
    fn rank(&self) -> usize {
        0
    }
    fn world_size(&self) -> usize {
        1
    }
    fn backend(&self) -> &'static str {
        "solo"
    }
    /// After the first failure, every call returns its error.
    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        if self.failed.get().is_none() {
            match call.check(0, 1) {
                Ok(()) => call.run_solo(),
                Err(e) => drop(self.failed.set(e)),
            }
        }
        self.failed.get().cloned().map_or(Ok(()), Err)
    }
    fn abort(&self, why: &str) {
        let error = CommError::new(CommErrorKind::Aborted, Some(0), messages::aborted(0, why));
        self.failed.get_or_init(|| error);
    }
    fn flight_recorder(&self) -> Option<&dyn FlightRecorder> {
        Some(self)
    }
}

/// Calls are not recorded: none can wait for a peer.
impl FlightRecorder for SoloGroup {
    fn note(&self, place: StepPhase) {
        *lock(&self.place) = place;
    }
    fn place(&self) -> StepPhase {
        *lock(&self.place)
    }
    fn history(&self) -> Vec<CallRecord> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::check_type;
    use crate::{DType, Phase, ReduceOp, Wait};

    #[test]
    fn every_collective_agrees_with_the_reference() {
        let group = SoloGroup::default();
        DType::ALL.into_iter().for_each(|dtype| check_type(&group, dtype, 7));
        let mut v = [f32::NAN, -0.0];
        group.all_reduce((&mut v[..]).into(), ReduceOp::Mean).unwrap();
        assert_eq!(v.map(f32::to_bits), [f32::NAN, -0.0].map(f32::to_bits));
    }

    #[test]
    fn an_invalid_call_is_misuse_and_the_group_stays_failed() {
        let group = SoloGroup::default();
        let e = group.broadcast((&mut [1i32][..]).into(), 1).unwrap_err();
        assert_eq!(e.kind, CommErrorKind::Misuse);
        assert_eq!(group.barrier(Wait::Deadline).unwrap_err(), e);
    }

    #[test]
    fn place_returns_the_last_note() {
        let group = SoloGroup::default();
        let here = StepPhase { step: 7, phase: Phase::Forward };
        group.note(here);
        group.barrier(Wait::Deadline).unwrap();
        assert_eq!(group.place(), here);
    }

    #[test]
    fn abort_fails_later_calls_with_its_reason() {
        let group = SoloGroup::default();
        group.abort("disk full");
        group.abort("second");
        let e = group.barrier(Wait::Deadline).unwrap_err();
        assert_eq!((e.kind, e.peer), (CommErrorKind::Aborted, Some(0)));
        assert!(e.message.contains("disk full"));
    }
}
