//! Between a running trainer and a checkpoint: what is copied out, and how it comes back, on any number of ranks.

use super::hook::{self, HookPlace};
use super::metrics::Reported;
use crate::checkpoint::{Loaded, Snapshot, State, TensorData, TensorMap, match_weights, read_weights};
use crate::comm::ProcessGroup;
use crate::ddp::HookState;
use crate::error::{Error, Result};
use crate::models::{Model, StateEntry};
use crate::plan::Plan;
use crate::train::{Position, Updater};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The one device of this build.
const DEVICE: &str = "cpu";

fn own_device() -> String {
    DEVICE.to_owned()
}

/// What of `state.json` only this program reads.
#[derive(Serialize, Deserialize)]
struct Extra {
    position: Position,
    /// The device of the rank that saved.
    #[serde(default = "own_device")]
    device: String,
    batch_size: usize,
    accumulate: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comm_hook: Option<HookPlace>,
}

/// Copies what a checkpoint needs to the host.
pub fn snapshot(
    plan: &Plan,
    world: usize,
    position: &Position,
    model: &dyn Model,
    updater: &Updater,
    hook: Option<HookState>,
    seconds: f64,
) -> Result<Snapshot> {
    let extra = Extra {
        comm_hook: hook.as_ref().map(HookPlace::of),
        device: own_device(),
        position: position.clone(),
        batch_size: plan.batch_size,
        accumulate: plan.train.accumulate,
    };
    let json = |e: serde_json::Error| Error::internal(format!("the state is no JSON: {e}"));
    Ok(Snapshot {
        state: State {
            spec_hash: plan.hash.clone(),
            name: plan.name.clone(),
            world,
            seed: plan.seed,
            epochs_completed: position.epoch as usize,
            step_in_epoch: position.step_in_epoch as usize,
            global_step: position.step,
            samples_seen: position.samples,
            wall_seconds: seconds,
            metrics: metrics(position),
            extra: serde_json::to_value(extra).map_err(json)?,
            ..State::default()
        },
        model: model_tensors(model, position.micro_total)?,
        optimizer: optimizer_tensors(model.entries(), updater)?,
        comm_hook: hook.as_ref().map_or_else(|| Ok(TensorMap::new()), hook::tensors)?,
    })
}

/// `val.loss` and its like, where an evaluation was made at this very step.
fn metrics(position: &Position) -> serde_json::Value {
    match position.val.filter(|_| position.micro == 0) {
        Some(val) => {
            serde_json::json!({ "val": super::metrics::json(&val, Reported { top5: true, perplexity: true }) })
        }
        None => serde_json::Value::Null,
    }
}

/// The state dict. Batch-norm layers get PyTorch's `num_batches_tracked`, so that torchvision loads it strictly.
fn model_tensors(model: &dyn Model, batches: u64) -> Result<TensorMap> {
    let mut tensors = Vec::new();
    let mut failed = None;
    model.read(&mut |index, values| {
        let entry = &model.entries()[index];
        match TensorData::from_f32(&entry.name, entry.shape.clone(), &entry.to_dict(values)) {
            Ok(tensor) => tensors.push(tensor),
            Err(e) => failed = Some(e),
        }
    });
    if let Some(e) = failed {
        return Err(e);
    }
    let mut map = TensorMap::new();
    for tensor in tensors {
        let layer = tensor.name.strip_suffix("running_var").map(str::to_owned);
        map.push(tensor)?;
        if let Some(layer) = layer {
            map.push(TensorData::from_i64(
                format!("{layer}num_batches_tracked"),
                Vec::new(),
                &[batches as i64],
            )?)?;
        }
    }
    Ok(map)
}

fn optimizer_tensors(entries: &[StateEntry], updater: &Updater) -> Result<TensorMap> {
    let mut map = TensorMap::new();
    for (slot, slot_name) in updater.slots().iter().enumerate() {
        for (index, entry) in entries.iter().enumerate().filter(|(_, e)| e.trainable) {
            let values = &updater.state(index)[slot];
            let (shape, values) = if values.len() == entry.numel() {
                (entry.shape.clone(), entry.to_dict(values))
            } else {
                (updater.slot_shape(slot, &entry.module_shape()), values.clone())
            };
            map.push(TensorData::from_f32(format!("{slot_name}.{}", entry.name), shape, &values)?)?;
        }
    }
    Ok(map)
}

/// Puts a checkpoint's state into a model and an optimizer and says where the run goes on.
///
/// # Errors
/// Exit code 74 when a tensor is missing or has another shape: the spec's model is not the checkpoint's.
pub fn restore(
    plan: &Plan,
    world: usize,
    loaded: &Loaded,
    model: &mut dyn Model,
    updater: &mut Updater,
) -> Result<Position> {
    let unfit = |e: Error| {
        Error::checkpoint(format!("checkpoint {} does not fit the spec: {}", loaded.path.display(), e.message))
            .hint("the model or the optimizer differs from the one that was saved; `--resume never --out DIR` starts anew")
    };
    put_model(model, &loaded.model).map_err(unfit)?;
    put_optimizer(model.entries(), updater, &loaded.optimizer).map_err(unfit)?;
    let extra: Extra = serde_json::from_value(loaded.state.extra.clone())
        .map_err(|e| unfit(Error::checkpoint(format!("its state is not understood: {e}"))))?;
    if let Some(target) = plan.checkpoint.map_location.get(&extra.device).filter(|t| *t != DEVICE) {
        let from = &extra.device;
        return Err(Error::unavailable(format!(
            "checkpoint.map_location sends tensors of `{from}` to `{target}`, which this machine does not have"
        ))
        .hint("without an entry, each rank loads to its own device"));
    }
    Ok(replace_position(plan, world, &loaded.state, extra))
}

