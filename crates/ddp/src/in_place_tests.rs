//! Reducers with buckets averaged in place, on two ranks that are threads of one process. A stand-in for NCCL goes
//! through the host and makes the average visible only after the fence.

use super::collector::GradientMemory;
use super::hook::HookSource;
use super::in_place::InPlace;
use super::reducer::Reducer;
use super::tests::{SIZES, gradient, names, on_ranks, standard};
use super::{BucketCaps, BucketLayout, HookState};
use crate::device::Gradient;
use burn::tensor::{DType, Device, Element as TensorElement, Tensor, TensorData};
use collectives::{CommError, Element, ProcessGroup, ReduceOp};
use half::{bf16, f16};
use std::sync::{Arc, Mutex};

/// Two buckets.
const CAPS: BucketCaps = BucketCaps { first: 8, rest: 64 };

struct ThroughHost {
    group: Arc<dyn ProcessGroup>,
    device: Device,
    /// Types on the wire; `None` for each fence.
    seen: Mutex<Vec<Option<DType>>>,
}

impl ThroughHost {
    fn mean<T: Element + TensorElement>(&self, data: TensorData) -> Result<TensorData, CommError> {
        let mut values = data.try_into_vec::<T>().unwrap();
        self.group.all_reduce((&mut values).into(), ReduceOp::Mean)?;
        let len = values.len();
        Ok(TensorData::new(values, [len]))
    }
}

impl InPlace for ThroughHost {
    fn average(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CommError> {
        let dtype = tensor.dtype();
        self.seen.lock().unwrap().push(Some(dtype));
        let data = tensor.into_data();
        let data = match dtype {
            DType::F32 => self.mean::<f32>(data)?,
            DType::BF16 => self.mean::<bf16>(data)?,
            DType::F16 => self.mean::<f16>(data)?,
            other => panic!("{other:?} on the wire"),
        };
        Ok(Tensor::from_data(data, (&self.device, dtype)))
    }

    fn fence(&self) -> Result<(), CommError> {
        self.seen.lock().unwrap().push(None);
        Ok(())
    }
}

fn reducer(
    memory: GradientMemory,
    learn: bool,
    group: Arc<dyn ProcessGroup>,
    hook: Option<&HookSource>,
) -> Reducer {
    Reducer::over(BucketLayout::new(&SIZES, CAPS), memory, learn, names(), group, hook).unwrap()
}

struct Rank {
    reducer: Reducer,
    by: Arc<ThroughHost>,
    rank: usize,
}

impl Rank {
    fn new(group: Arc<dyn ProcessGroup>, device: &Device, learn: bool, hook: Option<&HookSource>) -> Self {
        let by = ThroughHost { group: group.clone(), device: device.clone(), seen: Mutex::default() };
        let by = Arc::new(by);
        let memory = GradientMemory::new(Some(device.clone()), Some(by.clone()), 2, hook);
        Self { reducer: reducer(memory, learn, group.clone(), hook), by, rank: group.rank() }
    }

