//! What is equal on all ranks, and how they fail where it is not.

use super::{Net, batch, parallel, small_buckets, values};
use crate::tests::on_ranks;
use crate::{DdpOptions, DistributedDataParallel};
use base::error::ErrorKind;
use burn::module::{Module, Param, RunningState};
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};
use burn_optim::{AdamWConfig, GradientsParams, SgdConfig};
use collectives::SoloGroup;
use std::sync::{Arc, Mutex, mpsc};

#[test]
fn running_statistics_are_those_of_rank_0_for_an_evaluation() {
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, true), group);
        let loss = ddp.forward(|net| net.loss(batch(rank, 0)));
        let averaged = ddp.backward(loss).unwrap();
        ddp.step(&mut SgdConfig::new().init(), 0.5, averaged);
        let own = values(ddp.module());
        (own, values(&ddp.valid().unwrap()), values(ddp.module()))
    });
    assert_ne!(ranks[0].0, ranks[1].0, "each rank has the statistics of its own samples");
    for rank in &ranks {
        assert_eq!((&rank.1, &rank.2), (&ranks[0].0, &ranks[0].0));
    }
}

#[test]
fn clones_that_share_running_state_do_not_wait_for_each_other() {
    let net = Net::new(1, 4, true);
    let ranks = on_ranks(2, |group| {
        let mut ddp = parallel(net.clone(), group);
        values(&ddp.valid().unwrap())
    });
    assert_eq!(ranks, vec![values(&net); 2]);
}

/// Its forward passes read what they change.
#[derive(Module, Debug)]
struct Counting {
    w: Param<Tensor<1>>,
    seen: RunningState<Tensor<1>>,
}

#[test]
fn state_that_forward_passes_read_is_that_of_rank_0_after_each_step() {
    let device = Device::flex().autodiff();
    let of = |broadcast_buffers| {
        on_ranks(2, |group| {
            let by = group.rank() as f32 + 1.0;
            let module = Counting {
                w: Param::from_tensor(Tensor::from_floats([1.0], &device)),
                seen: RunningState::new(Tensor::zeros([1], &device)),
            };
            let options = DdpOptions { broadcast_buffers, ..small_buckets() };
            let mut ddp = DistributedDataParallel::new(module, group, options).unwrap();
            for _ in 0..3 {
                let loss = ddp.forward(|module| {
                    let seen = module.seen.value() + by;
                    module.seen.update(seen.clone());
                    module.w.val() * seen
                });
                ddp.backward(loss).unwrap();
            }
            values(ddp.module())[1].clone()
        })
    };
    assert_eq!(of(true), [[3.0], [3.0]]);
    assert_eq!(of(false), [[3.0], [6.0]]);
}

#[test]
fn all_ranks_start_with_the_values_of_rank_0() {
    let ranks = on_ranks(3, |group| {
        let net = Net::new(group.rank() as u64, 4, true);
        let own = values(&net);
        (own, values(&parallel(net, group).into_module()))
    });
    assert_ne!(ranks[0].0, ranks[1].0);
    assert!(ranks.iter().all(|rank| rank.1 == ranks[0].0));
}

#[test]
fn a_module_that_differs_is_named_on_all_ranks() {
    let errors = |other: fn() -> Net| {
        on_ranks(3, |group| {
            let net = if group.rank() == 2 { other() } else { Net::new(1, 4, false) };
            DistributedDataParallel::new(net, group, DdpOptions::default()).err().map(|e| (e.kind, e.message))
        })
    };
    let wider = "the ranks have different modules: rank 2 has parameter `inner.weight` of shape [3, 5] where rank 0 has \
                 parameter `inner.weight` of shape [3, 4]";
    assert_eq!(errors(|| Net::new(1, 5, false)), vec![Some((ErrorKind::Spec, wider.to_owned())); 3]);
    let frozen = "the ranks have different modules: rank 2 has frozen parameter `inner.weight` of shape [3, 4] where rank 0 has \
                  parameter `inner.weight` of shape [3, 4]";
    assert_eq!(
        errors(|| Net::new(1, 4, false).no_grad()),
        vec![Some((ErrorKind::Spec, frozen.to_owned())); 3]
    );
}

