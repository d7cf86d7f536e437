//! Reducers of two ranks that are threads of one process.

use super::{BucketCaps, BucketLayout, CommHook, HookSource, HookState, Reducer};
use crate::buffers::buffer;
use crate::device::Gradient;
use base::error::ErrorKind;
use burn::backend::Flex;
use burn::tensor::{Device, Tensor, TensorData};
use collectives::{CommError, ProcessGroup, ReduceOp, SoloGroup, spawn};
use std::sync::Arc;

/// Elements of the parameters; the second tensor is a buffer.
pub(super) const SIZES: [Option<usize>; 4] = [Some(5), None, Some(3), Some(2)];
/// Their names.
pub(super) fn names() -> Vec<String> {
    ["a", "mean", "b", "c"].map(str::to_owned).to_vec()
}

/// Three buckets, one per parameter.
const CAPS: BucketCaps = BucketCaps { first: 8, rest: 12 };

/// Runs `f` on each rank's thread; results by rank.
pub(super) fn on_ranks<R: Send>(world: usize, f: impl Fn(Arc<dyn ProcessGroup>) -> R + Sync) -> Vec<R> {
    spawn(world, |group| Ok(f(group))).unwrap()
}

fn reducer(group: &Arc<dyn ProcessGroup>, hook: Option<&HookSource>) -> Reducer {
    learning_reducer(group, hook, false)
}

/// The same; `learn`: the order of its buckets is not known yet.
fn learning_reducer(group: &Arc<dyn ProcessGroup>, hook: Option<&HookSource>, learn: bool) -> Reducer {
    let layout = BucketLayout::new(&SIZES, CAPS);
    Reducer::new(layout, &Device::flex(), learn, names(), group.clone(), hook).unwrap()
}

pub(super) fn standard(name: &str) -> HookSource {
    HookSource::standard().into_iter().find(|h| h.name() == name).unwrap()
}

/// A rank's gradient of a parameter in a step. All are different, and no half type represents them exactly.
pub(super) fn gradient(rank: usize, step: usize, parameter: usize) -> Vec<f32> {
    let len = SIZES[parameter].unwrap();
    (0..len).map(|i| 0.1 + (rank * 1000 + step * 100 + parameter * 10 + i) as f32 / 777.0).collect()
}

/// One optimizer step; returns the averaged gradients by parameter.
fn step(reducer: &mut Reducer, rank: usize, step: usize) -> Vec<Vec<f32>> {
    step_with(reducer, &[3, 2, 0], |parameter| gradient(rank, step, parameter))
}

/// The same with the gradients of these parameters, in the order of their arrival.
fn step_with(reducer: &mut Reducer, order: &[usize], gradient: impl Fn(usize) -> Vec<f32>) -> Vec<Vec<f32>> {
    give(reducer, order, gradient);
    reducer.finish().unwrap();
    averages(reducer)
}

/// A backward pass that yields these parameters' gradients.
fn give(reducer: &mut Reducer, order: &[usize], gradient: impl Fn(usize) -> Vec<f32>) {
    reducer.begin(0, true);
    let sink = reducer.sink();
    for parameter in order {
        let values = TensorData::from(gradient(*parameter).as_slice());
        let tensor = Tensor::<1>::from_data(values, &Device::flex());
        sink.ready(*parameter, Gradient::Host(tensor.try_into_primitive::<Flex>().unwrap()));
    }
}

/// The last owner sends the goodbye to the peers. If that were the communication thread, the process could exit first.
#[test]
fn a_dropped_reducer_releases_the_group() {
    on_ranks(2, |group| {
        for round in 0..20 {
            let mut reducer = reducer(&group, None);
            let sink = reducer.sink();
            step(&mut reducer, group.rank(), round);
            drop(reducer);
            assert_eq!(Arc::strong_count(&group), 1);
            drop(sink);
        }
    });
}

fn averages(reducer: &Reducer) -> Vec<Vec<f32>> {
    reducer.with_buckets(|buckets| {
        let of = |p: usize| {
            reducer.slot(p).map_or_else(Vec::new, |s| buckets[s.bucket][s.offset..s.offset + s.len].to_vec())
        };
        (0..SIZES.len()).map(of).collect()
    })
}

