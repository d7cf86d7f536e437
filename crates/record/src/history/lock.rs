//! The lock file of a run's folder: one run at a time writes to it, a supervisor, or rank 0 under a launcher of ranks.

use super::unwritable;
use crate::RunId;
use base::display;
use base::error::{Error, IoContext, Result};
use base::files::{self, LockedFile};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval between attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(20);
/// For how long a lock may seem to be held because another process asks whether it is ([`FolderLock::is_held`]).
const ASKED: Duration = Duration::from_millis(200);
/// After this time, a message says that the lock is being waited for.
const SOON: Duration = Duration::from_secs(2);
/// Upper limit of a note's size; a longer one was not written by this program.
const MAX_NOTE: u64 = 4096;

/// `.lock` of a run's folder, held until dropped; the kernel releases it when the process dies.
#[derive(Debug)]
pub struct FolderLock {
    file: LockedFile,
    path: PathBuf,
}

/// The holder's entry in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    run: RunId,
    pid: u32,
    host: String,
}

impl FolderLock {
    /// Locks `out_dir`, creating it if necessary. If an earlier attempt of the same `run` holds the lock, waits up to
    /// `patience` for it to end; returns `None` if `stop` becomes true meanwhile.
    ///
    /// # Errors
    /// `ErrorKind::Io`: another run holds the lock, or the folder can't be written.
    pub fn take(
        out_dir: &Path,
        run: &RunId,
        patience: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Self>> {
        let begun = Instant::now();
        let path = out_dir.join(".lock");
        let open = || {
            std::fs::create_dir_all(out_dir).doing("create", out_dir)?;
            let file = files::open_with(&path, File::options().create(true).read(true).write(true));
            file.doing("create", &path)
        };
        let mut file = open().map_err(unwritable)?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {}
                // The folder that it was in has been removed meanwhile.
                Ok(()) if !files::is_at(&file, &path) => {
                    file = open().map_err(unwritable)?;
                    continue;
                }
                // Any other error means a file system without locks.
                Ok(()) | Err(TryLockError::Error(_)) => break,
            }
            let holder = holder(&mut file);
            let leaves = holder.as_ref().is_some_and(|holder| run.continues(&holder.run));
            if stop() {
                return Ok(None);
            }
            if begun.elapsed() >= if leaves { patience } else { ASKED } {
                return Err(taken(out_dir, holder.as_ref()));
            }
            if begun.elapsed() >= SOON && !std::mem::replace(&mut told, true) {
                let who = in_words(holder.as_ref());
                status!(
                    "waiting up to {} s for an earlier attempt of this run to end{who}",
                    patience.as_secs()
                );
            }
            std::thread::sleep(PAUSE);
        }
        let mut file = LockedFile(file);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        note(&mut file, &Holder { run: run.clone(), pid: std::process::id(), host })
            .doing("write", &path)
            .map_err(unwritable)?;
        Ok(Some(Self { file, path }))
    }

    /// Ends the lock of a start that has failed. If it was the first of its folder and no run has begun, the folder is
    /// no run's folder: it only has logs.
    pub fn end_of_failed_start(self) {
        let Some(folder) = self.path.parent() else { return };
        let mut files = ["run.json", "metrics.jsonl", "checkpoints"].iter();
        if !files.any(|name| folder.join(name).exists()) {
            // While it is held: another start that waits for it opens a new file.
            let _ = std::fs::remove_file(&self.path);
            // Only if it is empty.
            let _ = std::fs::remove_dir(folder);
        }
        drop(self.file);
    }

    /// Whether any run is writing to `out_dir` now. Creates nothing; holds the lock for no longer than it takes to ask.
    pub fn is_held(out_dir: &Path) -> bool {
        let asked = files::open(&out_dir.join(".lock")).map(|file| LockedFile(file).try_lock_shared());
        matches!(asked, Ok(Err(TryLockError::WouldBlock)))
    }

    /// Whether a run has ever held the lock of `out_dir`.
    pub fn was_taken(out_dir: &Path) -> bool {
        files::open(&out_dir.join(".lock")).is_ok_and(|mut file| holder(&mut file).is_some())
    }

    /// Whether `.lock` of `out_dir` has what no run notes there.
    pub(super) fn is_of_others(out_dir: &Path) -> bool {
        let mut text = Vec::new();
        let read =
            files::open(&out_dir.join(".lock")).and_then(|file| file.take(MAX_NOTE).read_to_end(&mut text));
        // A run that was killed may have left a part of its note.
        let notes: &[u8] = b"{\"run\":";
        read.is_ok() && !text.starts_with(notes) && !notes.starts_with(&text)
    }

    /// Whether a run other than `run` or its earlier attempts is writing to `out_dir` now. Creates and locks nothing.
    pub fn is_held_by_another_run(out_dir: &Path, run: &RunId) -> bool {
        let Ok(file) = files::open(&out_dir.join(".lock")) else { return false };
        let mut file = LockedFile(file);
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                holder(&mut file).is_none_or(|holder| !run.continues(&holder.run))
            }
            _ => false,
        }
    }
}

