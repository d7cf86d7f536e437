//! `ddp-run runs rm`: removes run folders, or all their checkpoints but the best.
//!
//! A folder gets another name first, `NAME.removing`, and `run.json` is removed last: whenever the process is killed, what is left is a
//! run folder that lists show as such, and that can be removed. Links are removed, and never followed.

use super::folder::{REMOVING, RunFolder, State, is_being_removed, size};
use crate::checkpoint::CheckpointStore;
use crate::error::{Error, ExitCode, IoContext, Result};
use crate::history::{FolderLock, checkpoints};
use crate::show;
use crate::telemetry::RunId;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a run writes to its folder, besides numbered folders and files that are being written.
const OWN: [&str; 8] =
    ["metrics.jsonl", "tensorboard", "report.html", "run.json", "job.toml", "checkpoints", "logs", ".lock"];

/// What of a run stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Nothing,
    /// Everything but its checkpoints, of which the best stays; the newest if none was measured.
    Best,
}

/// A folder that may be removed.
#[derive(Debug)]
pub struct Removal {
    folder: PathBuf,
    kept: Kept,
    /// Of the checkpoints.
    best: Option<PathBuf>,
    pub bytes: u64,
}

impl Removal {
    /// Checks that `run` may be removed. Changes nothing. With `all_files`, also what no run has written.
    ///
    /// # Errors
    /// Exit code 2: it is running, it is a link, or it has files of others.
    pub fn of(run: &RunFolder, kept: Kept, all_files: bool) -> Result<Self> {
        let (folder, shown) = (&run.folder, run.folder.display());
        if run.state == State::Running {
            return Err(Error::usage(format!("{shown} is running"))
                .hint("stop the run first, with Ctrl-C or SIGTERM"));
        }
        if kept == Kept::Best {
            let store = CheckpointStore::read_only(checkpoints(folder));
            let best = store.best_or_newest(run.rank_by())?;
            let others = run.checkpoints.iter().filter(|entry| Some(&entry.path) != best.as_ref());
            let bytes = others.map(|entry| size(&entry.path)).sum();
            return Ok(Self { folder: folder.clone(), kept, best, bytes });
        }
        if folder.is_symlink() {
            let target = fs::read_link(folder).unwrap_or_default();
            let what = format!("{shown} is a link to {}", target.display());
            return Err(Error::usage(what).hint("name the folder itself, and remove the link afterwards"));
        }
        let others = if all_files { Vec::new() } else { others(folder)? };
        if !others.is_empty() {
            let named: Vec<String> = others.iter().take(8).map(|name| show::name(name)).collect();
            let what = format!("{shown} has files that no run has written: {}", named.join(", "));
            return Err(Error::usage(what).hint("move them away, or `--all-files` removes them too"));
        }
        Ok(Self { folder: folder.clone(), kept, best: None, bytes: run.bytes })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What would be removed, in words.
    pub fn words(&self) -> String {
        let folder = self.folder.display();
        match (self.kept, &self.best) {
            (Kept::Nothing, _) => format!("{folder}"),
            (Kept::Best, None) => format!("no checkpoint of {folder}"),
            (Kept::Best, Some(best)) => {
                let name = best.file_name().unwrap_or_default().to_string_lossy();
                format!("the checkpoints of {folder} but {name}")
            }
        }
    }

    /// Removes it.
    ///
    /// # Errors
    /// Exit code 74: a run has begun to write to it meanwhile, or something can't be removed; what is left can be removed again.
    pub fn carry_out(&self) -> Result<()> {
        if !self.folder.is_dir() {
            return Err(Error::checkpoint(format!("{} is gone", self.folder.display())));
        }
        let own = RunId { job: "ddp-run runs rm".to_owned(), attempt: 1, start: RunId::draw()? };
        let lock = FolderLock::take(&self.folder, &own, Duration::ZERO, &|| false);
        let lock = lock.map_err(|e| Error { hint: None, ..e })?;
        match (self.kept, &self.best) {
            (Kept::Best, None) => Ok(()),
            (Kept::Best, Some(best)) => {
                CheckpointStore::open(checkpoints(&self.folder))?.remove_all_but(best)
            }
            (Kept::Nothing, _) => {
                let renamed = renamed(&self.folder)?;
                // A network file system keeps an open file under another name.
                drop(lock);
                remove_folder(&renamed)
            }
        }
    }
}

/// Entries of a run's folder that no run writes.
fn others(folder: &Path) -> Result<Vec<String>> {
    let mut others = Vec::new();
    for entry in fs::read_dir(folder).doing("read", folder)? {
        let path = entry.doing("read", folder)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = OWN.contains(&name.as_str()) || name.ends_with(".partial") || name.starts_with(".nfs");
        if !own && !(path.is_dir() && !path.is_symlink() && RunFolder::is_one(&path)) {
            others.push(name);
        }
    }
    others.sort();
    Ok(others)
}

/// Gives the folder the name of one that is being removed, if it has none yet. Returns its path.
fn renamed(folder: &Path) -> Result<PathBuf> {
    // `.` and `..` have no name.
    let folder = folder.canonicalize().doing("read", folder)?;
    if is_being_removed(&folder) {
        return Ok(folder);
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut free = (1u32..).map(|n| match n {
        1 => folder.with_file_name(format!("{name}{REMOVING}")),
        n => folder.with_file_name(format!("{name}{REMOVING}-{n}")),
    });
    let to = free.find(|path| path.symlink_metadata().is_err()).unwrap_or_default();
    match fs::rename(&folder, &to) {
        Ok(()) => Ok(to),
        // A mount point, or a parent without write permission: its content goes, and the folder stays.
        Err(e) if [io::ErrorKind::ResourceBusy, io::ErrorKind::PermissionDenied].contains(&e.kind()) => {
            Ok(folder)
        }
        Err(e) => Err(e).doing("rename", &folder),
    }
}

/// Removes all entries, `run.json` last, then the folder.
fn remove_folder(folder: &Path) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).doing("read", folder)?.flatten().map(|entry| entry.path()).collect();
    entries.sort_by_key(|path| path.ends_with("run.json"));
    for path in &entries {
        let kind = path.symlink_metadata().doing("read", path)?;
        let removed = if kind.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed
            .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
            .doing("remove", path)?;
    }
    match fs::remove_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        removed => removed.doing("remove", folder).map_err(|e| Error { code: ExitCode::Checkpoint, ..e }),
    }
}