    /// One optimizer step of two micro-batches; parameter 0 has no gradient in the first. Returns averages by parameter.
    fn step(&mut self, step: usize) -> Vec<Vec<f32>> {
        let sink = self.reducer.sink();
        for (micro, parameters) in [&[3, 2][..], &[3, 2, 0]].into_iter().enumerate() {
            self.reducer.begin(micro, micro == 1);
            for parameter in parameters {
                let values = gradient(self.rank, step + 10 * micro, *parameter);
                let tensor = Tensor::from_data(TensorData::from(values.as_slice()), &self.by.device);
                sink.ready(*parameter, Gradient::Device(tensor));
            }
            if micro == 0 {
                self.reducer.end_micro();
            }
        }
        self.reducer.finish().unwrap();
        let all = self.reducer.take_from_device().unwrap();
        let values = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
        all.into_iter().map(|gradient| gradient.map_or_else(Vec::new, values)).collect()
    }
}

/// The expected result of [`Rank::step`] on two ranks, without rounding on the wire.
fn expected(step: usize, parameter: usize) -> Vec<f32> {
    let sum = |rank| {
        let mut sum = gradient(rank, step + 10, parameter);
        if parameter != 0 {
            sum.iter_mut().zip(gradient(rank, step, parameter)).for_each(|(sum, g)| *sum += g);
        }
        sum
    };
    sum(0).iter().zip(sum(1)).map(|(a, b)| (a + b) / 2.0).collect()
}

#[test]
fn buckets_are_averaged_in_order_and_visible_after_the_fence() {
    let ranks = on_ranks(2, |group| {
        let mut rank = Rank::new(group, &Device::flex(), true, None);
        let first = rank.step(0);
        // Buckets in another order work in the same place.
        let order = rank.reducer.learn_order().unwrap();
        let second = rank.step(1);
        let seen = rank.by.seen.lock().unwrap().clone();
        (first, order, second, seen)
    });
    for (first, order, second, seen) in ranks {
        for parameter in [0, 2, 3] {
            assert_eq!(first[parameter], expected(0, parameter), "parameter {parameter}");
            assert_eq!(second[parameter], expected(1, parameter), "parameter {parameter}, step 1");
        }
        assert!(first[1].is_empty());
        assert_eq!(order, Some(vec![3, 2, 0]));
        let step = [Some(DType::F32), Some(DType::F32), None];
        assert_eq!(seen, [step, step].concat());
    }
}

/// Both forms of a hook send and keep the same bits, and each can continue from the other's state.
fn device_hook_matches_host_hook(name: &str, wire: DType, device: &Device) {
    let hook = standard(name);
    let ranks = on_ranks(2, |group| {
        let on_host = || {
            let memory = GradientMemory::new(Some(device.clone()), None, 2, Some(&hook));
            reducer(memory, false, group.clone(), Some(&hook))
        };
        let mut there = Rank::new(group.clone(), device, false, Some(&hook));
        let mut here = Rank { reducer: on_host(), by: there.by.clone(), rank: group.rank() };
        for step in 0..5 {
            assert_eq!(there.step(step), here.step(step), "step {step}");
        }
        let seen = there.by.seen.lock().unwrap().clone();
        assert_eq!(seen, [Some(wire), Some(wire), None].repeat(5));
        let saved: [Option<HookState>; 2] =
            [there.reducer.hook_state().unwrap(), here.reducer.hook_state().unwrap()];
        assert_eq!(saved[0], saved[1]);
        assert_eq!(saved[0].is_some(), group.rank() == 0);
        let [from_device, from_host] = saved;
        let mut there = Rank::new(group.clone(), device, false, Some(&hook));
        let mut here = Rank { reducer: on_host(), by: there.by.clone(), rank: group.rank() };
        let mut fresh = Rank::new(group.clone(), device, false, Some(&hook));
        assert_eq!(there.reducer.restore_hook(from_host).unwrap(), None);
        assert_eq!(here.reducer.restore_hook(from_device).unwrap(), None);
        let more = |rank: &mut Rank| (5..15).map(|step| rank.step(step)).collect::<Vec<_>>();
        let (there, here, fresh) = (more(&mut there), more(&mut here), more(&mut fresh));
        assert_eq!(there, here);
        assert_ne!(there, fresh, "the residual had no effect");
        there
    });
    assert_eq!(ranks[0], ranks[1]);
}

/// Nothing is compressed in the step that learns the bucket order; residuals would belong to other buckets.
#[test]
fn a_hook_starts_after_the_bucket_order_is_learnt() {
    let hook = standard("bf16");
    let ranks = on_ranks(2, |group| {
        let mut rank = Rank::new(group, &Device::flex(), true, Some(&hook));
        let first = rank.step(0);
        let state = rank.reducer.hook_state().unwrap();
        let order = rank.reducer.learn_order().unwrap();
        rank.step(1);
        let seen = rank.by.seen.lock().unwrap().clone();
        (rank.rank, first, state, order, seen, rank.reducer.hook_state().unwrap())
    });
    for (rank, first, state, order, seen, later) in ranks {
        for parameter in [0, 2, 3] {
            assert_eq!(first[parameter], expected(0, parameter));
        }
        assert_eq!((state, order), (None, Some(vec![3, 2, 0])));
        let (plain, half) = (Some(DType::F32), Some(DType::BF16));
        assert_eq!(seen, [plain, plain, None, half, half, None]);
        assert_eq!(later.is_some(), rank == 0);
    }
}

#[test]
fn device_hooks_match_host_hooks() {
    device_hook_matches_host_hook("bf16", DType::BF16, &Device::flex());
    device_hook_matches_host_hook("f16", DType::F16, &Device::flex());
}

#[test]
fn ranks_agree_on_the_mean_of_a_value() {
    let ranks = on_ranks(2, |group| {
        let (rank, device) = (group.rank(), Device::flex());
        let one = |value: f32| Tensor::<1>::from_data([value], &device);
        let there = Rank::new(group.clone(), &device, false, None);
        let mean = there.reducer.agree(one(1.0 + rank as f32)).unwrap().into_scalar::<f32>();
        let seen = there.by.seen.lock().unwrap().clone();
        let memory = GradientMemory::new(Some(device.clone()), None, 2, None);
        let here = reducer(memory, false, group, None);
        (mean, seen, here.agree(one(1.0 + rank as f32)).unwrap().into_scalar::<f32>())
    });
    for rank in ranks {
        assert_eq!(rank, (1.5, vec![Some(DType::F32), None], 1.5));
    }
}

#[cfg(feature = "wgpu")]
mod on_wgpu {
    use super::*;
    use crate::device::testing::wgpu;

    #[test]
    fn device_hooks_match_host_hooks() {
        let Some(device) = wgpu() else { return };
        for (name, dtype) in [("bf16", DType::BF16), ("f16", DType::F16)] {
            match device.supports_dtype(dtype) {
                true => {
                    device_hook_matches_host_hook(name, dtype, &device);
                    if name == "f16" {
                        values_that_overflow(&device);
                    }
                }
                false => println!("skipped: the device has no {name}"),
            }
        }
    }
}

/// Infinite, NaN or overflowing values: the same on host and device.
fn values_that_overflow(device: &Device) {
    use super::device_hook::{DeviceErrorFeedback, DeviceHook};
    let mut hook = DeviceErrorFeedback::<f16>::default();
    let tensor = |values: [f32; 5]| Tensor::<1>::from_data(TensorData::from(values), device);
    let send = |hook: &mut DeviceErrorFeedback<f16>, values| {
        let wire = hook.send(0, tensor(values), 2);
        hook.receive(0, wire).into_data().try_into_vec::<f32>().unwrap()
    };
    let sent = send(&mut hook, [f32::NAN, f32::NEG_INFINITY, 131_008.0, -131_009.0, 1.0]);
    assert!(sent[0].is_nan(), "{sent:?}");
    assert_eq!(sent[1..], [f32::NEG_INFINITY, 131_008.0, f32::NEG_INFINITY, 1.0]);
    assert_eq!(send(&mut hook, [0.0; 5]), [0.0; 5]);
    assert!(hook.state(0).is_some() && hook.state(1).is_none());
}

#[test]
fn values_that_overflow_are_not_finite_and_leave_no_residual() {
    values_that_overflow(&Device::flex());
}
