//! Ranks that die, stop, leave or abort at all kinds of moments: no rank hangs, and the right one is named.

use super::*;
use crate::execute::execute;
use crate::{Call, Phase, StepPhase, Wait};
use std::net::TcpStream;

/// What the surviving ranks may be doing.
const CALLS: [fn(&GlooGroup) -> Outcome; 7] = [
    |g| all_reduce(g, 10),
    |g| all_reduce(g, 1_000_000),
    |g| g.barrier(Wait::WhilePeersLive),
    |g| g.barrier(Wait::Longer(AMPLE)),
    |g| g.broadcast((&mut vec![1f32; 1_000_000]).into(), 2),
    |g| g.reduce((&mut vec![1f32; 10]).into(), ReduceOp::Sum, 2),
    |g| g.all_gather((&vec![1f32; 10]).into(), (&mut vec![0f32; 10 * g.world_size()]).into()),
];

#[test]
fn a_rank_that_dies_before_a_call_is_named_by_all() {
    for call in CALLS {
        for (world, transport) in
            [(3, Transport::Shm), (3, Transport::Tcp), (5, Transport::Shm), (5, Transport::Tcp)]
        {
            let together = Barrier::new(world);
            let results = on_ranks(form(transport, world, AMPLE), |g| {
                all_reduce(&g, 5).unwrap();
                together.wait();
                if g.rank() == 2 {
                    kill(g);
                    return None;
                }
                // A rank that could finish its part gets the error in its next call.
                Some(call(&g).and_then(|()| g.barrier(Wait::Deadline)).unwrap_err())
            });
            for error in results.into_iter().flatten() {
                let parts = ["rank 2 disconnected", " was in "];
                assert_error(&error, CommErrorKind::PeerLost, Some(2), &parts);
            }
        }
    }
}

/// Copies of a group's sockets, to kill the group while it is in a call.
fn sockets(g: &GlooGroup) -> Vec<TcpStream> {
    let engine = g.engine.lock().unwrap();
    let data = engine.links.iter().flatten().flat_map(|l| l.wire.streams()).map(|s| s.try_clone().unwrap());
    g.shared.control.iter().flatten().map(|c| c.stream.try_clone().unwrap()).chain(data).collect()
}

#[test]
fn a_rank_that_dies_in_the_middle_of_a_transfer_is_named_by_all() {
    for round in 0..6 {
        let groups = form(TRANSPORTS[round / 3], 3, AMPLE);
        let victim = round % 3;
        let cut = sockets(&groups[victim]);
        let results = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let target = &groups[victim];
                while target.history().pop().is_none_or(|s| s.sequence < 3) {
                    thread::yield_now();
                }
                // Sockets close one after the other; a rank that is not cut off yet must not receive the dead rank's blame of others.
                target.shared.fail_silently();
                cut.iter().for_each(|s| s.shutdown(std::net::Shutdown::Both).unwrap());
            });
            let results = on_ranks(&groups, |g| {
                loop {
                    if let Err(e) = all_reduce(g, 2_000_000) {
                        return e;
                    }
                }
            });
            watcher.join().unwrap();
            results
        });
        for (rank, error) in results.into_iter().enumerate().filter(|(rank, _)| *rank != victim) {
            assert_eq!((error.kind, error.peer), (CommErrorKind::PeerLost, Some(victim)), "{rank}: {error}");
        }
    }
}

#[test]
fn a_rank_that_leaves_fails_only_ranks_that_still_need_it() {
    for transport in TRANSPORTS {
        let results = on_ranks(form(transport, 3, AMPLE), |g| {
            all_reduce(&g, 5).unwrap();
            if g.rank() == 1 {
                return None;
            }
            Some(all_reduce(&g, 5).unwrap_err())
        });
        for error in results.into_iter().flatten() {
            assert_error(&error, CommErrorKind::PeerLost, Some(1), &["left the process group"]);
        }
    }
}

/// The end of a good run: each rank drops its group as soon as its own last call returns.
#[test]
fn ranks_may_finish_at_different_moments() {
    for round in 0..30 {
        on_ranks(form(TRANSPORTS[round / 3 % 2], 4, AMPLE), |g| {
            all_reduce(&g, 50_000).unwrap();
            let mut v = vec![g.rank() as f32; if round % 2 == 0 { 10 } else { 100_000 }];
            match round % 3 {
                0 => g.broadcast((&mut v).into(), round % 4).unwrap(),
                1 => g.reduce((&mut v).into(), ReduceOp::Sum, round % 4).unwrap(),
                _ => all_reduce(&g, 50_000).unwrap(),
            }
        });
    }
}

