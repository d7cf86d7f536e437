//! Weights in several files with an index, as Hugging Face's libraries write and read large models.

use super::tensor::TensorMap;
use super::tensor_file::put_tensors;
use base::error::{IoContext, Result};
use base::files::replace_json;
use serde_json::{Map, json};
use std::path::Path;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Writes the tensors to `model.safetensors` in the folder; or, if they are larger than `most` bytes, to files of at most so many (a
/// larger tensor has one for itself) and an index. Returns the files' names.
///
/// # Errors
/// `ErrorKind::Io`: a file can't be written.
pub fn write_shards(folder: &Path, tensors: TensorMap, most: u64) -> Result<Vec<String>> {
    let total: usize = tensors.iter().map(|tensor| tensor.bytes.len()).sum();
    if total as u64 <= most {
        let path = folder.join(SINGLE);
        put_tensors(&tensors, &path).doing("write", &path)?;
        return Ok(vec![SINGLE.to_owned()]);
    }
    let shards = split(tensors, most)?;
    let name = |at: usize| format!("model-{:05}-of-{:05}.safetensors", at + 1, shards.len());
    let mut map = Map::new();
    for (at, shard) in shards.iter().enumerate() {
        let path = folder.join(name(at));
        put_tensors(shard, &path).doing("write", &path)?;
        map.extend(shard.iter().map(|tensor| (tensor.name.clone(), json!(name(at)))));
    }
    let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
    replace_json(&folder.join(INDEX), &index)?;
    Ok((0..shards.len()).map(name).chain([INDEX.to_owned()]).collect())
}

/// Whether a file of this name in a folder has weights, or says which files do. Of two sets of them readers take one.
pub fn is_shard(name: &str) -> bool {
    let number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    let part = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let part = part.and_then(|part| part.split_once("-of-"));
    name == SINGLE || name == INDEX || part.is_some_and(|(at, all)| number(at) && number(all))
}

fn split(tensors: TensorMap, most: u64) -> Result<Vec<TensorMap>> {
    let (mut shards, mut shard, mut bytes) = (Vec::new(), TensorMap::new(), 0);
    for tensor in tensors.into_tensors() {
        let own = tensor.bytes.len() as u64;
        if bytes > 0 && bytes + own > most {
            shards.push(std::mem::take(&mut shard));
            bytes = 0;
        }
        bytes += own;
        shard.push(tensor)?;
    }
    shards.push(shard);
    Ok(shards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TensorData, read_weights};

    /// Of 8, 12, 4 and 40 bytes.
    fn tensors() -> TensorMap {
        let sizes = [("a", 2), ("b", 3), ("c", 1), ("d", 10)];
        let tensor = |(name, size): (&str, usize)| {
            TensorData::from_f32(name, vec![size], &vec![size as f32; size]).unwrap()
        };
        TensorMap::from_tensors(sizes.map(tensor)).unwrap()
    }

    #[test]
    fn files_have_at_most_so_many_bytes_and_are_read_as_one() {
        for (most, files) in [(64, 1), (63, 2), (24, 2), (23, 3), (20, 3), (15, 4), (1, 4)] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("config.json"), "{}").unwrap();
            let names = write_shards(folder.path(), tensors(), most).unwrap();
            let expected = if files == 1 { 1 } else { files + 1 };
            assert_eq!(names.len(), expected, "{most}: {names:?}");
            assert!(names.iter().all(|name| is_shard(name)), "{names:?}");
            assert_eq!(read_weights(folder.path()).unwrap(), tensors(), "{most}");
            for name in names.iter().filter(|name| name.ends_with(".safetensors")) {
                let part = read_weights(&folder.path().join(name)).unwrap();
                let bytes: usize = part.iter().map(|tensor| tensor.bytes.len()).sum();
                assert!(bytes as u64 <= most || part.len() == 1, "{most}: {bytes}");
            }
        }
    }

    #[test]
    fn other_files_are_no_weights() {
        for name in ["model-1-of-2.safetensors", "model.bin", "config.json", "model-00001.safetensors"] {
            assert!(!is_shard(name), "{name}");
        }
    }
}
