//! torchrun's error file: torchrun names one for each process that it starts (`TORCHELASTIC_ERROR_FILE`), and shows the one
//! with the oldest time as the root cause when the job has failed. This program writes it under torchrun, and reads those of
//! the programs that it starts in torchrun's place. The format is that of
//! `torch.distributed.elastic.multiprocessing.errors`, which shows `py_callstack`.

use super::failure::{self, Failure, write_atomically};
use base::error::{Error, ErrorKind};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const VARIABLE: &str = "TORCHELASTIC_ERROR_FILE";

/// Writes this process's error, if torchrun has named a file. The first error of the process counts: later ones follow from it.
pub fn write_error_file(error: &Error) {
    write(&error.message, error.hint.as_deref(), None);
}

/// The same for the failure of a rank.
pub fn write_error_file_of(note: &Failure) {
    write(&note.message, note.hint.as_deref(), Some(note));
}

fn write(message: &str, hint: Option<&str>, note: Option<&Failure>) {
    let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from).filter(|p| !p.as_os_str().is_empty())
    else {
        return;
    };
    static WRITTEN: AtomicBool = AtomicBool::new(false);
    write_first(&WRITTEN, &path, message, hint, note);
}

fn write_first(written: &AtomicBool, path: &Path, message: &str, hint: Option<&str>, note: Option<&Failure>) {
    if written.swap(true, Ordering::SeqCst) {
        return;
    }
    // The failure is reported elsewhere too.
    if let Err(e) = write_atomically(path, &content(message, hint, note, SystemTime::now())) {
        tracing::warn!("cannot write torchrun's error file {}: {e}", path.display());
    }
}

fn content(message: &str, hint: Option<&str>, note: Option<&Failure>, now: SystemTime) -> Value {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut text = match note {
        Some(note) => format!("rank {}: {message}", note.rank),
        None => message.to_owned(),
    };
    if let Some(whereabouts) = note.and_then(Failure::whereabouts) {
        text.push_str("\nat ");
        text.push_str(&whereabouts);
    }
    if let Some(hint) = hint {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    json!({ "message": {
        "message": message,
        "extraInfo": { "py_callstack": text, "timestamp": seconds.to_string() },
    } })
}

/// The error file of a worker.
pub(super) fn path(log_dir: &Path, rank: usize) -> PathBuf {
    log_dir.join(format!("error-rank-{rank}.json"))
}

/// Writes the failure note of a worker that has recorded its error.
pub(super) fn to_note(log_dir: &Path, rank: usize, pid: u32) {
    let Some(note) = read(&path(log_dir, rank), rank, pid) else { return };
    // The worker's log has the error too.
    if let Err(e) = note.write(log_dir) {
        tracing::warn!("cannot write the failure note of rank {rank} to {}: {e}", log_dir.display());
    }
}

/// `None` if there is no record, or it can't be read. The time in the file has whole seconds; that of the file is finer.
fn read(path: &Path, rank: usize, pid: u32) -> Option<Failure> {
    let file = base::files::open(path).ok()?;
    let written = file.metadata().and_then(|m| m.modified()).ok()?;
    let mut bytes = Vec::new();
    file.take(failure::MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let value: Value = serde_json::from_slice(&bytes).ok()?;
    let record = &value["message"];
    let message = record.as_str().or_else(|| record["message"].as_str())?;
    let error = Error::new(ErrorKind::WorkerFailed, message.lines().next().unwrap_or_default());
    let age = SystemTime::now().duration_since(written).unwrap_or_default();
    Some(Failure {
        pid,
        monotonic_ns: u64::try_from(failure::monotonic().saturating_sub(age).as_nanos()).unwrap_or(u64::MAX),
        traceback: record["extraInfo"]["py_callstack"].as_str().map(str::to_owned),
        ..Failure::new(rank, &error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_content_is_what_torchruns_summary_reads() {
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_999);
        let error = Error::data("data/x.bin is missing").hint("fetch it");
        let note = Failure::new(3, &error);
        let value = content(&error.message, error.hint.as_deref(), Some(&note), now);
        assert_eq!(
            value,
            json!({ "message": {
                "message": "data/x.bin is missing",
                "extraInfo": {
                    "py_callstack": "rank 3: data/x.bin is missing\nhint: fetch it",
                    "timestamp": "1700000000",
                },
            } })
        );
    }

    #[test]
    fn a_record_becomes_the_note_of_the_process_that_left_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let record = |text: &str| {
            std::fs::write(path(dir.path(), 1), text).expect("writable");
            to_note(dir.path(), 1, 77);
            Failure::read(dir.path(), 1, 77)
        };
        assert_eq!(record("{\"message\":"), None);
        assert_eq!(record("[]"), None);
        let before = u64::try_from(failure::monotonic().as_nanos()).expect("the time since the boot");
        let text = r#"{"message": {"message": "ValueError: no\nmore", "extraInfo": {"py_callstack": "Traceback:\n  x", "timestamp": "1"}}}"#;
        let note = record(text).expect("a note");
        assert_eq!((note.message.as_str(), note.code), ("ValueError: no", 90));
        assert_eq!(note.traceback.as_deref(), Some("Traceback:\n  x"));
        // File times are those of the kernel's last tick.
        assert!(note.monotonic_ns.abs_diff(before) < 1_000_000_000, "{} {before}", note.monotonic_ns);
        assert_eq!(record(r#"{"message": "text"}"#).expect("a note").message, "text");
        failure::clear(dir.path(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn the_first_error_of_a_process_stays_and_replaces_an_earlier_file() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (path, written) = (dir.path().join("error.json"), AtomicBool::new(false));
        std::fs::write(&path, "of another run").expect("writable");
        write_first(&written, &path, "first", None, None);
        write_first(&written, &path, "second", None, None);
        let text = std::fs::read_to_string(&path).expect("written");
        assert!(text.contains("first") && !text.contains("second"), "{text}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }
}
