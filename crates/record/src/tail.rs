//! Follows `metrics.jsonl` while a run writes it: each poll reads only the lines that are complete and new.

use super::events::Event;
use super::lines::{MAX_LINE, events};
use base::error::{IoContext, Result};
use base::files;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes before the place of reading that are compared when the file has changed: enough to hold the time of a line.
const SEAM: usize = 512;

/// The result of a poll.
pub enum PollResult<'a> {
    /// The file is another one, or was cut: what came before is void.
    Anew,
    /// An event, and its text without the newline.
    Event(Box<Event>, &'a [u8]),
}

/// A place in a file that grows. A resume replaces the file, which then counts as a new one.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// The file at the last poll.
    seen: Option<FileStamp>,
    /// Where the first line begins that is not read.
    offset: u64,
    /// The bytes before `offset`.
    seam: Vec<u8>,
    /// `offset` is within a line that is too long to be an event.
    within: bool,
}

/// A version of a file or folder: device, inode, length, and the time of the last change.
pub type FileStamp = (u64, u64, u64, i64, i64);

fn stamp(about: &Metadata) -> FileStamp {
    (about.dev(), about.ino(), about.len(), about.mtime(), about.mtime_nsec())
}

/// The version that is there now.
pub fn file_stamp(path: &Path) -> Option<FileStamp> {
    fs::metadata(path).ok().as_ref().map(stamp)
}

impl Tail {
    /// At the start of a file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), seen: None, offset: 0, seam: Vec::new(), within: false }
    }

    /// Bytes of the file at the last poll.
    pub fn bytes(&self) -> u64 {
        self.seen.map_or(0, |seen| seen.2)
    }

    /// Passes what is new since the last poll to `f`; returns whether there was something. A line without its end is read when
    /// it has one. A file that has not changed is not opened.
    ///
    /// # Errors
    /// An I/O error; a file that is not there is none.
    pub fn read(&mut self, mut f: impl FnMut(PollResult<'_>)) -> Result<bool> {
        let path = self.path.clone();
        match self.follow(&path, &mut f) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(self.begin(&mut f)),
            done => {
                if done.is_err() {
                    // The next poll tries again.
                    self.seen = self.seen.map(|seen| (seen.0, seen.1, seen.2, i64::MIN, 0));
                }
                done.doing("read", &path)
            }
        }
    }

    fn follow(&mut self, path: &Path, f: &mut impl FnMut(PollResult<'_>)) -> io::Result<bool> {
        if self.seen == Some(stamp(&fs::metadata(path)?)) {
            return Ok(false);
        }
        let mut file = files::open(path)?;
        let now = stamp(&file.metadata()?);
        let continues = match self.seen {
            None => true,
            Some(before) => {
                (before.0, before.1) == (now.0, now.1) && now.2 >= self.offset && self.fits(&mut file)?
            }
        };
        let mut any = !continues && self.begin(f);
        file.seek(SeekFrom::Start(self.offset))?;
        self.seen = Some(now);
        let (mut reader, mut read) = (BufReader::new(file), Vec::new());
        loop {
            read.clear();
            let n = Read::take(&mut reader, MAX_LINE as u64).read_until(b'\n', &mut read)?;
            let whole = read.last() == Some(&b'\n');
            if !whole && n < MAX_LINE {
                return Ok(any);
            }
            self.pass(&read);
            if std::mem::replace(&mut self.within, !whole) || !whole {
                continue;
            }
            for (event, bytes) in events(&read[..n - 1], true) {
                if let Some(event) = event {
                    any = true;
                    f(PollResult::Event(Box::new(event), bytes));
                }
            }
        }
    }

    /// Whether the bytes before the place of reading are those that were read.
    fn fits(&self, file: &mut File) -> io::Result<bool> {
        let mut bytes = vec![0; self.seam.len()];
        file.seek(SeekFrom::Start(self.offset - bytes.len() as u64))?;
        match file.read_exact(&mut bytes) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
            done => done.map(|()| bytes == self.seam),
        }
    }

    /// Continues after `read`.
    fn pass(&mut self, read: &[u8]) {
        self.offset += read.len() as u64;
        self.seam.extend_from_slice(&read[read.len().saturating_sub(SEAM)..]);
        self.seam.drain(..self.seam.len().saturating_sub(SEAM));
    }

    /// Goes to the start of another file; whether there was one before.
    fn begin(&mut self, f: &mut impl FnMut(PollResult<'_>)) -> bool {
        let before = self.seen.is_some();
        *self = Self::new(std::mem::take(&mut self.path));
        if before {
            f(PollResult::Anew);
        }
        before
    }
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;
