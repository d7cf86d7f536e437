//! Ranks as threads of one process.

mod bench;
mod correct;
mod faults;
mod mismatch;
mod mixed;
mod watch;

use super::{AlgorithmChoice, GlooGroup, GlooOptions, Transport};
use crate::comm::testing::{self, HANG};
use crate::comm::{CommError, Element};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// For tests in which nothing should ever come to the deadline: what is not heard of before is of kind `Timeout`.
const AMPLE: Duration = HANG;

/// Ranks of one host by its memory, and by TCP.
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Tcp];

/// A group of `world` ranks, by rank.
fn form(transport: Transport, world: usize, timeout: Duration) -> Vec<GlooGroup> {
    form_with(world, timeout, |_| GlooOptions { transport, ..GlooOptions::default() })
}

/// The same with options by rank.
fn form_with(world: usize, timeout: Duration, options: impl Fn(usize) -> GlooOptions) -> Vec<GlooGroup> {
    testing::form(world, timeout, options)
}

/// The same, whose ranks wait for `answers` at a deadline: those of all that live.
fn form_counting(transport: Transport, world: usize, timeout: Duration, answers: usize) -> Vec<GlooGroup> {
    let groups = form(transport, world, timeout);
    groups.iter().for_each(|g| g.count_answers(answers));
    groups
}

/// Waits until `done`, without an event to wait on.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "{what} does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `f` once on each rank's thread, at the same time; results by rank.
fn on_ranks<R: Send>(groups: &[GlooGroup], f: impl Fn(&GlooGroup) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = groups.iter().map(|g| scope.spawn(move || f(g))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// As `on_ranks`, but each rank owns its group and may drop it.
fn with_owned<R: Send>(groups: Vec<GlooGroup>, f: impl Fn(GlooGroup) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = groups.into_iter().map(|g| scope.spawn(move || f(g))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// What is left of a rank whose process was killed: connections that end without a farewell.
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

type Outcome = Result<(), CommError>;
