//! The checkpoint folder of a run. A new checkpoint is complete or absent, whatever happens during the save.
//!
//! A checkpoint is written to a hidden sibling (`.tmp-step-…`), its files and directory are synced, and one rename
//! publishes it. A writer holds `.lock` (flock, which the kernel releases when the process dies, on any host and in any
//! container), so hidden directories that exist while the lock is free were left by a dead writer; they are removed
//! when the store is next opened for writing.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::format::{
    self, EMA_FILE, FORMAT_VERSION, FileDigest, HOOK_FILE, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, USAGE_FILE,
};
use super::fs::{Fs, OsFs, write_synced};
use super::snapshot::Snapshot;
use super::tensor_file::write_tensors;
use base::error::{Error, IoContext, Result};
use base::files::LockedFile;

const LOCK_FILE: &str = ".lock";
const TEMP_PREFIX: &str = ".tmp-";
pub(super) const OLD_PREFIX: &str = ".old-";
/// How long to wait for another writer. Clean-up and saves take well under that; a longer wait means a second live run.
const LOCK_DEADLINE: Duration = Duration::from_secs(10);

/// A checkpoint on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedCheckpoint {
    /// The directory.
    pub path: PathBuf,
    /// The checkpoint's optimizer steps.
    pub step: u64,
    /// Total size of all files.
    pub bytes: u64,
    /// How long it took to write.
    pub seconds: f64,
}

/// A checkpoint directory, known by name only; its content is not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Optimizer steps, as in the directory's name.
    pub step: u64,
    /// The directory.
    pub path: PathBuf,
}

/// A run's `checkpoints/` folder.
pub struct CheckpointStore {
    pub(super) dir: PathBuf,
    pub(super) fs: Arc<dyn Fs>,
}

/// Holds `.lock` until dropped. Has no file if the file system has no locks.
pub(super) struct WriteLock {
    file: Option<LockedFile>,
}

