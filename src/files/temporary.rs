//! Temporary folders of commands. One that is killed leaves its folder; the next command of its kind removes it.

use super::Scratch;
use crate::error::{IoContext, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file in a folder on which the command that uses it holds a lock. A folder without it is never removed by another command.
const HELD: &str = ".held";

/// A folder that is removed with this.
pub(crate) struct Temporary {
    folder: Scratch,
    #[allow(dead_code, reason = "it is held")]
    held: Option<File>,
}

impl Temporary {
    /// In the system's folder for temporary files, from which the folders that killed commands of this kind have left are removed.
    ///
    /// # Errors
    /// Exit code 74: it can't be made.
    pub(crate) fn new(kind: &str) -> Result<Self> {
        let parent = std::env::temp_dir();
        Self::within(&parent, kind).doing("create a folder in", &parent)
    }

    fn within(parent: &Path, kind: &str) -> io::Result<Self> {
        remove_left(parent, kind);
        loop {
            let folder = Scratch::beside(&parent.join(kind))?;
            fs::create_dir(folder.path())?;
            let note = folder.path().join(HELD);
            let file = File::create_new(&note)?;
            match file.try_lock() {
                // Another command that looked before it was locked removes it.
                Err(TryLockError::WouldBlock) => {}
                Ok(()) if !note.exists() => {}
                Ok(()) => return Ok(Self { folder, held: Some(file) }),
                // Where nothing can be locked, nothing is removed.
                Err(TryLockError::Error(_)) => {
                    fs::remove_file(&note)?;
                    return Ok(Self { folder, held: None });
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder stays, whatever command comes next.
    pub(crate) fn keep(self) -> PathBuf {
        let path = self.path().to_owned();
        let _ = fs::remove_file(path.join(HELD));
        std::mem::forget(self.folder);
        path
    }
}

/// Removes the folders of this kind that nobody holds. What can't be removed is left to the next command.
fn remove_left(parent: &Path, kind: &str) {
    let begin = format!(".{kind}.part-");
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let own = |meta: fs::Metadata| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
        if !entry.file_name().to_string_lossy().starts_with(&begin) || !entry.metadata().is_ok_and(own) {
            continue;
        }
        let Ok(file) = super::open(&entry.path().join(HELD)) else { continue };
        // It is held until the folder is gone.
        if file.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_nobody_holds_is_removed_by_the_next_of_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let make = |kind: &str| Temporary::within(dir.path(), kind).unwrap();
        let running = make("a");
        fs::write(running.path().join("file"), "text").unwrap();
        // As a killed command leaves it: the lock is gone, and the folder is not.
        let Temporary { folder, held } = make("a");
        let killed = folder.path().to_owned();
        std::mem::forget(folder);
        drop(held);
        fs::create_dir_all(killed.join("run/checkpoints")).unwrap();
        let kept = make("a").keep();
        // That of another kind, of an earlier version, and what is no folder.
        let foreign = [".a.part-00", ".ab.part-00", "a"].map(|name| dir.path().join(name));
        foreign.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        fs::write(dir.path().join(".a.part-01"), "").unwrap();
        assert!(!killed.exists(), "the one before was the next of its kind");
        drop(make("b"));
        let next = make("a");
        assert!(running.path().join("file").exists() && next.path().is_dir() && kept.is_dir());
        assert!(foreign.iter().all(|folder| folder.is_dir()) && dir.path().join(".a.part-01").exists());
        let places = [running.path().to_owned(), next.path().to_owned()];
        drop((running, next));
        assert!(places.iter().all(|place| !place.exists()));
        // A kept one is not removed later either.
        drop(make("a"));
        assert!(kept.is_dir() && !kept.join(HELD).exists());
    }
}
