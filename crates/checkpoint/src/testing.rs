//! Snapshots for the tests of this module.

use serde_json::json;

use super::snapshot::Snapshot;
use super::store::CheckpointStore;
use super::tensor::{Dtype, TensorData, TensorMap};
use super::{Loaded, RunState};

/// A small snapshot in which every value depends on `salt`, so that two saves of the same step differ.
pub fn snapshot(step: u64, salt: u32) -> Snapshot {
    let values: Vec<f32> = (0..6).map(|i| (salt * 100 + i) as f32 + step as f32 / 7.0).collect();
    let weight = TensorData::from_f32("layer1.0.conv1.weight", vec![2, 3], &values).unwrap();
    let batches =
        TensorData::new("bn1.num_batches_tracked", Dtype::I64, vec![], step.to_le_bytes().to_vec()).unwrap();
    let moment = TensorData::from_f32("exp_avg.layer1.0.conv1.weight", vec![2, 3], &values).unwrap();
    let state = RunState {
        name: "toy".into(),
        spec_hash: format!("{salt:08x}"),
        world: 2,
        seed: 42,
        global_step: step,
        metrics: json!({ "salt": salt }),
        ..RunState::default()
    };
    Snapshot {
        state,
        model: TensorMap::from_tensors([weight, batches]).unwrap(),
        optimizer: TensorMap::from_tensors([moment]).unwrap(),
        ..Snapshot::default()
    }
}

/// As [`snapshot`], with a stateful communication hook.
pub fn snapshot_with_hook(step: u64, salt: u32) -> Snapshot {
    let residual = TensorData::from_f32("rank.1.bucket.0", vec![2], &[salt as f32, 0.5]).unwrap();
    Snapshot { comm_hook: TensorMap::from_tensors([residual]).unwrap(), ..snapshot(step, salt) }
}

/// As [`snapshot`], with averaged weights.
pub fn snapshot_with_ema(step: u64, salt: u32) -> Snapshot {
    Snapshot { ema: snapshot(step, salt + 50).model, ..snapshot(step, salt) }
}

/// As [`snapshot`], with what the model's use needs.
pub fn snapshot_with_usage(step: u64, salt: u32) -> Snapshot {
    Snapshot { usage: Some(format!("{{\"salt\":{salt}}}\n").into()), ..snapshot(step, salt) }
}

/// Whether the checkpoint equals the snapshot, apart from the fields that the store sets.
pub fn same(loaded: &Loaded, snapshot: &Snapshot) -> bool {
    let mut state = loaded.state.clone();
    state.files.clear();
    state.format_version = 0;
    let tensors = (&loaded.model, &loaded.optimizer, &loaded.ema, &loaded.comm_hook);
    let saved = (&snapshot.model, &snapshot.optimizer, &snapshot.ema, &snapshot.comm_hook);
    state == snapshot.state && tensors == saved && loaded.usage.as_deref() == snapshot.usage.as_deref()
}

pub fn steps(store: &CheckpointStore) -> Vec<u64> {
    store.list().unwrap().into_iter().map(|e| e.step).collect()
}

/// A temporary folder, in memory if possible: these tests sync thousands of files, which is slow on a disk and gains
/// nothing there.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
