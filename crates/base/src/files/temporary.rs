//! Temporary folders of commands. One that is killed leaves its folder; the next command of its kind removes it.

use super::{LockedFile, TempPath};
use crate::error::{Error, IoContext, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file in a folder on which the command that uses it holds a lock. A folder without it is never removed by another command.
const HELD: &str = ".held";

/// A folder that is removed with this.
pub struct Temporary {
    /// `None` once it is removed or kept.
    folder: Option<TempPath>,
    #[allow(dead_code, reason = "it is held")]
    held: Option<LockedFile>,
}

impl Temporary {
    /// In the system's folder for temporary files, from which the folders that killed commands of this kind have left are removed.
    ///
    /// # Errors
    /// `ErrorKind::Io`: it can't be made.
    pub fn new(kind: &str) -> Result<Self> {
        let parent = std::env::temp_dir();
        Self::within(&parent, kind).doing("create a folder in", &parent)
    }

    fn within(parent: &Path, kind: &str) -> io::Result<Self> {
        remove_left(parent, kind);
        loop {
            let folder = TempPath::beside(&parent.join(kind))?;
            fs::create_dir(folder.path())?;
            let note = folder.path().join(HELD);
            let file = File::create_new(&note)?;
            match file.try_lock() {
                // Another command that looked before it was locked removes it.
                Err(TryLockError::WouldBlock) => {}
                Ok(()) if !note.exists() => {}
                Ok(()) => return Ok(Self { folder: Some(folder), held: Some(LockedFile(file)) }),
                // Where nothing can be locked, nothing is removed.
                Err(TryLockError::Error(_)) => {
                    fs::remove_file(&note)?;
                    return Ok(Self { folder: Some(folder), held: None });
                }
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempPath::path)
    }

    /// The folder stays, whatever command comes next.
    pub fn keep(mut self) {
        let _ = fs::remove_file(self.path().join(HELD));
        std::mem::forget(self.folder.take());
    }

    /// The folder stays after this error, which says where it is.
    pub fn kept_after(self, error: Error) -> Error {
        let kept = format!("its folder is kept: {}", self.path().display());
        self.keep();
        let hint = error.hint.iter().cloned().chain([kept]).collect::<Vec<_>>().join("; ");
        error.hint(hint)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            remove(folder.path());
        }
    }
}

/// The files of a command: in a folder that the user has named, where they stay, or in a temporary one.
pub enum WorkFolder {
    /// The folder that the user has named.
    Given(PathBuf),
    /// A temporary folder, removed at the end unless it is kept.
    Temporary(Temporary),
}

impl WorkFolder {
    /// Checks a folder that the user has named with `--out`. `hint`: what it has to be.
    ///
    /// # Errors
    /// It is not empty (`ErrorKind::Usage`).
    pub fn check(out: Option<&Path>, hint: &str) -> Result<()> {
        match out.filter(|out| fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some())) {
            Some(out) => Err(Error::usage(format!("--out {}: it is not empty", out.display())).hint(hint)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// `ErrorKind::Io`: it can't be made.
    pub fn new(out: Option<&Path>, kind: &str) -> Result<Self> {
        match out {
            None => Temporary::new(kind).map(Self::Temporary),
            Some(out) => {
                fs::create_dir_all(out).doing("create", out)?;
                Ok(Self::Given(out.to_owned()))
            }
        }
    }

    /// The folder in which the files are written.
    pub fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    /// A temporary one stays as well.
    pub fn keep(self) {
        if let Self::Temporary(folder) = self {
            folder.keep();
        }
    }

    /// It stays after this error, which says where it is.
    pub fn kept_after(self, error: Error) -> Error {
        match self {
            Self::Given(_) => error,
            Self::Temporary(folder) => folder.kept_after(error),
        }
    }
}

/// What the names of folders of this kind begin with, in use and while they are removed.
fn names(kind: &str) -> [String; 2] {
    ["part", "gone"].map(|state| format!(".{kind}.{state}-"))
}

/// Removes the folders of this kind that nobody holds. What can't be removed is left to the next command.
fn remove_left(parent: &Path, kind: &str) {
    let [used, gone] = names(kind);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let own = |meta: fs::Metadata| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with(&used) || name.starts_with(&gone)) || !entry.metadata().is_ok_and(own) {
            continue;
        }
        if name.starts_with(&gone) {
            let _ = fs::remove_dir_all(entry.path());
            continue;
        }
        let Ok(file) = super::open(&entry.path().join(HELD)) else { continue };
        // It is held until the folder is gone.
        if file.try_lock().is_ok() {
            remove(&entry.path());
        }
    }
}

/// Removes a folder in use, which the caller holds.
fn remove(folder: &Path) {
    let _ = fs::remove_dir_all(given_up(folder).as_deref().unwrap_or(folder));
}

/// Gives the folder a name by which every command of its kind removes it. Under its own it is told apart from one that is kept by the
/// file that is held, which a removal may take away first and then be killed.
fn given_up(folder: &Path) -> Option<PathBuf> {
    let name = folder.file_name()?.to_str()?;
    let (kind, random) = name.rsplit_once(".part-")?;
    let gone = folder.with_file_name(format!("{kind}.gone-{random}"));
    fs::rename(folder, &gone).ok().map(|()| gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// As a killed command leaves it: the lock is gone, and the folder is not.
    fn killed(mut temporary: Temporary) -> PathBuf {
        let folder = temporary.path().to_owned();
        std::mem::forget(temporary.folder.take());
        folder
    }

    #[test]
    fn a_folder_that_nobody_holds_is_removed_by_the_next_of_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let make = |kind: &str| Temporary::within(dir.path(), kind).unwrap();
        let running = make("a");
        fs::write(running.path().join("file"), "text").unwrap();
        let killed = killed(make("a"));
        fs::create_dir_all(killed.join("run/checkpoints")).unwrap();
        let kept = make("a");
        let kept_path = kept.path().to_owned();
        kept.keep();
        // That of another kind, of an earlier version, and what is no folder.
        let foreign = [".a.part-00", ".ab.part-00", ".ab.gone-00", "a"].map(|name| dir.path().join(name));
        foreign.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        fs::write(dir.path().join(".a.part-01"), "").unwrap();
        assert!(!killed.exists(), "the one before was the next of its kind");
        drop(make("b"));
        let next = make("a");
        assert!(running.path().join("file").exists() && next.path().is_dir() && kept_path.is_dir());
        assert!(foreign.iter().all(|folder| folder.is_dir()) && dir.path().join(".a.part-01").exists());
        let places = [running.path().to_owned(), next.path().to_owned()];
        drop((running, next));
        assert!(places.iter().all(|place| !place.exists()));
        // A kept one is not removed later either.
        drop(make("a"));
        assert!(kept_path.is_dir() && !kept_path.join(HELD).exists());
    }

    /// The file that is held may be the first that a removal takes away.
    #[test]
    fn the_rest_of_a_removal_that_was_killed_is_removed_by_the_next_of_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let make = |kind: &str| Temporary::within(dir.path(), kind).unwrap();
        let killed = killed(make("a"));
        fs::create_dir_all(killed.join("run/checkpoints")).unwrap();
        let rest = given_up(&killed).unwrap();
        fs::remove_file(rest.join(HELD)).unwrap();
        drop(make("b"));
        assert!(!killed.exists() && rest.join("run/checkpoints").is_dir());
        drop(make("a"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_given_folder_stays_and_is_refused_if_it_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        WorkFolder::check(Some(&out), "").unwrap();
        let place = WorkFolder::new(Some(&out), "a").unwrap();
        WorkFolder::check(Some(place.path()), "").unwrap();
        fs::write(place.path().join("x"), "").unwrap();
        let error = WorkFolder::check(Some(&out), "a new one").unwrap_err();
        assert_eq!((error.kind, error.hint.as_deref()), (ErrorKind::Usage, Some("a new one")));
        drop(place);
        assert!(out.join("x").exists());
    }

    #[test]
    fn an_error_says_where_the_folder_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Temporary::within(dir.path(), "a").unwrap();
        let kept = format!("mend it; its folder is kept: {}", folder.path().display());
        let error = WorkFolder::Temporary(folder).kept_after(Error::usage("no").hint("mend it"));
        assert_eq!(error.hint, Some(kept));
        drop(Temporary::within(dir.path(), "a").unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
