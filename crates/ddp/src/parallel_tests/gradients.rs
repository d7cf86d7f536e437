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

#[test]
fn gradients_are_the_mean_of_those_of_the_ranks() {
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let step = |step: usize| {
            let loss = ddp.forward(|net| net.loss(batch(rank, step)));
            let averaged = ddp.backward(loss).unwrap();
            gradients(ddp.module(), &averaged)
        };
        (0..3).map(step).collect::<Vec<_>>()
    });
    let net = Net::new(1, 4, false);
    for (step, averaged) in ranks[0].iter().enumerate() {
        let [first, second] = [0, 1].map(|rank| alone(&net, |net| net.loss(batch(rank, step))));
        assert_ne!(first, second);
        assert_eq!(averaged, &with_zeros_of_spare(mean(&first, &second)), "step {step}");
    }
    assert_eq!(ranks[0], ranks[1]);
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
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let mut all = Vec::new();
        for first in [0, 3] {
            // Rank 1 has one micro-batch: nothing is sent before the last one.
            for micro in first..first + if rank == 0 { 2 } else { 0 } {
                let loss = ddp.forward(|net| net.loss(batch(rank, micro)));
                ddp.backward_no_sync(loss);
            }
            let loss = ddp.forward(|net| net.loss(batch(rank, first + 2)));
            let averaged = ddp.backward(loss).unwrap();
            all.push(gradients(ddp.module(), &averaged));
        }
        all
    });
    let net = Net::new(1, 4, false);
    for (first, averaged) in [0, 3].into_iter().zip(&ranks[0]) {
        let of = |rank, micro| alone(&net, |net| net.loss(batch(rank, micro)));
        let sum = combined(&of(0, first), &of(0, first + 1), |a, b| a + b);
        let sum = combined(&sum, &of(0, first + 2), |a, b| a + b);
        assert_eq!(averaged, &with_zeros_of_spare(mean(&sum, &of(1, first + 2))), "from {first} on");
    }
    assert_eq!(ranks[0], ranks[1]);
}

#[test]
fn a_parameter_that_only_one_rank_uses_is_averaged_with_zeros() {
    let with_spare = |net: &Net, batch: Tensor<2>| net.loss(batch.clone()) + net.spare.forward(batch).mean();
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let loss = ddp.forward(|net| match rank {
            0 => net.loss(batch(0, 0)),
            _ => with_spare(net, batch(1, 0)),
        });
        let averaged = ddp.backward(loss).unwrap();
        gradients(ddp.module(), &averaged)
    });
    let net = Net::new(1, 4, false);
    let first = with_zeros_of_spare(alone(&net, |net| net.loss(batch(0, 0))));
    let second = alone(&net, |net| with_spare(net, batch(1, 0)));
    assert_eq!(second.len(), 6);
    assert_eq!(ranks[0], mean(&first, &second));
    assert_eq!(ranks[0], ranks[1]);
}

#[test]
fn several_forward_passes_of_one_backward_pass_add_up() {
    let twice = |net: &Net, rank, step| net.loss(batch(rank, step));
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let step = |step: usize| {
            // One whose result is not used, and two that are.
            ddp.forward(|net| drop(twice(net, rank, 9)));
            let [a, b] = [0usize, 1].map(|pass| ddp.forward(|net| twice(net, rank, 2 * step + pass)));
            let averaged = ddp.backward(a + b).unwrap();
            gradients(ddp.module(), &averaged)
        };
        (0..2).map(step).collect::<Vec<_>>()
    });
    let net = Net::new(1, 4, false);
    for (step, averaged) in ranks[0].iter().enumerate() {
        let of = |rank, pass: usize| alone(&net, |net| twice(net, rank, 2 * step + pass));
        let [first, second] = [0, 1].map(|rank| combined(&of(rank, 0), &of(rank, 1), |a, b| a + b));
        let expected = with_zeros_of_spare(mean(&first, &second)).concat();
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
        assert!(averaged.concat().iter().zip(&expected).all(close), "{averaged:?} {expected:?}");
    }
    assert_eq!(ranks[0], ranks[1]);
}

/// A step whose graph was there before an earlier backward pass.
#[test]
fn forward_passes_from_before_the_first_average_have_gradients() {
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let [a, b] = [0, 1].map(|step| ddp.forward(|net| net.loss(batch(rank, step))));
        let mut step = |loss| {
            let averaged = ddp.backward(loss).unwrap();
            gradients(ddp.module(), &averaged)
        };
        [step(a), step(b)]
    });
    let net = Net::new(1, 4, false);
    for (step, averaged) in ranks[0].iter().enumerate() {
        let [first, second] = [0, 1].map(|rank| alone(&net, |net| net.loss(batch(rank, step))));
        assert_eq!(averaged, &with_zeros_of_spare(mean(&first, &second)), "step {step}");
    }
    assert_eq!(ranks[0], ranks[1]);
}

#[test]
fn a_backward_pass_reaches_forward_passes_from_before_another_one() {
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let step = |step: usize| {
            let [a, b, c] = [0, 1, 2].map(|pass| ddp.forward(|net| net.loss(batch(rank, 3 * step + pass))));
            ddp.backward_no_sync(a);
            let averaged = ddp.backward(b + c).unwrap();
            gradients(ddp.module(), &averaged)
        };
        (0..3).map(step).collect::<Vec<_>>()
    });
    let net = Net::new(1, 4, false);
    for (step, averaged) in ranks[0].iter().enumerate() {
        let of = |rank, pass: usize| alone(&net, |net| net.loss(batch(rank, 3 * step + pass)));
        let sum = |rank| {
            let two = combined(&of(rank, 0), &of(rank, 1), |a, b| a + b);
            combined(&two, &of(rank, 2), |a, b| a + b)
        };
        let expected = with_zeros_of_spare(mean(&sum(0), &sum(1))).concat();
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
        assert!(averaged.concat().iter().zip(&expected).all(close), "{averaged:?} {expected:?}");
    }
    assert_eq!(ranks[0], ranks[1]);
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
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
    assert!(averages.concat().iter().zip(&mean(&first, &second).concat()).all(close));
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
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let options = DdpOptions { hook: Some(HookSource::new("largest", || Largest)), ..small_buckets() };
        let mut ddp = DistributedDataParallel::new(Net::new(1, 4, false), group, options).unwrap();
        let step = |step: usize| {
            let loss = ddp.forward(|net| net.loss(batch(rank, step)));
            let averaged = ddp.backward(loss).unwrap();
            gradients(ddp.module(), &averaged)
        };
        (0..2).map(step).collect::<Vec<_>>()
    });
    let net = Net::new(1, 4, false);
    let of = |step| [0, 1].map(|rank| alone(&net, |net| net.loss(batch(rank, step))));
    let ([first, second], [third, fourth]) = (of(0), of(1));
    assert_eq!(ranks[0][0], with_zeros_of_spare(mean(&first, &second)));
    assert_eq!(ranks[0][1], with_zeros_of_spare(combined(&third, &fourth, f32::max)));
    assert_eq!(ranks[0], ranks[1]);
}
