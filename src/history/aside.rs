//! Setting aside: what a start leaves behind gets a number beside its folder, as a run folder of its own. The folder itself
//! stays where it is: it may be a link or a mount point, and `.lock` and `logs/` are in use by this start already. Where nothing
//! can be moved beside it (a mount point, a parent that can't be written to) the numbered folder is within it.

use super::{checkpoints, unwritable};
use crate::checkpoint::{CheckpointStore, Entry, format};
use crate::error::{Error, IoContext, Result};
use crate::files::sync_folder;
use crate::telemetry::MetricsWriter;
use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The past of a run besides its checkpoints and logs.
const PAST: [&str; 5] = ["metrics.jsonl", "tensorboard", "report.html", "run.json", "job.toml"];

/// A folder and a new one beside it, with the next free number.
struct Aside {
    dir: PathBuf,
    kept: PathBuf,
    /// The same of what `checkpoints/` leads to, where that is a link.
    there: OnceCell<PathBuf>,
}

/// Moves a folder's past to a numbered one, whose path it gives, with a copy of the logs.
///
/// # Errors
/// Exit code 74. What was not moved is where it was.
pub fn everything(out_dir: &Path) -> Result<PathBuf> {
    let aside = Aside::new(out_dir)?;
    aside.fill(&["logs"], || {
        let own = checkpoints(&aside.dir);
        // Checkpoints first: a folder without them is not taken for one to go on with.
        let mut moved = match is_linked(&own) {
            true => aside.to_room(CheckpointStore::read_only(&own).list()?)?,
            false => vec![(own, checkpoints(&aside.kept))],
        };
        moved.extend(PAST.map(|name| (aside.dir.join(name), aside.kept.join(name))));
        moved.retain(|(from, _)| from.symlink_metadata().is_ok());
        Ok(moved)
    })?;
    Ok(aside.kept)
}

/// Moves the checkpoints after `step` to a numbered folder, whose path it gives, with a copy of the rest. The folder's metrics
/// end at `step` then.
///
/// # Errors
/// As [`everything`].
pub fn after(out_dir: &Path, step: u64) -> Result<PathBuf> {
    let mut newer = CheckpointStore::read_only(checkpoints(out_dir)).list()?;
    newer.retain(|entry| entry.step > step);
    let aside = Aside::new(out_dir)?;
    aside.fill(&[&["logs"][..], &PAST].concat(), || aside.to_room(newer))?;
    MetricsWriter::cut_after(&aside.dir.join("metrics.jsonl"), step)?;
    Ok(aside.kept)
}

impl Aside {
    fn new(out_dir: &Path) -> Result<Self> {
        // Beside what a link leads to: there it can be moved, and the link stays.
        let dir = out_dir.canonicalize().doing("read", out_dir).map_err(unwritable)?;
        let beside = dir.parent().filter(|parent| device(parent) == device(&dir)).map(Path::to_owned);
        Self::of(dir, beside.as_deref())
    }

    fn of(dir: PathBuf, beside: Option<&Path>) -> Result<Self> {
        let kept = match beside.map_or(Err(io::ErrorKind::CrossesDevices.into()), |at| numbered(at, &dir)) {
            Err(e) if ELSEWHERE.contains(&e.kind()) => numbered(&dir, &dir),
            made => made,
        };
        let kept = kept.doing("make a numbered folder for", &dir).map_err(unwritable)?;
        Ok(Self { dir, kept, there: OnceCell::new() })
    }

    /// A new folder for checkpoints. Those behind a link stay on the disk that it leads to, and the link where it is.
    fn room(&self) -> Result<PathBuf> {
        let (own, to) = (checkpoints(&self.dir), checkpoints(&self.kept));
        if !is_linked(&own) {
            return fs::create_dir(&to).doing("create", &to).map(|()| to);
        }
        let there = Self::new(&own)?.kept;
        let _ = self.there.set(there.clone());
        std::os::unix::fs::symlink(&there, &to).doing("create", &to)?;
        Ok(there)
    }

    /// Where each checkpoint is to be moved, the newest first: as long as there is one more, a start sees it.
    fn to_room(&self, entries: Vec<Entry>) -> Result<Vec<(PathBuf, PathBuf)>> {
        let to = self.room()?;
        Ok(entries.into_iter().rev().map(|e| (e.path, to.join(format::step_dir_name(e.step)))).collect())
    }

    /// Copies first: until something is moved, the new folder can go again. `moved` makes room for what it names.
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
            unwritable(Error { message: format!("the earlier run can't be set aside: {}", e.message), ..e })
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

/// A link that leads nowhere is moved as it is.
fn is_linked(folder: &Path) -> bool {
    folder.is_symlink() && folder.is_dir()
}

/// Reasons to take another place than that beside the folder.
const ELSEWHERE: [io::ErrorKind; 3] =
    [io::ErrorKind::CrossesDevices, io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];

/// A new folder in `at`, of `dir`'s name and the next free number.
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

/// The file system that a folder is on.
fn device(folder: &Path) -> Option<u64> {
    fs::metadata(folder).ok().map(|meta| meta.dev())
}

/// A file or a folder of files; what is not there needs no copy, and within folders links and the like stay behind.
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
    fn where_nothing_can_be_moved_beside_a_folder_its_past_is_kept_within() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        fs::create_dir_all(out.join("logs")).unwrap();
        fs::write(out.join("job.toml"), "old").unwrap();
        for n in [1, 2] {
            let aside = Aside::of(out.clone(), None).unwrap();
            assert_eq!(aside.kept, out.join(format!("run.{n}")));
            aside.fill(&["logs"], || Ok(Vec::new())).unwrap();
        }
        assert!(fs::read_dir(dir.path()).unwrap().count() == 1 && out.join("run.2/logs").is_dir());
        let aside = Aside::of(out.clone(), None).unwrap();
        let moved = vec![(out.join("job.toml"), aside.kept.join("job.toml"))];
        aside.fill(&[], || Ok(moved)).unwrap();
        assert_eq!(fs::read_to_string(out.join("run.3/job.toml")).unwrap(), "old");
    }

    /// A pipe would be waited for, a link may lead back.
    #[test]
    fn of_the_logs_only_files_and_folders_are_copied() {
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
    fn what_cannot_be_set_aside_leaves_no_folder_behind() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        fs::create_dir(&out).unwrap();
        let aside = Aside::of(out.clone(), Some(dir.path())).unwrap();
        let nothing = vec![(out.join("none"), aside.kept.join("none"))];
        aside.fill(&[], || Ok(nothing)).unwrap_err();
        assert!(!aside.kept.exists());
    }
}
