//! Setting aside: what a start leaves behind gets a number beside its folder, as a run folder of its own. The folder itself
//! stays where it is: it may be a link or a mount point, and `.lock` and `logs/` are in use by this start already.

use super::{checkpoints, unwritable};
use crate::checkpoint::{CheckpointStore, format};
use crate::error::{Error, IoContext, Result};
use crate::files::sync_folder;
use crate::telemetry::MetricsWriter;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The past of a run besides its checkpoints and logs.
const PAST: [&str; 5] = ["metrics.jsonl", "tensorboard", "report.html", "run.json", "job.toml"];

/// A folder and a new one beside it, with the next free number.
struct Aside {
    dir: PathBuf,
    kept: PathBuf,
}

/// Moves a folder's past to a numbered one, whose path it gives, with a copy of the logs.
///
/// # Errors
/// Exit code 74. What was not moved is where it was.
pub fn everything(out_dir: &Path) -> Result<PathBuf> {
    let aside = Aside::new(out_dir)?;
    // Checkpoints first: a folder without them is not taken for one to go on with.
    let moved = ["checkpoints"].iter().chain(&PAST).map(|name| (aside.dir.join(name), aside.kept.join(name)));
    aside.fill(&["logs"], moved.filter(|(from, _)| from.symlink_metadata().is_ok()))?;
    Ok(aside.kept)
}

/// Moves the checkpoints after `step` to a numbered folder, whose path it gives, with a copy of the rest. The folder's metrics
/// end at `step` then.
///
/// # Errors
/// As [`everything`].
pub fn after(out_dir: &Path, step: u64) -> Result<PathBuf> {
    let newer = CheckpointStore::read_only(checkpoints(out_dir)).list()?;
    let aside = Aside::new(out_dir)?;
    let to = checkpoints(&aside.kept);
    // The newest first: as long as there is one more to be moved, a start sees it.
    let newer = newer.into_iter().rev().filter(|entry| entry.step > step);
    let moved = newer.map(|entry| (entry.path, to.join(format::step_dir_name(entry.step))));
    fs::create_dir(&to).doing("create", &to).map_err(unwritable)?;
    aside.fill(&[&["logs"][..], &PAST].concat(), moved)?;
    MetricsWriter::cut_after(&aside.dir.join("metrics.jsonl"), step)?;
    Ok(aside.kept)
}

impl Aside {
    fn new(out_dir: &Path) -> Result<Self> {
        // Beside what a link leads to: there it can be moved, and the link stays.
        let dir = out_dir.canonicalize().doing("read", out_dir).map_err(unwritable)?;
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        for n in 1u32.. {
            let kept = dir.with_file_name(format!("{name}.{n}"));
            match fs::create_dir(&kept) {
                Ok(()) => return Ok(Self { dir, kept }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).doing("create", &kept).map_err(unwritable),
            }
        }
        Err(Error::internal(format!("no number is free beside {}", dir.display())))
    }

    /// Copies first: until something is moved, the new folder can go again.
    fn fill(&self, copied: &[&str], moved: impl Iterator<Item = (PathBuf, PathBuf)>) -> Result<()> {
        let mut any = false;
        let mut done = copied.iter().try_for_each(|name| copy(&self.dir.join(name), &self.kept.join(name)));
        for (from, to) in moved {
            done = done.and_then(|()| fs::rename(&from, &to).doing("move", &from));
            any |= done.is_ok();
        }
        let done = done.and_then(|()| self.sync());
        if done.is_err() && !any {
            let _ = fs::remove_dir_all(&self.kept);
        }
        done.map_err(|e| {
            unwritable(Error { message: format!("the earlier run can't be set aside: {}", e.message), ..e })
        })
    }

    fn sync(&self) -> Result<()> {
        let beside = self.dir.parent().unwrap_or(&self.dir);
        let folders = [
            checkpoints(&self.kept),
            self.kept.clone(),
            checkpoints(&self.dir),
            self.dir.clone(),
            beside.into(),
        ];
        folders.iter().filter(|f| f.is_dir()).try_for_each(|f| sync_folder(f).doing("write", f))
    }
}

/// A file or a folder of files; what is not there needs no copy.
fn copy(from: &Path, to: &Path) -> Result<()> {
    match fs::metadata(from) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).doing("read", from),
        Ok(meta) if meta.is_dir() => {
            fs::create_dir(to).doing("create", to)?;
            for entry in fs::read_dir(from).doing("read", from)? {
                let entry = entry.doing("read", from)?;
                copy(&entry.path(), &to.join(entry.file_name()))?;
            }
            Ok(())
        }
        Ok(_) => {
            fs::copy(from, to).doing("copy", from)?;
            File::open(to).and_then(|file| file.sync_all()).doing("write", to)
        }
    }
}
