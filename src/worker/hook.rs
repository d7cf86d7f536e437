//! Saves and restores the state of communication hooks: one tensor per rank and bucket.

use crate::checkpoint::{Loaded, TensorData, TensorMap};
use crate::ddp::HookState;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The key in the extra part of `state.json`.
const KEY: &str = "comm_hook";

/// Describes the tensors.
#[derive(Serialize, Deserialize)]
pub struct HookLayout {
    name: String,
    /// Number of elements of each bucket.
    buckets: Vec<usize>,
}

impl HookLayout {
    pub fn of(hook: &HookState) -> Self {
        Self { name: hook.name.clone(), buckets: hook.buckets.clone() }
    }
}

fn tensor_name(rank: usize, bucket: usize) -> String {
    format!("rank.{rank}.bucket.{bucket}")
}

/// The tensors as stored in a checkpoint.
pub fn tensors(hook: &HookState) -> Result<TensorMap> {
    let mut map = TensorMap::new();
    for (rank, buckets) in hook.values.iter().enumerate() {
        for (bucket, values) in buckets.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
            map.push(TensorData::from_f32(tensor_name(rank, bucket), vec![values.len()], values)?)?;
        }
    }
    Ok(map)
}

/// The state in a checkpoint, if any.
///
/// # Errors
/// Exit code 74: its description is invalid.
pub fn state(loaded: &Loaded) -> Result<Option<HookState>> {
    let file = &loaded.comm_hook;
    let place: Option<HookLayout> = serde_json::from_value(loaded.state.extra[KEY].clone()).map_err(|e| {
        let path = loaded.path.display();
        Error::checkpoint(format!("cannot load checkpoint {path}: its {KEY} can't be decoded: {e}"))
    })?;
    Ok(place.filter(|_| !file.is_empty()).map(|HookLayout { name, buckets }| {
        let state =
            |rank, bucket| file.get(&tensor_name(rank, bucket)).map_or_else(Vec::new, TensorData::to_f32_vec);
        let of_rank = |rank| (0..buckets.len()).map(|bucket| state(rank, bucket)).collect();
        HookState { values: (0..loaded.state.world).map(of_rank).collect(), name, buckets }
    }))
}