#[test]
fn an_unresponsive_rank_is_blamed_even_by_ranks_that_wait_for_another() {
    let timeout = Duration::from_millis(300);
    let calls: [fn(&GlooGroup) -> Outcome; 6] = [
        |g| all_reduce(g, 10),
        |g| all_reduce(g, 1_000_000),
        |g| g.barrier(Wait::Deadline),
        |g| g.barrier(Wait::Longer(Duration::from_millis(300))),
        |g| g.broadcast((&mut vec![1f32; 1_000_000]).into(), 0),
        |g| g.all_gather((&vec![1f32; 10]).into(), (&mut vec![0f32; 10 * g.world_size()]).into()),
    ];
    // Beside each other: each waits for its deadline.
    on_ranks(calls.into_iter().flat_map(|c| TRANSPORTS.map(|t| (c, t))), |(call, transport)| {
        // The answers of the other two live ranks.
        let groups = form_counting(transport, 4, timeout, 2);
        let together = Barrier::new(4);
        let results = on_ranks(&groups, |g| {
            g.note(StepPhase { step: 7, phase: Phase::ALL[g.rank()] });
            // Taken before the barrier, so that no rank's call began earlier.
            let start = Instant::now();
            together.wait();
            if g.rank() == 3 {
                return None;
            }
            // A rank that could finish its part gets the error in its next call.
            let error = call(g).and_then(|()| g.barrier(Wait::Deadline)).unwrap_err();
            Some((error, start.elapsed()))
        });
        for (error, took) in results.into_iter().flatten() {
            let parts = ["rank 3 did not respond", "step 7, phase "];
            assert_error(&error, CommErrorKind::Timeout, Some(3), &parts);
            // The last call of the unresponsive rank is in the host's memory.
            let seen = "rank 3 has not entered the call of rank ";
            let reported = error.message.contains(seen) && error.message.contains(", step 7, phase backward");
            assert_eq!(reported, transport == Transport::Shm, "{error}");
            assert!(took >= timeout, "{took:?}");
        }
    });
}

#[test]
fn ranks_that_wait_for_each_other_time_out_with_what_each_is_doing() {
    let together = Barrier::new(2);
    let results = on_ranks(&form_counting(Transport::Shm, 2, Duration::from_millis(300), 1), |g| {
        together.wait();
        g.recv((&mut vec![0u8; 4]).into(), 1 - g.rank(), 7).unwrap_err()
    });
    for error in results {
        assert_eq!(error.kind, CommErrorKind::Timeout);
        assert!(error.message.contains("no progress after 300ms"), "{error}");
        assert!(error.message.contains("is in recv #1"), "{error}");
    }
}

#[test]
fn a_barrier_without_deadline_outlasts_the_timeout() {
    let timeout = Duration::from_millis(50);
    let groups = form(Transport::Shm, 3, timeout);
    on_ranks(&groups, |g| {
        if g.rank() == 0 {
            // Work of unbounded length: once the others are in their calls, this only lets time pass.
            until("a call", || groups[1..].iter().all(|other| other.history().pop().is_some()));
            thread::sleep(8 * timeout);
        }
        g.barrier(Wait::WhilePeersLive).unwrap();
    });
}

#[test]
fn an_abort_reaches_all_ranks_with_its_reason() {
    let groups = form(Transport::Shm, 3, AMPLE);
    let results = on_ranks(&groups, |g| {
        if g.rank() == 1 {
            g.abort("loss is not finite");
            g.abort("again");
        }
        all_reduce(g, 100_000).unwrap_err()
    });
    for error in results {
        assert_error(&error, CommErrorKind::Aborted, Some(1), &["rank 1 aborted: loss is not finite"]);
    }
}

#[test]
fn a_blocked_call_is_aborted_from_another_thread() {
    let groups = form(Transport::Shm, 2, AMPLE);
    thread::scope(|scope| {
        let blocked = scope.spawn(|| groups[0].barrier(Wait::WhilePeersLive).unwrap_err());
        while groups[0].history().pop().is_none() {
            thread::yield_now();
        }
        groups[0].abort("asked to stop");
        let error = blocked.join().unwrap();
        let part = "asked to stop; rank 0 was in barrier #1";
        assert_error(&error, CommErrorKind::Aborted, Some(0), &[part]);
    });
    // The other rank was in no call: its next one fails at once.
    assert_eq!(groups[1].barrier(Wait::Deadline).unwrap_err().peer, Some(0));
}

#[test]
fn an_invalid_call_ends_the_group_and_is_not_recorded() {
    for transport in TRANSPORTS {
        let groups = form(transport, 3, AMPLE);
        let error = groups[1].broadcast((&mut [1f32][..]).into(), 3).unwrap_err();
        let text = "rank 1 made an invalid call: broadcast: root 3 is out of range for world size 3";
        assert_eq!(error, CommError::new(CommErrorKind::Misuse, Some(1), text));
        assert!(groups[1].history().is_empty());
        assert_eq!(groups[1].barrier(Wait::Deadline).unwrap_err(), error);
        for other in [0, 2] {
            let theirs = groups[other].barrier(Wait::Deadline).unwrap_err();
            assert_error(&theirs, CommErrorKind::Misuse, Some(1), &[text]);
        }
    }
}

#[test]
fn a_call_that_fails_ends_the_group_and_is_the_one_that_each_rank_was_in() {
    let groups = form(Transport::Tcp, 2, AMPLE);
    groups[1].note(StepPhase { step: 7, phase: Phase::Sync });
    let mut engine = groups[1].engine.lock().unwrap();
    let (call, why) =
        (Call::Barrier(Wait::Deadline), CommError::new(CommErrorKind::PeerLost, Some(0), "a fault"));
    let header = groups[1].header(&call);
    let error = execute(&mut *engine, call, header, AMPLE, |_, _| Err(why.clone())).unwrap_err();
    drop(engine);
    let message = "a fault; rank 1 was in barrier #1, step 7, phase sync".to_owned();
    assert_eq!(error, CommError { message, ..why });
    assert_eq!(groups[1].barrier(Wait::Deadline).unwrap_err(), error);
    let theirs = groups[0].barrier(Wait::Deadline).unwrap_err();
    assert!(theirs.message.starts_with("a fault; rank 0 was in barrier #1"), "{theirs}");
}
