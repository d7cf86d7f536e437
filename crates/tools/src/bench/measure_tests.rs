use super::*;
use base::error::ErrorKind;
use collectives::gloo::{AlgorithmChoice, GlooGroup, GlooOptions, Transport};
use collectives::{Call, CommError, DType, testing};
use std::sync::atomic::{AtomicUsize, Ordering};

const INSTANTLY: Duration = Duration::from_millis(1);

/// Changes one bit in the result of the all-reduce with number `at`.
struct Faulty {
    inner: GlooGroup,
    calls: AtomicUsize,
    at: Option<usize>,
    byte: usize,
}

impl ProcessGroup for Faulty {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn world_size(&self) -> usize {
        self.inner.world_size()
    }
    fn backend(&self) -> &'static str {
        "faulty"
    }
    fn call(&self, call: Call<'_>) -> Result<(), CommError> {
        let Call::AllReduce { mut buf, op } = call else { return self.inner.call(call) };
        self.inner.all_reduce(buf.reborrow(), op)?;
        if self.at == Some(self.calls.fetch_add(1, Ordering::Relaxed)) {
            buf.bytes_mut()[self.byte] ^= 1;
        }
        Ok(())
    }
    fn abort(&self, why: &str) {
        self.inner.abort(why);
    }
}

/// Measures on `world` threads; `fault` = (rank, number of the all-reduce) that is wrong. Returns the results by rank.
fn measured(
    world: usize,
    case: Case,
    op: ReduceOp,
    fault: Option<(usize, usize)>,
) -> Vec<Result<Option<Timing>>> {
    let groups = testing::form(world, testing::HANG, |_| GlooOptions::default());
    std::thread::scope(|scope| {
        let rank = |(rank, inner): (usize, GlooGroup)| {
            scope.spawn(move || {
                let at = fault.filter(|(r, _)| *r == rank).map(|(_, at)| at);
                let byte = case.bytes() / 2 / case.dtype.size() * case.dtype.size();
                let group = Faulty { inner, calls: AtomicUsize::new(0), at, byte };
                let mut words = vec![0u64; case.bytes().div_ceil(8)];
                let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..case.bytes()];
                measure(&group, &case, op, INSTANTLY, SliceMut::from_bytes(case.dtype, bytes).unwrap())
            })
        };
        let ranks: Vec<_> = groups.into_iter().enumerate().map(rank).collect();
        ranks.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn case(dtype: DType, count: usize) -> Case {
    Case { transport: Transport::Auto, algorithm: AlgorithmChoice::Auto, dtype, count }
}

#[test]
fn correct_results_pass_in_every_type_and_operation() {
    for op in ReduceOp::ALL {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_float() || op != ReduceOp::Mean) {
            let results = measured(3, case(dtype, 1001), op, None);
            for (rank, result) in results.into_iter().enumerate() {
                let timing = result.unwrap_or_else(|e| panic!("{dtype} {op:?} rank {rank}: {e}"));
                assert_eq!(timing.is_some(), rank == 0);
                let Some(t) = timing else { continue };
                assert!(t.iterations >= CHUNK && t.checks > WARM_UP, "{t:?}");
                assert!(t.min_us <= t.p10_us && t.p10_us <= t.median_us && t.median_us <= t.p90_us, "{t:?}");
            }
        }
    }
}

#[test]
fn a_wrong_element_ends_the_measurement_on_every_rank_and_is_described() {
    // In the warm-up, and within a timed chunk, where only the remaining error in the buffer is detectable. With a
    // sum, the wrong rank is the next one to contribute, which preserves the error.
    for (op, at) in [(ReduceOp::Max, 0), (ReduceOp::Sum, 1), (ReduceOp::Sum, WARM_UP + 20)] {
        let mut results = measured(2, case(DType::F32, 100), op, Some((1, at))).into_iter();
        let (first, second) = (results.next().unwrap(), results.next().unwrap());
        let errors = [first.unwrap_err(), second.unwrap_err()];
        let culprit = errors.iter().find(|e| e.kind == ErrorKind::Internal).unwrap();
        assert!(culprit.message.starts_with("wrong result on rank "), "{op:?}: {culprit}");
        assert!(culprit.message.contains(": element 50 of 100 is "), "{culprit}");
        let tail = format!("({} of 400 B of f32, algorithm auto, transport auto)", op.name());
        assert!(culprit.message.contains(", expected ") && culprit.message.ends_with(&tail), "{culprit}");
    }
}

#[test]
fn percentiles_use_the_nearest_rank() {
    let t = timing((1..=10).rev().map(|us| us * 1000).collect(), 7);
    assert_eq!((t.median_us, t.p10_us, t.p90_us, t.min_us), (5.5, 2.0, 9.0, 1.0));
    assert_eq!((t.iterations, t.checks), (10, 7));
    assert_eq!(timing(vec![3000], 1).p90_us, 3.0);
}