/// A rank's gradient for [`error`]: each parameter's comes from one rank alone, so that no sum is rounded.
fn lone_gradient(rank: usize, parameter: usize) -> Vec<f32> {
    match parameter % 2 == rank {
        true => gradient(rank, 0, parameter),
        false => vec![0.0; SIZES[parameter].unwrap()],
    }
}

/// Uses the same gradients in each of 64 steps; returns the largest relative error of the sum of their averages.
/// Without feedback it is that of one rounding.
fn error(hook: Option<&HookSource>, feedback: bool) -> f32 {
    const STEPS: usize = 64;
    let ranks = on_ranks(2, |group| {
        let mut kept = reducer(&group, hook);
        let mine = |parameter| lone_gradient(group.rank(), parameter);
        let of_step = |_| match feedback {
            true => step_with(&mut kept, &[3, 2, 0], mine),
            false => step_with(&mut reducer(&group, hook), &[3, 2, 0], mine),
        };
        (0..STEPS).map(of_step).collect::<Vec<_>>()
    });
    assert_eq!(ranks[0], ranks[1]);
    let mut worst = 0f32;
    for parameter in [0, 2, 3] {
        let (a, b) = (lone_gradient(0, parameter), lone_gradient(1, parameter));
        for i in 0..a.len() {
            let got = ranks[0].iter().map(|r| r[parameter][i]).sum::<f32>() / STEPS as f32;
            let want = (a[i] + b[i]) / 2.0;
            worst = worst.max((got - want).abs() / want);
        }
    }
    worst
}

#[test]
fn all_ranks_get_the_same_mean_and_feedback_makes_it_right_in_the_long_run() {
    assert!(error(None, true) < 1e-6);
    for name in ["bf16", "f16"] {
        let hook = standard(name);
        let (with, without) = (error(Some(&hook), true), error(Some(&hook), false));
        assert!(with < 0.05 * without, "{name}: {with} with feedback, {without} without");
    }
}

#[test]
fn restored_hooks_continue_with_the_same_bits() {
    let saved_on = |upto: usize| {
        on_ranks(2, |group| {
            let mut reducer = reducer(&group, Some(&standard("bf16")));
            (0..upto).for_each(|s| drop(step(&mut reducer, group.rank(), s)));
            (reducer.hook_state().unwrap(), step(&mut reducer, group.rank(), upto))
        })
    };
    assert_eq!(saved_on(0)[0].0, None, "nothing has been averaged yet");
    let ranks = saved_on(3);
    let state = ranks[0].0.clone().expect("rank 0 has the state of all");
    assert!(ranks[1].0.is_none());
    assert_eq!((state.name.as_str(), &state.buckets), ("bf16", &vec![2, 3, 5]));
    assert_eq!(state.values.len(), 2);
    assert!(state.values.iter().flatten().flatten().all(|e| *e != 0.0), "{state:?}");
    let go_on = |state: Option<HookState>| {
        on_ranks(2, |group| {
            let mut reducer = reducer(&group, Some(&standard("bf16")));
            let saved = state.clone().filter(|_| group.rank() == 0);
            let ignored = reducer.restore_hook(saved).unwrap();
            let result = step(&mut reducer, group.rank(), 3);
            (ignored, result, reducer.hook_state().unwrap())
        })
    };
    for (resumed, before) in go_on(Some(state.clone())).iter().zip(&ranks) {
        assert_eq!((&resumed.0, &resumed.1), (&None, &before.1));
    }
    let residuals = |state: &Option<HookState>| state.as_ref().map(|s| s.values.clone());
    assert_eq!(residuals(&go_on(Some(state.clone()))[0].2), residuals(&saved_on(4)[0].0));
    assert_ne!(residuals(&go_on(None)[0].2), residuals(&saved_on(4)[0].0), "the state had no effect");
    let others = [
        (HookState { name: "f16".into(), ..state.clone() }, "this run uses `bf16`"),
        (
            HookState { values: state.values[..1].to_vec(), ..state.clone() },
            "it was saved by 1 processes, this run has 2",
        ),
        (HookState { buckets: vec![5, 5], ..state.clone() }, "the bucket sizes differ"),
    ];
    for (other, why) in others {
        let fresh = go_on(Some(other));
        assert!(fresh[0].0.as_ref().unwrap().contains(why), "{:?}", fresh[0].0);
        assert_eq!(residuals(&fresh[0].2), residuals(&go_on(None)[0].2), "{why}");
    }
}

