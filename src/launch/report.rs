//! The message about a worker that failed: which one, how it ended, what it said last, and who merely followed.

use std::fmt::Write as _;
use std::path::Path;

use super::failure::Failure;
use super::logs;
use super::verdict::{Asked, Class, End, WorkerStatus};
use crate::error::{Error, ExitCode};

/// What the report says about each rank beyond the state machine's knowledge.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    pub end: Option<&'a End>,
    pub class: Option<Class>,
    pub pid: Option<u32>,
}

/// The error that a failed run ends with.
///
/// `ranks` has one entry a rank; on one node, local ranks are ranks. `code` is the verdict's.
pub fn worker_failed(ranks: &[Rank<'_>], culprit: usize, code: ExitCode, log_dir: &Path) -> Error {
    let rank = &ranks[culprit];
    let mut text = format!("rank {culprit} of {}", ranks.len());
    if let Some(pid) = rank.pid {
        let _ = write!(text, " (local rank {culprit}, pid {pid})");
    }
    text.push(' ');
    match rank.end {
        Some(end) if end.overdue => text.push_str("did not stop in time and was killed"),
        Some(end) => text.push_str(&describe(&end.status)),
        None => text.push_str("could not be killed: the kernel has not ended it"),
    }
    let note = rank.pid.and_then(|pid| Failure::read(log_dir, culprit, pid));
    let mut hint = default_hint(code);
    match note {
        Some(note) => {
            let _ = write!(text, ": {}", note.message);
            hint = note.hint.or(hint);
            // A worker's own words say it all when the job itself is at fault.
            if !matches!(code, ExitCode::Spec | ExitCode::Usage | ExitCode::Unavailable) {
                push_tail(&mut text, &logs::path(log_dir, culprit));
            }
        }
        None if rank.pid.is_some() => push_tail(&mut text, &logs::path(log_dir, culprit)),
        None => {}
    }
    push_followers(&mut text, ranks, culprit);
    let error = Error::new(code, text);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// `exited with 78 (…)`, `was killed by signal 9 (SIGKILL; …)`.
pub fn describe(status: &WorkerStatus) -> String {
    match status {
        WorkerStatus::Exited(code) => match ExitCode::from_status(*code) {
            Some(known) => format!("exited with {code} ({})", meaning(known)),
            None if *code == 101 => "exited with 101 (a Rust panic)".to_string(),
            None => format!("exited with {code}"),
        },
        WorkerStatus::Signaled { signal, core_dumped } => {
            let name = signal_hook::low_level::signal_name(*signal).unwrap_or("an unnamed signal");
            let often = match *signal {
                libc::SIGKILL => "; often the kernel's out-of-memory killer",
                libc::SIGSEGV | libc::SIGBUS | libc::SIGILL => "; a crash in native code",
                libc::SIGABRT => "; the process gave itself up, its last words are on its standard error",
                _ => "",
            };
            let core = if *core_dumped { ", core dumped" } else { "" };
            format!("was killed by signal {signal} ({name}{often}{core})")
        }
        WorkerStatus::NotStarted(error) => format!("could not be started: {error}"),
    }
}

/// An exit code's documented meaning.
pub fn meaning(code: ExitCode) -> &'static str {
    match code {
        ExitCode::Done => "done",
        ExitCode::Usage => "bad command line",
        ExitCode::Unavailable => "a device or backend is missing",
        ExitCode::Internal => "internal error",
        ExitCode::Checkpoint => "a checkpoint can't be read or written",
        ExitCode::Stopped => "stopped on request",
        ExitCode::Spec => "the spec or its data is invalid",
        ExitCode::WorkerFailed => "a worker failed",
        ExitCode::Collective => "a collective timed out or lost a peer",
        ExitCode::NonFinite => "loss or gradient is not finite",
        ExitCode::Rendezvous => "the processes did not find each other",
    }
}

fn default_hint(code: ExitCode) -> Option<String> {
    match code {
        ExitCode::WorkerFailed | ExitCode::Collective | ExitCode::Rendezvous => {
            Some("`--resume auto` continues from the newest checkpoint".into())
        }
        _ => None,
    }
}

fn push_tail(text: &mut String, path: &Path) {
    match logs::tail(path, logs::TAIL_LINES, logs::TAIL_BYTES) {
        Ok(lines) if !lines.is_empty() => {
            let _ = write!(text, "\n\nthe end of its log, {}:", path.display());
            for line in lines {
                let _ = write!(text, "\n    {line}");
            }
        }
        Ok(_) => {
            let _ = write!(text, "\n\nits log, {}, is empty", path.display());
        }
        Err(e) => {
            let _ = write!(text, "\n\nits log, {}, can't be read: {e}", path.display());
        }
    }
}

/// One line for those that ended because of the culprit, so that nobody takes their messages for the cause.
fn push_followers(text: &mut String, ranks: &[Rank<'_>], culprit: usize) {
    let mut groups: Vec<(&'static str, Vec<usize>)> = Vec::new();
    for (rank, info) in ranks.iter().enumerate().filter(|(rank, _)| *rank != culprit) {
        let how = match (info.end, info.class) {
            (Some(_), Some(Class::Done)) => "had finished",
            (Some(_), Some(Class::Stopped)) => "saved and stopped",
            (Some(_), Some(Class::Echo)) => "lost this peer and ended",
            (Some(e), Some(Class::Provoked)) if e.asked == Asked::ToDie => {
                "did not end when asked and had to be killed"
            }
            (Some(_), Some(Class::Provoked)) => "ended when asked",
            (Some(_), _) => "failed later",
            (None, _) if info.pid.is_some() => "could not be killed",
            (None, _) => "had not been started",
        };
        match groups.iter_mut().find(|(h, _)| *h == how) {
            Some((_, members)) => members.push(rank),
            None => groups.push((how, vec![rank])),
        }
    }
    if groups.is_empty() {
        return;
    }
    let parts: Vec<String> = groups.iter().map(|(how, members)| format!("{} {how}", name(members))).collect();
    let _ = write!(text, "\n\n{}", parts.join("; "));
}

/// `rank 1`, `ranks 0, 2 and 3`, `ranks 0 to 7`.
fn name(ranks: &[usize]) -> String {
    match ranks {
        [one] => format!("rank {one}"),
        [first, .., last] if ranks.len() > 2 && last - first + 1 == ranks.len() => {
            format!("ranks {first} to {last}")
        }
        [init @ .., last] => {
            let init: Vec<String> = init.iter().map(usize::to_string).collect();
            format!("ranks {} and {last}", init.join(", "))
        }
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(status: WorkerStatus, asked: Asked) -> End {
        End { status, asked, order: 0, overdue: false }
    }

    fn rank<'a>(end: &'a End, class: Class) -> Rank<'a> {
        Rank { end: Some(end), class: Some(class), pid: Some(4711) }
    }

    #[test]
    fn a_killed_rank_is_named_with_its_log_and_its_followers() {
        let folder = tempfile::tempdir().expect("tempdir");
        let log = logs::path(folder.path(), 1);
        std::fs::write(&log, "step 1\nstep 2\n").expect("write");
        let killed = end(WorkerStatus::Signaled { signal: 9, core_dumped: false }, Asked::Nothing);
        let echo = end(WorkerStatus::Exited(91), Asked::ToStop);
        let slow = end(WorkerStatus::Signaled { signal: 9, core_dumped: false }, Asked::ToDie);
        let ranks = [
            rank(&echo, Class::Echo),
            rank(&killed, Class::Root),
            rank(&echo, Class::Echo),
            rank(&slow, Class::Provoked),
        ];
        let error = worker_failed(&ranks, 1, ExitCode::WorkerFailed, folder.path());
        let expected = format!(
            "rank 1 of 4 (local rank 1, pid 4711) was killed by signal 9 (SIGKILL; often the kernel's out-of-memory \
             killer)\n\nthe end of its log, {}:\n    step 1\n    step 2\n\nranks 0 and 2 lost this peer and ended; \
             rank 3 did not end when asked and had to be killed\n\nhint: `--resume auto` continues from the newest \
             checkpoint",
            log.display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_workers_own_words_come_first() {
        let folder = tempfile::tempdir().expect("tempdir");
        std::fs::write(logs::path(folder.path(), 0), "noise\n").expect("write");
        let note = Failure {
            rank: 0,
            pid: 4711,
            code: 78,
            message: "data/train.bin is missing".into(),
            hint: Some("get it".into()),
        };
        note.write(folder.path()).expect("write");
        let failed = end(WorkerStatus::Exited(78), Asked::Nothing);
        let error = worker_failed(&[rank(&failed, Class::Root)], 0, ExitCode::Spec, folder.path());
        assert_eq!(
            error.to_string(),
            "rank 0 of 1 (local rank 0, pid 4711) exited with 78 (the spec or its data is invalid): data/train.bin is \
             missing\n\nhint: get it"
        );
        assert_eq!(error.code, ExitCode::Spec);
    }

    #[test]
    fn statuses_read_well() {
        assert_eq!(describe(&WorkerStatus::Exited(3)), "exited with 3");
        let dumped = describe(&WorkerStatus::Signaled { signal: 11, core_dumped: true });
        assert_eq!(dumped, "was killed by signal 11 (SIGSEGV; a crash in native code, core dumped)");
        assert_eq!(name(&[0, 1, 2, 3]), "ranks 0 to 3");
        assert_eq!(name(&[0, 2, 3]), "ranks 0, 2 and 3");
        assert_eq!(name(&[4]), "rank 4");
    }
}
