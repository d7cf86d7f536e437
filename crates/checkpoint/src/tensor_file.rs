//! The safetensors container: writes PyTorch's metadata and a stable order; reads with every length checked against the
//! file before anything is allocated.
//!
//! The header lists tensors in their given order. The bytes are laid out by element size, largest first (stable),
//! because readers view tensors in place and need them aligned: with `num_batches_tracked` (i64) between f32 tensors,
//! loading in PyTorch would fail otherwise.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};

use super::digest::HashingReader;
use super::format::Rejected;
use super::stored::{StoredMap, StoredTensor};
use super::tensor::{Dtype, TensorData, TensorMap};
use base::display;
use base::files;

/// As in the safetensors specification: a header has at most 100 MB.
const MAX_HEADER: u64 = 100_000_000;

fn malformed<T>(why: impl AsRef<str>) -> Result<T, Rejected> {
    Err(display::piece(why.as_ref()).into())
}

impl Dtype {
    fn safetensors_name(self) -> String {
        self.name().to_uppercase()
    }

    fn from_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        let name = dtype.to_string();
        Self::ALL.into_iter().find(|own| own.safetensors_name() == name)
    }
}

/// Puts a file of [`write_tensors`] in its place, durably.
///
/// # Errors
/// Those of the file system, and those of [`write_tensors`].
pub(crate) fn put_tensors(tensors: &TensorMap, place: &Path) -> io::Result<()> {
    let mut draft = files::AtomicFile::new(place)?;
    write_tensors(tensors, &mut draft)?;
    draft.put_synced()
}

/// Writes `tensors` as a safetensors file with `{"format": "pt"}`.
///
/// # Errors
/// The errors of the writer, and `InvalidInput` if the names alone exceed the format's header limit.
pub fn write_tensors(tensors: &TensorMap, out: &mut dyn Write) -> io::Result<()> {
    let mut layout: Vec<&TensorData> = tensors.iter().collect();
    layout.sort_by_key(|t| std::cmp::Reverse(t.dtype.size()));
    let mut offset = 0;
    let offsets: HashMap<&str, [usize; 2]> = layout
        .iter()
        .map(|t| {
            let start = offset;
            offset += t.bytes.len();
            (t.name.as_str(), [start, offset])
        })
        .collect();
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    for t in tensors {
        let info = json!({ "dtype": t.dtype.safetensors_name(), "shape": t.shape, "data_offsets": offsets[t.name.as_str()] });
        header.insert(t.name.clone(), info);
    }
    let mut header = serde_json::to_vec(&Value::Object(header))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > MAX_HEADER {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many tensors for one safetensors file"));
    }
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    layout.iter().try_for_each(|t| out.write_all(&t.bytes))
}

/// Reads a safetensors stream of exactly `len` bytes, each tensor directly into its own buffer.
///
/// # Errors
/// The reason. No input causes a panic or an allocation of more than `len` bytes.
pub(crate) fn read_tensors(input: &mut impl Read, len: u64) -> Result<TensorMap, Rejected> {
    let (order, metadata) = read_header(input, len)?;
    let mut read: HashMap<String, TensorData> = HashMap::with_capacity(order.len());
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let tensor = read_tensor(input, &name, info)?;
        read.insert(name, tensor);
    }
    let tensors = order.iter().filter_map(|name| read.remove(name));
    TensorMap::from_tensors(tensors).or_else(|e| malformed(e.message))
}

/// Returns the names in header order and the validated header.
fn read_header(input: &mut impl Read, len: u64) -> Result<(Vec<String>, Metadata), Rejected> {
    let mut prefix = [0; 8];
    if len < 8 {
        return malformed(format!("is {len} bytes long, too short for a safetensors file"));
    }
    input.read_exact(&mut prefix)?;
    let header_len = u64::from_le_bytes(prefix);
    if header_len > MAX_HEADER || header_len > len - 8 {
        return malformed(format!(
            "claims a header of {header_len} bytes in a file of {len}: not a safetensors file"
        ));
    }
    let mut header = vec![0; header_len as usize];
    input.read_exact(&mut header)?;
    let parse = |e: serde_json::Error| format!("has a malformed safetensors header: {e}");
    // Checks that the tensors cover the data area exactly and that no size overflows.
    let metadata: Metadata = serde_json::from_slice(&header).map_err(parse)?;
    let listed: Map<String, Value> = serde_json::from_slice(&header).map_err(parse)?;
    let (expected, data) = (metadata.data_len() as u64, len - 8 - header_len);
    if expected != data {
        return malformed(format!("contains {data} bytes of tensors, but its header declares {expected}"));
    }
    Ok((listed.into_iter().map(|(name, _)| name).filter(|name| name != "__metadata__").collect(), metadata))
}

fn known_dtype(name: &str, info: &TensorInfo) -> Result<Dtype, Rejected> {
    Dtype::from_safetensors(info.dtype).map_or_else(
        || malformed(format!("tensor `{name}` has type {}, which ddp-run does not support", info.dtype)),
        Ok,
    )
}

