//! Ranks that make different calls all detect it long before a deadline, and report what each one called.

use super::super::header::Header;
use super::*;
use crate::Wait;
use crate::execute::Engine as _;

type Call = Box<dyn Fn(&GlooGroup) -> Outcome + Sync>;

const SMALL: usize = 10;
const LARGE: usize = 300_000;

fn reduction(n: usize, op: ReduceOp) -> Call {
    Box::new(move |g| g.all_reduce((&mut vec![1f32; n]).into(), op))
}

fn sum(n: usize) -> Call {
    reduction(n, ReduceOp::Sum)
}

fn integers(n: usize) -> Call {
    Box::new(move |g| g.all_reduce((&mut vec![1i32; n]).into(), ReduceOp::Sum))
}

fn reduce_to(n: usize, root: usize) -> Call {
    Box::new(move |g| g.reduce((&mut vec![1f32; n]).into(), ReduceOp::Sum, root))
}

fn broadcast(n: usize, root: usize) -> Call {
    Box::new(move |g| g.broadcast((&mut vec![1f32; n]).into(), root))
}

fn gather(n: usize) -> Call {
    Box::new(move |g| g.all_gather((&vec![1f32; n]).into(), (&mut vec![0f32; n * g.world_size()]).into()))
}

fn barrier() -> Call {
    Box::new(|g| g.barrier(Wait::WhilePeersLive))
}

/// Two calls that don't match, and a word of each that the message must contain.
fn disagreements() -> Vec<(Call, &'static str, Call, &'static str)> {
    vec![
        (sum(SMALL), "sum of 10 f32", sum(2 * SMALL), "sum of 20 f32"),
        (sum(LARGE), "300000", sum(2 * LARGE), "600000"),
        // One uses the algorithm for small buffers, the other that for large ones.
        (sum(SMALL), "of 10 f32", sum(LARGE), "300000"),
        (reduction(SMALL, ReduceOp::Max), "max of", reduction(SMALL, ReduceOp::Min), "min of"),
        (sum(SMALL), "10 f32", integers(SMALL), "10 i32"),
        (sum(SMALL), "all_reduce #2", broadcast(SMALL, 0), "broadcast #2 (10 f32 from rank 0)"),
        (sum(LARGE), "all_reduce #2", broadcast(LARGE, 0), "broadcast #2"),
        (sum(LARGE), "all_reduce #2", barrier(), "barrier #2"),
        (broadcast(3, 0), "from rank 0", broadcast(3, 1), "from rank 1"),
        (reduce_to(3, 0), "to rank 0", reduce_to(3, 1), "to rank 1"),
        (reduce_to(LARGE, 0), "reduce #2", gather(2), "all_gather #2"),
        (gather(2), "2 f32 a rank", gather(3), "3 f32 a rank"),
    ]
}

/// `deviant` makes the second call, all others the first.
fn check(transport: Transport, world: usize, deviant: usize, case: usize) {
    let (usual, word, other, other_word) = &disagreements()[case];
    let groups = form(transport, world, AMPLE);
    // A failure may overtake a rank that is still in the good call.
    let together = Barrier::new(world);
    let results = on_ranks(&groups, |g| {
        all_reduce(g, 5).unwrap();
        together.wait();
        let error = if g.rank() == deviant { other(g) } else { usual(g) };
        // A rank that had nothing to wait for may get the error in its next call.
        let error = error.and_then(|()| g.barrier(Wait::Deadline)).unwrap_err();
        (error, g.barrier(Wait::Deadline).unwrap_err())
    });
    for (rank, (error, again)) in results.into_iter().enumerate() {
        let case =
            format!("{transport}, case {case}, world {world}, deviant {deviant}, rank {rank}: {error}");
        assert_eq!(error.kind, CommErrorKind::Mismatch, "{case}");
        assert!(error.message.contains(word) && error.message.contains(other_word), "{case}");
        assert!(error.message.contains(&format!("rank {deviant} ")), "{case}");
        assert_eq!(error, again, "{case}");
    }
}

#[test]
fn two_ranks_with_different_calls_both_fail() {
    for case in 0..disagreements().len() {
        for (deviant, transport) in [0, 1].into_iter().zip(TRANSPORTS).chain([(1, Transport::Shm)]) {
            check(transport, 2, deviant, case);
        }
    }
}