/// In the units of this run: micro-batches of another size, or of other ranks, are counted anew by samples.
fn replace_position(plan: &Plan, world: usize, state: &State, extra: Extra) -> Position {
    let mut position = extra.position;
    let same = state.world == world
        && extra.batch_size == plan.batch_size
        && extra.accumulate == plan.train.accumulate;
    if !same && position.micro > 0 {
        let samples = position.epoch_sums.samples as u64;
        position.micro = samples / (plan.batch_size * world) as u64;
        position.step_in_epoch = position.micro.div_ceil(plan.train.accumulate as u64);
        tracing::warn!(
            "the checkpoint was made by {} processes with batches of {}; this run goes on after {} of the epoch's samples",
            state.world,
            extra.batch_size,
            position.micro * (plan.batch_size * world) as u64
        );
    }
    position
}

fn put_model(model: &mut dyn Model, file: &TensorMap) -> Result<()> {
    let entries = model.entries().to_vec();
    let mut values = Vec::new();
    for entry in &entries {
        values.push(Some(find(file, &entry.name, &entry.shape)?.as_f32().into_owned()));
    }
    put(model, &entries, values);
    Ok(())
}

/// Writes state-dict values where there are any.
fn put(model: &mut dyn Model, entries: &[StateEntry], values: Vec<Option<Vec<f32>>>) {
    model.edit(&mut |index, own| {
        if let Some(new) = &values[index] {
            own.copy_from_slice(&entries[index].from_dict(new));
        }
    });
}

fn put_optimizer(entries: &[StateEntry], updater: &mut Updater, file: &TensorMap) -> Result<()> {
    for (slot, slot_name) in updater.slots().iter().enumerate() {
        for (index, entry) in entries.iter().enumerate().filter(|(_, e)| e.trainable) {
            let whole = updater.state(index)[slot].len() == entry.numel();
            let shape = match whole {
                true => entry.shape.clone(),
                false => updater.slot_shape(slot, &entry.module_shape()),
            };
            let values = find(file, &format!("{slot_name}.{}", entry.name), &shape)?.as_f32().into_owned();
            let values = if whole { entry.from_dict(&values) } else { values };
            updater.state_mut(index)[slot].copy_from_slice(&values);
        }
    }
    Ok(())
}

fn find<'a>(file: &'a TensorMap, name: &str, shape: &[usize]) -> Result<&'a TensorData> {
    let tensor = file.get(name).ok_or_else(|| Error::checkpoint(format!("it has no tensor `{name}`")))?;
    if tensor.shape != shape {
        let found = &tensor.shape;
        return Err(Error::checkpoint(format!(
            "tensor `{name}` has shape {found:?}, the spec needs {shape:?}"
        )));
    }
    Ok(tensor)
}

/// Starts from PyTorch weights; returns what was left out, for the log.
pub fn load_pretrained(model: &mut dyn Model, path: &Path, strict: bool) -> Result<String> {
    let file = read_weights(path)?;
    let entries = model.entries().to_vec();
    let mut wanted: Vec<(String, Vec<usize>)> = Vec::new();
    for entry in &entries {
        wanted.push((entry.name.clone(), entry.shape.clone()));
        if let Some(layer) = entry.name.strip_suffix("running_var") {
            wanted.push((format!("{layer}num_batches_tracked"), Vec::new()));
        }
    }
    let matched = match_weights(&wanted, &file, strict)
        .map_err(|e| Error::data(format!("model.pretrained = {}: {}", path.display(), e.message)))?;
    let mut values = vec![None; entries.len()];
    for (name, tensor) in &matched.loaded {
        if let Some(index) = entries.iter().position(|e| e.name == *name) {
            values[index] = Some(tensor.as_f32().into_owned());
        }
    }
    put(model, &entries, values);
    Ok(matched.left_out())
}

/// Makes every rank's state rank 0's: parameters, buffers, optimizer state, position. Returns the position.
pub fn share(
    model: &mut dyn Model,
    updater: &mut Updater,
    position: Option<Position>,
    group: &dyn ProcessGroup,
) -> Result<Position> {
    if group.world_size() == 1 {
        return Ok(position.unwrap_or_default());
    }
    let position: Option<Position> = share_json(position, group)?;
    let mut flat = Vec::new();
    model.read(&mut |_, values| flat.extend_from_slice(values));
    group.broadcast(flat.as_mut_slice().into(), 0)?;
    let mut rest = flat.as_slice();
    model.edit(&mut |_, values| {
        let (own, tail) = rest.split_at(values.len());
        values.copy_from_slice(own);
        rest = tail;
    });
    if position.is_some() {
        for index in 0..model.entries().len() {
            for array in updater.state_mut(index) {
                group.broadcast(array.as_mut_slice().into(), 0)?;
            }
        }
    }
    Ok(position.unwrap_or_default())
}

/// Rank 0's value, on every rank.
fn share_json<T: Serialize + serde::de::DeserializeOwned>(value: T, group: &dyn ProcessGroup) -> Result<T> {
    let broken = |e: serde_json::Error| Error::internal(format!("shared state is no JSON: {e}"));
    let mut bytes = match group.rank() {
        0 => serde_json::to_vec(&value).map_err(broken)?,
        _ => Vec::new(),
    };
    let mut length = [bytes.len() as i64];
    group.broadcast(length.as_mut_slice().into(), 0)?;
    bytes.resize(length[0].clamp(0, 1 << 26) as usize, 0);
    group.broadcast(bytes.as_mut_slice().into(), 0)?;
    serde_json::from_slice(&bytes).map_err(broken)
}
