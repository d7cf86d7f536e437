//! Copies a running trainer's state for a checkpoint. The training thread only copies arrays, into memory of earlier
//! saves; the writing thread does the rest ([`finish`]).

use super::hook::{self, HookLayout};
use super::metrics::Reported;
use super::state::{RunFacts, SavedState};
use base::error::{Error, Result};
use checkpoint::{Dtype, RunState, Snapshot, TensorData, TensorMap};
use ddp::HookState;
use train::models::{ALL, Layout, Role, StateEntry};
use train::training::{Position, RunTensors, Sums};

/// The tensors of a run's checkpoints, without values.
pub fn empty(tensors: RunTensors<'_>) -> Result<Snapshot> {
    let RunTensors { model, updater, average } = tensors;
    let mut snapshot = Snapshot::default();
    for entry in model.entries().iter().flat_map(StateEntry::names) {
        snapshot.model.push(zeros(entry.name.clone(), Dtype::F32, entry.shape.clone())?)?;
        if let Some(name) = batches_tracked(entry) {
            snapshot.model.push(zeros(name, Dtype::I64, Vec::new())?)?;
        }
    }
    if average.is_some() {
        snapshot.ema = snapshot.model.clone();
    }
    for (index, slot, name) in updater.arrays(model.entries()) {
        let entry = &model.entries()[index];
        let shape = match updater.state().len(index, slot) == entry.numel() {
            true => entry.shape.clone(),
            false => updater.slot_shape(index, slot, &entry.module_shape()),
        };
        snapshot.optimizer.push(zeros(name, Dtype::F32, shape)?)?;
    }
    Ok(snapshot)
}

fn zeros(name: String, dtype: Dtype, shape: Vec<usize>) -> Result<TensorData> {
    let bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
    TensorData::new(name, dtype, shape, bytes)
}

/// Adds PyTorch's counter to batch-norm layers, so that torchvision loads the state dict strictly.
pub(super) fn batches_tracked(entry: &StateEntry) -> Option<String> {
    let layer = entry.name.strip_suffix("running_var").filter(|_| entry.role == Role::Statistic)?;
    Some(format!("{layer}num_batches_tracked"))
}

/// Copies all arrays, in the module's layout, into `snapshot`, which comes from [`empty`] or from an earlier save of
/// this run.
pub fn copy(snapshot: &mut Snapshot, position: &Position, tensors: RunTensors<'_>) -> Result<()> {
    let RunTensors { model, updater, average } = tensors;
    let mut done = Ok(());
    let Snapshot { model: weights, ema, optimizer: state, .. } = snapshot;
    model.read(ALL, &mut |index, values| {
        let entry = &model.entries()[index];
        let mut copied = copy_tensor(weights, entry, values, position);
        if let Some(average) = average.filter(|_| copied.is_ok()) {
            let averaged = average.read(index, values, |values| copy_tensor(ema, entry, values, position));
            copied = averaged.flatten();
        }
        if done.is_ok() {
            done = copied;
        }
    })?;
    done?;
    for (index, slot, name) in updater.arrays(model.entries()) {
        updater.state().read(index, slot, |values| copy_to(state, &name, bytemuck::cast_slice(values)))??;
    }
    Ok(())
}

/// Copies a tensor of the model under each of its names.
fn copy_tensor(
    tensors: &mut TensorMap,
    entry: &StateEntry,
    values: &[f32],
    position: &Position,
) -> Result<()> {
    for entry in entry.names() {
        copy_to(tensors, &entry.name, bytemuck::cast_slice(values))?;
        if let Some(name) = batches_tracked(entry) {
            copy_to(tensors, &name, &(position.micro_total as i64).to_le_bytes())?;
        }
    }
    Ok(())
}

fn copy_to(tensors: &mut TensorMap, name: &str, bytes: &[u8]) -> Result<()> {
    match tensors.bytes_mut(name).filter(|to| to.len() == bytes.len()) {
        Some(to) => to.copy_from_slice(bytes),
        None => return Err(Error::internal(format!("the snapshot has no room for tensor `{name}`"))),
    }
    Ok(())
}

