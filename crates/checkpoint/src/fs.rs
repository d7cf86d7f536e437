//! The file-system operations of a save, behind a trait: the disk can fill or the process can die at each of them, and
//! [`FaultyFs`](super::fault::FaultyFs) simulates it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Operations that change a checkpoint folder. Reading is not part of it: tests of reading use damaged files.
pub(crate) trait Fs: Send + Sync {
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a new file; fails if it exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn SyncWrite>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Exchanges two directories atomically, so that both names always exist. `Unsupported` if the file system can't.
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()>;
    /// Makes the directory's entries durable (fsync).
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
}

/// A file being written.
pub(crate) trait SyncWrite: Write + Send {
    /// Returns when content and length are on disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// The real file system.
pub(crate) struct OsFs;

impl Fs for OsFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn SyncWrite>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        exchange(a, b)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        base::files::sync_folder(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}

impl SyncWrite for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).map_err(|e| match e {
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
        other => other.into(),
    })
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Writes a complete file: content from `write`, flushed and synced. After an error the file may remain; its directory
/// is a temporary one.
pub(crate) fn write_synced<T>(
    fs: &dyn Fs,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<(T, u64, String)> {
    // Tensors larger than the buffer bypass it uncopied; small ones share system calls.
    let hashing = super::digest::HashingWriter::new(fs.create(path)?);
    let mut out = io::BufWriter::with_capacity(256 * 1024, hashing);
    let value = write(&mut out)?;
    let hashing = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    let (mut file, bytes, digest) = hashing.finish();
    file.sync()?;
    Ok((value, bytes, digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchange_swaps_two_directories_or_is_unsupported() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for path in [&a, &b] {
            fs::create_dir(path).unwrap();
        }
        fs::write(a.join("was-a"), "").unwrap();
        match OsFs.exchange(&a, &b) {
            Ok(()) => assert!(b.join("was-a").exists() && !a.join("was-a").exists()),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::Unsupported),
        }
    }

    #[test]
    fn create_fails_if_the_file_exists() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let ((), bytes, digest) = write_synced(&OsFs, &path, |out| out.write_all(b"abc")).unwrap();
        assert_eq!((bytes, digest), (3, super::super::digest::sha256_hex(b"abc")));
        assert_eq!(OsFs.create(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    }
}
