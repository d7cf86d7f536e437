//! Every operation, type, world and size against a plain reference; the same bits on every rank.

use super::*;
use crate::comm::{DType, ProcessGroup, ReduceOp, Wait};
use half::{bf16, f16};
use proptest::prelude::*;

/// Elements as small whole numbers, for which every sum is exact in every type, so that the order of reduction
/// can't hide a mistake.
trait Number: Element + PartialEq + std::fmt::Debug {
    fn from_small(v: i32) -> Self;
    fn to_f64(self) -> f64;
    fn from_f64(v: f64) -> Self;
}
macro_rules! number {
    ($($t:ty),*) => {$(impl Number for $t {
        fn from_small(v: i32) -> Self { v as $t }
        fn to_f64(self) -> f64 { self as f64 }
        fn from_f64(v: f64) -> Self { v as $t }
    })*};
}
number!(f32, f64, i32, i64, u8);
macro_rules! half_number {
    ($($t:ty),*) => {$(impl Number for $t {
        fn from_small(v: i32) -> Self { <$t>::from_f32(v as f32) }
        fn to_f64(self) -> f64 { self.into() }
        fn from_f64(v: f64) -> Self { <$t>::from_f64(v) }
    })*};
}
half_number!(f16, bf16);

/// Rank's contribution at an index: 0 to 15, so that 8 ranks stay within u8 and bf16's exact integers.
fn value<T: Number>(rank: usize, index: usize) -> T {
    T::from_small(((index * 7 + rank * 5 + index / 13) % 16) as i32)
}

fn input<T: Number>(rank: usize, from: usize, n: usize) -> Vec<T> {
    (from..from + n).map(|i| value(rank, i)).collect()
}

fn expected<T: Number>(op: ReduceOp, world: usize, from: usize, n: usize) -> Vec<T> {
    let fold = |i: usize| {
        let all = (0..world).map(|r| value::<T>(r, i).to_f64());
        match op {
            ReduceOp::Sum => all.sum(),
            ReduceOp::Mean => all.sum::<f64>() / world as f64,
            ReduceOp::Max => all.fold(f64::MIN, f64::max),
            ReduceOp::Min => all.fold(f64::MAX, f64::min),
        }
    };
    (from..from + n).map(|i| T::from_f64(fold(i))).collect()
}

fn operations<T: Element>() -> impl Iterator<Item = ReduceOp> {
    ReduceOp::ALL.into_iter().filter(|op| *op != ReduceOp::Mean || T::DTYPE.is_float())
}

/// Everything that a group can do with `n` elements of one type.
fn check_all<T: Number>(g: &GlooGroup, n: usize) {
    let (me, w) = (g.rank(), g.world_size());
    let root = n % w;
    for op in operations::<T>() {
        let case = format!("{op:?} {} n={n} world={w} rank={me}", T::DTYPE);
        let want = expected::<T>(op, w, 0, n);
        let mut v = input::<T>(me, 0, n);
        g.all_reduce((&mut v).into(), op).unwrap();
        assert!(v == want, "all_reduce {case}");
        let mut v = input::<T>(me, 0, n);
        g.reduce((&mut v).into(), op, root).unwrap();
        assert!(me != root || v == want, "reduce {case}");
        let whole = input::<T>(me, 0, n * w);
        let mut v = vec![T::from_small(9); n];
        g.reduce_scatter((&whole).into(), (&mut v).into(), op).unwrap();
        assert!(v == expected::<T>(op, w, me * n, n), "reduce_scatter {case}");
    }
    let case = format!("{} n={n} world={w} rank={me}", T::DTYPE);
    let mut v = input::<T>(me, 0, n);
    g.broadcast((&mut v).into(), root).unwrap();
    assert!(v == input::<T>(root, 0, n), "broadcast {case}");
    let mut all = vec![T::from_small(9); n * w];
    g.all_gather((&input::<T>(me, 0, n)).into(), (&mut all).into()).unwrap();
    let want: Vec<T> = (0..w).flat_map(|r| input::<T>(r, 0, n)).collect();
    assert!(all == want, "all_gather {case}");
    if w > 1 {
        // Around the ring; rank 0 sends first, so that even unbuffered messages could not lock up.
        let (next, previous, tag) = ((me + 1) % w, (me + w - 1) % w, n as u32);
        let (out, mut v) = (input::<T>(me, 0, n), vec![T::from_small(9); n]);
        if me == 0 {
            g.send((&out).into(), next, tag).unwrap();
        }
        g.recv((&mut v).into(), previous, tag).unwrap();
        if me != 0 {
            g.send((&out).into(), next, tag).unwrap();
        }
        assert!(v == input::<T>(previous, 0, n), "send/recv {case}");
    }
    g.barrier(Wait::Deadline).unwrap();
}

