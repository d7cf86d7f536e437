//! The partial file of a download: `.NAME.part` beside the target. The process that writes it holds a lock on it, which the
//! kernel releases when the process dies.

use super::name;
use base::error::{IoContext, Result};
use base::files::{LockedFile, TempPath, folder, is_at, open_with, sync_folder};
use std::fs::{File, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval between attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct PartialFile {
    file: LockedFile,
    path: PathBuf,
    len: u64,
    /// One transfer of this process wrote all that is in it.
    whole: bool,
    /// Removes the file of a file system without locks, whose name no later process knows.
    scratch: Option<TempPath>,
}

impl PartialFile {
    /// Locks the partial file of `target` and opens it at its end. If another process holds it, waits for that one to end; `None` if
    /// it has put the target in place.
    pub fn lock(target: &Path, sleep: &dyn Fn(Duration), say: &mut dyn FnMut(&str)) -> Result<Option<Self>> {
        let path = path_of(target);
        let mut reported = false;
        loop {
            let file = open_with(&path, File::options().create(true).read(true).write(true));
            let file = file.doing("create", &path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut reported, true) {
                        say(&format!("waiting for another process that downloads {}", name(target)));
                    }
                    sleep(PAUSE);
                    continue;
                }
                // A file system without locks.
                Err(TryLockError::Error(_)) => return Self::unlocked(target).map(Some),
            }
            // The process before may have renamed or removed the file that was opened here.
            if !is_at(&file, &path) {
                continue;
            }
            let mut part = Self { file: LockedFile(file), path, len: 0, whole: true, scratch: None };
            if target.is_file() {
                part.leave();
                return Ok(None);
            }
            part.len = part.file.seek(SeekFrom::End(0)).doing("read", &part.path)?;
            part.whole = part.len == 0;
            return Ok(Some(part));
        }
    }

    /// A file of this process only.
    fn unlocked(target: &Path) -> Result<Self> {
        let scratch = TempPath::beside(target).doing("create", target)?;
        let path = scratch.path().to_owned();
        let file = File::create(&path).doing("create", &path)?;
        Ok(Self { file: LockedFile(file), path, len: 0, whole: true, scratch: Some(scratch) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether one transfer of this process wrote all that is in it.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// What follows is of another transfer.
    pub fn begin_transfer(&mut self) {
        self.whole = self.len == 0;
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).doing("write", &self.path)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Empties the file.
    pub fn restart(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.doing("write", &self.path)?;
        (self.len, self.whole) = (0, true);
        Ok(())
    }

    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().doing("write", &self.path)
    }

    /// Renames the file to `target`; then releases the lock.
    pub fn put(self, target: &Path) -> Result<()> {
        std::fs::rename(&self.path, target).doing("create", target)?;
        let parent = folder(target);
        sync_folder(parent).doing("write", parent)
    }

    /// Leaves what a later attempt can continue.
    pub fn leave(self) {
        if self.len == 0 && self.scratch.is_none() {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// A message with the name of the target instead of this file's.
    pub fn named_as(&self, target: &Path, message: &str) -> String {
        message.replace(&self.path.display().to_string(), &target.display().to_string())
    }
}

fn path_of(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(target: &Path) -> Option<PartialFile> {
        PartialFile::lock(target, &|_| panic!("nobody holds it"), &mut |_| panic!("nobody holds it")).unwrap()
    }

    #[test]
    fn a_part_is_continued_and_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("f");
        let mut part = lock(&target).unwrap();
        part.append(b"ab").unwrap();
        part.leave();
        let mut part = lock(&target).unwrap();
        assert_eq!((part.len(), part.is_whole()), (2, false));
        part.append(b"c").unwrap();
        part.put(&target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"abc");
        // It is there: nothing to do, and nothing else is left.
        assert!(lock(&target).is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_empty_part_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("f");
        let mut part = lock(&target).unwrap();
        part.append(b"ab").unwrap();
        part.restart().unwrap();
        part.append(b"c").unwrap();
        assert_eq!(std::fs::read(part.path()).unwrap(), b"c");
        part.restart().unwrap();
        part.leave();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// The holder puts the target in place while the other one waits.
    #[test]
    fn another_process_waits_for_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("f");
        let holder = std::cell::RefCell::new(lock(&target));
        let put = |_| {
            if let Some(mut part) = holder.borrow_mut().take() {
                part.append(b"theirs").unwrap();
                part.put(&target).unwrap();
            }
        };
        let mut said = Vec::new();
        let part = PartialFile::lock(&target, &put, &mut |line| said.push(line.to_owned())).unwrap();
        assert!(part.is_none());
        assert_eq!(said, ["waiting for another process that downloads f"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"theirs");
    }

    /// The holder fails, or dies: what it has downloaded is continued.
    #[test]
    fn the_lock_of_a_holder_that_failed_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("f");
        let mut holder = lock(&target).unwrap();
        holder.append(b"half").unwrap();
        let holder = std::cell::RefCell::new(Some(holder));
        let part = PartialFile::lock(&target, &|_| drop(holder.borrow_mut().take()), &mut |_| ()).unwrap();
        assert_eq!(part.unwrap().len(), 4);
    }
}