fn holder(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(MAX_NOTE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn note(file: &mut File, holder: &Holder) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(holder)?;
    text.push(b'\n');
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)
}

fn taken(out_dir: &Path, holder: Option<&Holder>) -> Error {
    let who = in_words(holder);
    Error::io(format!("another run is writing to {}{who}", out_dir.display()))
        .hint("`--out DIR` writes elsewhere")
}

fn in_words(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |Holder { run, pid, host }| {
        format!(" (process {pid} on {}, run {})", display::name(host), display::name(&run.job))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;
    use base::testing::HANG;

    fn run(job: &str, attempt: u32) -> RunId {
        RunId { job: job.into(), attempt, start: format!("{job}/{attempt}") }
    }

    #[test]
    fn a_lock_that_is_a_pipe_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::rename(base::testing::pipe(dir.path()).unwrap(), dir.path().join(".lock")).unwrap();
        let error = FolderLock::take(dir.path(), &run("a", 0), HANG, &|| false).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        assert!(error.message.contains("no regular file"), "{error}");
    }

    #[test]
    fn another_run_is_rejected_at_once_and_the_holder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("runs/x");
        let held = FolderLock::take(&out, &run("a", 1), HANG, &|| false).unwrap().unwrap();
        let error = FolderLock::take(&out, &run("b", 2), 100 * HANG, &|| false).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io);
        let who = format!("(process {} on ", std::process::id());
        assert!(error.message.contains(&who) && error.message.ends_with(", run a)"), "{error}");
        assert!(
            FolderLock::is_held_by_another_run(&out, &run("b", 2))
                && !FolderLock::is_held_by_another_run(&out, &run("a", 2))
        );
        assert!(FolderLock::is_held(&out));
        drop(held);
        assert!(!FolderLock::is_held_by_another_run(&out, &run("b", 2)) && !FolderLock::is_held(&out));
        assert!(FolderLock::was_taken(&out) && !FolderLock::was_taken(dir.path()));
        FolderLock::take(&out, &run("b", 2), HANG, &|| false).unwrap().unwrap();
    }

    #[test]
    fn a_first_start_that_fails_leaves_no_folder_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("x");
        let take = || FolderLock::take(&out, &run("a", 1), HANG, &|| false).unwrap().unwrap();
        take().end_of_failed_start();
        assert!(!out.exists());
        let lock = take();
        std::fs::write(out.join("metrics.jsonl"), "").unwrap();
        lock.end_of_failed_start();
        assert!(FolderLock::was_taken(&out), "it has a run");
    }

    #[test]
    fn a_folder_that_is_removed_while_its_lock_is_waited_for_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("x");
        let held = FolderLock::take(&out, &run("a", 1), HANG, &|| false).unwrap().unwrap();
        let (waits, waiting) = std::sync::mpsc::channel();
        let to_take = out.clone();
        let next = std::thread::spawn(move || {
            // Asked after each attempt.
            FolderLock::take(&to_take, &run("a", 2), HANG, &|| waits.send(()).is_err())
        });
        waiting.recv_timeout(HANG).unwrap();
        std::fs::rename(&out, dir.path().join("x.removing")).unwrap();
        drop(held);
        let taken = next.join().unwrap().unwrap().unwrap();
        assert!(FolderLock::is_held(&out), "it is the lock of this folder");
        drop(taken);
    }

    #[test]
    fn waits_for_an_earlier_attempt_up_to_a_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let held = FolderLock::take(dir.path(), &run("a", 1), HANG, &|| false).unwrap().unwrap();
        let error = FolderLock::take(dir.path(), &run("a", 2), Duration::ZERO, &|| false).unwrap_err();
        assert!(error.message.contains("another run is writing"), "{error}");
        // A process that is asked to stop does not wait.
        assert!(FolderLock::take(dir.path(), &run("a", 2), 100 * HANG, &|| true).unwrap().is_none());
        let out = dir.path().to_owned();
        let next = std::thread::spawn(move || FolderLock::take(&out, &run("a", 2), HANG, &|| false));
        drop(held);
        next.join().unwrap().unwrap().unwrap();
        // The note only contains the new holder.
        let text = std::fs::read(dir.path().join(".lock")).unwrap();
        assert_eq!(serde_json::from_slice::<Holder>(&text).unwrap().run, run("a", 2));
    }
}
