//! Runs that are continued from files.

use super::{Net, batch, parallel, small_buckets, values};
use crate::tests::on_ranks;
use crate::{DdpOptions, DistributedDataParallel};
use burn::module::Module;
use burn_optim::{AdamWConfig, ModuleOptimizer};
use std::ops::Range;
use std::path::Path;

fn optimizer() -> ModuleOptimizer {
    AdamWConfig::new().with_weight_decay(0.01).init()
}

fn steps(ddp: &mut DistributedDataParallel<Net>, optimizer: &mut ModuleOptimizer, range: Range<usize>) {
    let rank = ddp.group().rank();
    for step in range {
        let loss = ddp.forward(|net| net.loss(batch(rank, step)));
        let averaged = ddp.backward(loss).unwrap();
        ddp.step(optimizer, 0.05, averaged);
    }
}

/// Three steps on two ranks; rank 0 saves.
fn save_half(folder: &Path) {
    on_ranks(2, |group| {
        let (mut ddp, mut optimizer) = (parallel(Net::new(1, 4, false), group), optimizer());
        steps(&mut ddp, &mut optimizer, 0..3);
        if let Some(state) = ddp.state().unwrap() {
            ddp.module().clone().save_file(folder.join("model.bpk")).unwrap();
            optimizer.save(folder.join("optimizer.bpk")).unwrap();
            std::fs::write(folder.join("state.json"), serde_json::to_vec(&state).unwrap()).unwrap();
        }
    });
}

/// Three more steps on two ranks, whose new modules have parameters with other ids.
fn continue_from(folder: &Path, with_optimizer: bool) -> Vec<Vec<Vec<f32>>> {
    on_ranks(2, |group| {
        let net = Net::new(7 + group.rank() as u64, 4, false);
        let net = net.try_load_file(folder.join("model.bpk")).unwrap();
        let mut optimizer = optimizer();
        if with_optimizer {
            optimizer = optimizer.load(folder.join("optimizer.bpk")).unwrap();
        }
        let state = std::fs::read(folder.join("state.json")).unwrap();
        let state = Some(serde_json::from_slice(&state).unwrap());
        let options = DdpOptions { state, ..small_buckets() };
        let mut ddp = DistributedDataParallel::new(net, group, options).unwrap();
        steps(&mut ddp, &mut optimizer, 3..6);
        values(ddp.module())
    })
}

#[test]
fn continues_an_optimizer_with_state_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let whole = on_ranks(2, |group| {
        let mut ddp = parallel(Net::new(1, 4, false), group);
        steps(&mut ddp, &mut optimizer(), 0..6);
        values(ddp.module())
    });
    save_half(folder.path());
    assert_eq!(continue_from(folder.path(), true), whole);
    assert_ne!(continue_from(folder.path(), false), whole, "the optimizer's file had no effect");
}
