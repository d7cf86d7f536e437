//! Ranks as threads of one process.

mod correct;
mod failure_detector;
mod faults;
mod mismatch;
mod mixed;

use super::{AlgorithmChoice, GlooGroup, GlooOptions, Transport};
use crate::testing::{HANG, form as form_with};
use crate::{CommError, CommErrorKind, Element, FlightRecorder, ProcessGroup, ReduceOp};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// For tests in which no deadline should pass: a failure that is not detected before it has the kind `Timeout`.
const AMPLE: Duration = HANG;

/// Ranks of one host, by shared memory and by TCP.
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Tcp];

/// A group of `world` ranks, by rank.
fn form(transport: Transport, world: usize, timeout: Duration) -> Vec<GlooGroup> {
    form_with(world, timeout, |_| GlooOptions { transport, ..GlooOptions::default() })
}

/// The same; at a deadline, the ranks wait for `answers` answers: those of all live ranks.
fn form_counting(transport: Transport, world: usize, timeout: Duration, answers: usize) -> Vec<GlooGroup> {
    let groups = form(transport, world, timeout);
    groups.iter().for_each(|g| g.count_answers(answers));
    groups
}

/// Polls until `done`, where there is no event to wait for.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "{what} does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `f` on all ranks (or for all cases) at the same time, each in its own thread; results in their order. It borrows the groups,
/// or owns them and may drop them.
fn on_ranks<G: Send, R: Send>(groups: impl IntoIterator<Item = G>, f: impl Fn(G) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = groups.into_iter().map(|g| scope.spawn(move || f(g))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Simulates a killed process: its connections end without a goodbye.
fn kill(group: GlooGroup) {
    let engine = group.engine.lock().unwrap();
    for control in group.shared.control.iter().flatten() {
        control.stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
    for link in engine.links.iter().flatten() {
        link.wire.streams().iter().for_each(|s| s.shutdown(std::net::Shutdown::Both).unwrap());
    }
    drop(engine);
    drop(group);
}

fn bits<T: Element>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn all_reduce(g: &GlooGroup, n: usize) -> Outcome {
    g.all_reduce((&mut vec![1f32; n]).into(), ReduceOp::Sum)
}

/// Checks that `error` is of this kind, blames `peer` and has all `parts` in its message.
#[track_caller]
fn assert_error(error: &CommError, kind: CommErrorKind, peer: Option<usize>, parts: &[&str]) {
    assert_eq!((error.kind, error.peer), (kind, peer), "{error}");
    parts.iter().for_each(|part| assert!(error.message.contains(part), "no `{part}` in: {error}"));
}

type Outcome = Result<(), CommError>;
