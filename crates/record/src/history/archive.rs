//! The archive of a start: moves what a start does not continue to a numbered folder beside the run's folder, which is a run
//! folder of its own. The run's folder stays in place: it may be a link or a mount point, and this start already uses
//! `.lock` and `logs/`. Where nothing can be moved beside it (a mount point, a parent without write permission), the
//! numbered folder is inside it.

use super::{checkpoints, unwritable};
use crate::{MetricsWriter, cut_digests};
use base::error::{Error, IoContext, Result};
use base::files::sync_folder;
use checkpoint::{CheckpointStore, Entry, format};
use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a run writes to its folder besides checkpoints, logs and the lock.
pub const FILES: [&str; 12] = [
    "metrics.jsonl",
    "digests.jsonl",
    "metrics",
    "evaluations",
    "tensorboard",
    "report.html",
    "job.toml",
    "specs",
    "profile.json",
    "profile",
    "prediction.json",
    // Last: without it, what a killed start has not moved would be no run's.
    "run.json",
];

/// A run's folder and the new numbered folder.
struct Archive {
    dir: PathBuf,
    kept: PathBuf,
    /// The numbered folder on the disk of `checkpoints/`, if that is another one.
    there: OnceCell<PathBuf>,
}

/// Moves a run's files to a numbered folder, with a copy of the logs, and returns its path.
///
/// # Errors
/// `ErrorKind::Io`. Files that were not moved are still in place.
pub fn archive_all(out_dir: &Path) -> Result<PathBuf> {
    let archive = Archive::new(out_dir)?;
    archive.fill(&["logs"], || {
        let own = checkpoints(&archive.dir);
        // Checkpoints first: a folder without them does not count as resumable.
        let mut moved = match is_elsewhere(&own) || has_others(&own) {
            true => archive.to_checkpoint_folder(CheckpointStore::read_only(&own).list()?)?,
            false => vec![(own, checkpoints(&archive.kept))],
        };
        moved.extend(FILES.map(|name| (archive.dir.join(name), archive.kept.join(name))));
        moved.retain(|(from, _)| from.symlink_metadata().is_ok());
        Ok(moved)
    })?;
    Ok(archive.kept)
}

/// Moves the checkpoints after `step` to a numbered folder, with a copy of the rest, and returns its path. The
/// metrics of the run's folder then end at `step`.
///
/// # Errors
/// As [`archive_all`].
pub fn archive_after(out_dir: &Path, step: u64) -> Result<PathBuf> {
    let mut newer = CheckpointStore::read_only(checkpoints(out_dir)).list()?;
    newer.retain(|entry| entry.step > step);
    let archive = Archive::new(out_dir)?;
    archive.fill(&[&["logs"][..], &FILES].concat(), || archive.to_checkpoint_folder(newer))?;
    MetricsWriter::cut_after(&archive.dir.join("metrics.jsonl"), step)?;
    cut_digests(&archive.dir, step)?;
    Ok(archive.kept)
}

impl Archive {
    fn new(out_dir: &Path) -> Result<Self> {
        // Beside the target of a link: there the files can be moved, and the link stays.
        let dir = out_dir.canonicalize().doing("read", out_dir).map_err(unwritable)?;
        let beside = dir.parent().filter(|parent| mount(parent) == mount(&dir)).map(Path::to_owned);
        Self::from_parts(dir, beside.as_deref())
    }

    fn from_parts(dir: PathBuf, beside: Option<&Path>) -> Result<Self> {
        let kept = match beside.map_or(Err(io::ErrorKind::CrossesDevices.into()), |at| numbered(at, &dir)) {
            Err(e) if ELSEWHERE.contains(&e.kind()) => numbered(&dir, &dir),
            made => made,
        };
        let kept = kept.doing("make a numbered folder for", &dir).map_err(unwritable)?;
        Ok(Self { dir, kept, there: OnceCell::new() })
    }

    /// Creates the new folder for checkpoints. Checkpoints behind a link or a mount point stay on that disk, and the link or the
    /// mount point stays in place.
    fn checkpoint_folder(&self) -> Result<PathBuf> {
        let (own, to) = (checkpoints(&self.dir), checkpoints(&self.kept));
        if !is_elsewhere(&own) {
            return fs::create_dir(&to).doing("create", &to).map(|()| to);
        }
        let there = Self::new(&own)?.kept;
        let _ = self.there.set(there.clone());
        std::os::unix::fs::symlink(&there, &to).doing("create", &to)?;
        Ok(there)
    }

    /// The destination of each checkpoint, newest first: an interrupted move leaves the older ones for the next start.
    fn to_checkpoint_folder(&self, entries: Vec<Entry>) -> Result<Vec<(PathBuf, PathBuf)>> {
        let to = self.checkpoint_folder()?;
        Ok(entries.into_iter().rev().map(|e| (e.path, to.join(format::step_dir_name(e.step)))).collect())
    }

    /// Copies first: until a file is moved, the new folder can be removed again. `moved` creates the folder for the
    /// files that it returns.
    fn fill(&self, copied: &[&str], moved: impl FnOnce() -> Result<Vec<(PathBuf, PathBuf)>>) -> Result<()> {
        let copies = || copied.iter().try_for_each(|name| copy(&self.dir.join(name), &self.kept.join(name)));
        let mut any = false;
        let done = moved().and_then(|moved| {
            copies()?;
            for (from, to) in moved {
                fs::rename(&from, &to).doing("move", &from)?;
                any = true;
            }
            self.sync()
        });
        if done.is_err() && !any {
            let _ = fs::remove_dir_all(&self.kept);
            self.there.get().into_iter().for_each(|there| drop(fs::remove_dir(there)));
        }
        done.map_err(|e| {
            unwritable(Error { message: format!("cannot move the previous run: {}", e.message), ..e })
        })
    }

