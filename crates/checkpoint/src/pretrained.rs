//! Reads pretrained weights: `.safetensors`, and PyTorch's `.pt`/`.pth` without executing their pickle.
//!
//! Formats are detected by content, not by extension. The pickle reader is Burn's `pytorch-reader`: it knows the few
//! globals that tensors consist of, rejects all others, and checks every length against the file.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pytorch_reader::{DType, PytorchReader};

use super::stored::{StoredMap, StoredTensor};
use super::tensor::{Dtype, TensorMap};
use super::tensor_file::stored_tensors;
use super::tensor_metadata::tensor_with_metadata;
use base::display;
use base::error::{Error, Result};
use base::files;

/// The tensors of [`open_weights`], with all values.
///
/// # Errors
/// As [`open_weights`].
pub fn read_weights(path: &Path) -> Result<TensorMap> {
    open_weights(path)?.read()
}

/// The tensors of a `.safetensors` or PyTorch file, of a folder of Hugging Face, or of one of our checkpoints or run folders. Nested
/// dictionaries (`{"state_dict": …}`) become dotted names, which `match_weights` resolves. Tensors of PyTorch files are
/// sorted by name. Values are read later, but for checkpoints, whose digests are compared.
///
/// # Errors
/// `ErrorKind::Spec`, with the file and what is wrong with it; `ErrorKind::Io` for a folder.
pub fn open_weights(path: &Path) -> Result<StoredMap> {
    if path.is_dir() {
        return match files_of_folder(path)? {
            Some(files) => merged(files.iter().map(|file| open_weights(file)))
                .map_err(|e| Error { message: format!("{}: {}", path.display(), e.message), ..e }),
            None => Ok(super::load_any(path)?.model.into()),
        };
    }
    let mut start = [0; 9];
    let failed = |why: String| Error::data(format!("cannot read weights from {}: {why}", path.display()));
    let found = files::open(path).and_then(|f| f.take(9).read(&mut start)).map_err(|e| {
        failed(e.to_string())
            .hint("pass a .safetensors, .pt, .pth or .ckpt file, or a folder of Hugging Face or of a run")
    })?;
    // Eight bytes of length, then JSON. No PyTorch container has a brace at this position.
    match found == 9 && start[8] == b'{' {
        true => stored_tensors(path).map_err(|e| failed(format!("it {e}"))),
        false => read_pytorch(path).map_err(|why| {
            failed(display::piece(&why))
                .hint("supported are .safetensors files and files from `torch.save(model.state_dict(), …)`")
        }),
    }
}

/// The files with the tensors of a folder of Hugging Face, which has a config.json; None for another folder.
fn files_of_folder(folder: &Path) -> Result<Option<Vec<PathBuf>>> {
    if !folder.join("config.json").is_file() {
        return Ok(None);
    }
    // In the order of transformers.
    for name in ["model.safetensors", "pytorch_model.bin"] {
        let (single, index) = (folder.join(name), folder.join(format!("{name}.index.json")));
        if single.is_file() {
            return Ok(Some(vec![single]));
        }
        if index.is_file() {
            let failed = |why| Error::data(format!("cannot read weights from {}: {why}", index.display()));
            return files_of_index(&index).map(Some).map_err(failed);
        }
    }
    Err(Error::data(format!("{} has neither model.safetensors nor pytorch_model.bin", folder.display())))
}

/// The files that `weight_map` names, each once.
fn files_of_index(index: &Path) -> Result<Vec<PathBuf>, String> {
    let text = std::fs::read_to_string(index).map_err(|e| e.to_string())?;
    let read: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let map = read["weight_map"].as_object().ok_or("it has no `weight_map`")?;
    let names = map.values().map(|name| name.as_str()).collect::<Option<BTreeSet<&str>>>();
    let names = names.filter(|names| !names.is_empty()).ok_or("its `weight_map` does not name files")?;
    let beside = |name: &&str| Path::new(name).file_name().is_some_and(|file| *file == **name);
    match names.iter().find(|name| !beside(name)) {
        Some(name) => Err(format!("`weight_map` names {name:?}, which is no file beside it")),
        None => Ok(names.iter().map(|name| index.with_file_name(name)).collect()),
    }
}

fn merged(parts: impl Iterator<Item = Result<StoredMap>>) -> Result<StoredMap> {
    let mut all = StoredMap::new();
    for part in parts {
        part?.into_tensors().into_iter().try_for_each(|tensor| all.push(tensor))?;
    }
    Ok(all)
}

