//! Hosts with their own shared memory, and connections between them: a rank must also receive what it does not wait for.

use super::super::header::Header;
use super::super::stream::{ReceiveAction, Rx, Tx};
use super::*;
use crate::execute::{Engine as _, execute};
use crate::{Call, ProcessGroup, ReduceOp, Wait};

/// Ranks on hosts that are named by letters.
fn hosts(names: &'static str, sockets: usize, timeout: Duration) -> Vec<GlooGroup> {
    form_with(names.len(), timeout, |rank| GlooOptions {
        host: Some(format!("mixed {names} {}", &names[rank..=rank])),
        sockets: Some(sockets),
        ..GlooOptions::default()
    })
}

/// The errors are mismatches, not timeouts.
fn assert_mismatch(case: &str, results: impl IntoIterator<Item = CommError>) {
    for error in results {
        assert_eq!(error.kind, CommErrorKind::Mismatch, "{case}: {error}");
    }
}

/// Each rank broadcasts from, or reduces to, a different root than its neighbour.
#[test]
fn mismatches_across_hosts_are_detected_before_the_deadline() {
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
            call(g, root).and_then(|()| g.barrier(Wait::Deadline)).unwrap_err()
        });
        assert_mismatch(names, results);
    }
}

/// Two ranks of a host disagree while a rank of another host has not called yet.
#[test]
fn a_mismatch_within_a_host_is_detected_without_the_other_host() {
    let groups = hosts("aab", 1, AMPLE);
    let results = on_ranks(&groups, |g| {
        let root = [2, 0][*[0, 1].get(g.rank())?];
        Some(g.broadcast((&mut vec![1u8; 10]).into(), root).unwrap_err())
    });
    assert_mismatch("aab", results.into_iter().flatten());
}

/// Messages that end on a different connection than they began on must not hide the next header.
#[test]
fn headers_are_read_from_the_connection_where_messages_begin() {
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
            let root = (g.rank() + 1) % 3;
            let call = g.broadcast((&mut vec![1u8; 10]).into(), root);
            call.and_then(|()| g.barrier(Wait::Deadline)).unwrap_err()
        });
        assert_mismatch(&format!("{sockets} sockets"), results);
    }
}

/// Rank 0 waits for rank 2 while rank 1 is already one call ahead, which must not keep rank 0 awake.
#[test]
fn a_rank_that_is_ahead_does_not_keep_the_others_awake() {
    let groups = hosts("abc", 1, AMPLE);
    let polls = on_ranks(&groups, |g| {
        if g.rank() == 2 {
            let is_ahead = || groups[1].history().pop().is_some_and(|call| call.sequence == 2);
            until("a rank that is ahead", || is_ahead() && groups[0].history().pop().is_some());
            // Only lets time pass, so that a rank that is kept awake shows.
            thread::sleep(Duration::from_millis(300));
        }
        g.broadcast((&mut vec![1u8; 10]).into(), 0).unwrap();
        let polls = g.engine.lock().unwrap().polls;
        g.broadcast((&mut vec![1u8; 10]).into(), 1).unwrap();
        polls
    });
    // A handful; a rank that is kept awake polls tens of thousands of times.
    assert!(polls[0] < 100, "{polls:?}");
}

#[test]
fn at_the_deadline_the_rank_that_was_needed_is_blamed() {
    for transport in TRANSPORTS {
        let groups = form(transport, 3, Duration::from_millis(300));
        let results = on_ranks(&groups, |g| {
            // Ranks 1 and 2 make no call; rank 0 only needs rank 2.
            (g.rank() == 0).then(|| g.recv((&mut vec![0u8; 4]).into(), 2, 7).unwrap_err())
        });
        let error = results[0].as_ref().unwrap();
        assert_eq!((error.kind, error.peer), (CommErrorKind::Timeout, Some(2)), "{transport}: {error}");
    }
}

/// Rank 0 sends to rank 2, which receives nothing, and receives from rank 1, which has left.
#[test]
fn a_goodbye_of_a_local_rank_is_read_while_a_connection_is_blocked() {
    let groups = hosts("aab", 1, AMPLE);
    let (together, done) = (Barrier::new(3), Barrier::new(2));
    let results = on_ranks(groups, |g| {
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
        let mut buf = vec![1u8; 30_000_000];
        let header = g.header(&Call::AllReduce { buf: (&mut buf).into(), op: ReduceOp::Sum });
        let header = Header { sequence: engine.numbers.next(&header), ..header };
        let (send, recv) = (0..15_000_000, [(15_000_000..30_000_000, ReceiveAction::Store)]);
        let tx = Tx { peer: 2, lead: send.len(), parts: std::slice::from_ref(&send) };
        let ended = engine
            .begin(header, Some(AMPLE))
            .and_then(|()| engine.stream(&mut buf, Some(tx), Some(Rx { peer: 1, parts: &recv })));
        done.wait();
        Some(ended.unwrap_err())
    });
    let error = results.into_iter().flatten().next().unwrap();
    assert_eq!((error.kind, error.peer), (CommErrorKind::PeerLost, Some(1)), "{error}");
}

#[test]
fn a_rank_that_panics_in_a_call_is_named_by_the_others() {
    let groups = form(Transport::Shm, 2, AMPLE);
    let results = on_ranks(&groups, |g| {
        if g.rank() == 1 {
            return g.barrier(Wait::Deadline).unwrap_err();
        }
        let call = Call::Barrier(Wait::WhilePeersLive);
        let header = g.header(&call);
        let run = || execute(&mut *g.engine.lock().unwrap(), call, header, AMPLE, |_, _| panic!("a bug"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
        g.barrier(Wait::Deadline).unwrap_err()
    });
    for error in results {
        assert_error(&error, CommErrorKind::Aborted, Some(0), &["rank 0 panicked"]);
    }
}