    fn sync(&self) -> Result<()> {
        let around = self.kept.parent().unwrap_or(&self.dir);
        let folders = [
            checkpoints(&self.kept),
            self.kept.clone(),
            checkpoints(&self.dir),
            self.dir.clone(),
            around.into(),
        ];
        folders.iter().filter(|f| f.is_dir()).try_for_each(|f| sync_folder(f).doing("write", f))
    }
}

/// Whether a folder is a link or a mount point: it can't be moved with the one that it is in, or what is in it can't leave it. A
/// dangling link is moved as it is.
fn is_elsewhere(folder: &Path) -> bool {
    folder.is_dir() && (folder.is_symlink() || mount(folder) != folder.parent().and_then(mount))
}

/// Whether a folder of checkpoints has something that no run has written, which stays in place.
fn has_others(checkpoints: &Path) -> bool {
    let entries = fs::read_dir(checkpoints).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| !CheckpointStore::writes(&name.to_string_lossy()))
}

/// Whether a mount point is in a folder: what is on it can't leave it, nor can the mount point be removed.
pub fn has_mount(folder: &Path) -> bool {
    let (own, entries) = (mount(folder), fs::read_dir(folder).into_iter().flatten().flatten());
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_folder).any(|entry| mount(&entry.path()) != own)
}

/// Errors after which the numbered folder is created inside.
const ELSEWHERE: [io::ErrorKind; 3] =
    [io::ErrorKind::CrossesDevices, io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];

/// Creates a folder in `at` with `dir`'s name and the next free number.
fn numbered(at: &Path, dir: &Path) -> io::Result<PathBuf> {
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut n = 1u32;
    loop {
        let kept = at.join(format!("{name}.{n}"));
        match fs::create_dir(&kept) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => n += 1,
            made => return made.map(|()| kept),
        }
    }
}

/// The mount that a folder is on: one file system may have several, and nothing is renamed from one to another. Only its file system
/// where mounts have no numbers (before Linux 5.8).
fn mount(folder: &Path) -> Option<(u64, u64)> {
    let file_system = fs::metadata(folder).ok()?.dev();
    Some((file_system, number_of_mount(folder).unwrap_or_default()))
}

#[cfg(target_os = "linux")]
fn number_of_mount(folder: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let about = statx(CWD, folder, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (about.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(about.stx_mnt_id)
}

#[cfg(not(target_os = "linux"))]
fn number_of_mount(_folder: &Path) -> Option<u64> {
    None
}

/// Copies a file or a folder of files; a missing one is ignored, and links and special files inside folders are skipped.
fn copy(from: &Path, to: &Path) -> Result<()> {
    match fs::metadata(from) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).doing("read", from),
        Ok(meta) if meta.is_dir() => {
            fs::create_dir(to).doing("create", to)?;
            for entry in fs::read_dir(from).doing("read", from)? {
                let entry = entry.doing("read", from)?;
                let kind = entry.file_type().doing("read", &entry.path())?;
                if kind.is_file() || kind.is_dir() {
                    copy(&entry.path(), &to.join(entry.file_name()))?;
                }
            }
            Ok(())
        }
        Ok(meta) if !meta.is_file() => Ok(()),
        Ok(_) => {
            fs::copy(from, to).doing("copy", from)?;
            File::open(to).and_then(|file| file.sync_all()).doing("write", to)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_inside_the_folder_if_its_parent_cannot_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        fs::create_dir_all(out.join("logs")).unwrap();
        fs::write(out.join("job.toml"), "old").unwrap();
        for n in [1, 2] {
            let archive = Archive::from_parts(out.clone(), None).unwrap();
            assert_eq!(archive.kept, out.join(format!("run.{n}")));
            archive.fill(&["logs"], || Ok(Vec::new())).unwrap();
        }
        assert!(fs::read_dir(dir.path()).unwrap().count() == 1 && out.join("run.2/logs").is_dir());
        let archive = Archive::from_parts(out.clone(), None).unwrap();
        let moved = vec![(out.join("job.toml"), archive.kept.join("job.toml"))];
        archive.fill(&[], || Ok(moved)).unwrap();
        assert_eq!(fs::read_to_string(out.join("run.3/job.toml")).unwrap(), "old");
    }

    /// Reading a pipe would block, and a link may form a cycle.
    #[test]
    fn copies_only_files_and_folders_of_the_logs() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("logs"), dir.path().join("copy"));
        fs::create_dir_all(from.join("more")).unwrap();
        fs::write(from.join("more/rank-0.log"), "text").unwrap();
        std::os::unix::fs::symlink(&from, from.join("more/round")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, from.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("more/rank-0.log")).unwrap(), "text");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
        assert_eq!(fs::read_dir(to.join("more")).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_archive_removes_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        fs::create_dir(&out).unwrap();
        let archive = Archive::from_parts(out.clone(), Some(dir.path())).unwrap();
        let nothing = vec![(out.join("none"), archive.kept.join("none"))];
        archive.fill(&[], || Ok(nothing)).unwrap_err();
        assert!(!archive.kept.exists());
    }
}
