//! Exports a checkpoint's model as one file, with names and element type as other programs expect them.

use std::path::{Path, PathBuf};

use super::Loaded;
use super::tensor::{Dtype, TensorMap};
use super::tensor_file::put_tensors;
use base::error::{Error, IoContext, Result};

/// How names and types change in the export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// `(old, new)`: replaces the prefix `old` of a name with `new`; the first match applies.
    pub rename: Vec<(String, String)>,
    /// Prepended to every name, after renaming.
    pub prefix: String,
    /// Float tensors are rounded to this type. `None` keeps each tensor's type; integers always keep theirs.
    pub dtype: Option<Dtype>,
    /// Leaves averaged weights aside.
    pub no_ema: bool,
}

/// What was exported.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportReport {
    /// The checkpoint that was read.
    pub source: PathBuf,
    /// The file that was written.
    pub path: PathBuf,
    /// The checkpoint's optimizer steps.
    pub step: u64,
    /// The weights are averaged ones.
    pub averaged: bool,
    /// Number of tensors.
    pub tensors: usize,
    /// Size of the file.
    pub bytes: u64,
    /// Newer checkpoints that were rejected.
    pub warnings: Vec<String>,
}

/// Writes the model of a checkpoint to `out`, a `.safetensors` file, atomically. An existing file is replaced.
///
/// # Errors
/// `ErrorKind::Usage` for an invalid name or type, `ErrorKind::Io` when `out` can't be written.
pub fn export(loaded: Loaded, out: &Path, options: &ExportOptions) -> Result<ExportReport> {
    if out.extension().is_none_or(|e| e != "safetensors") {
        let what = format!("cannot export to {}: the name must end in .safetensors", out.display());
        return Err(Error::usage(what).hint("PyTorch reads it with `safetensors.torch.load_file`"));
    }
    let averaged = !options.no_ema && !loaded.ema.is_empty();
    let model = converted(if averaged { loaded.ema } else { loaded.model }, options)?;
    put_tensors(&model, out).doing("write", out)?;
    let bytes = std::fs::metadata(out).doing("read", out)?.len();
    Ok(ExportReport {
        source: loaded.path,
        path: out.to_owned(),
        step: loaded.state.global_step,
        averaged,
        tensors: model.len(),
        bytes,
        warnings: loaded.warnings,
    })
}

/// The tensors with other names and types.
///
/// # Errors
/// `ErrorKind::Usage` for an invalid name or type.
pub fn converted(model: TensorMap, options: &ExportOptions) -> Result<TensorMap> {
    for (old, _) in &options.rename {
        if !model.iter().any(|t| t.name.starts_with(old.as_str())) {
            let names: Vec<&str> = model.iter().take(5).map(|t| t.name.as_str()).collect();
            let what = format!("cannot rename `{old}`: no tensor's name starts with it");
            return Err(Error::usage(what).hint(format!("the names are {}, …", names.join(", "))));
        }
    }
    let mut converted = TensorMap::new();
    for mut tensor in model.into_tensors() {
        let renamed = options
            .rename
            .iter()
            .find_map(|(old, new)| Some(format!("{new}{}", tensor.name.strip_prefix(old.as_str())?)));
        tensor.name = format!("{}{}", options.prefix, renamed.unwrap_or(tensor.name));
        if let Some(dtype) = options.dtype {
            tensor = tensor.cast_float(dtype)?;
        }
        converted.push(tensor).map_err(|e| Error::usage(format!("{} after renaming", e.message)))?;
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{snapshot, snapshot_with_ema};
    use super::super::{CheckpointStore, load_any, read_weights};
    use super::*;
    use base::error::ErrorKind;

    fn exported(run: &Path, out: &Path, options: &ExportOptions) -> Result<ExportReport> {
        export(load_any(run)?, out, options)
    }

    fn run() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        CheckpointStore::open(dir.path().join("checkpoints")).unwrap().save(&snapshot(9, 1)).unwrap();
        let out = dir.path().join("out.safetensors");
        (dir, out)
    }

    #[test]
    fn names_and_types_are_converted_and_integers_kept() {
        let (dir, out) = run();
        let options = ExportOptions {
            rename: vec![("layer1.0.".into(), "block.".into())],
            prefix: "net.".into(),
            dtype: Some(Dtype::Bf16),
            no_ema: false,
        };
        let report = exported(dir.path(), &out, &options).unwrap();
        assert_eq!((report.step, report.tensors), (9, 2));
        assert_eq!(report.bytes, std::fs::metadata(&out).unwrap().len());
        let written = read_weights(&out).unwrap();
        let kinds: Vec<(&str, Dtype)> = written.iter().map(|t| (t.name.as_str(), t.dtype)).collect();
        assert_eq!(
            kinds,
            [("net.block.conv1.weight", Dtype::Bf16), ("net.bn1.num_batches_tracked", Dtype::I64)]
        );
    }

    #[test]
    fn export_without_options_copies_the_model_and_replaces_a_file() {
        let (dir, out) = run();
        std::fs::write(&out, "old").unwrap();
        let report = exported(dir.path(), &out, &ExportOptions::default()).unwrap();
        let original = std::fs::read(report.source.join("model.safetensors")).unwrap();
        assert_eq!(std::fs::read(&out).unwrap(), original);
    }

    #[test]
    fn averaged_weights_are_exported_unless_those_of_the_last_step_are_asked_for() {
        let (dir, out) = run();
        let saved = snapshot_with_ema(10, 1);
        CheckpointStore::open(dir.path().join("checkpoints")).unwrap().save(&saved).unwrap();
        for (no_ema, expected) in [(false, &saved.ema), (true, &saved.model)] {
            let report = exported(dir.path(), &out, &ExportOptions { no_ema, ..Default::default() }).unwrap();
            assert_eq!((report.step, report.averaged), (10, !no_ema));
            assert_eq!(&read_weights(&out).unwrap(), expected);
        }
    }

    #[test]
    fn wrong_names_are_usage_errors() {
        let (dir, out) = run();
        let rename = |old: &str, new: &str| ExportOptions {
            rename: vec![(old.into(), new.into())],
            ..ExportOptions::default()
        };
        let e = exported(dir.path(), &out, &rename("nope", "x")).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Usage);
        assert!(e.to_string().contains("layer1.0.conv1.weight"), "{e}");
        let clash = rename("layer1.0.conv1.weight", "bn1.num_batches_tracked");
        assert_eq!(exported(dir.path(), &out, &clash).unwrap_err().kind, ErrorKind::Usage);
        let e = exported(dir.path(), &dir.path().join("m.onnx"), &ExportOptions::default()).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Usage);
        assert!(!out.exists());
    }
}
