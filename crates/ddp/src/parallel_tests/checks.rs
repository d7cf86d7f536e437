//! What `new`, `backward` and `state` refuse, and on which ranks.

use super::{Net, batch, parallel, small_buckets};
use crate::tests::on_ranks;
use crate::{DdpOptions, DistributedDataParallel, HookSource};
use base::error::ErrorKind;
use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use burn_optim::SgdConfig;
use collectives::SoloGroup;
use std::sync::Arc;

#[test]
fn ranks_whose_parameters_differ_have_no_state_to_save() {
    let codes = |differ: bool| {
        on_ranks(3, |group| {
            let rank = group.rank();
            let mut ddp = parallel(Net::new(1, 4, true), group);
            let loss = ddp.forward(|net| net.loss(batch(rank, 0)));
            let averaged = ddp.backward(loss).unwrap();
            let lr = if differ && rank == 1 { 0.1 } else { 0.2 };
            ddp.step(&mut SgdConfig::new().init(), lr, averaged);
            ddp.state().map(drop).map_err(|e| (e.kind, e.message))
        })
    };
    let message = "the parameters of rank 1 differ from those of rank 0".to_owned();
    assert_eq!(codes(true), vec![Err((ErrorKind::Diverged, message)); 3]);
    // Each rank has its own running statistics.
    assert_eq!(codes(false), vec![Ok(()); 3]);
}

#[test]
fn an_option_that_differs_is_named_on_all_ranks() {
    let errors = |other: fn(&mut DdpOptions)| {
        let errors = on_ranks(3, |group| {
            let mut options = small_buckets();
            if group.rank() == 1 {
                other(&mut options);
            }
            let error = DistributedDataParallel::new(Net::new(1, 4, false), group, options).err().unwrap();
            (error.kind, error.message)
        });
        assert!(errors.iter().all(|error| *error == errors[0] && error.0 == ErrorKind::Spec));
        errors[0].1.clone()
    };
    let start = "the ranks have different options: rank 1 has";
    let cap = errors(|options| options.bucket_cap_mb = 25.0);
    assert!(
        cap.starts_with(&format!("{start} `bucket_cap_mb` 25 where rank 0 has `bucket_cap_mb` 0.0")),
        "{cap}"
    );
    let hook =
        errors(|options| options.hook = HookSource::standard().into_iter().find(|h| h.name() == "f16"));
    assert_eq!(hook, format!("{start} `hook` f16 where rank 0 has `hook` none"));
    let buffers = errors(|options| options.broadcast_buffers = false);
    let expected = "`broadcast_buffers` false where rank 0 has `broadcast_buffers` true";
    assert_eq!(buffers, format!("{start} {expected}"));
}

#[derive(Module, Debug)]
struct Pair {
    a: Param<Tensor<1>>,
    b: Param<Tensor<1>>,
}

#[test]
fn copies_with_other_values_than_their_original_are_refused() {
    let refused = |frozen: bool| {
        let a = Param::from_tensor(Tensor::from_floats([1.0], &Device::flex().autodiff()));
        let b = a.clone().map(|tensor| Tensor::from_inner(tensor.inner() * 42.0).require_grad());
        let pair = Pair { a, b };
        let pair = if frozen { pair.no_grad() } else { pair };
        let made = DistributedDataParallel::new(pair, Arc::new(SoloGroup::default()), DdpOptions::default());
        made.err().map(|e| (e.kind, e.message))
    };
    let message = "`a`, `b` have the same parameter id, but different values".to_owned();
    assert_eq!(refused(false), Some((ErrorKind::Spec, message.clone())));
    assert_eq!(refused(true), Some((ErrorKind::Spec, message)));
}

#[derive(Module, Debug)]
struct Single {
    w: Param<Tensor<1>>,
}

fn single(device: &Device, dtype: DType) -> Single {
    Single { w: Param::from_tensor(Tensor::from_data([1.0f32], (device, dtype))) }
}

#[test]
fn what_one_rank_refuses_is_an_error_on_all_ranks() {
    let errors = on_ranks(3, |group| {
        let dtype = if group.rank() == 1 { DType::F16 } else { DType::F32 };
        let module = single(&Device::flex().autodiff(), dtype);
        let error = DistributedDataParallel::new(module, group, DdpOptions::default()).err().unwrap();
        (error.kind, error.message, error.hint)
    });
    let message = "`w` of the module has type F16; only f32 is supported";
    assert_eq!(errors[1].1, message);
    for rank in [0, 2] {
        assert_eq!(errors[rank].1, format!("rank 1: {message}"));
    }
    assert!(errors.iter().all(|e| e.0 == ErrorKind::Spec && e.2 == errors[1].2));
    assert_eq!(errors[1].2.as_deref(), Some("keep parameters in f32, and cast inside of `forward`"));
}

#[test]
fn gradient_checkpointing_is_refused() {
    let module = single(&Device::flex().autodiff().gradient_checkpointing(), DType::F32);
    let error = DistributedDataParallel::new(module, Arc::new(SoloGroup::default()), DdpOptions::default());
    let error = error.err().unwrap();
    let message = "`w` of the module is on a device with gradient checkpointing, which data parallelism does not support";
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Spec, message));
}

#[test]
fn a_loss_without_forward_is_refused() {
    let errors = on_ranks(2, |group| {
        let rank = group.rank();
        let mut ddp = parallel(Net::new(1, 4, false), group);
        let loss = match rank {
            0 => ddp.forward(|net| net.loss(batch(0, 0))),
            _ => ddp.module().loss(batch(1, 0)),
        };
        let first = ddp.backward(loss).map(drop);
        // Rank 0 may learn of it in its next collective only.
        first.and_then(|()| ddp.valid().map(drop).and_then(|()| ddp.state().map(drop))).unwrap_err()
    });
    let message = "no gradient has come from `forward`";
    assert_eq!((errors[1].kind, errors[1].message.as_str()), (ErrorKind::Internal, message));
    assert!(errors[0].message.contains(&format!("rank 1 aborted: {message}")), "{}", errors[0].message);
}

#[test]
fn a_step_needs_a_gradient_in_one_of_its_backward_passes() {
    let mut ddp = parallel(Net::new(1, 4, false), Arc::new(SoloGroup::default()));
    for _ in 0..2 {
        let loss = ddp.forward(|net| net.loss(batch(0, 0)));
        ddp.backward_no_sync(loss);
        let without = ddp.module().loss(batch(0, 1));
        ddp.backward(without).unwrap();
    }
    let without = ddp.module().loss(batch(0, 2));
    assert_eq!(ddp.backward(without).unwrap_err().kind, ErrorKind::Internal);
}
