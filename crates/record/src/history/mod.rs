//! A run's folder and its history: who may write to it, when a start changes it, and where files go that a start does
//! not continue.
//!
//! One process writes to a folder and holds its [`FolderLock`]. A start is *accepted* when all ranks are ready to
//! train: data, model, optimizer and checkpoint fit. Until then nothing in the folder changes but `logs/`. A folder
//! contains one *branch*: checkpoints and metrics that follow from each other. Whatever does not lead to the
//! checkpoint that a start resumes from is archived in a numbered folder, a run folder of its own; so retention,
//! `auto` and `metrics.jsonl` need not handle branches. `run.json` records for each start its run ([`RunId`]) and the
//! checkpoint that it resumed from.

mod archive;
mod folder_state;
mod lock;
mod others;

pub use archive::{FILES, has_mount};
pub use lock::FolderLock;
pub use others::{LOG_HEADERS, is_of_a_run, is_resolved, log_of_others, writes_to_no_others};

use crate::{Provenance, RunId, provenance};
use base::error::{Error, ErrorKind, IoContext, Result};
use base::files;
use checkpoint::sha256_hex;
use folder_state::{FolderState, ToArchive};
use std::path::{Path, PathBuf};

/// The folder of the specs of a run's starts.
const SPECS: &str = "specs";

/// The folder of a run's checkpoints.
pub fn checkpoints(out_dir: &Path) -> PathBuf {
    out_dir.join("checkpoints")
}

/// The resolved spec of a start that `run.json` records. In folders of early versions it is that of the first start with the same
/// results, or missing; `job.toml` is that of the last start.
pub fn spec_of(out_dir: &Path, start: &Provenance) -> Option<PathBuf> {
    spec_named(out_dir, start.spec_digest.as_ref().unwrap_or(&start.spec_hash))
}

fn spec_named(out_dir: &Path, digest: &str) -> Option<PathBuf> {
    // The digest is read from a file, and becomes a part of a path.
    let plain = !digest.is_empty() && digest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| out_dir.join(SPECS).join(format!("{digest}.toml")))
}

/// A path as files of the run's folder name it: relative to the folder, if it is in it.
pub fn relative(path: &Path, out_dir: &Path) -> String {
    path.strip_prefix(out_dir).unwrap_or(path).display().to_string()
}

/// A start of a run, on the rank that writes the files.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The run's folder.
    pub out_dir: &'a Path,
    /// For `run.json`.
    pub provenance: &'a Provenance,
    /// For `job.toml`.
    pub job_toml: &'a str,
}

/// The result of accepting a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The folder is ready: it contains only what led to this start.
    Begins,
    /// Nothing is left to train: the run is complete, and the folder says so, or so is that of another folder's checkpoint. The folder
    /// is unchanged.
    Complete,
}

/// The checkpoint that a start resumes from.
#[derive(Clone, Debug)]
pub struct Parent {
    /// The checkpoint's directory.
    pub checkpoint: PathBuf,
    /// Optimizer steps that it has.
    pub step: u64,
    /// There is nothing left to train.
    pub complete: bool,
    /// Training time of the run up to then.
    pub seconds: f64,
}

/// Whether this start's run was accepted in the folder before. Then `--resume never` and `--resume PATH` have been
/// applied already.
pub fn begun(out_dir: &Path, run: &RunId) -> bool {
    let latest = provenance::read(&out_dir.join("run.json")).map(|file| file.latest);
    latest.is_ok_and(|latest| run.continues(&latest.run))
}

