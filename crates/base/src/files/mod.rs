//! Atomic file creation: each file is written under a temporary name beside its place and then renamed. Reading of files that are to be
//! files (`read`), temporary folders (`temporary`), and files of others under the names of this program (`own`).

mod own;
mod read;
mod temporary;

pub use own::{is_own, replaces_no_other};
pub use read::{open, open_with, read, read_text};
pub use temporary::{Temporary, WorkFolder};

use crate::error::{Error, IoContext, Result};
use data_encoding::HEXLOWER;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A temporary name for a file or folder beside its place; dropping it removes what has that name.
pub struct TempPath(PathBuf);

impl TempPath {
    /// A random name beside `place`: hosts that share a file system may have equal process ids.
    pub fn beside(place: &Path) -> io::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self(place.with_file_name(format!(".{name}.part-{}", HEXLOWER.encode(&random)))))
    }

    /// The temporary name; empty once the file is at its place.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Renames the file to its place; the temporary name may then be reused.
    fn put(&mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.0, place)?;
        self.0.clear();
        Ok(())
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
    }
}

/// Removes what killed processes have left in `folder` of files that they were writing ([`TempPath`]), to places with names that `of`
/// accepts. No process may be writing them.
pub fn remove_begun(folder: &Path, of: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let place = name.to_str().and_then(|name| {
            let (place, random) = name.strip_prefix('.')?.rsplit_once(".part-")?;
            (random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(place)
        });
        if place.is_some_and(&of) {
            drop(TempPath(entry.path()));
        }
    }
}

/// A file that is being written. If it is not renamed to its place, the previous file stays there, and nothing else.
pub struct AtomicFile {
    file: BufWriter<File>,
    written: TempPath,
    place: PathBuf,
}

impl AtomicFile {
    /// Several processes may write drafts for one place.
    ///
    /// # Errors
    /// Something is there that is no file: a rename would replace a device such as `/dev/null`.
    pub fn new(place: &Path) -> io::Result<Self> {
        if fs::metadata(place).is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("it is no file, so it is not replaced"));
        }
        let written = TempPath::beside(place)?;
        let file = BufWriter::with_capacity(256 << 10, File::create(written.path())?);
        Ok(Self { file, written, place: place.to_owned() })
    }

    /// Uses a name that only this process uses, so that the file of a killed process is overwritten.
    pub fn under(name: PathBuf, place: &Path) -> io::Result<Self> {
        let file = open_with(&name, File::options().write(true).create(true).truncate(true))?;
        let file = BufWriter::with_capacity(256 << 10, file);
        Ok(Self { file, written: TempPath(name), place: place.to_owned() })
    }

    /// Writes the data to disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }

    /// Renames it to its place. Readers see the whole file; only [`AtomicFile::put_synced`] guarantees that for the time
    /// after a power failure.
    pub fn put(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.written.put(&self.place)
    }

    /// Renames it durably: the place has the old file before and the new file after, even across a power failure.
    pub fn put_synced(mut self) -> io::Result<()> {
        self.sync()?;
        let folder = folder(&self.place).to_owned();
        self.put()?;
        sync_folder(&folder)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Replaces a file durably. Only one process at a time may write it.
pub fn replace(place: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = place.as_os_str().to_owned();
    name.push(".partial");
    let written = AtomicFile::under(name.into(), place).and_then(|mut draft| {
        draft.write_all(bytes)?;
        draft.put_synced()
    });
    written.doing("write", place)
}

/// As [`replace`], with a value as indented JSON and a newline.
pub fn replace_json(place: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::internal(format!("cannot write {} as JSON: {e}", place.display())))?;
    text.push('\n');
    replace(place, text.as_bytes())
}

/// The folder that `path` is in.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that this process has locked, until this is dropped. That it is closed would not be enough: a process that another thread is
/// just starting has a copy of it.
#[derive(Debug)]
pub struct LockedFile(pub File);

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = self.unlock();
    }
}

/// Whether `path` is still the open `file`, and not renamed, removed or replaced.
pub fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Makes the entries of a folder durable.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        // Some network file systems can't sync a directory; their renames are durable already, or can't be made so.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_even_if_a_new_process_has_a_copy_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let open = || File::options().create(true).append(true).open(&path).unwrap();
        let held = LockedFile(open());
        held.try_lock().unwrap();
        let copy = held.try_clone().unwrap();
        assert!(open().try_lock().is_err());
        drop(held);
        open().try_lock().unwrap();
        drop(copy);
    }

    /// Names in `folder`, including hidden ones.
    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().expect("ours are text")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_draft_is_visible_only_after_the_rename() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("f");
        fs::write(&place, "old").unwrap();
        let mut draft = AtomicFile::new(&place).unwrap();
        draft.write_all(b"new").unwrap();
        draft.sync().unwrap();
        assert_eq!((fs::read(&place).unwrap(), names(&folder).len()), (b"old".to_vec(), 2));
        draft.put_synced().unwrap();
        assert_eq!((fs::read(&place).unwrap(), names(&folder)), (b"new".to_vec(), vec!["f".to_owned()]));
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (device, link) = (Path::new("/dev/null"), folder.path().join("link"));
        std::os::unix::fs::symlink(device, &link).unwrap();
        for place in [folder.path(), &link] {
            assert!(AtomicFile::new(place).err().unwrap().to_string().contains("is no file"));
        }
        assert_eq!(names(&folder), ["link"]);
    }

    #[test]
    fn a_failed_write_leaves_only_the_previous_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("f");
        replace(&place, b"old").unwrap();
        drop(AtomicFile::new(&place).unwrap());
        assert_eq!((fs::read(&place).unwrap(), names(&folder)), (b"old".to_vec(), vec!["f".to_owned()]));
        // A folder is not replaced.
        fs::create_dir(folder.path().join("g")).unwrap();
        let error = replace(&folder.path().join("g"), b"new").unwrap_err();
        assert!(error.message.starts_with("cannot write ") && error.message.contains("/g: "), "{error}");
        assert_eq!(names(&folder), ["f", "g"]);
        // An existing entry with the draft's name is not removed.
        fs::create_dir(folder.path().join("f.partial")).unwrap();
        replace(&place, b"new").unwrap_err();
        assert_eq!(names(&folder), ["f", "f.partial", "g"]);
        assert!(AtomicFile::new(&folder.path().join("no/such")).is_err());
    }

    #[test]
    fn overwrites_the_draft_of_a_killed_process() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("f");
        fs::write(folder.path().join("f.partial"), "a longer text, torn").unwrap();
        replace(&place, b"new").unwrap();
        assert_eq!((fs::read(&place).unwrap(), names(&folder)), (b"new".to_vec(), vec!["f".to_owned()]));
    }
}
