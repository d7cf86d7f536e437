//! Hosts with memory of their own, and connections between them: what one rank does not wait for must reach it all the
//! same.

use super::super::header::{Header, Operation};
use super::super::stream::{Action, Kind, Rx, Tx};
use super::*;
use crate::comm::{CommErrorKind, DType, ProcessGroup, ReduceOp, Wait};
use std::time::Instant;

/// Ranks whose hosts are called by letters.
fn hosts(names: &'static str, sockets: usize, timeout: Duration) -> Vec<GlooGroup> {
    form_with(names.len(), timeout, |rank| GlooOptions {
        host: Some(format!("mixed {names} {}", &names[rank..=rank])),
        sockets: Some(sockets),
        ..GlooOptions::default()
    })
}

fn assert_prompt_mismatch(case: &str, results: impl IntoIterator<Item = (CommError, Duration)>) {
    for (error, took) in results {
        assert_eq!(error.kind, CommErrorKind::Mismatch, "{case}: {error}");
        assert!(took < Duration::from_secs(1), "{case}: {took:?} {error}");
    }
}

/// Each rank broadcasts from, or reduces to, another root than its neighbour.
#[test]
fn disagreements_across_hosts_are_prompt() {
    type Call = fn(&GlooGroup, usize) -> Outcome;
    let broadcast: Call = |g, root| g.broadcast((&mut vec![1f32; 100_000]).into(), root);
    let reduce: Call = |g, root| g.reduce((&mut vec![1f32; 100_000]).into(), ReduceOp::Sum, root);
    let cases: [(&str, [(Call, usize); 4]); 4] = [
        ("aabb", [(broadcast, 1), (broadcast, 3), (broadcast, 3), (broadcast, 1)]),
        ("abba", [(reduce, 1), (reduce, 1), (broadcast, 0), (broadcast, 0)]),
        ("abab", [(broadcast, 0), (reduce, 0), (broadcast, 0), (broadcast, 0)]),
        ("abcd", [(broadcast, 1), (broadcast, 3), (broadcast, 3), (broadcast, 1)]),
    ];
    for (names, calls) in cases {
        let groups = hosts(names, 1, AMPLE);
        let results = on_ranks(&groups, |g| {
            let (call, root) = calls[g.rank()];
            let start = Instant::now();
            (call(g, root).and_then(|()| g.barrier(Wait::Deadline)).unwrap_err(), start.elapsed())
        });
        assert_prompt_mismatch(names, results);
    }
}

/// Two ranks of a host disagree while one of another host has not called.
#[test]
fn two_of_a_host_need_not_wait_for_a_third_to_disagree() {
    let groups = hosts("aab", 1, AMPLE);
    let results = on_ranks(&groups, |g| {
        let root = [2, 0][*[0, 1].get(g.rank())?];
        let start = Instant::now();
        Some((g.broadcast((&mut vec![1u8; 10]).into(), root).unwrap_err(), start.elapsed()))
    });
    assert_prompt_mismatch("aab", results.into_iter().flatten());
}

/// Messages that end on another connection than they began must not hide the next header.
#[test]
fn headers_are_looked_for_where_messages_begin() {
    for sockets in [1, 4] {
        let groups = hosts("abc", sockets, AMPLE);
        let together = Barrier::new(3);
        let results = on_ranks(&groups, |g| {
            for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
                let mut v = vec![1u8; 200_000];
                match g.rank() {
                    me if me == from => g.send((&v).into(), to, 1).unwrap(),
                    me if me == to => g.recv((&mut v).into(), from, 1).unwrap(),
                    _ => {}
                }
            }
            together.wait();
            let start = Instant::now();
            let root = (g.rank() + 1) % 3;
            let call = g.broadcast((&mut vec![1u8; 10]).into(), root);
            (call.and_then(|()| g.barrier(Wait::Deadline)).unwrap_err(), start.elapsed())
        });
        assert_prompt_mismatch(&format!("{sockets} sockets"), results);
    }
}