#[test]
fn a_hook_state_is_ignored_without_a_hook_or_peers() {
    let state = HookState { name: "bf16".into(), buckets: vec![2, 3, 5], values: vec![vec![vec![]; 3]; 2] };
    let solo: Arc<dyn ProcessGroup> = Arc::new(SoloGroup::default());
    let mut alone = reducer(&solo, Some(&standard("bf16")));
    assert!(alone.restore_hook(Some(state.clone())).unwrap().unwrap().contains("this run has 1"));
    assert_eq!(alone.hook_state().unwrap(), None);
    let reasons = on_ranks(2, |group| reducer(&group, None).restore_hook(Some(state.clone())).unwrap());
    assert!(reasons[0].as_ref().unwrap().contains("this run uses `none`"), "{reasons:?}");
}

/// Adds its rank: a custom hook with state of another length than the bucket.
#[derive(Default)]
struct Counting {
    calls: Vec<f32>,
}

impl CommHook for Counting {
    fn average(&mut self, _: usize, values: &mut [f32], group: &dyn ProcessGroup) -> Result<(), CommError> {
        self.calls.resize(group.rank() + 1, 0.0);
        self.calls[0] += 1.0;
        group.all_reduce(values.into(), ReduceOp::Max)
    }
    fn state(&self, bucket: usize) -> &[f32] {
        if bucket == 1 { &self.calls } else { &[] }
    }
    fn restore(&mut self, bucket: usize, state: Vec<f32>) {
        assert_eq!(bucket, 1);
        self.calls = state;
    }
}

#[test]
fn a_custom_hook_may_have_state_of_any_length() {
    let ranks = on_ranks(2, |group| {
        let source = HookSource::new("counting", Counting::default);
        let mut first = reducer(&group, Some(&source));
        assert_eq!(first.hook_state().unwrap(), None, "nothing has been called yet");
        let largest = step(&mut first, group.rank(), 0);
        let saved = first.hook_state().unwrap();
        let mut second = reducer(&group, Some(&source));
        second.restore_hook(saved.clone()).unwrap();
        step(&mut second, group.rank(), 1);
        (largest, saved, second.hook_state().unwrap())
    });
    assert_eq!(ranks[0].0[0], gradient(1, 0, 0));
    let values = |state: &Option<HookState>| state.as_ref().unwrap().values.clone();
    assert_eq!(values(&ranks[0].1), [vec![vec![], vec![3.0], vec![]], vec![vec![], vec![3.0, 0.0], vec![]]]);
    assert_eq!(values(&ranks[0].2), [vec![vec![], vec![6.0], vec![]], vec![vec![], vec![6.0, 0.0], vec![]]]);
}

/// Fails in the first bucket, on the communication thread.
struct Panicking;

impl CommHook for Panicking {
    fn average(&mut self, _: usize, _: &mut [f32], _: &dyn ProcessGroup) -> Result<(), CommError> {
        panic!("no scale for this bucket")
    }
}

#[test]
fn a_hook_that_panics_is_a_bug_and_not_a_lost_peer() {
    let failed = on_ranks(2, |group| {
        let mut reducer = reducer(&group, Some(&HookSource::new("panicking", || Panicking)));
        give(&mut reducer, &[3, 2, 0], |parameter| gradient(group.rank(), 0, parameter));
        reducer.finish().unwrap_err()
    });
    for error in failed {
        assert_eq!(error.kind, ErrorKind::Internal);
        assert_eq!(error.message, "the communication thread panicked: no scale for this bucket");
    }
}

