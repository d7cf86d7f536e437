//! The folder for the files of a repetition.

use super::Request;
use crate::error::{Error, IoContext, Result};
use crate::files::{Temporary, folder};
use std::path::{Path, PathBuf};

/// The path without links, of a file that may not be there yet.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(real(folder(path))?.join(path.file_name()?)))
}

/// A folder that the user has named, or a temporary one.
pub(super) enum Place {
    Given(PathBuf),
    Temporary(Temporary),
}

impl Place {
    /// Checks the one that is given.
    ///
    /// # Errors
    /// It is not empty, or in the run's folder (2).
    pub fn check(request: &Request, run: &Path) -> Result<()> {
        let Some(out) = &request.out else { return Ok(()) };
        let used = std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
        let within = real(out).zip(real(run)).is_some_and(|(out, run)| out.starts_with(run));
        if !used && !within {
            return Ok(());
        }
        let why = if within { "is in the folder of the run" } else { "is not empty" };
        Err(Error::usage(format!("--out {}: it {why}", out.display()))
            .hint("the repetition gets a folder of its own"))
    }

    /// # Errors
    /// It can't be made (74).
    pub fn make(request: &Request) -> Result<Self> {
        match &request.out {
            None => Temporary::new("ddp-run-repro").map(Self::Temporary),
            Some(out) => {
                std::fs::create_dir_all(out).doing("create", out)?;
                Ok(Self::Given(out.clone()))
            }
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    /// Does not remove it.
    pub fn keep(self) {
        if let Self::Temporary(folder) = self {
            folder.keep();
        }
    }

    /// The folder of a repetition that failed is kept, and the error says where it is.
    pub fn kept_after(self, error: Error) -> Error {
        let kept = format!("its folder is kept: {}", self.path().display());
        self.keep();
        let hint = error.hint.iter().cloned().chain([kept]).collect::<Vec<_>>().join("; ");
        error.hint(hint)
    }
}
