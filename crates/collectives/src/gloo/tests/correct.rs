//! Every operation, type, world size and buffer size against a plain reference; equal bits on every rank.

use super::*;
use crate::reference::{check_all, check_reducing_by, check_type, expected, input, order_dependent};
use crate::{DType, ProcessGroup, ReduceOp, Wait};
use half::f16;
use proptest::prelude::*;

/// Every transport and algorithm that a group on one host can have.
fn ways() -> impl Iterator<Item = (Transport, AlgorithmChoice)> {
    TRANSPORTS.into_iter().flat_map(|t| AlgorithmChoice::ALL.iter().map(move |a| (t, *a)))
}

/// Up to three ranks check small buffers of every type. Others have another type for each way and size, so that each way sees all.
fn check_world(world: usize, sizes: &[usize]) {
    let all = DType::ALL.len();
    for (way, (transport, algorithm)) in ways().enumerate() {
        let options = GlooOptions { transport, algorithm, ..GlooOptions::default() };
        let groups = form_with(world, AMPLE, |_| options.clone());
        on_ranks(&groups, |g| {
            for (index, n) in sizes.iter().copied().chain([world - 1]).enumerate() {
                let types = if world <= 3 && n < 2000 {
                    0..all
                } else {
                    way + index + world..way + index + world + 1
                };
                types.for_each(|dtype| check_type(g, DType::ALL[dtype % all], n));
            }
        });
    }
}

#[test]
fn worlds_of_one_to_three_agree_with_the_reference() {
    for world in 1..=3 {
        check_world(world, &[0, 1, 7, 1023, 70_003]);
    }
}

#[test]
fn worlds_of_four_and_five_agree_with_the_reference() {
    for world in 4..=5 {
        check_world(world, &[0, 1, 1023, 40_009]);
    }
}

#[test]
fn worlds_of_six_to_eight_agree_with_the_reference() {
    for world in 6..=8 {
        check_world(world, &[0, 1, 1021, 20_011]);
    }
}

/// Hosts by name: equal in size, uneven, and with one rank each.
#[test]
fn several_hosts_agree_with_the_reference() {
    for hosts in ["aabb", "abab", "aaabb", "abcdd", "aabbcc", "abc"] {
        for algorithm in [AlgorithmChoice::Auto, AlgorithmChoice::Ring, AlgorithmChoice::Tree] {
            let options = |rank: usize| GlooOptions {
                algorithm,
                host: Some(format!("{hosts} {}", &hosts[rank..=rank])),
                sockets: Some(1 + hosts.len() % 4),
                ..GlooOptions::default()
            };
            on_ranks(&form_with(hosts.len(), AMPLE, options), |g| {
                [0, 1, 1023, 80_009].into_iter().for_each(|n| check_all::<f32>(g, n));
                [1021, 150_001].into_iter().for_each(|n| check_all::<u8>(g, n));
            });
        }
    }
}

/// 2.4 M elements: many blocks of the stream, and more than all socket buffers hold.
#[test]
fn buffers_larger_than_all_socket_buffers_do_not_deadlock() {
    for (world, transport) in [(3, Transport::Shm), (2, Transport::Tcp), (3, Transport::Tcp)] {
        on_ranks(&form(transport, world, AMPLE), |g| {
            check_reducing_by::<f32>(g, 2_400_001, [ReduceOp::Sum]);
            // Both send first, which works as long as the messages fit the sockets' buffers.
            let peer = g.rank() ^ 1;
            if peer < g.world_size() {
                let mut v = vec![0u8; 1000];
                g.send((&vec![7u8; 1000]).into(), peer, 3).unwrap();
                g.recv((&mut v).into(), peer, 3).unwrap();
                assert_eq!(v, vec![7u8; 1000]);
            }
        });
    }
}

/// Sums that depend on the order of operands: the ranks must agree to the bit, and so must a second run.
#[test]
fn results_are_the_same_bits_on_all_ranks_and_in_every_run() {
    for (world, (transport, algorithm)) in [2, 3, 5].into_iter().flat_map(|w| ways().map(move |way| (w, way)))
    {
        let options = GlooOptions { transport, algorithm, ..GlooOptions::default() };
        let groups = form_with(world, AMPLE, |_| options.clone());
        for n in [5usize, 1000, 50_000] {
            let run = || on_ranks(&groups, |g| order_dependent(g, n));
            let (first, second) = (run(), run());
            let case = format!("{transport} {algorithm}, world {world}, n {n}");
            assert!(first.iter().chain(&second).all(|b| *b == first[0]), "{case}");
        }
    }
}