impl Start<'_> {
    /// See [`begun`].
    pub fn begun(&self) -> bool {
        begun(self.out_dir, &self.provenance.run)
    }

    /// Whether unsaved steps are repeated by this start: it has the same run or the same plan.
    fn repeats_steps(&self) -> bool {
        let latest = provenance::read(&self.out_dir.join("run.json")).map(|file| file.latest);
        self.begun() || latest.is_ok_and(|latest| latest.spec_hash == self.provenance.spec_hash)
    }

    /// Prepares the folder: archives what does not lead to this start, then writes the spec and, last, `run.json`.
    ///
    /// # Errors
    /// `ErrorKind::Io`: metrics to continue can't be read, or a file can't be written.
    pub fn accept(&self, from: Option<&Parent>) -> Result<Accepted> {
        let here = from.filter(|f| f.is_within(self.out_dir));
        if here.is_none() && from.is_some_and(|from| from.complete) {
            status!(
                "{} stays as it is: there is nothing to train from that checkpoint",
                base::display::path(self.out_dir)
            );
            return Ok(Accepted::Complete);
        }
        let state = match (FolderState::read(self.out_dir), here) {
            // Its content is not needed.
            (Err(_), None) => FolderState::unreadable(),
            (state, _) => state?,
        };
        let to_archive = state.to_archive(here.map(|f| f.step), self.repeats_steps());
        if let (ToArchive::Nothing, Some(from)) = (to_archive, here)
            && from.complete
            && state.is_completed_at(from.step)
        {
            return Ok(Accepted::Complete);
        }
        match to_archive {
            ToArchive::Nothing if here.is_none() && state.trained && !self.begun() => {
                status!("the previous start saved no checkpoint; its steps are repeated");
            }
            ToArchive::Nothing => {}
            ToArchive::All => {
                let kept = archive::archive_all(self.out_dir)?;
                status!("the previous run was moved to {}", base::display::path(&kept));
            }
            ToArchive::After(step) => {
                let kept = archive::archive_after(self.out_dir, step)?;
                status!("files from after step {step} were moved to {}", base::display::path(&kept));
            }
        }
        self.write(from)?;
        Ok(Accepted::Begins)
    }

    /// Removes what killed processes were writing to the folder.
    pub fn remove_unfinished(&self) {
        files::remove_begun(self.out_dir, |name| FILES.contains(&name));
    }

    fn write(&self, from: Option<&Parent>) -> Result<()> {
        self.remove_unfinished();
        std::fs::create_dir_all(self.out_dir).doing("create", self.out_dir).map_err(unwritable)?;
        let digest = self.write_spec().map_err(unwritable)?;
        let parent = from.map(|from| provenance::Parent {
            path: relative(&from.checkpoint, self.out_dir),
            step: from.step,
            seconds: from.seconds,
        });
        let start = Provenance { parent, spec_digest: Some(digest), ..self.provenance.clone() };
        provenance::write(&self.out_dir.join("run.json"), start).map_err(unwritable)
    }

    /// `job.toml` is the spec of this start, and `specs/` has those of all, so that earlier steps can be repeated with theirs. Returns
    /// its digest. They are told apart by their texts and not by their hashes: what results do not depend on decides which steps there
    /// are, and what is recorded of them.
    fn write_spec(&self) -> Result<String> {
        let text = self.job_toml.as_bytes();
        let digest = sha256_hex(text);
        // Before `job.toml`: after a kill, that is known as a run's by its copy. The next start writes both.
        if let Some(own) = spec_named(self.out_dir, &digest).filter(|own| !own.exists()) {
            let folder = files::folder(&own);
            std::fs::create_dir_all(folder).doing("create", folder)?;
            files::replace(&own, text)?;
        }
        files::replace(&self.out_dir.join("job.toml"), text)?;
        Ok(digest)
    }
}

impl Parent {
    /// Whether it is one of the folder's own checkpoints, under any path.
    pub fn is_within(&self, out_dir: &Path) -> bool {
        is_within(&self.checkpoint, out_dir)
    }
}

/// Whether `checkpoint` is one of the folder's own, under any path.
pub fn is_within(checkpoint: &Path, out_dir: &Path) -> bool {
    let own = checkpoints(out_dir).canonicalize();
    let parent = checkpoint.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    own.is_ok_and(|own| Some(own) == parent)
}

fn unwritable(e: Error) -> Error {
    Error { kind: ErrorKind::Io, ..e }.hint("`--out DIR` writes elsewhere")
}

#[cfg(test)]
mod tests;
