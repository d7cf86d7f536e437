//! Reading checkpoints. Every byte is verified against the digests in `state.json` while it is read; a checkpoint that
//! fails is rejected with its name and the reason.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::digest::{HashingReader, sha256_hex};
use super::format::{
    self, EMA_FILE, FileDigest, HOOK_FILE, MAX_STATE_BYTES, MODEL_FILE, OPTIMIZER_FILE, Rejected, RunState,
    STATE_FILE, USAGE_FILE,
};
use super::store::{CheckpointStore, Entry};
use super::tensor::TensorMap;
use super::tensor_file::read_tensor_file;
use base::error::{Error, Result, is_transient};
use base::files;

/// A verified checkpoint in host memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The directory.
    pub path: PathBuf,
    /// The content of `state.json`.
    pub state: RunState,
    /// Parameters and buffers.
    pub model: TensorMap,
    /// The optimizer's state, by parameter.
    pub optimizer: TensorMap,
    /// The model with averaged weights; empty if there is no such file.
    pub ema: TensorMap,
    /// Empty if there is no such file.
    pub comm_hook: TensorMap,
    /// What the model's use needs besides its weights; `None` if there is no such file.
    pub usage: Option<String>,
    /// Newer checkpoints that were rejected, one line each, for the user.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// The averaged weights, if there are some and they are wanted, or those of the last step.
    pub fn weights(&self, averaged: bool) -> &TensorMap {
        if averaged && !self.ema.is_empty() { &self.ema } else { &self.model }
    }
}

impl Rejected {
    /// Whether a later attempt may succeed. A read error of a local disk is usually permanent.
    pub(super) fn is_transient(&self) -> bool {
        self.cause.as_ref().is_some_and(|e| is_transient(e) && e.raw_os_error() != Some(libc::EIO))
    }

    pub(super) fn into_error(self, path: &Path) -> Error {
        let error = Error::checkpoint(format!("cannot load checkpoint {}: {self}", path.display()));
        match self.cause {
            Some(e) => error.cause(e),
            None => error,
        }
    }
}

impl CheckpointStore {
    /// The newest checkpoint that verifies completely. Newer ones that do not are named in `warnings`. `None` if there
    /// is not a checkpoint at all.
    ///
    /// # Errors
    /// `ErrorKind::Io` if there are checkpoints but none can be read, since a run never starts over
    /// by itself, or if one is unreadable at present but may be readable later: an older one can't
    /// replace it.
    pub fn latest_verified(&self) -> Result<Option<Loaded>> {
        let mut rejected: Vec<(String, Rejected)> = Vec::new();
        for entry in self.list()?.iter().rev() {
            match load_entry(entry) {
                Ok(mut loaded) => {
                    loaded.warnings = rejected
                        .into_iter()
                        .map(|(name, why)| {
                            format!("skipped checkpoint {name} in {}: {why}", self.dir().display())
                        })
                        .collect();
                    return Ok(Some(loaded));
                }
                Err(why) if why.is_transient() => {
                    return Err(why.into_error(&entry.path).hint(
                        "retry when it can be read; to resume from the previous checkpoint, move this one out of the folder",
                    ));
                }
                Err(why) => rejected.push((format::step_dir_name(entry.step), why)),
            }
        }
        if rejected.is_empty() {
            return Ok(None);
        }
        let mut what = format!("there are checkpoints in {}, but none can be read", self.dir().display());
        for (name, why) in &rejected {
            what.push_str(&format!("\n  {name}: {why}"));
        }
        Err(Error::checkpoint(what).hint(
            "restore one from a backup, or start over with `--resume never` and another `--out` folder",
        ))
    }
}

/// Loads and verifies one checkpoint directory.
pub fn load(path: &Path) -> Result<Loaded> {
    load_dir(path).map_err(|why| why.into_error(path))
}

/// Loads from a user's path: a checkpoint, or the newest valid one of a `checkpoints/` or run folder.
pub fn load_any(path: &Path) -> Result<Loaded> {
    match find_store(path) {
        None => load(path),
        Some(store) => store
            .latest_verified()?
            .ok_or_else(|| Error::checkpoint(format!("there is no checkpoint in {}", store.dir().display()))),
    }
}

/// The store of a run folder or a `checkpoints/` folder; `None` for any other path.
pub fn find_store(path: &Path) -> Option<CheckpointStore> {
    let is_checkpoint = path.join(STATE_FILE).exists()
        || path.file_name().and_then(|n| n.to_str()).and_then(format::parse_step_dir).is_some();
    if is_checkpoint || !path.is_dir() {
        return None;
    }
    let inner = path.join("checkpoints");
    if inner.is_dir() {
        return Some(CheckpointStore::read_only(inner));
    }
    let store = CheckpointStore::read_only(path);
    let named = path.file_name().is_some_and(|n| n == "checkpoints");
    let holds_some = store.list().is_ok_and(|entries| !entries.is_empty());
    (named || holds_some).then_some(store)
}