/// The run's position, for `state.json`. `seconds` is its training time.
pub fn state(
    made: &RunFacts,
    position: &Position,
    hook: Option<&HookState>,
    seconds: f64,
) -> Result<RunState> {
    let extra = SavedState::new(made, position, hook.map(|hook| HookLayout::new(hook, &made.hook_keys)));
    let json = |e: serde_json::Error| Error::internal(format!("the state is not JSON: {e}"));
    Ok(RunState {
        spec_hash: made.spec_hash.clone(),
        name: made.name.clone(),
        world: position.batching.world,
        seed: made.seed,
        epochs_completed: position.epoch as usize,
        step_in_epoch: position.step_in_epoch as usize,
        global_step: position.step,
        samples_seen: position.samples,
        wall_seconds: seconds,
        metrics: metrics(made, position),
        optimizer: serde_json::Value::Object(made.optimizer.clone()),
        extra: serde_json::to_value(extra).map_err(json)?,
        ..RunState::default()
    })
}

/// `val.loss` and other metrics, if they were measured with these weights.
fn metrics(made: &RunFacts, position: &Position) -> serde_json::Value {
    let Some(measured) = &position.measured else { return serde_json::Value::Null };
    let json = |sums: &Sums| {
        let reported = Reported { standard: made.standard, top5: true, tokens: true, ..Reported::default() };
        super::metrics::evaluation(sums, reported).json()
    };
    let mut metrics = serde_json::json!({ "train": json(&measured.train) });
    if let Some(val) = &measured.val {
        metrics["val"] = json(val).into();
    }
    metrics
}

/// Completes a copied snapshot: the state dict's layout, and the hooks' tensors.
pub fn finish(
    snapshot: &mut Snapshot,
    entries: &[StateEntry],
    slots: &[&str],
    hook: Option<&HookState>,
) -> Result<()> {
    for entry in entries.iter().flat_map(StateEntry::names).filter(|e| e.layout == Layout::Transposed) {
        reorder(&mut snapshot.model, &entry.name, entry);
        reorder(&mut snapshot.ema, &entry.name, entry);
        for slot in slots {
            reorder(&mut snapshot.optimizer, &format!("{slot}.{}", entry.name), entry);
        }
    }
    snapshot.comm_hook = hook.map_or_else(|| Ok(TensorMap::new()), hook::tensors)?;
    Ok(())
}

/// Optimizer arrays with a different shape than their parameter have only one layout.
fn reorder(tensors: &mut TensorMap, name: &str, entry: &StateEntry) {
    let Some(tensor) = tensors.get(name).filter(|t| t.shape == entry.shape) else { return };
    let dict = entry.to_dict(&tensor.as_f32());
    if let Some(bytes) = tensors.bytes_mut(name) {
        bytes.copy_from_slice(bytemuck::cast_slice(&dict));
    }
}

#[cfg(test)]
mod tests {
    use super::super::optimizer::Trained;
    use super::super::state;
    use super::*;
    use crate::plan::Plan;
    use crate::worker::RankParts;
    use crate::worker::testing::{self, SPEC};
    use data::Fingerprint;
    use ddp::device::{Compute, ComputeDevice};
    use train::models::Model;
    use train::training::{Batching, Updater};

    fn tensors<'a>(model: &'a dyn Model, updater: &'a Updater) -> RunTensors<'a> {
        RunTensors { model, updater, average: None }
    }

    fn plan(optimizer: &str) -> Plan {
        let optimizer = format!("optimizer.name={optimizer}");
        testing::plan(SPEC, &["model.name=mlp", "model.hidden=[7, 5]", &optimizer], 1)
    }

