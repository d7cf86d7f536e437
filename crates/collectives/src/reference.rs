//! Reference results for the operations of every engine, and the calls that check them.

use super::reduce::typed;
use super::{DType, Element, ProcessGroup, ReduceOp, SliceRef, Wait};
use half::{bf16, f16};

/// Elements with small integer values, for which every sum is exact in every type, so that the order of reduction
/// cannot hide an error.
pub trait Number: Element {
    fn to_f64(self) -> f64;
    fn from_f64(v: f64) -> Self;
}
macro_rules! number {
    ($($t:ty),*) => {$(impl Number for $t {
        fn to_f64(self) -> f64 { self as f64 }
        fn from_f64(v: f64) -> Self { v as $t }
    })*};
}
number!(f32, f64, i32, i64, u8);
macro_rules! half_number {
    ($($t:ty),*) => {$(impl Number for $t {
        fn to_f64(self) -> f64 { self.into() }
        fn from_f64(v: f64) -> Self { <$t>::from_f64(v) }
    })*};
}
half_number!(f16, bf16);

/// A rank's contribution at an index: 0 to 15, so that sums of 8 ranks are exact in u8 and bf16.
fn value<T: Number>(rank: usize, index: usize) -> T {
    T::from_f64(((index * 7 + rank * 5 + index / 13) % 16) as f64)
}

/// Values repeat after this many indices.
const PERIOD: usize = 13 * 16;

/// `n` elements from index `from` on; only one period is computed.
fn periodic<T: Number>(from: usize, n: usize, at: impl Fn(usize) -> T) -> Vec<T> {
    let period: Vec<T> = (from..from + n.min(PERIOD)).map(at).collect();
    let mut all = Vec::with_capacity(n);
    while all.len() < n {
        all.extend_from_slice(&period[..period.len().min(n - all.len())]);
    }
    all
}

pub fn input<T: Number>(rank: usize, from: usize, n: usize) -> Vec<T> {
    periodic(from, n, |i| value(rank, i))
}

pub fn expected<T: Number>(op: ReduceOp, world: usize, from: usize, n: usize) -> Vec<T> {
    let fold = |i: usize| {
        let all = (0..world).map(|r| value::<T>(r, i).to_f64());
        match op {
            ReduceOp::Sum => all.sum(),
            ReduceOp::Mean => all.sum::<f64>() / world as f64,
            ReduceOp::Max => all.fold(f64::MIN, f64::max),
            ReduceOp::Min => all.fold(f64::MAX, f64::min),
        }
    };
    periodic(from, n, |i| T::from_f64(fold(i)))
}

/// What receives a result: `n` values larger than any sum of 8 ranks.
fn unlike<T: Number>(n: usize) -> Vec<T> {
    periodic(0, n, |_| T::from_f64(200.0))
}

/// Whether two slices have the same bits. Comparing elements takes as long as a collective where tests are not
/// optimised.
fn same<T: Number>(a: &[T], b: &[T]) -> bool {
    bytemuck::cast_slice::<T, u8>(a) == bytemuck::cast_slice::<T, u8>(b)
}

fn operations<T: Element>() -> impl Iterator<Item = ReduceOp> {
    ReduceOp::ALL.into_iter().filter(|op| *op != ReduceOp::Mean || T::DTYPE.is_float())
}

/// Checks every operation of a group with `n` elements of one type.
pub fn check_all<T: Number>(g: &dyn ProcessGroup, n: usize) {
    check_reducing_by::<T>(g, n, operations::<T>());
}

/// The same; reductions are by `operations` only.
pub fn check_reducing_by<T: Number>(
    g: &dyn ProcessGroup,
    n: usize,
    operations: impl IntoIterator<Item = ReduceOp>,
) {
    let (me, w) = (g.rank(), g.world_size());
    let root = n % w;
    for op in operations {
        let case = format!("{op:?} {} n={n} world={w} rank={me}", T::DTYPE);
        let want = expected::<T>(op, w, 0, n);
        let mut v = input::<T>(me, 0, n);
        g.all_reduce((&mut v).into(), op).unwrap();
        assert!(same(&v, &want), "all_reduce {case}");
        let mut v = input::<T>(me, 0, n);
        g.reduce((&mut v).into(), op, root).unwrap();
        assert!(me != root || same(&v, &want), "reduce {case}");
        let whole = input::<T>(me, 0, n * w);
        let mut v = unlike::<T>(n);
        g.reduce_scatter((&whole).into(), (&mut v).into(), op).unwrap();
        assert!(same(&v, &expected(op, w, me * n, n)), "reduce_scatter {case}");
    }
    let case = format!("{} n={n} world={w} rank={me}", T::DTYPE);
    let mut v = input::<T>(me, 0, n);
    g.broadcast((&mut v).into(), root).unwrap();
    assert!(same(&v, &input(root, 0, n)), "broadcast {case}");
    let mut all = unlike::<T>(n * w);
    g.all_gather((&input::<T>(me, 0, n)).into(), (&mut all).into()).unwrap();
    let want: Vec<Vec<T>> = (0..w).map(|r| input(r, 0, n)).collect();
    assert!(same(&all, &want.concat()), "all_gather {case}");
    if w > 1 {
        // Around the ring; rank 0 sends first, so even unbuffered messages cannot deadlock.
        let (next, previous, tag) = ((me + 1) % w, (me + w - 1) % w, n as u32);
        let (out, mut v) = (input::<T>(me, 0, n), unlike::<T>(n));
        if me == 0 {
            g.send((&out).into(), next, tag).unwrap();
        }
        g.recv((&mut v).into(), previous, tag).unwrap();
        if me != 0 {
            g.send((&out).into(), next, tag).unwrap();
        }
        assert!(same(&v, &input(previous, 0, n)), "send/recv {case}");
    }
    g.barrier(Wait::Deadline).unwrap();
}

pub fn check_type(g: &dyn ProcessGroup, dtype: DType, n: usize) {
    typed!(dtype, check_all(g, n));
}

/// The bits of an f32 sum, a bf16 mean and an f32 maximum that depend on the order of operands.
pub fn order_dependent(g: &dyn ProcessGroup, n: usize) -> Vec<u8> {
    let value = |i: usize| ((i * 31 + g.rank() * 17) as f32).sin() * 10f32.powi((i % 7) as i32);
    let mut v: Vec<f32> = (0..n).map(value).collect();
    // NaNs with different payloads, and zeros of different sign.
    v[0] = f32::from_bits(0x7fc0_0001 + g.rank() as u32);
    v[1] = if g.rank() == 0 { 0.0 } else { -0.0 };
    let mut half: Vec<bf16> = v.iter().map(|x| bf16::from_f32(*x)).collect();
    let mut max = v.clone();
    g.all_reduce((&mut v).into(), ReduceOp::Sum).unwrap();
    g.all_reduce((&mut half).into(), ReduceOp::Mean).unwrap();
    g.all_reduce((&mut max).into(), ReduceOp::Max).unwrap();
    [SliceRef::from(&v), SliceRef::from(&half), SliceRef::from(&max)].map(|s| s.bytes().to_vec()).concat()
}
