//! The process group of a run with one process: every collective is the identity and never waits. It keeps the rules of
//! the other groups (invalid calls are rejected, an aborted group stays unusable), so that code that works with one
//! rank works with many.

use super::calls::lock;
use super::{Call, CommError, CommErrorKind, Place, ProcessGroup, messages};
use std::sync::{Mutex, OnceLock};

/// World size 1, rank 0.
#[derive(Debug, Default)]
pub struct SoloGroup {
    failed: OnceLock<CommError>,
    place: Mutex<Place>,
}

impl SoloGroup {
    /// A group of only this process.
    pub fn new() -> Self {
        Self::default()
    }
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
    fn note(&self, place: Place) {
        *lock(&self.place) = place;
    }
    fn place(&self) -> Place {
        *lock(&self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Phase, ReduceOp, Wait};

    #[test]
    fn every_collective_is_the_identity() {
        let group = SoloGroup::new();
        let mut v = vec![1.5f32, f32::NAN, -0.0];
        let before: Vec<u32> = v.iter().map(|x| x.to_bits()).collect();
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min] {
            group.all_reduce((&mut v).into(), op).unwrap();
            group.reduce((&mut v).into(), op, 0).unwrap();
        }
        group.broadcast((&mut v).into(), 0).unwrap();
        let mut out = vec![0f32; 3];
        group.all_gather((&v).into(), (&mut out).into()).unwrap();
        group.reduce_scatter((&out).into(), (&mut v).into(), ReduceOp::Mean).unwrap();
        group.barrier(Wait::WhilePeersLive).unwrap();
        assert_eq!(v.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), before);
    }

    #[test]
    fn wrong_calls_are_misuse_and_the_group_stays_failed() {
        let mut v = [1i32];
        type Call = fn(&SoloGroup, &mut [i32]) -> Result<(), CommError>;
        let calls: [Call; 5] = [
            |g, v| g.all_reduce(v.into(), ReduceOp::Mean),
            |g, v| g.broadcast(v.into(), 1),
            |g, v| g.send((&*v).into(), 0, 0),
            |g, v| g.recv(v.into(), 1, 0),
            |g, v| g.all_gather((&*v).into(), (&mut [0i32; 2][..]).into()),
        ];
        for call in calls {
            let group = SoloGroup::new();
            let e = call(&group, &mut v).unwrap_err();
            assert_eq!(e.kind, CommErrorKind::Misuse);
            assert_eq!(group.barrier(Wait::Deadline).unwrap_err(), e);
        }
    }

    #[test]
    fn place_returns_the_last_note() {
        let group = SoloGroup::new();
        let here = Place { step: 7, phase: Phase::Forward };
        group.note(here);
        group.barrier(Wait::Deadline).unwrap();
        assert_eq!(group.place(), here);
    }

    #[test]
    fn abort_fails_later_calls_with_its_reason() {
        let group = SoloGroup::new();
        group.abort("disk full");
        group.abort("second");
        let e = group.barrier(Wait::Deadline).unwrap_err();
        assert_eq!((e.kind, e.peer), (CommErrorKind::Aborted, Some(0)));
        assert!(e.message.contains("disk full"));
    }
}