/// Reads and verifies the `state.json` of a checkpoint directory, without its other files.
pub fn read_state(dir: &Path) -> Result<RunState, Rejected> {
    if fs::metadata(dir).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Err("there is no such directory".to_owned().into());
    }
    let read = || -> Result<RunState, Rejected> {
        let mut bytes = Vec::new();
        let file = files::open(&dir.join(STATE_FILE)).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => "is missing, so the checkpoint is incomplete".to_owned().into(),
            _ => Rejected::from(e),
        })?;
        file.take(MAX_STATE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_STATE_BYTES {
            return Err(format!("is larger than {} MiB", MAX_STATE_BYTES >> 20).into());
        }
        Ok(RunState::from_json(&bytes)?)
    };
    read().map_err(|why| why.of(STATE_FILE))
}

fn load_entry(entry: &Entry) -> Result<Loaded, Rejected> {
    let loaded = load_dir(&entry.path)?;
    match loaded.state.global_step == entry.step {
        true => Ok(loaded),
        false => Err(format!("{STATE_FILE} is of step {}", loaded.state.global_step).into()),
    }
}

fn load_dir(path: &Path) -> Result<Loaded, Rejected> {
    let state = read_state(path)?;
    let model = load_tensors(path, &state, MODEL_FILE)?;
    let optimizer = load_tensors(path, &state, OPTIMIZER_FILE)?;
    let optional = |name| match state.files.contains_key(name) {
        true => load_tensors(path, &state, name),
        false => Ok(TensorMap::new()),
    };
    let (ema, comm_hook) = (optional(EMA_FILE)?, optional(HOOK_FILE)?);
    let usage = state.files.get(USAGE_FILE).map(|expected| verified(path, USAGE_FILE, expected, read_text));
    let usage = usage.transpose()?;
    for (name, expected) in &state.files {
        if ![MODEL_FILE, OPTIMIZER_FILE, EMA_FILE, HOOK_FILE, USAGE_FILE].contains(&name.as_str()) {
            check_file(path, name, expected)?;
        }
    }
    Ok(Loaded { path: path.to_owned(), state, model, optimizer, ema, comm_hook, usage, warnings: Vec::new() })
}

/// Verifies all files of a checkpoint against their digests.
pub fn verify(path: &Path) -> Result<RunState, Rejected> {
    let state = read_state(path)?;
    for required in [MODEL_FILE, OPTIMIZER_FILE] {
        expected_digest(&state, required)?;
    }
    state.files.iter().try_for_each(|(name, expected)| check_file(path, name, expected))?;
    Ok(state)
}

fn expected_digest<'a>(state: &'a RunState, name: &str) -> Result<&'a FileDigest, String> {
    state.files.get(name).ok_or_else(|| format!("{STATE_FILE} lists no {name}"))
}

fn load_tensors(dir: &Path, state: &RunState, name: &str) -> Result<TensorMap, Rejected> {
    verified(dir, name, expected_digest(state, name)?, read_tensor_file)
}

/// A text, and the digest of its bytes.
fn read_text(path: &Path) -> Result<(String, String), Rejected> {
    let bytes = files::read(path)?;
    let digest = sha256_hex(&bytes);
    match String::from_utf8(bytes) {
        Ok(text) => Ok((text, digest)),
        Err(_) => Err("is not UTF-8 text".to_owned().into()),
    }
}

fn check_file(dir: &Path, name: &str, expected: &FileDigest) -> Result<(), Rejected> {
    verified(dir, name, expected, |path| Ok(((), HashingReader::new(files::open(path)?).finish()?)))
}

/// Reads a file of a checkpoint with `read`, which also returns the digest of its bytes.
fn verified<T>(
    dir: &Path,
    name: &str,
    expected: &FileDigest,
    read: impl FnOnce(&Path) -> Result<(T, String), Rejected>,
) -> Result<T, Rejected> {
    let path = dir.join(name);
    let checked = || {
        check_size(&path, expected.bytes)?;
        let (value, digest) = read(&path)?;
        match digest == expected.sha256 {
            true => Ok(value),
            false => Err(format!("is altered: its SHA-256 differs from the one in {STATE_FILE}").into()),
        }
    };
    checked().map_err(|why: Rejected| why.of(name))
}

fn check_size(path: &Path, recorded: u64) -> Result<(), Rejected> {
    let found = match fs::metadata(path) {
        Ok(meta) if meta.is_file() => meta.len(),
        Ok(_) => return Err("is not a regular file".to_owned().into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err("is missing".to_owned().into()),
        Err(e) => return Err(e.into()),
    };
    if found == recorded {
        return Ok(());
    }
    let problem = if found < recorded { "is truncated" } else { "is too long" };
    Err(format!("{problem}: {found} bytes instead of the {recorded} in {STATE_FILE}").into())
}
