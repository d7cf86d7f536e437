//! Data files that a run reads piece by piece. They are read, not mapped: the ranks of a host share what the system caches of
//! them either way, and a file that is cut short while it is in use is an error with a name instead of a SIGBUS.

use base::error::{Error, IoContext, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An open file, with the length that it had when it was opened.
#[derive(Debug)]
pub struct DataFile {
    file: File,
    path: PathBuf,
    len: usize,
}

impl DataFile {
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = base::files::open(path).doing("read", path)?;
        let len = file.metadata().doing("read", path)?.len() as usize;
        Ok(Self { file, path: path.to_owned(), len })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Fills `bytes` with those from `at` on. Any number of threads can read at once.
    ///
    /// # Errors
    /// The file cannot be read, or ends before.
    pub fn read_at(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        match self.file.read_exact_at(bytes, at as u64) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                let (path, had, end) = (self.path.display(), self.len, at + bytes.len());
                Err(Error::data(format!(
                    "{path} ends before byte {end}; it had {had} bytes when it was opened"
                ))
                .hint("restore the file, and resume the run; data must not change while a run uses it"))
            }
            done => done.doing("read", &self.path),
        }
    }

    /// The `len` bytes from `at` on, in `buffer`; see [`Self::read_at`].
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read<'a>(&self, at: usize, len: usize, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        buffer.resize(len, 0);
        self.read_at(at, buffer)?;
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pieces_of_the_file_that_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [7u8, 8, 9]).unwrap();
        let file = DataFile::open(&path).unwrap();
        let mut buffer = vec![0; 9];
        assert_eq!(file.len(), 3);
        assert_eq!(file.read(1, 2, &mut buffer).unwrap(), [8, 9]);
        // What replaces the file does not change it.
        std::fs::write(folder.path().join("g"), [1u8]).unwrap();
        std::fs::rename(folder.path().join("g"), &path).unwrap();
        assert_eq!(file.read(0, 3, &mut buffer).unwrap(), [7, 8, 9]);
        assert!(DataFile::open(&folder.path().join("none")).is_err());
        // Nobody writes to it: a reader would wait for ever.
        let pipe = base::testing::pipe(folder.path()).unwrap();
        let error = DataFile::open(&pipe).unwrap_err().of_data();
        assert_eq!(error.kind, base::error::ErrorKind::Spec, "{error}");
    }

    #[test]
    fn a_file_that_was_cut_short_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [7u8; 30]).unwrap();
        let file = DataFile::open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        file.read_at(0, &mut [0; 10]).unwrap();
        let error = file.read_at(5, &mut [0; 10]).unwrap_err();
        let expected = format!("{} ends before byte 15; it had 30 bytes when it was opened", path.display());
        assert_eq!(error.message, expected);
    }
}
