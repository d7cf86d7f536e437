//! Appends lines to a file of the run: one `write` per line, in append mode.

use base::error::{Error, IoContext, Result};
use base::files;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An open file. There is one for each such file of a run, on rank 0.
#[derive(Debug)]
pub struct Appender {
    path: PathBuf,
    pub(super) file: File,
}

impl Appender {
    /// Opens the file, and creates it if necessary.
    pub fn open(path: &Path) -> Result<Self> {
        let file =
            files::open_with(path, OpenOptions::new().append(true).create(true)).doing("write", path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one line of JSON; see [`append`](Self::append).
    pub fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let json =
            |e| Error::internal(format!("cannot write a line of {} as JSON: {e}", self.path.display()));
        let mut bytes = serde_json::to_vec(line).map_err(json)?;
        bytes.push(b'\n');
        self.append(&bytes)
    }

    /// Writes one line. On return it is in the kernel's page cache; see [`syncing`](Self::syncing).
    ///
    /// # Errors
    /// An I/O error, such as a full disk. Nothing of the line remains then.
    pub fn append(&mut self, line: &[u8]) -> Result<()> {
        self.append_by(line, |mut file, bytes| file.write_all(bytes))
    }

    pub(super) fn append_by(
        &mut self,
        line: &[u8],
        write_all: impl FnOnce(&File, &[u8]) -> io::Result<()>,
    ) -> Result<()> {
        let whole = self.file.metadata().doing("write", &self.path)?.len();
        let written = write_all(&self.file, line).inspect_err(|_| {
            // If this fails too, readers skip the torn line.
            let _ = self.file.set_len(whole);
        });
        written.doing("write", &self.path)
    }

    /// Returns a function that waits, on any thread, until all lines written so far are on disk. It runs before a
    /// checkpoint is written, so that no checkpoint is ahead of the lines.
    pub fn syncing(&self) -> Result<impl FnOnce() -> Result<()> + Send + use<>> {
        let path = self.path.clone();
        let file = self.file.try_clone().doing("write", &path)?;
        Ok(move || file.sync_data().doing("write", &path))
    }
}
