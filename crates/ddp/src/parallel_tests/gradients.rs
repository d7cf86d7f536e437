//! The averages that a step returns.

use super::{
    Net, alone, batch, combined, gradients, mean, parallel, small_buckets, values, with_zeros_of_spare,
};
use crate::device::drawn;
use crate::tests::on_ranks;
use crate::{CommHook, DdpOptions, DistributedDataParallel, HookSource};
use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_optim::{GradientsParams, SgdConfig};
use collectives::{CommError, ProcessGroup, ReduceOp};
use std::ops::Range;

/// What two ranks return of [`Net`] by `run`, which gets the rank: both must return the same.
fn on_both(
    options: DdpOptions,
    run: impl Fn(&mut DistributedDataParallel<Net>, usize) -> Vec<Vec<Vec<f32>>> + Sync,
) -> Vec<Vec<Vec<f32>>> {
    let mut ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let net = Net::new(1, 4, false);
        run(&mut DistributedDataParallel::new(net, group, options.clone()).unwrap(), rank)
    });
    assert_eq!(ranks[0], ranks[1]);
    ranks.remove(0)
}

/// The averages of a backward pass, in the order of the parameters.
fn averaged(ddp: &mut DistributedDataParallel<Net>, loss: Tensor<1>) -> Vec<Vec<f32>> {
    let averaged = ddp.backward(loss).unwrap();
    gradients(ddp.module(), &averaged)
}

/// The loss of a rank in a forward pass.
fn forward(ddp: &mut DistributedDataParallel<Net>, rank: usize, step: usize) -> Tensor<1> {
    ddp.forward(|net| net.loss(batch(rank, step)))
}

/// Burn's gradients of the same loss.
fn lone(rank: usize, step: usize) -> Vec<Vec<f32>> {
    alone(&Net::new(1, 4, false), |net| net.loss(batch(rank, step)))
}

/// The sum of [`lone`] over several passes.
fn lone_sum(rank: usize, steps: Range<usize>) -> Vec<Vec<f32>> {
    let sum = |a: Vec<Vec<f32>>, b: Vec<Vec<f32>>| combined(&a, &b, |a, b| a + b);
    steps.map(|step| lone(rank, step)).reduce(sum).unwrap()
}

fn assert_close(own: &[Vec<f32>], expected: &[Vec<f32>]) {
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
    assert!(own.concat().iter().zip(&expected.concat()).all(close), "{own:?} {expected:?}");
}

#[test]
fn gradients_are_the_mean_of_those_of_the_ranks() {
    let all = on_both(small_buckets(), |ddp, rank| {
        let step = |step| {
            let loss = forward(ddp, rank, step);
            averaged(ddp, loss)
        };
        (0..3).map(step).collect()
    });
    for (step, averages) in all.iter().enumerate() {
        assert_ne!(lone(0, step), lone(1, step));
        assert_eq!(averages, &with_zeros_of_spare(mean(&lone(0, step), &lone(1, step))), "step {step}");
    }
}

#[derive(Module, Debug)]
struct Weights {
    w: Param<Tensor<1>>,
}

/// The loss is (w x)^2, its gradient 2 (w x) x: (6, 12) on rank 0, (8, 0) on rank 1.
#[test]
fn gradients_equal_those_computed_by_hand() {
    let device = Device::flex().autodiff();
    let ranks = on_ranks(2, |group| {
        let x = [[1.0, 2.0], [2.0, 0.0]][group.rank()];
        let module = Weights { w: Param::from_tensor(Tensor::from_floats([1.0, 1.0], &device)) };
        let mut ddp = parallel(module, group);
        let x = Tensor::<1>::from_floats(x, &device);
        let loss = ddp.forward(|module| (module.w.val() * x).sum().powi_scalar(2));
        let averaged = ddp.backward(loss).unwrap();
        let averaged_values = gradients(ddp.module(), &averaged);
        ddp.step(&mut SgdConfig::new().init(), 0.5, averaged);
        (averaged_values, values(ddp.module()))
    });
    assert_eq!(ranks, vec![(vec![vec![7.0, 6.0]], vec![vec![-2.5, -2.0]]); 2]);
}

#[test]
fn passes_without_synchronisation_are_summed_before_the_average() {
    let all = on_both(small_buckets(), |ddp, rank| {
        let step = |first| {
            // Rank 1 has one micro-batch: nothing is sent before the last one.
            for micro in first..first + if rank == 0 { 2 } else { 0 } {
                let loss = forward(ddp, rank, micro);
                ddp.backward_no_sync(loss);
            }
            let loss = forward(ddp, rank, first + 2);
            averaged(ddp, loss)
        };
        [0, 3].map(step).to_vec()
    });
    for (first, averages) in [0, 3].into_iter().zip(&all) {
        let expected = mean(&lone_sum(0, first..first + 3), &lone(1, first + 2));
        assert_eq!(averages, &with_zeros_of_spare(expected), "from {first} on");
    }
}