/// In shared memory every element is summed in rank order, so its position and its buffer do not matter.
#[test]
fn in_shared_memory_a_sum_does_not_depend_on_the_position() {
    on_ranks(&form(Transport::Shm, 3, AMPLE), |g| {
        let n = 300_000;
        let whole: Vec<f32> = (0..n).map(|i| ((i * 7 + g.rank() * 5) as f32).sin()).collect();
        let mut once = whole.clone();
        g.all_reduce((&mut once).into(), ReduceOp::Sum).unwrap();
        let mut pieces = whole;
        for piece in pieces.chunks_mut(77_777) {
            let (small, large) = piece.split_at_mut(1001);
            g.all_reduce(large.into(), ReduceOp::Sum).unwrap();
            g.all_reduce(small.into(), ReduceOp::Sum).unwrap();
        }
        assert!(bits(&once) == bits(&pieces));
    });
}

/// (a + a) / 2 is a, to the bit, with either algorithm. A reciprocal or a late division would also pass at 2 and 4, but
/// rounding in between would not.
#[test]
fn the_mean_of_equal_values_is_exact_at_two_and_four() {
    for (world, transport) in
        [(2, Transport::Shm), (4, Transport::Shm), (2, Transport::Tcp), (4, Transport::Tcp)]
    {
        on_ranks(&form(transport, world, AMPLE), |g| {
            for n in [3usize, 40_000] {
                let v: Vec<f32> = (0..n).map(|i| (i as f32 + 0.1).sqrt() * 1e-3).collect();
                let mut mean = v.clone();
                g.all_reduce((&mut mean).into(), ReduceOp::Mean).unwrap();
                assert!(bits(&v) == bits(&mean), "world {world}, n {n}");
                let v = vec![f16::from_f32(60_000.0); n];
                let mut mean = v.clone();
                g.all_reduce((&mut mean).into(), ReduceOp::Mean).unwrap();
                assert!(g.world_size() > 2 || v == mean, "world 2, f16, n {n}: {}", mean[0]);
            }
        });
    }
}

#[test]
fn calls_are_recorded() {
    on_ranks(&form(Transport::Shm, 2, AMPLE), |g| {
        assert!(g.history().pop().is_none());
        for _ in 0..70 {
            g.barrier(Wait::Deadline).unwrap();
        }
        g.all_reduce((&mut vec![0f32; 10]).into(), ReduceOp::Max).unwrap();
        let last = g.history().pop().unwrap();
        assert_eq!(last.call, "all_reduce #71 (max of 10 f32)");
        assert_eq!((last.operation, last.sequence, last.count), ("all_reduce", 71, 10));
        assert!(last.took.is_some());
        let history = g.history();
        assert_eq!((history.len(), history[0].sequence), (64, 8));
    });
}

#[test]
fn threads_of_a_rank_can_call_concurrently() {
    // The order is the same on all ranks because all calls are alike.
    on_ranks(&form(Transport::Shm, 2, AMPLE), |g| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let mut v = vec![1i32; 3];
                        g.all_reduce((&mut v).into(), ReduceOp::Sum).unwrap();
                        assert_eq!(v, [2, 2, 2]);
                    }
                });
            }
        });
    });
}

#[test]
fn all_reduce_of_random_sizes_agrees_with_the_reference() {
    let worlds: Vec<_> = (2..=4).flat_map(|w| TRANSPORTS.map(|t| form(t, w, AMPLE))).collect();
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) };
    proptest!(config, |(w in 0usize..6, n in 0usize..40_000, op in 0usize..4)| {
        let (groups, op) = (&worlds[w], ReduceOp::ALL[op]);
        let results = on_ranks(groups, |g| {
            let mut v = input::<f32>(g.rank(), 0, n);
            g.all_reduce((&mut v).into(), op).map(|()| v)
        });
        let want = expected::<f32>(op, groups.len(), 0, n);
        for v in results {
            prop_assert!(v.unwrap() == want);
        }
    });
}
