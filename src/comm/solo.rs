//! The process group of a run with one process: every collective is the identity, nothing is ever waited for. It
//! keeps the other groups' rules (wrong calls are refused, an aborted group stays unusable), so that code that
//! works alone works on many ranks.

use super::{CommError, CommErrorKind, Place, ProcessGroup, ReduceOp, SliceMut, SliceRef, Wait, check};
use std::sync::{Mutex, OnceLock, PoisonError};

/// World size 1, rank 0.
#[derive(Debug, Default)]
pub struct SoloGroup {
    failed: OnceLock<CommError>,
    place: Mutex<Place>,
}

impl SoloGroup {
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `call` unless an earlier one failed; its error is the group's from then on.
    fn guard(&self, call: impl FnOnce() -> Result<(), CommError>) -> Result<(), CommError> {
        match self.failed.get() {
            Some(e) => Err(e.clone()),
            None => call().map_err(|e| self.failed.get_or_init(|| e).clone()),
        }
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
    fn all_reduce(&self, buf: SliceMut<'_>, op: ReduceOp) -> Result<(), CommError> {
        self.guard(|| check::reduction("all_reduce", buf.dtype(), op))
    }
    fn reduce(&self, buf: SliceMut<'_>, op: ReduceOp, root: usize) -> Result<(), CommError> {
        self.guard(|| {
            check::reduction("reduce", buf.dtype(), op)?;
            check::root("reduce", root, 1)
        })
    }
    fn broadcast(&self, _buf: SliceMut<'_>, root: usize) -> Result<(), CommError> {
        self.guard(|| check::root("broadcast", root, 1))
    }
    fn all_gather(&self, input: SliceRef<'_>, mut output: SliceMut<'_>) -> Result<(), CommError> {
        self.guard(|| {
            check::blocks("all_gather", (input.dtype(), input.len()), (output.dtype(), output.len()), 1)?;
            output.bytes_mut().copy_from_slice(input.bytes());
            Ok(())
        })
    }
    fn reduce_scatter(
        &self,
        input: SliceRef<'_>,
        mut output: SliceMut<'_>,
        op: ReduceOp,
    ) -> Result<(), CommError> {
        self.guard(|| {
            check::reduction("reduce_scatter", input.dtype(), op)?;
            check::blocks("reduce_scatter", (output.dtype(), output.len()), (input.dtype(), input.len()), 1)?;
            output.bytes_mut().copy_from_slice(input.bytes());
            Ok(())
        })
    }
    fn barrier(&self, _wait: Wait) -> Result<(), CommError> {
        self.guard(|| Ok(()))
    }
    fn send(&self, _buf: SliceRef<'_>, to: usize, _tag: u32) -> Result<(), CommError> {
        self.guard(|| check::peer("send", to, 0, 1))
    }
    fn recv(&self, _buf: SliceMut<'_>, from: usize, _tag: u32) -> Result<(), CommError> {
        self.guard(|| check::peer("recv", from, 0, 1))
    }
    fn abort(&self, why: &str) {
        let error = CommError::new(CommErrorKind::Aborted, Some(0), format!("rank 0 gave up: {why}"));
        self.failed.get_or_init(|| error);
    }
    fn note(&self, place: Place) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
    fn place(&self) -> Place {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Phase;

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
    fn the_place_is_the_one_last_noted() {
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