fn read_tensor(input: &mut impl Read, name: &str, info: &TensorInfo) -> Result<TensorData, Rejected> {
    let dtype = known_dtype(name, info)?;
    // In bounds: `read_header` has checked the total size of the tensors against the file.
    let size = info.data_offsets.1 - info.data_offsets.0;
    let mut bytes = Vec::with_capacity(size);
    if input.take(size as u64).read_to_end(&mut bytes)? != size {
        return malformed(format!("ends within tensor `{name}`"));
    }
    TensorData::new(name, dtype, info.shape.clone(), bytes).or_else(|e| malformed(e.message))
}

/// The tensors of a `.safetensors` file, of which only the header is read now.
pub(crate) fn stored_tensors(path: &Path) -> Result<StoredMap, Rejected> {
    let mut file = files::open(path)?;
    let len = file.metadata()?.len();
    let (order, metadata) = read_header(&mut file, len)?;
    let (file, path) = (Arc::new(file), Arc::from(path));
    let data = len - metadata.data_len() as u64;
    let mut all = StoredMap::new();
    for (name, info) in order.iter().filter_map(|name| Some((name, metadata.info(name)?))) {
        let at = data + info.data_offsets.0 as u64;
        let dtype = known_dtype(name, info)?;
        let tensor = StoredTensor::in_file(name, dtype, info.shape.clone(), (&file, &path, at));
        all.push(tensor).or_else(|e| malformed(e.message))?;
    }
    Ok(all)
}

/// Reads a `.safetensors` file and computes its SHA-256 in the same pass.
pub fn read_tensor_file(path: &Path) -> Result<(TensorMap, String), Rejected> {
    let file = files::open(path)?;
    let len = file.metadata()?.len();
    let mut reader = HashingReader::new(file);
    let tensors = read_tensors(&mut reader, len)?;
    Ok((tensors, reader.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> TensorMap {
        let mut map = TensorMap::new();
        map.push(TensorData::new("flag", Dtype::Bool, vec![3], vec![1, 0, 1]).unwrap()).unwrap();
        map.push(TensorData::from_f32("bn.weight", vec![2], &[1.0, 2.0]).unwrap()).unwrap();
        map.push(TensorData::new("bn.num_batches_tracked", Dtype::I64, vec![], vec![5; 8]).unwrap()).unwrap();
        map.push(TensorData::from_f32("empty", vec![0, 4], &[]).unwrap()).unwrap();
        map
    }

    fn encode(map: &TensorMap) -> Vec<u8> {
        let mut out = Vec::new();
        write_tensors(map, &mut out).unwrap();
        out
    }

    #[test]
    fn round_trip_keeps_order_names_and_bits() {
        let bytes = encode(&sample());
        assert_eq!(read_tensors(&mut bytes.as_slice(), bytes.len() as u64).unwrap(), sample());
    }

    #[test]
    fn safetensors_crate_reads_files_and_tensors_are_aligned() {
        let bytes = encode(&sample());
        let (header, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header % 8, 0);
        assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
        for (name, info) in metadata.tensors() {
            assert_eq!(info.data_offsets.0 % (info.dtype.bitsize() / 8), 0, "{name}");
        }
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(file.tensor("bn.weight").unwrap().data(), sample().get("bn.weight").unwrap().bytes);
        assert_eq!(file.len(), 4);
    }

    #[test]
    fn reads_what_the_safetensors_crate_writes() {
        let source = sample();
        let views = source.iter().map(|t| {
            let dtype = match t.dtype {
                Dtype::Bool => safetensors::Dtype::BOOL,
                Dtype::I64 => safetensors::Dtype::I64,
                _ => safetensors::Dtype::F32,
            };
            (t.name.clone(), safetensors::tensor::TensorView::new(dtype, t.shape.clone(), &t.bytes).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        let read = read_tensors(&mut bytes.as_slice(), bytes.len() as u64).unwrap();
        assert!(source.iter().all(|t| read.get(&t.name) == Some(t)));
    }

    #[test]
    fn rejects_a_huge_header_length_before_allocation() {
        let mut bytes = encode(&sample());
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let e = read_tensors(&mut bytes.as_slice(), bytes.len() as u64).unwrap_err();
        assert!(e.to_string().contains("claims a header of"), "{e}");
        let header = br#"{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}}"#;
        let mut evil = (header.len() as u64).to_le_bytes().to_vec();
        evil.extend(header);
        evil.extend([0; 16]);
        assert!(read_tensors(&mut evil.as_slice(), evil.len() as u64).is_err());
    }

    #[test]
    fn reports_an_unsupported_type() {
        let header = br#"{"w":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend([0; 2]);
        let e = read_tensors(&mut bytes.as_slice(), bytes.len() as u64).unwrap_err();
        assert_eq!(e.to_string(), "tensor `w` has type I16, which ddp-run does not support");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = read_tensors(&mut bytes.as_slice(), bytes.len() as u64);
        }

        #[test]
        fn a_mangled_header_never_panics(at in 0usize..300, byte in any::<u8>(), cut in 0usize..400) {
            let mut bytes = encode(&sample());
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len().saturating_sub(cut % 3));
            let _ = read_tensors(&mut bytes.as_slice(), bytes.len() as u64);
        }
    }
}