#[test]
fn all_ranks_use_the_arrival_order_of_rank_0_and_hooks_start_afterwards() {
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let hook = HookSource::new("counting", Counting::default);
        let mut reducer = learning_reducer(&group, Some(&hook), true);
        // Parameter 0 has no gradient in the first step; rank 1 sees another order.
        let first =
            step_with(&mut reducer, if rank == 0 { &[2, 3] } else { &[3, 2] }, |p| gradient(rank, 0, p));
        let uncounted = reducer.hook_state().unwrap();
        let order = reducer.learn_order().unwrap();
        let again = reducer.learn_order().unwrap();
        let slots: Vec<_> = (0..SIZES.len()).map(|p| reducer.slot(p).map(|s| s.bucket)).collect();
        let second = step_with(&mut reducer, &[3, 0, 2], |p| gradient(rank, 1, p));
        (first, uncounted, order, again, slots, second, reducer.hook_state().unwrap().is_some())
    });
    for (rank, (first, uncounted, order, again, slots, second, counted)) in ranks.into_iter().enumerate() {
        let mean = |i: usize| (gradient(0, 0, 3)[i] + gradient(1, 0, 3)[i]) / 2.0;
        assert_eq!((&first[0], &first[3]), (&vec![0.0; 5], &vec![mean(0), mean(1)]));
        assert_eq!((uncounted, order, again), (None, Some(vec![2, 3, 0]), None));
        assert_eq!(slots, [Some(2), None, Some(0), Some(1)]);
        // The hook takes the maximum, which is rank 1's.
        assert_eq!(
            (&second[0], &second[2], &second[3]),
            (&gradient(1, 1, 0), &gradient(1, 1, 2), &gradient(1, 1, 3))
        );
        assert_eq!(counted, rank == 0);
    }
}

/// A single process has nothing to pack, so gradients can stay where they were computed.
#[test]
fn a_single_process_takes_the_memory_of_its_gradients() {
    const LEN: usize = 40 * 30;
    // Afterwards there is use for the memory that is given back.
    drop(buffer(LEN));

    let solo: Arc<dyn ProcessGroup> = Arc::new(SoloGroup::default());
    let layout = BucketLayout::new(&[Some(LEN), Some(2)], BucketCaps { first: 1 << 20, rest: 1 << 20 });
    let mut reducer = Reducer::new(layout, &Device::flex(), false, Vec::new(), solo, None).unwrap();
    let sink = reducer.sink();
    let host = |values: Vec<f32>| {
        let len = values.len();
        Tensor::<1>::from_data(TensorData::new(values, [len]), &Device::flex())
    };
    let send = |parameter, tensor: Tensor<1>| {
        sink.ready(parameter, Gradient::Host(tensor.try_into_primitive::<Flex>().unwrap()));
    };
    reducer.begin(0, false);
    let (mine, shared) = (vec![1.0; LEN], host(vec![10.0, 20.0]));
    let address = mine.as_ptr();
    send(0, host(mine));
    send(1, shared.clone());
    reducer.end_micro();
    reducer.begin(1, true);
    send(0, host(vec![0.5; LEN]));
    send(1, host(vec![0.25; 2]));
    reducer.finish().unwrap();
    let slots = [0, 1].map(|parameter| reducer.slot(parameter).unwrap());
    reducer.with_buckets(|buckets| {
        let [first, second] = slots.map(|slot| &buckets[slot.bucket][slot.offset..][..slot.len]);
        assert_eq!((first.as_ptr(), first), (address, &[1.5; LEN][..]));
        assert_eq!(second, [10.25, 20.25]);
    });
    assert_eq!(shared.into_data().try_into_vec::<f32>().unwrap(), [10.0, 20.0]);

    // Between two steps there are none. A parameter without a gradient then has zeros, another one what arrives.
    reducer.release();
    reducer.with_buckets(|buckets| assert!(buckets.iter().all(|bucket| bucket.is_empty())));
    reducer.begin(0, true);
    let mine = vec![3.0; LEN];
    let address = mine.as_ptr();
    send(0, host(mine));
    reducer.finish().unwrap();
    reducer.with_buckets(|buckets| {
        let [first, second] = slots.map(|slot| &buckets[slot.bucket][slot.offset..][..slot.len]);
        assert_eq!((first.as_ptr(), first), (address, &[3.0; LEN][..]));
        assert_eq!(second, [0.0, 0.0]);
    });
}