fn read_pytorch(path: &Path) -> Result<StoredMap, String> {
    let reader = PytorchReader::new(path).map_err(|e| e.to_string())?;
    if let Some(name) = tensor_with_metadata(path, &reader.metadata().format_type)? {
        return Err(format!(
            "tensor `{}` is a negative or conjugate view of other numbers; call `resolve_neg()` or \
             `resolve_conj()` of it before `torch.save`",
            display::name(&name)
        ));
    }
    let file_len = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    let total = reader.tensors().values().try_fold(0u64, |n, t| n.checked_add(t.byte_len() as u64));
    // Views may share a storage and entries may be compressed, so the file's size is not a strict bound. But a few
    // bytes that claim gigabytes are an attack.
    let bound = file_len.saturating_mul(16).saturating_add(64 << 20);
    match total {
        Some(n) if n <= bound => {}
        _ => return Err(format!("its tensors claim far more bytes than the file's {file_len}")),
    }
    let mut tensors: Vec<_> = reader.into_tensors().into_iter().collect();
    if tensors.is_empty() {
        return Err("it contains no tensors".into());
    }
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let (mut map, path) = (StoredMap::new(), Arc::from(path));
    for (name, tensor) in tensors {
        let Some(dtype) = from_pytorch(tensor.dtype()) else {
            return Err(format!(
                "tensor `{name}` has type {:?}, which ddp-run does not support",
                tensor.dtype()
            ));
        };
        map.push(StoredTensor::of_pytorch(name, dtype, tensor, &path)).map_err(|e| e.message)?;
    }
    Ok(map)
}