impl CheckpointStore {
    /// Opens the folder for writing: creates it, and removes leftovers of dead writers.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self> {
        Self::open_with(dir, Arc::new(OsFs))
    }

    /// As [`CheckpointStore::open`], on another file system; tests pass a [`FaultyFs`](super::fault::FaultyFs).
    pub(crate) fn open_with(dir: impl Into<PathBuf>, fs: Arc<dyn Fs>) -> Result<Self> {
        let store = Self { dir: dir.into(), fs };
        if !store.dir.is_dir() {
            fs::create_dir_all(&store.dir).doing("open", &store.dir)?;
            if let Some(parent) = store.dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                store.fs.sync_dir(parent).doing("open", &store.dir)?;
            }
        }
        store.clean().doing("open", &store.dir)?;
        Ok(store)
    }

    /// Opens the folder for reading only. Nothing is created, locked or removed, so any rank on any host may read while
    /// another process writes. The folder need not exist.
    pub fn read_only(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), fs: Arc::new(OsFs) }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The checkpoints by step, oldest first; empty if the folder is missing.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut set_aside: Vec<Entry> = Vec::new();
        for name in self.names().doing("list", &self.dir)? {
            let path = self.dir.join(&name);
            if let Some(step) = format::parse_step_dir(&name) {
                entries.push(Entry { step, path });
            } else if let Some(step) = name.strip_prefix(OLD_PREFIX).and_then(format::parse_step_dir) {
                set_aside.push(Entry { step, path });
            }
        }
        // The writer died after it set the old one aside and before it published the new one.
        set_aside.retain(|old| entries.iter().all(|e| e.step != old.step));
        entries.append(&mut set_aside);
        entries.sort_by_key(|e| e.step);
        Ok(entries)
    }

    /// Whether a store has entries of this name.
    pub fn writes(name: &str) -> bool {
        name == LOCK_FILE || is_leftover(name) || format::parse_step_dir(name).is_some()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let dir = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        dir.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Writes `snapshot` as `step-<global_step>`, replacing one of the same step. When this returns, the checkpoint
    /// survives a power failure.
    ///
    /// # Errors
    /// `ErrorKind::Io` if anything can't be written (a full disk, for example). The partial
    /// checkpoint is removed, and all earlier ones are untouched.
    pub fn save(&self, snapshot: &Snapshot) -> Result<SavedCheckpoint> {
        let started = Instant::now();
        let step = snapshot.state.global_step;
        let name = format::step_dir_name(step);
        let _lock = self.lock()?;
        let temp = self.dir.join(format!("{TEMP_PREFIX}{name}-{}", std::process::id()));
        let result = self.write_files(&temp, snapshot).and_then(|bytes| {
            self.publish(&temp, &name)?;
            Ok(bytes)
        });
        match result {
            Ok(bytes) => {
                let path = self.dir.join(&name);
                Ok(SavedCheckpoint { path, step, bytes, seconds: started.elapsed().as_secs_f64() })
            }
            Err(e) => {
                // Best effort: what remains is hidden and is removed when the store is next opened.
                let _ = self.fs.remove_dir_all(&temp);
                Err(self.save_error(&name, e))
            }
        }
    }

    fn save_error(&self, name: &str, e: io::Error) -> Error {
        let error =
            Error::checkpoint(format!("cannot write checkpoint {name} in {}: {e}", self.dir.display()));
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => error
                .hint("free some space or lower `checkpoint.keep_last`; earlier checkpoints are unaffected"),
            _ => error,
        }
        .cause(e)
    }

    /// Writes all files to `temp`, each synced, `state.json` last. Returns their total size in bytes.
    fn write_files(&self, temp: &Path, snapshot: &Snapshot) -> io::Result<u64> {
        if temp.exists() {
            self.fs.remove_dir_all(temp)?;
        }
        self.fs.create_dir(temp).map_err(|e| within("the temporary folder", e))?;
        let mut state = snapshot.state.clone();
        state.format_version = FORMAT_VERSION;
        state.files.clear();
        let mut files = vec![(MODEL_FILE, &snapshot.model), (OPTIMIZER_FILE, &snapshot.optimizer)];
        let optional = [(EMA_FILE, &snapshot.ema), (HOOK_FILE, &snapshot.comm_hook)];
        files.extend(optional.into_iter().filter(|(_, tensors)| !tensors.is_empty()));
        for (name, tensors) in files {
            let ((), bytes, sha256) =
                write_synced(&*self.fs, &temp.join(name), |out| write_tensors(tensors, out))
                    .map_err(|e| within(name, e))?;
            state.files.insert(name.to_owned(), FileDigest { bytes, sha256 });
        }
        if let Some(usage) = &snapshot.usage {
            let ((), bytes, sha256) =
                write_synced(&*self.fs, &temp.join(USAGE_FILE), |out| out.write_all(usage.as_bytes()))
                    .map_err(|e| within(USAGE_FILE, e))?;
            state.files.insert(USAGE_FILE.to_owned(), FileDigest { bytes, sha256 });
        }
        let json = state.to_json()?;
        write_synced(&*self.fs, &temp.join(STATE_FILE), |out| out.write_all(&json))
            .map_err(|e| within(STATE_FILE, e))?;
        self.fs.sync_dir(temp)?;
        Ok(state.files.values().map(|f| f.bytes).sum::<u64>() + json.len() as u64)
    }

    /// Renames the complete `temp` to its final name. The old or the new checkpoint exists at all times.
    fn publish(&self, temp: &Path, name: &str) -> io::Result<()> {
        let path = self.dir.join(name);
        if fs::symlink_metadata(&path).is_err() {
            self.fs.rename(temp, &path)?;
            return self.fs.sync_dir(&self.dir);
        }
        let replaced = match self.fs.exchange(temp, &path) {
            Ok(()) => temp.to_owned(),
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                self.set_aside_and_rename(temp, &path, name)?
            }
            Err(e) => return Err(e),
        };
        self.fs.sync_dir(&self.dir)?;
        if let Err(e) = self.fs.remove_dir_all(&replaced) {
            tracing::warn!("cannot remove the replaced checkpoint {}: {e}", replaced.display());
        }
        Ok(())
    }

    /// Two renames in place of the exchange; `list` and `clean` handle the state in between.
    fn set_aside_and_rename(&self, temp: &Path, path: &Path, name: &str) -> io::Result<PathBuf> {
        let old = self.dir.join(format!("{OLD_PREFIX}{name}"));
        if old.exists() {
            self.fs.remove_dir_all(&old)?;
        }
        self.fs.rename(path, &old)?;
        if let Err(e) = self.fs.rename(temp, path) {
            self.fs.rename(&old, path)?;
            return Err(e);
        }
        Ok(old)
    }

    /// Hides a checkpoint with one rename, then deletes it: a crash in between leaves a hidden directory, never an
    /// incomplete checkpoint. The caller holds the lock.
    pub(super) fn remove(&self, path: &Path, _lock: &WriteLock) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.trim_start_matches(OLD_PREFIX);
        let hidden = self.dir.join(format!("{TEMP_PREFIX}gone-{name}-{}", std::process::id()));
        if hidden.exists() {
            self.fs.remove_dir_all(&hidden)?;
        }
        self.fs.rename(path, &hidden)?;
        self.fs.remove_dir_all(&hidden)
    }

    /// Removes leftovers of dead writers and restores a checkpoint that one had set aside. Does nothing while another
    /// process writes.
    fn clean(&self) -> io::Result<()> {
        let names: Vec<String> = self.names()?.into_iter().filter(|name| is_leftover(name)).collect();
        if names.is_empty() {
            return Ok(());
        }
        // Without a lock, a dead writer's leftovers can't be distinguished from a live writer's files.
        let Ok(Some(WriteLock { file: Some(_file) })) = self.try_lock() else { return Ok(()) };
        for name in names {
            let path = self.dir.join(&name);
            match name.strip_prefix(OLD_PREFIX).map(|original| self.dir.join(original)) {
                Some(original) if !original.exists() => self.fs.rename(&path, &original)?,
                _ => {
                    if let Err(e) = self.fs.remove_dir_all(&path)
                        && e.kind() != io::ErrorKind::NotFound
                    {
                        tracing::warn!("cannot remove {}, left by an earlier run: {e}", path.display());
                    }
                }
            }
        }
        self.fs.sync_dir(&self.dir)
    }

    /// Takes the writer's lock; waits up to [`LOCK_DEADLINE`] for another writer.
    pub(super) fn lock(&self) -> Result<WriteLock> {
        let deadline = Instant::now() + LOCK_DEADLINE;
        loop {
            match self.try_lock() {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => {
                    let what = format!("another process is writing checkpoints to {}", self.dir.display());
                    return Err(Error::checkpoint(what).hint("the same run may have been started twice"));
                }
                Err(e) => return Err(e).doing("lock", &self.dir.join(LOCK_FILE)),
            }
        }
    }

    /// `None` while another process holds the lock.
    fn try_lock(&self) -> io::Result<Option<WriteLock>> {
        let path = self.dir.join(LOCK_FILE);
        let file = base::files::open_with(&path, File::options().create(true).write(true))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(WriteLock { file: Some(LockedFile(file)) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => match e.raw_os_error() {
                // Some network file systems have no locks: saving works without one, clean-up is skipped.
                Some(libc::ENOTSUP | libc::ENOSYS | libc::ENOLCK) => Ok(Some(WriteLock { file: None })),
                _ => Err(e),
            },
        }
    }
}

/// Whether a folder of this name is what a save or a removal has left, or is working on.
fn is_leftover(name: &str) -> bool {
    let of = [TEMP_PREFIX, OLD_PREFIX].iter().find_map(|prefix| name.strip_prefix(prefix));
    of.is_some_and(|of| of.trim_start_matches("gone-").starts_with("step-"))
}

/// An error and the part of the checkpoint that it concerns.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
struct Within {
    what: String,
    source: io::Error,
}

fn within(what: &str, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), Within { what: what.to_owned(), source })
}