#[test]
fn a_parameter_that_only_one_rank_uses_is_averaged_with_zeros() {
    let with_spare = |net: &Net, batch: Tensor<2>| net.loss(batch.clone()) + net.spare.forward(batch).mean();
    let all = on_both(small_buckets(), |ddp, rank| {
        let loss = ddp.forward(|net| match rank {
            0 => net.loss(batch(0, 0)),
            _ => with_spare(net, batch(1, 0)),
        });
        vec![averaged(ddp, loss)]
    });
    let second = alone(&Net::new(1, 4, false), |net| with_spare(net, batch(1, 0)));
    assert_eq!(second.len(), 6);
    assert_eq!(all, [mean(&with_zeros_of_spare(lone(0, 0)), &second)]);
}

#[test]
fn several_forward_passes_of_one_backward_pass_add_up() {
    let all = on_both(small_buckets(), |ddp, rank| {
        let step = |step: usize| {
            // One whose result is not used, and two that are.
            drop(forward(ddp, rank, 9));
            let [a, b] = [0, 1].map(|pass| forward(ddp, rank, 2 * step + pass));
            averaged(ddp, a + b)
        };
        (0..2).map(step).collect()
    });
    for (step, averages) in all.iter().enumerate() {
        let [first, second] = [0, 1].map(|rank| lone_sum(rank, 2 * step..2 * step + 2));
        assert_close(averages, &with_zeros_of_spare(mean(&first, &second)));
    }
}

/// A step whose graph was there before an earlier backward pass.
#[test]
fn forward_passes_from_before_the_first_average_have_gradients() {
    let all = on_both(small_buckets(), |ddp, rank| {
        let losses = [0, 1].map(|step| forward(ddp, rank, step));
        losses.map(|loss| averaged(ddp, loss)).to_vec()
    });
    for (step, averages) in all.iter().enumerate() {
        assert_eq!(averages, &with_zeros_of_spare(mean(&lone(0, step), &lone(1, step))), "step {step}");
    }
}

#[test]
fn a_backward_pass_reaches_forward_passes_from_before_another_one() {
    let all = on_both(small_buckets(), |ddp, rank| {
        let step = |step: usize| {
            let [a, b, c] = [0, 1, 2].map(|pass| forward(ddp, rank, 3 * step + pass));
            ddp.backward_no_sync(a);
            averaged(ddp, b + c)
        };
        (0..3).map(step).collect()
    });
    for (step, averages) in all.iter().enumerate() {
        let [first, second] = [0, 1].map(|rank| lone_sum(rank, 3 * step..3 * step + 3));
        assert_close(averages, &with_zeros_of_spare(mean(&first, &second)));
    }
}

#[derive(Module, Debug)]
struct Tied {
    first: Linear,
    second: Linear,
}

#[test]
fn a_tied_parameter_has_one_gradient_and_stays_tied() {
    let tied = || {
        let device = Device::flex().autodiff();
        drawn(&device, 5, || {
            let first = LinearConfig::new(3, 3).init(&device);
            let tied = Tied { first: first.clone(), second: first };
            crate::module::draw_lazy(&tied);
            tied
        })
    };
    let loss = |module: &Tied, batch| module.second.forward(module.first.forward(batch).tanh()).mean();
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let module = tied();
        let before = values(&module);
        let mut ddp = parallel(module, group);
        let result = ddp.forward(|module| loss(module, batch(rank, 0)));
        let averaged = ddp.backward(result).unwrap();
        let averages = gradients(ddp.module(), &averaged);
        ddp.step(&mut SgdConfig::new().init(), 0.5, averaged);
        (before, averages, values(ddp.module()))
    });
    let (before, averages, after) = &ranks[0];
    // By the id of a tied parameter, both names have the one gradient.
    assert_eq!((averages[0].clone(), averages[1].clone()), (averages[2].clone(), averages[3].clone()));
    let module = tied();
    let [first, second] = [0, 1].map(|rank| {
        let grads = GradientsParams::from_grads(loss(&module, batch(rank, 0)).backward(), &module);
        gradients(&module, &grads)
    });
    assert_close(averages, &mean(&first, &second));
    assert_eq!(after, &combined(before, averages, |value, gradient| value - gradient * 0.5));
    assert_eq!(ranks[0], ranks[1]);
}

struct Largest;

impl CommHook for Largest {
    fn average(&mut self, _: usize, values: &mut [f32], group: &dyn ProcessGroup) -> Result<(), CommError> {
        group.all_reduce(values.into(), ReduceOp::Max)
    }
}

#[test]
fn a_hook_replaces_the_average_from_the_second_step_on() {
    let options = DdpOptions { hook: Some(HookSource::new("largest", || Largest)), ..small_buckets() };
    let all = on_both(options, |ddp, rank| {
        let step = |step| {
            let loss = forward(ddp, rank, step);
            averaged(ddp, loss)
        };
        (0..2).map(step).collect()
    });
    assert_eq!(all[0], with_zeros_of_spare(mean(&lone(0, 0), &lone(1, 0))));
    assert_eq!(all[1], with_zeros_of_spare(combined(&lone(0, 1), &lone(1, 1), f32::max)));
}
