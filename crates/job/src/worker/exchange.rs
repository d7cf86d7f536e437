//! Values that the ranks exchange as JSON. Collective: all ranks call these functions.

use base::error::{Error, Result};
use collectives::ProcessGroup;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The `own` of every rank, in rank order.
pub fn gathered<T: Serialize + DeserializeOwned>(own: &T, group: &dyn ProcessGroup) -> Result<Vec<T>> {
    let mut text = serde_json::to_vec(own).map_err(no_json)?;
    let mut lengths = vec![0i64; group.world_size()];
    group.all_gather([text.len() as i64].as_slice().into(), lengths.as_mut_slice().into())?;
    // JSON may have spaces at its end.
    text.resize(lengths.iter().max().map_or(0, |longest| *longest as usize), b' ');
    let mut all = vec![0; text.len() * group.world_size()];
    group.all_gather(text.as_slice().into(), all.as_mut_slice().into())?;
    all.chunks(text.len()).map(|text| serde_json::from_slice(text).map_err(no_json)).collect()
}

/// Broadcasts rank 0's value.
pub fn share_json<T: Serialize + DeserializeOwned>(value: T, group: &dyn ProcessGroup) -> Result<T> {
    let mut bytes = match group.rank() {
        0 => serde_json::to_vec(&value).map_err(no_json)?,
        _ => Vec::new(),
    };
    let mut length = [bytes.len() as i64];
    group.broadcast(length.as_mut_slice().into(), 0)?;
    bytes.resize(length[0].clamp(0, 1 << 26) as usize, 0);
    group.broadcast(bytes.as_mut_slice().into(), 0)?;
    serde_json::from_slice(&bytes).map_err(no_json)
}

fn no_json(e: serde_json::Error) -> Error {
    Error::internal(format!("what the ranks exchange is not JSON: {e}"))
}
