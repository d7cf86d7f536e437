//! From a checkpoint into a trainer, on any number of ranks; [`super::snapshot`] is the way out.

use super::hook::HookPlace;
use super::resize::Saved;
use super::snapshot::batches_tracked;
use crate::checkpoint::{Loaded, TensorData, TensorMap, Wanted, match_weights, read_weights};
use crate::comm::ProcessGroup;
use crate::device::ComputeDevice;
use crate::error::{Error, Result};
use crate::models::{ALL, Model, StateEntry};
use crate::plan::Plan;
use crate::train::{Batching, Position, Updater};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Of checkpoints that don't say.
fn the_cpu() -> String {
    ComputeDevice::Cpu.to_string()
}

/// What of `state.json` only this program reads.
#[derive(Serialize, Deserialize)]
pub struct Extra {
    position: Position,
    /// The device of the rank that saved.
    #[serde(default = "the_cpu")]
    device: String,
    /// As the spec had it.
    batch_size: usize,
    /// As the spec had it.
    accumulate: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comm_hook: Option<HookPlace>,
}

impl Extra {
    pub fn new(
        plan: &Plan,
        device: ComputeDevice,
        position: &Position,
        comm_hook: Option<HookPlace>,
    ) -> Self {
        Self {
            position: position.clone(),
            device: device.to_string(),
            batch_size: plan.batch_size,
            accumulate: plan.train.accumulate,
            comm_hook,
        }
    }

    /// `world` is the one that saved: positions of earlier versions don't say what they count in.
    fn saved(self, world: usize) -> Saved {
        let Extra { mut position, batch_size, accumulate, .. } = self;
        if position.batching == Batching::default() {
            position.batching = Batching::of(world, batch_size, accumulate);
        }
        Saved { position, batch_size, accumulate }
    }
}

/// Puts a checkpoint's state into a model and an optimizer and says where its run stood.
///
/// # Errors
/// Exit code 74 when a tensor is missing or has another shape: the spec's model is not the checkpoint's.
pub fn restore(
    plan: &Plan,
    loaded: &Loaded,
    device: ComputeDevice,
    model: &mut dyn Model,
    updater: &mut Updater,
) -> Result<Saved> {
    let unfit = |e: Error| {
        Error::checkpoint(format!("checkpoint {} does not fit the spec: {}", loaded.path.display(), e.message))
            .hint("the model or the optimizer differs from the one that was saved; `--resume never --out DIR` starts anew")
    };
    put_model(model, &loaded.model).map_err(unfit)?;
    put_optimizer(model.entries(), updater, &loaded.optimizer).map_err(unfit)?;
    let extra: Extra = serde_json::from_value(loaded.state.extra.clone())
        .map_err(|e| unfit(Error::checkpoint(format!("its state is not understood: {e}"))))?;
    if let Some(target) =
        plan.checkpoint.map_location.get(&extra.device).filter(|t| **t != device.to_string())
    {
        let from = &extra.device;
        return Err(Error::unavailable(format!(
            "checkpoint.map_location sends tensors of `{from}` to `{target}`, and rank 0 computes on `{device}`"
        ))
        .hint("without an entry, each rank loads to its own device"));
    }
    Ok(extra.saved(loaded.state.world))
}

fn put_model(model: &mut dyn Model, file: &TensorMap) -> Result<()> {
    let entries = model.entries().to_vec();
    let mut values = Vec::new();
    for entry in &entries {
        values.push(Some(entry.from_dict(&find(file, &entry.name, &entry.shape)?.as_f32())));
    }
    put(model, values);
    Ok(())
}

/// Writes values, in the module's layout, where there are any.
fn put(model: &mut dyn Model, values: Vec<Option<Vec<f32>>>) {
    model.edit(&|index| values[index].is_some(), &mut |index, own| {
        if let Some(new) = &values[index] {
            own.copy_from_slice(new);
        }
    });
}

fn put_optimizer(entries: &[StateEntry], updater: &mut Updater, file: &TensorMap) -> Result<()> {
    let slots = updater.slots();
    for (index, entry) in entries.iter().enumerate().filter(|(_, e)| e.trainable()) {
        let shapes: Vec<Vec<usize>> =
            (0..slots.len()).map(|slot| updater.slot_shape(slot, &entry.module_shape())).collect();
        updater.state_mut().edit(index, |slot, own| {
            let whole = own.len() == entry.numel();
            let shape = if whole { &entry.shape } else { &shapes[slot] };
            let values = find(file, &format!("{}.{}", slots[slot], entry.name), shape)?.as_f32();
            if whole {
                own.copy_from_slice(&entry.from_dict(&values));
            } else {
                own.copy_from_slice(&values);
            }
            Ok::<(), Error>(())
        })?;
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
    let mut wanted = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        for entry in entry.names() {
            wanted.push(Wanted { name: entry.name.clone(), shape: entry.shape.clone(), tensor: number });
            if let Some(name) = batches_tracked(entry) {
                wanted.push(Wanted { name, shape: Vec::new(), tensor: entries.len() + number });
            }
        }
    }
    let matched = match_weights(&wanted, &file, strict)
        .map_err(|e| Error::data(format!("model.pretrained = {}: {}", path.display(), e.message)))?;
    let mut values = vec![None; entries.len()];
    for (name, tensor) in &matched.loaded {
        let named = |entry: &StateEntry| entry.names().find(|e| e.name == *name).cloned();
        let found = entries.iter().enumerate().find_map(|(number, entry)| Some((number, named(entry)?)));
        if let Some((number, entry)) = found {
            values[number] = Some(entry.from_dict(&tensor.as_f32()));
        }
    }
    put(model, values);
    Ok(matched.left_out())
}

/// Makes every rank's state rank 0's: parameters, buffers, optimizer state, position. Returns the position, if any.
pub fn share(
    model: &mut dyn Model,
    updater: &mut Updater,
    position: Option<Position>,
    group: &dyn ProcessGroup,
) -> Result<Option<Position>> {
    if group.world_size() == 1 {
        return Ok(position);
    }
    let position: Option<Position> = share_json(position, group)?;
    let mut flat = Vec::new();
    model.read(ALL, &mut |_, values| flat.extend_from_slice(values));
    group.broadcast(flat.as_mut_slice().into(), 0)?;
    let mut rest = flat.as_slice();
    model.edit(ALL, &mut |_, values| {
        let (own, tail) = rest.split_at(values.len());
        values.copy_from_slice(own);
        rest = tail;
    });
    if position.is_some() {
        for index in 0..model.entries().len() {
            updater.state_mut().edit(index, |_, array| group.broadcast(array.into(), 0))?;
        }
    }
    Ok(position)
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