fn from_pytorch(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::Bf16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::Bool,
        DType::I16 | DType::I8 | DType::U64 | DType::U32 | DType::U16 => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;
    use crate::{CheckpointStore, ModelTensor, TensorData, match_weights};
    use base::testing::shared;
    use proptest::prelude::*;

    /// `{"epoch": 3, "state_dict": {"module.fc.weight": [[0,1,2],[3,4,5]], "module.fc.bias": [.5,-.5]}}` in the ZIP
    /// layout of PyTorch 1.6 and later; written by testdata/make_checkpoint.py.
    const CHECKPOINT: &[u8] = include_bytes!("testdata/checkpoint.pt");
    /// The same layout, with a pickle that calls `os.system("touch pwned")`.
    const EVIL: &[u8] = include_bytes!("testdata/evil.pt");

    /// In the layout of `torch.save("checkpoint_of_run_021.pt")`.
    const ZIP64: &[u8] = include_bytes!("testdata/zip64.pt");

    /// A bias whose storage has [0.5, -0.5], with `{"neg": True}`, in the layouts of today and before 1.6.
    const NEGATIVE: [&[u8]; 2] =
        [include_bytes!("testdata/negative.pt"), include_bytes!("testdata/negative_legacy.pt")];

    fn read_bytes(bytes: &[u8]) -> Result<TensorMap> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read_weights(file.path())
    }

    #[test]
    fn matches_a_wrapped_ddp_checkpoint_with_the_model() {
        let weights = read_bytes(CHECKPOINT).unwrap().into();
        let wanted = |name: &str, shape, tensor| ModelTensor { name: name.to_owned(), shape, tensor };
        let model = [wanted("fc.weight", vec![2, 3], 0), wanted("fc.bias", vec![2], 1)];
        let matched = match_weights(&model, &weights, true).unwrap();
        assert_eq!(matched.loaded[0].1.read().unwrap().to_f32_vec(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(matched.loaded[1].1.read().unwrap().to_f32_vec(), [0.5, -0.5]);
    }

    #[test]
    fn reads_the_files_of_a_folder_of_hugging_face() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        let file = |names: &[&str]| {
            let tensors = names.iter().map(|name| TensorData::from_f32(*name, vec![1], &[1.0]).unwrap());
            let mut bytes = Vec::new();
            super::super::tensor_file::write_tensors(&TensorMap::from_tensors(tensors).unwrap(), &mut bytes)
                .unwrap();
            bytes
        };
        let read = || {
            let names = |map: TensorMap| map.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
            read_weights(folder.path()).map(names).map_err(|e| e.message)
        };
        write("config.json", b"{}");
        let none = read().unwrap_err();
        assert!(none.ends_with("has neither model.safetensors nor pytorch_model.bin"), "{none}");
        write("pytorch_model.bin", CHECKPOINT);
        assert_eq!(read().unwrap().len(), 2);
        write("pytorch_model.bin.index.json", b"{}");
        write("model.safetensors", &file(&["a"]));
        assert_eq!(read().unwrap(), ["a"]);
        std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        // An index names the files, each of which may have several tensors.
        write("model-1.safetensors", &file(&["b", "c"]));
        write("model-2.safetensors", &file(&["d"]));
        let index = |last: &str| {
            let map =
                serde_json::json!({ "b": "model-1.safetensors", "c": "model-1.safetensors", "d": last });
            write(
                "model.safetensors.index.json",
                serde_json::json!({ "weight_map": map }).to_string().as_bytes(),
            );
        };
        index("model-2.safetensors");
        assert_eq!(read().unwrap(), ["b", "c", "d"]);
        index("model-3.safetensors");
        assert!(read().unwrap_err().contains("model-3.safetensors"));
        index("../other/model-2.safetensors");
        assert!(read().unwrap_err().contains("which is no file beside it"));
        write("model-3.safetensors", &file(&["b"]));
        index("model-3.safetensors");
        assert!(read().unwrap_err().starts_with(&folder.path().display().to_string()));
        write("model.safetensors.index.json", br#"{"weight_map": {"b": 3}}"#);
        assert!(read().unwrap_err().contains("its `weight_map` does not name files"));
        write("model.safetensors.index.json", b"{}");
        assert!(read().unwrap_err().contains("it has no `weight_map`"));
    }

    /// Versions 9.1 to 9.4.1 of the zip crate look for the directory 76 bytes too late in PyTorch's files, and misread
    /// an entry there as the directory if the stem has 21 characters.
    #[test]
    fn reads_a_file_whose_stem_has_21_characters() {
        let weights = read_bytes(ZIP64).unwrap();
        assert_eq!(weights.get("fc.bias").unwrap().to_f32_vec(), [0.5, -0.5]);
    }

    /// `pytorch-reader` would return [0.5, -0.5], where PyTorch has [-0.5, 0.5].
    #[test]
    fn a_tensor_with_a_negative_bit_is_refused() {
        for bytes in NEGATIVE {
            let error = read_bytes(bytes).unwrap_err();
            assert!(error.message.contains("tensor `fc.bias` is a negative or conjugate view"), "{error}");
        }
    }

    #[test]
    fn does_not_execute_pickles() {
        let e = read_bytes(EVIL);
        assert!(e.is_err(), "{e:?}");
        assert!(!Path::new("pwned").exists());
    }

    #[test]
    fn reads_safetensors_and_checkpoint_folders() {
        let dir = tempfile::tempdir().unwrap();
        let saved = CheckpointStore::open(dir.path()).unwrap().save(&snapshot(7, 1)).unwrap();
        let model = snapshot(7, 1).model;
        for path in [saved.path.join("model.safetensors"), saved.path, dir.path().to_owned()] {
            assert_eq!(read_weights(&path).unwrap(), model, "{}", path.display());
        }
    }

    #[test]
    fn reads_files_written_by_pytorch() {
        let Some(folder) = shared("torch_ref") else { return };
        let files = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
        let files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect();
        assert!(!files.is_empty(), "{} has no safetensors files", folder.display());
        for path in files {
            let weights = read_weights(&path).unwrap();
            assert!(!weights.is_empty(), "{}", path.display());
            assert!(weights.iter().all(|t| t.as_f32().iter().all(|v| v.is_finite())), "{}", path.display());
        }
    }

    #[test]
    fn errors_name_the_weight_file() {
        for bytes in [b"".as_slice(), b"hello", b"\x08\0\0\0\0\0\0\0{\"a\":1}}"] {
            let e = read_bytes(bytes).unwrap_err();
            assert!(e.message.starts_with("cannot read weights from /"), "{e}");
        }
        assert!(read_weights(Path::new("/nonexistent.pt")).unwrap_err().message.contains("No such file"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn a_mangled_pytorch_file_never_panics(at in 0..CHECKPOINT.len(), byte in any::<u8>(), cut in 0..CHECKPOINT.len()) {
            let mut bytes = CHECKPOINT.to_vec();
            bytes[at] = byte;
            let _ = read_bytes(&bytes);
            let _ = read_bytes(&CHECKPOINT[..cut]);
        }
    }
}