#[test]
fn a_module_with_fewer_tensors_is_named_on_all_ranks() {
    let device = Device::flex().autodiff();
    let errors = on_ranks(2, |group| {
        let linear = LinearConfig::new(2, 3).with_bias(group.rank() == 0).init(&device);
        DistributedDataParallel::new(linear, group, DdpOptions::default()).err().map(|e| e.message)
    });
    let expected = "the ranks have different modules: rank 1 has no tensor where rank 0 has parameter `bias` of shape [3]";
    assert_eq!(errors, vec![Some(expected.to_owned()); 2]);
}

#[test]
fn a_module_without_autodiff_is_refused() {
    let module = LinearConfig::new(2, 3).init(&Device::flex());
    let error = DistributedDataParallel::new(module, Arc::new(SoloGroup::default()), DdpOptions::default());
    let error = error.err().unwrap();
    assert_eq!(error.message, "`weight` of the module is on a device without autodiff");
    assert!(error.hint.unwrap().contains("Device::flex().autodiff()"));
}

#[test]
fn a_lost_rank_is_an_error_and_no_hang() {
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        if rank == 1 {
            return None;
        }
        let loss = ddp.forward(|net| net.loss(batch(rank, 0)));
        ddp.backward(loss).err()
    });
    let error = ranks[0].as_ref().expect("rank 1 is gone");
    assert_eq!(error.kind, ErrorKind::Collective);
    assert!(error.message.contains("rank 1"), "{}", error.message);
}

#[test]
fn a_rank_that_panics_between_forward_and_backward_is_lost_at_once() {
    let (seen, told) = mpsc::channel();
    let (seen, told) = (Mutex::new(seen), Mutex::new(told));
    let ranks = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let loss = ddp.forward(|net| net.loss(batch(rank, 0)));
        if rank == 0 {
            let error = ddp.backward(loss).err();
            seen.lock().unwrap().send(()).unwrap();
            return error;
        }
        let lost = std::panic::AssertUnwindSafe(|| {
            let _ddp = ddp;
            panic!("of the test");
        });
        std::panic::catch_unwind(lost).unwrap_err();
        // Until then the taps of this graph hold senders to the communication thread.
        told.lock().unwrap().recv().unwrap();
        drop(loss);
        None
    });
    let error = ranks[0].as_ref().expect("rank 1 is gone");
    assert!(error.message.contains("rank 1 left the process group"), "{}", error.message);
}

#[test]
fn burns_optimizers_leave_all_ranks_with_equal_bits() {
    const STEPS: usize = 6;
    let optimizer = || AdamWConfig::new().with_weight_decay(0.01).init();
    let ranks = on_ranks(2, |group| {
        let (rank, mut optimizer) = (group.rank(), optimizer());
        let mut ddp = parallel(Net::new(1, 4, false), group);
        for step in 0..STEPS {
            let loss = ddp.forward(|net| net.loss(batch(rank, step)));
            let averaged = ddp.backward(loss).unwrap();
            ddp.step(&mut optimizer, 0.05, averaged);
        }
        values(ddp.module())
    });
    assert_eq!(ranks[0], ranks[1]);
    // One process with the batches of both.
    let (mut net, mut optimizer) = (Net::new(1, 4, false), optimizer());
    let before = values(&net);
    for step in 0..STEPS {
        let loss = net.loss(Tensor::cat(vec![batch(0, step), batch(1, step)], 0));
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(0.05, net, grads);
    }
    // Except for `spare`, which has no gradient there, and zeros here.
    let (alone, own) = (values(&net)[..4].concat(), ranks[0][..4].concat());
    assert!(alone.iter().zip(&own).all(|(a, b)| (a - b).abs() < 1e-4), "{alone:?} {own:?}");
    assert!(before[..4].concat().iter().zip(&own).any(|(a, b)| (a - b).abs() > 0.1));
}