#[test]
fn one_rank_with_a_different_call_fails_all_four() {
    for case in 0..disagreements().len() {
        TRANSPORTS.into_iter().for_each(|transport| check(transport, 4, case % 4, case));
    }
}

#[test]
fn a_message_with_another_tag_length_or_kind_is_a_mismatch() {
    type Call = fn(&GlooGroup) -> Outcome;
    let wrong: [(Call, &str); 3] = [
        (|g| g.send((&vec![1u8; 4]).into(), 1, 8), "send #1 (4 u8 to rank 1, tag 8)"),
        (|g| g.send((&vec![1u8; 5]).into(), 1, 7), "send #1 (5 u8 to rank 1, tag 7)"),
        (|g| all_reduce(g, SMALL), "all_reduce #1"),
    ];
    for ((call, word), transport) in wrong.into_iter().flat_map(|w| TRANSPORTS.map(|t| (w, t))) {
        let results = on_ranks(&form(transport, 2, AMPLE), |g| match g.rank() {
            0 => call(g).and_then(|()| g.barrier(Wait::Deadline)).unwrap_err(),
            _ => g.recv((&mut vec![0u8; 4]).into(), 0, 7).unwrap_err(),
        });
        for error in results {
            assert_eq!(error.kind, CommErrorKind::Mismatch, "{error}");
            assert!(error.message.contains(word), "{error}");
            assert!(error.message.contains("recv #1 (4 u8 from rank 0, tag 7)"), "{error}");
        }
    }
}

/// Rank 0 needs nothing from rank 1 in its reduction, and is past it when it sees what rank 1 called.
#[test]
fn a_mismatch_detected_late_is_reported_with_the_call_that_caused_it() {
    let groups = form(Transport::Tcp, 3, AMPLE);
    let results = thread::scope(|scope| {
        // In the tree under rank 2, ranks 0 and 1 are leaves: rank 0 only waits until rank 2 has entered the call.
        let root =
            scope.spawn(|| groups[2].reduce((&mut vec![1u8; 4]).into(), ReduceOp::Sum, 2).unwrap_err());
        groups[0].reduce((&mut vec![1u8; 4]).into(), ReduceOp::Sum, 2).unwrap();
        // Rank 1 makes a call that begins with a message to rank 0, and goes no further.
        let mut engine = groups[1].engine.lock().unwrap();
        let header =
            groups[1].header(&crate::Call::Broadcast { buf: (&mut vec![0f32; SMALL]).into(), root: 0 });
        let header = Header { sequence: engine.numbers.next(&header), ..header };
        engine.begin(header, Some(AMPLE)).unwrap();
        engine.announce(0).unwrap();
        drop(engine);
        let late = groups[0].barrier(Wait::Longer(AMPLE)).unwrap_err();
        [late, groups[1].barrier(Wait::Longer(AMPLE)).unwrap_err(), root.join().unwrap()]
    });
    for error in results {
        assert_eq!(error.kind, CommErrorKind::Mismatch, "{error}");
        let disagreement = "rank 0 called reduce #1 (sum of 4 u8 to rank 2), rank 1 called broadcast #1 (10 f32 from rank 0)";
        assert!(error.message.contains(disagreement), "{error}");
    }
}

/// Rank 1 calls before rank 0, whose call then needs nothing from rank 1: only the header that arrived early shows the mismatch.
#[test]
fn a_header_that_arrived_early_is_checked_when_the_call_begins() {
    let groups = form(Transport::Tcp, 3, AMPLE);
    let results = thread::scope(|scope| {
        let early = scope.spawn(|| all_reduce(&groups[1], SMALL).unwrap_err());
        let mut engine = groups[0].engine.lock().unwrap();
        while engine.links[1].as_ref().unwrap().parked().is_none() {
            engine.read_unawaited(1).unwrap();
            thread::yield_now();
        }
        drop(engine);
        // Rank 2 makes no call, so rank 0 would wait for it.
        let late = groups[0].broadcast((&mut vec![1u8; 4]).into(), 2).unwrap_err();
        [late, early.join().unwrap()]
    });
    for error in results {
        assert_eq!(error.kind, CommErrorKind::Mismatch, "{error}");
        let disagreement =
            "rank 0 called broadcast #1 (4 u8 from rank 2), rank 1 called all_reduce #1 (sum of 10 f32)";
        assert!(error.message.contains(disagreement), "{error}");
    }
}
