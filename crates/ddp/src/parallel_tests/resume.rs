//! Runs that are continued from files.

use super::{Net, batch, small_buckets, values};
use crate::tests::{on_ranks, standard};
use crate::{DdpOptions, DdpState, DistributedDataParallel};
use burn::module::Module;
use burn_optim::{AdamWConfig, ModuleOptimizer};
use collectives::ProcessGroup;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

fn optimizer() -> ModuleOptimizer {
    AdamWConfig::new().with_weight_decay(0.01).init()
}

/// With a hook that keeps residuals.
fn parallel(net: Net, group: Arc<dyn ProcessGroup>, state: Option<DdpState>) -> DistributedDataParallel<Net> {
    let options = DdpOptions { hook: Some(standard("bf16")), state, ..small_buckets() };
    DistributedDataParallel::new(net, group, options).unwrap()
}

fn steps(ddp: &mut DistributedDataParallel<Net>, optimizer: &mut ModuleOptimizer, range: Range<usize>) {
    let rank = ddp.group().rank();
    for step in range {
        let loss = ddp.forward(|net| net.loss(batch(rank, step)));
        let averaged = ddp.backward(loss).unwrap();
        ddp.step(optimizer, 0.05, averaged);
    }
}

/// Three steps on three ranks; rank 0 saves.
fn save_half(folder: &Path) {
    on_ranks(3, |group| {
        let (mut ddp, mut optimizer) = (parallel(Net::new(1, 4, false), group.clone(), None), optimizer());
        steps(&mut ddp, &mut optimizer, 0..3);
        let state = ddp.state().unwrap();
        assert_eq!(state.is_some(), group.rank() == 0);
        if let Some(state) = state {
            ddp.module().clone().save_file(folder.join("model.bpk")).unwrap();
            optimizer.save(folder.join("optimizer.bpk")).unwrap();
            std::fs::write(folder.join("state.json"), serde_json::to_vec(&state).unwrap()).unwrap();
        }
    });
}

/// Three more steps on three ranks, whose new modules have parameters with other ids. Only rank 0 reads the model and the state.
fn continue_from(folder: &Path, with_optimizer: bool, with_state: bool) -> Vec<Vec<Vec<f32>>> {
    on_ranks(3, |group| {
        let mut net = Net::new(7 + group.rank() as u64, 4, false);
        let mut state = None;
        if group.rank() == 0 {
            net = net.try_load_file(folder.join("model.bpk")).unwrap();
            let saved = std::fs::read(folder.join("state.json")).unwrap();
            state = with_state.then(|| serde_json::from_slice(&saved).unwrap());
        }
        let mut optimizer = optimizer();
        if with_optimizer {
            optimizer = optimizer.load(folder.join("optimizer.bpk")).unwrap();
        }
        let mut ddp = parallel(net, group, state);
        steps(&mut ddp, &mut optimizer, 3..6);
        values(ddp.module())
    })
}

#[test]
fn a_run_continued_from_files_ends_in_the_bits_of_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let whole = on_ranks(3, |group| {
        let mut ddp = parallel(Net::new(1, 4, false), group, None);
        steps(&mut ddp, &mut optimizer(), 0..6);
        values(ddp.module())
    });
    save_half(folder.path());
    assert_eq!(continue_from(folder.path(), true, true), whole);
    assert_ne!(continue_from(folder.path(), false, true), whole, "the optimizer's file had no effect");
    assert_ne!(continue_from(folder.path(), true, false), whole, "the state had no effect");
}