fn check_type(g: &GlooGroup, dtype: DType, n: usize) {
    match dtype {
        DType::F32 => check_all::<f32>(g, n),
        DType::F64 => check_all::<f64>(g, n),
        DType::F16 => check_all::<f16>(g, n),
        DType::BF16 => check_all::<bf16>(g, n),
        DType::I32 => check_all::<i32>(g, n),
        DType::I64 => check_all::<i64>(g, n),
        DType::U8 => check_all::<u8>(g, n),
    }
}

/// Every way that a group of one host can go.
fn ways() -> impl Iterator<Item = (Transport, AlgorithmChoice)> {
    TRANSPORTS.into_iter().flat_map(|t| AlgorithmChoice::ALL.iter().map(move |a| (t, *a)))
}

fn check_world(world: usize, sizes: &[usize]) {
    for (transport, algorithm) in ways() {
        let options = GlooOptions { transport, algorithm, ..GlooOptions::default() };
        let groups = form_with(world, AMPLE, |_| options.clone());
        on_ranks(&groups, |g| {
            for dtype in DType::ALL {
                for n in sizes.iter().copied().chain([world - 1]) {
                    check_type(g, dtype, n);
                }
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

/// Hosts by their names: alike, uneven, and one rank each.
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
                for n in [0, 1, 1023, 40_009, 300_001] {
                    check_all::<f32>(g, n);
                    check_all::<u8>(g, n);
                }
            });
        }
    }
}

/// 2.4 M elements: many blocks of the stream, and more than all socket buffers hold.
#[test]
fn buffers_beyond_all_socket_buffers_do_not_lock_up() {
    for (world, transport) in
        [(2, Transport::Shm), (3, Transport::Shm), (2, Transport::Tcp), (3, Transport::Tcp)]
    {
        on_ranks(&form(transport, world, AMPLE), |g| {
            check_all::<f32>(g, 2_400_001);
            // Both send first: this works as long as the messages fit the sockets' buffers.
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

/// Sums that depend on the order: the ranks must still agree to the bit, and with themselves in a second run.
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

/// The bits of a sum of f32 and a mean of bf16 that depend on the order of operands.
fn order_dependent(g: &GlooGroup, n: usize) -> Vec<u8> {
    let value = |i: usize| ((i * 31 + g.rank() * 17) as f32).sin() * 10f32.powi((i % 7) as i32);
    let mut v: Vec<f32> = (0..n).map(value).collect();
    // NaNs of different payload meet at index 0.
    v[0] = f32::from_bits(0x7fc0_0001 + g.rank() as u32);
    let mut half: Vec<bf16> = v.iter().map(|x| bf16::from_f32(*x)).collect();
    g.all_reduce((&mut v).into(), ReduceOp::Sum).unwrap();
    g.all_reduce((&mut half).into(), ReduceOp::Mean).unwrap();
    [bits(&v), bits(&half)].concat()
}

/// In memory every element is summed in rank order, so where it lies in which buffer does not matter.
#[test]
fn in_memory_an_elements_sum_does_not_depend_on_its_place() {
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

/// (a + a) / 2 is a, to the bit, in either algorithm; a reciprocal or a late division would do too at 2 and 4, but
/// not a rounding in between.
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
fn nan_reaches_every_rank_through_max_and_min() {
    on_ranks(&form(Transport::Shm, 3, AMPLE), |g| {
        for (op, n) in [(ReduceOp::Max, 2usize), (ReduceOp::Min, 2), (ReduceOp::Max, 50_000)] {
            let mut v = vec![g.rank() as f32; n];
            if g.rank() == 1 {
                v[1] = f32::NAN;
            }
            g.all_reduce((&mut v).into(), op).unwrap();
            assert_eq!(v[0], if op == ReduceOp::Max { 2.0 } else { 0.0 });
            assert!(v[1].is_nan());
        }
    });
}

#[test]
fn calls_are_recorded() {
    on_ranks(&form(Transport::Shm, 2, AMPLE), |g| {
        assert!(g.status().is_none());
        for _ in 0..70 {
            g.barrier(Wait::Deadline).unwrap();
        }
        g.all_reduce((&mut vec![0f32; 10]).into(), ReduceOp::Max).unwrap();
        let last = g.status().unwrap();
        assert_eq!(last.to_string(), "all_reduce #71 (max of 10 f32)");
        assert_eq!((last.operation, last.sequence, last.count), ("all_reduce", 71, 10));
        assert!(last.took.is_some());
        let history = g.history();
        assert_eq!((history.len(), history[0].sequence), (64, 8));
    });
}

#[test]
fn threads_of_a_rank_take_turns() {
    // The order is the same on all ranks because the calls are all alike.
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