    #[test]
    fn snapshots_restore_exactly_and_reuse_their_memory() {
        for optimizer in ["adamw", "adafactor"] {
            let plan = plan(optimizer);
            let host = Compute::host();
            let mut model = plan.model.source.build(&plan.dataset.facts, 1, &host).unwrap();
            let entries = model.entries().to_vec();
            let mut updater = Updater::new(&plan.optimizer, None, &entries, &host.device);
            let mut next = 0.0;
            for index in 0..entries.len() {
                let fill = |_, array: &mut [f32]| {
                    array.fill_with(|| {
                        next += 1.0;
                        next
                    });
                    Ok(())
                };
                updater.state_mut().edit(index, fill).unwrap();
            }
            let data = Fingerprint { train: 2048, val: None, content: "x".to_owned() };
            let trained = Trained::new(&entries, &updater);
            let parts = RankParts::new(&plan);
            let made = RunFacts::new(&parts, ComputeDevice::Cpu, trained, data, "".into());
            let mut position = Position::new(Batching::new(1, 4, 1));
            let mut snapshot = empty(tensors(&*model, &updater)).unwrap();
            let places: Vec<*const u8> = snapshot.optimizer.iter().map(|t| t.bytes.as_ptr()).collect();
            for step in 1..=2 {
                position.step = step;
                model.edit(ALL, &mut |_, values| values.iter_mut().for_each(|v| *v += 1.0)).unwrap();
                copy(&mut snapshot, &position, tensors(&*model, &updater)).unwrap();
                snapshot.state = state(&made, &position, None, 1.0).unwrap();
                finish(&mut snapshot, &entries, &updater.all_slots(), None).unwrap();
                let now: Vec<*const u8> = snapshot.optimizer.iter().map(|t| t.bytes.as_ptr()).collect();
                assert_eq!(now, places, "the buffers are new");
                model
                    .read(ALL, &mut |index, values| {
                        let tensor = snapshot.model.get(&entries[index].name).unwrap();
                        assert_eq!(tensor.shape, entries[index].shape);
                        assert_eq!(*tensor.as_f32(), *entries[index].to_dict(values));
                    })
                    .unwrap();
                let dir = tempfile::tempdir().unwrap();
                let store = checkpoint::CheckpointStore::open(dir.path()).unwrap();
                let saved = store.save(&snapshot).unwrap();
                let loaded = checkpoint::load(&saved.path).unwrap();
                let mut other = plan.model.source.build(&plan.dataset.facts, 2, &host).unwrap();
                let mut fresh = Updater::new(&plan.optimizer, None, &entries, &host.device);
                let back = state::saved(&loaded).unwrap();
                state::restore(&parts, &loaded, &back, ComputeDevice::Cpu, &mut *other, &mut fresh).unwrap();
                assert_eq!((&back.position, &back.data), (&position, &made.data));
                for (index, entry) in entries.iter().enumerate() {
                    for slot in 0..updater.slots(index).len() {
                        let values = |u: &Updater| u.state().read(index, slot, <[f32]>::to_vec).unwrap();
                        assert_eq!(values(&fresh), values(&updater), "{optimizer}, {}", entry.name);
                    }
                }
            }
        }
    }

    /// A driver reset during a save or a restore causes exit code 69, not a panic.
    #[cfg(feature = "wgpu")]
    #[test]
    fn on_wgpu_a_device_that_is_lost_fails_a_save() {
        use base::error::ErrorKind;
        use burn::tensor::DType;
        use ddp::device::testing::LosableDevice;

        let Some(there) = LosableDevice::open() else { return };
        let plan = plan("adamw");
        let on = Compute { device: there.device.clone(), dtype: DType::F32 };
        let mut model = plan.model.source.build(&plan.dataset.facts, 1, &on).unwrap();
        let mut updater = Updater::new(&plan.optimizer, None, model.entries(), &on.device);
        let position = Position::new(Batching::new(1, 4, 1));
        let mut snapshot = empty(tensors(&*model, &updater)).unwrap();
        copy(&mut snapshot, &position, tensors(&*model, &updater)).unwrap();
        there.lose();
        let failures = [
            copy(&mut snapshot, &position, tensors(&*model, &updater)).unwrap_err(),
            updater.state().read(0, 0, |_| ()).unwrap_err(),
            updater.state_mut().edit(0, |_, _| Ok(())).unwrap_err(),
            model.edit(ALL, &mut |_, _| {}).unwrap_err(),
        ];
        for failed in failures {
            assert_eq!(failed.kind, ErrorKind::Unavailable, "{}", failed.message);
            assert!(failed.message.starts_with("the device failed: "), "{}", failed.message);
        }
    }
}