/// Rank 0 waits for rank 2 while rank 1 is a call ahead already: that must not keep rank 0 awake.
#[test]
fn a_rank_that_is_ahead_does_not_make_the_others_spin() {
    let groups = hosts("abc", 1, AMPLE);
    let cpu = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        stat.split(' ').next().and_then(|ns| ns.parse().ok()).map_or(Duration::ZERO, Duration::from_nanos)
    };
    let used = on_ranks(&groups, |g| {
        if g.rank() == 2 {
            // This only lets time pass.
            thread::park_timeout(Duration::from_secs(1));
        }
        let before = cpu();
        g.broadcast((&mut vec![1u8; 10]).into(), 0).unwrap();
        let used = cpu() - before;
        g.broadcast((&mut vec![1u8; 10]).into(), 1).unwrap();
        used
    });
    assert!(used[0] < Duration::from_millis(300), "{used:?}");
}

#[test]
fn at_the_deadline_the_rank_that_was_needed_is_blamed() {
    for transport in TRANSPORTS {
        let groups = form(transport, 3, Duration::from_millis(300));
        let results = on_ranks(&groups, |g| {
            // Ranks 1 and 2 call nothing; rank 0 needs rank 2 alone.
            (g.rank() == 0).then(|| g.recv((&mut vec![0u8; 4]).into(), 2, 7).unwrap_err())
        });
        let error = results[0].as_ref().unwrap();
        assert_eq!((error.kind, error.peer), (CommErrorKind::Timeout, Some(2)), "{transport}: {error}");
    }
}

/// Rank 0 sends to rank 2, which takes nothing, and receives from rank 1, which has left.
#[test]
fn a_goodbye_in_memory_is_heard_while_a_connection_is_blocked() {
    let groups = hosts("aab", 1, AMPLE);
    let (together, done) = (Barrier::new(3), Barrier::new(2));
    let results = with_owned(groups, |g| {
        g.barrier(Wait::Deadline).unwrap();
        if g.rank() == 1 {
            drop(g);
            together.wait();
            return None;
        }
        together.wait();
        if g.rank() == 2 {
            done.wait();
            return None;
        }
        let mut engine = g.engine.lock().unwrap();
        let sequence = engine.count_call();
        let header = Header { sequence, ..g.header(Operation::AllReduce, DType::U8, 30_000_000) };
        let start = Instant::now();
        let mut buf = vec![1u8; 30_000_000];
        let (send, recv) = (0..15_000_000, [(15_000_000..30_000_000, Action::Store)]);
        let tx = Tx { peer: 2, lead: send.len(), parts: std::slice::from_ref(&send) };
        let kind = Kind { dtype: DType::U8, op: ReduceOp::Sum };
        let ended = engine
            .begin(header, Some(AMPLE))
            .and_then(|()| engine.stream(&mut buf, kind, Some(tx), Some(Rx { peer: 1, parts: &recv })));
        done.wait();
        Some((ended.unwrap_err(), start.elapsed()))
    });
    let (error, took) = results.into_iter().flatten().next().unwrap();
    assert_eq!((error.kind, error.peer), (CommErrorKind::PeerLost, Some(1)), "{error}");
    assert!(took < PROMPT, "{took:?}");
}

#[test]
fn a_rank_that_panics_in_a_call_is_named_by_the_others() {
    let groups = form(Transport::Shm, 2, AMPLE);
    let results = on_ranks(&groups, |g| {
        if g.rank() == 1 {
            return g.barrier(Wait::Deadline).unwrap_err();
        }
        let header = g.header(Operation::Barrier, DType::U8, 0);
        let call = || g.call(Ok(()), header, None, |_, _| panic!("a bug"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_err();
        g.barrier(Wait::Deadline).unwrap_err()
    });
    for error in results {
        assert_eq!((error.kind, error.peer), (CommErrorKind::Aborted, Some(0)), "{error}");
        assert!(error.message.contains("rank 0 panicked"), "{error}");
    }
}
