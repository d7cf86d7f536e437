//! Saves and restores the state of communication hooks: one tensor per rank and bucket.

use super::spec_changes::OwnSpec;
use base::error::Result;
use checkpoint::{Loaded, TensorData, TensorMap};
use ddp::HookState;
use serde::{Deserialize, Serialize};
use spec::Values;

/// Describes the tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookLayout {
    name: String,
    /// Number of elements of each bucket.
    buckets: Vec<usize>,
    /// The hook's keys, written like values of specs; older checkpoints do not contain them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keys: Option<Values>,
}

impl HookLayout {
    /// The saved state of a hook with these keys.
    pub fn new(hook: &HookState, keys: &Values) -> Self {
        Self { name: hook.name.clone(), buckets: hook.buckets.clone(), keys: Some(keys.clone()) }
    }

    /// Why the state is not one of the hook of `spec`, whose other keys may give it another meaning; `None` if the keys are the same. That the
    /// hook is another one is reported when the state is restored.
    pub fn has_other_keys(&self, spec: OwnSpec<'_>) -> Option<String> {
        let before = self.keys.as_ref().filter(|_| spec.hook() == Some(&*self.name))?;
        let changed = spec.changed_hook_keys(before);
        (!changed.is_empty()).then(|| {
            let (name, changed) = (&self.name, changed.join("; "));
            format!("the checkpoint's state of the communication hook `{name}` is ignored: {changed}")
        })
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
pub fn state(loaded: &Loaded, layout: &Option<HookLayout>) -> Option<HookState> {
    let file = &loaded.comm_hook;
    let HookLayout { name, buckets, .. } = layout.clone().filter(|_| !file.is_empty())?;
    let state =
        |rank, bucket| file.get(&tensor_name(rank, bucket)).map_or_else(Vec::new, TensorData::to_f32_vec);
    let of_rank = |rank| (0..buckets.len()).map(|bucket| state(rank, bucket)).collect();
    Some(HookState { values: (0..loaded.state.world).map(of_rank).collect(), name, buckets })
}
