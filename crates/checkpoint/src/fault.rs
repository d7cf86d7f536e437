//! A fault injector for tests: a file system that fails or dies at the n-th operation.
//!
//! A test fixture, passed to [`CheckpointStore::open_with`](super::CheckpointStore::open_with) in place of [`OsFs`];
//! the store itself contains no test code.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fs::{Fs, OsFs, SyncWrite};
use crossbeam_channel::Receiver;

/// What fails, and at which operation (all operations count, writes included, from 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The operation fails with this errno (`libc::ENOSPC`, `libc::EIO`, …); all later ones succeed.
    ErrorAt(usize, i32),
    /// From this write on, every write fails with the errno (a full disk); other operations succeed.
    WritesFailFrom(usize, i32),
    /// The process dies at the operation: a write stops halfway, and nothing runs after it, not even clean-up.
    CrashAt(usize),
    /// As `CrashAt`, on a file system that can't exchange directories, such as some network file systems.
    CrashWithoutExchangeAt(usize),
}

#[derive(Default)]
struct Log {
    next: usize,
    dead: bool,
    operations: Vec<String>,
}

/// [`OsFs`] with one [`Fault`] and a log of its operations.
#[derive(Clone)]
pub struct FaultyFs {
    fault: Fault,
    log: Arc<Mutex<Log>>,
    /// The first operation of each checkpoint waits for a message.
    gate: Option<Receiver<()>>,
}

enum FaultVerdict {
    Proceed,
    /// A write writes half its bytes before the error.
    FailHalfway(io::Error),
}

impl FaultyFs {
    pub fn new(fault: Fault) -> Self {
        Self { fault, log: Arc::default(), gate: None }
    }

    /// A disk without faults that blocks until the test releases the first operation of each checkpoint.
    pub fn gated(gate: Receiver<()>) -> Self {
        Self { gate: Some(gate), ..Self::new(Fault::None) }
    }

    /// Every operation so far, with the name that it writes or makes: `sync model.safetensors`, `rename step-00000007`.
    pub fn operations(&self) -> Vec<String> {
        self.lock().operations.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_operation(&self, verb: &str, path: &Path) -> FaultVerdict {
        let mut log = self.lock();
        let n = log.next;
        log.next += 1;
        if log.dead {
            return FaultVerdict::FailHalfway(io::Error::other("the process is dead"));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        log.operations.push(format!("{verb} {name}"));
        let error = match self.fault {
            Fault::ErrorAt(at, errno) if n == at => io::Error::from_raw_os_error(errno),
            Fault::WritesFailFrom(at, errno) if n >= at && verb == "write" => {
                io::Error::from_raw_os_error(errno)
            }
            Fault::CrashAt(at) | Fault::CrashWithoutExchangeAt(at) if n >= at => {
                log.dead = true;
                io::Error::other("the process is dead")
            }
            _ => return FaultVerdict::Proceed,
        };
        FaultVerdict::FailHalfway(error)
    }

    fn whole(&self, verb: &str, path: &Path, op: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.next_operation(verb, path) {
            FaultVerdict::Proceed => op(),
            FaultVerdict::FailHalfway(e) => Err(e),
        }
    }

    fn is_dead(&self) -> bool {
        self.lock().dead
    }
}

impl Fs for FaultyFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let _ = self.gate.as_ref().map(|gate| gate.recv());
        self.whole("create_dir", path, || OsFs.create_dir(path))
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn SyncWrite>> {
        self.whole("create", path, || Ok(()))?;
        Ok(Box::new(FaultyFile { fs: self.clone(), path: path.to_owned(), file: OsFs.create(path)? }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole("rename", to, || OsFs.rename(from, to))
    }
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        if matches!(self.fault, Fault::CrashWithoutExchangeAt(_)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.whole("exchange", b, || OsFs.exchange(a, b))
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.whole("sync_dir", path, || OsFs.sync_dir(path))
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let alive = !self.is_dead();
        let result = self.whole("remove", path, || OsFs.remove_dir_all(path));
        if alive && self.is_dead() {
            // An interrupted removal has removed something. The state file is the worst case.
            let _ = std::fs::remove_file(path.join(super::format::STATE_FILE));
        }
        result
    }
}

struct FaultyFile {
    fs: FaultyFs,
    path: std::path::PathBuf,
    file: Box<dyn SyncWrite>,
}

impl Write for FaultyFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let dead = self.fs.is_dead();
        match self.fs.next_operation("write", &self.path) {
            FaultVerdict::Proceed => self.file.write(buf),
            FaultVerdict::FailHalfway(e) => {
                if !dead {
                    self.file.write_all(&buf[..buf.len() / 2])?;
                }
                Err(e)
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SyncWrite for FaultyFile {
    fn sync(&mut self) -> io::Result<()> {
        match self.fs.next_operation("sync", &self.path) {
            FaultVerdict::Proceed => self.file.sync(),
            FaultVerdict::FailHalfway(e) => Err(e),
        }
    }
}
