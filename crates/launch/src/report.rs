//! The report about a failed worker: its rank, how it ended, its last message, and which ranks failed as a consequence.

use std::fmt::Write as _;
use std::path::Path;

use super::cause::FailureCause;
use super::failure::Failure;
use super::flight::FlightRecord;
use super::logs;
use super::verdict::{self, Class, End, Requested, WorkerStatus};
use crate::ExitCode;
use collectives::rendezvous::name_ranks;

/// How a node's part of a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeEnd {
    Done,
    /// Saved and stopped, or taken down on request.
    Stopped,
    Failed(NodeFailure),
}

/// A failure of this node's part of a generation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeFailure {
    pub code: ExitCode,
    #[serde(rename = "cause")]
    pub attribution: Attribution,
    /// A restart may succeed.
    pub(crate) retry: bool,
    /// The rank that failed; for a consequence, the peer that it reports as lost.
    pub rank: Option<usize>,
    /// The message for the user.
    pub message: String,
    pub hint: Option<String>,
}

impl NodeFailure {
    /// One of no rank in particular.
    pub fn new(cause: FailureCause, attribution: Attribution, message: impl Into<String>) -> Self {
        let (code, retry) = (cause.code(), cause.is_retryable());
        Self { code, attribution, retry, rank: None, message: message.into(), hint: None }
    }
}

/// How close to the root cause this node's failure is. Of several nodes, the one with the greatest is blamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attribution {
    /// A rank lost a peer on another node.
    Consequence,
    /// A rank of this node did not end when the node was recalled and had to be killed; it may be the one that other
    /// ranks lost.
    Unresponsive,
    /// The node itself was lost.
    LostNode,
    /// A rank of this node was silent, according to its peers.
    Blamed,
    /// A rank of this node failed independently.
    Root,
}

/// Lines of a traceback that a report shows.
const TRACEBACK_LINES: usize = 40;

/// What the report needs about a rank besides the state machine's data.
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    pub end: Option<&'a End>,
    pub class: Option<Class>,
    pub pid: Option<u32>,
}

impl Rank<'_> {
    fn is_consequence(&self) -> bool {
        self.class.is_some_and(Class::is_consequence)
    }

    /// It did not end when its node was recalled.
    fn is_unresponsive(&self) -> bool {
        self.class == Some(Class::OnRequest)
            && self.end.is_some_and(|end| end.requested == Requested::Kill && !end.overdue)
    }
}

/// This node's part of the world, and its log folder.
#[derive(Clone, Copy, Debug)]
pub struct NodeContext<'a> {
    /// The global rank of local rank 0.
    pub first_rank: usize,
    pub world_size: usize,
    pub log_dir: &'a Path,
}

impl NodeContext<'_> {
    fn rank(&self, local: usize) -> usize {
        self.first_rank + local
    }
}

/// The report about a generation that failed on this node.
///
/// `ranks` has one entry per local rank; `culprit` (local) and `cause` come from the verdict.
pub fn worker_failed(
    ranks: &[Rank<'_>],
    culprit: usize,
    cause: FailureCause,
    context: NodeContext<'_>,
) -> NodeFailure {
    let notes: Vec<Option<Failure>> = ranks
        .iter()
        .enumerate()
        .map(|(local, info)| Failure::read(context.log_dir, context.rank(local), info.pid?))
        .collect();
    let blamed = blamed(ranks, &notes, culprit, context);
    let (culprit, witness) = blamed.unwrap_or((culprit, culprit));
    let note = notes[witness].as_ref();
    let hint = note.and_then(|note| note.hint.clone());
    let text = match note.filter(|_| cannot_begin(cause, &notes)) {
        Some(note) if context.rank(culprit) == 0 => note.message.clone(),
        Some(note) => format!("rank {}: {}", context.rank(culprit), note.message),
        None => {
            let mut text = headline(ranks, culprit, witness, context);
            note.iter().for_each(|note| text += &format!(": {}", note.message));
            // If the job itself is at fault, the worker's own message is sufficient.
            let log = logs::path(context.log_dir, context.rank(culprit));
            match note.and_then(|note| note.traceback.as_deref()) {
                Some(traceback) => push_traceback(&mut text, traceback, &log),
                None if ranks[culprit].pid.is_some() && !(cause.is_of_job() && note.is_some()) => {
                    push_tail(&mut text, &log, context.rank(culprit) == 0);
                }
                None => {}
            }
            push_followers(&mut text, ranks, culprit, context);
            push_places(&mut text, &notes, context);
            push_records(&mut text, ranks.len(), context);
            text
        }
    };
    let own = Some(context.rank(culprit));
    let (attribution, rank) = match ranks[culprit].class {
        _ if blamed.is_some() => (Attribution::Blamed, own),
        Some(class) if class.is_consequence() || class == Class::OnRequestAfterLoss => {
            (Attribution::Consequence, note.and_then(|note| note.peer))
        }
        _ if ranks[culprit].is_unresponsive() => (Attribution::Unresponsive, own),
        _ => (Attribution::Root, own),
    };
    NodeFailure { rank, hint, ..NodeFailure::new(cause, attribution, text) }
}

/// Whether the job failed before its first step for a reason unrelated to ranks: then its message explains more than anything about ranks.
fn cannot_begin(cause: FailureCause, notes: &[Option<Failure>]) -> bool {
    let begun = |note: &Failure| note.place.as_ref().is_some_and(|place| place.step > 0);
    (cause.is_of_job() || cause.code() == ExitCode::Io) && !notes.iter().flatten().any(begun)
}

const STOPPED: WorkerStatus = WorkerStatus::Exited(ExitCode::Stopped as i32);

/// The failed rank and how it ended, and the rank that noticed, if that is another one.
fn headline(ranks: &[Rank<'_>], culprit: usize, witness: usize, context: NodeContext<'_>) -> String {
    let rank = &ranks[culprit];
    let mut text = format!("rank {} of {} ", context.rank(culprit), context.world_size);
    if let Some(pid) = rank.pid {
        let _ = write!(text, "(local rank {culprit}, pid {pid}) ");
    }
    match (rank.end, ranks[witness].end) {
        (_, Some(seen)) if culprit != witness => {
            let _ =
                write!(text, "{}; rank {} {}", ending(rank), context.rank(witness), describe(&seen.status));
        }
        (Some(end), _) if end.overdue => text.push_str("did not stop in time and was killed"),
        (Some(_), _) if rank.is_unresponsive() => text.push_str(ending(rank)),
        (Some(end), _) if end.requested == Requested::Kill && end.evidence.noted.is_some() => {
            text.push_str("failed, and was killed before it had ended");
        }
        (Some(end), _) if end.status == STOPPED => {
            text.push_str("exited with 75, but nothing had asked it to stop");
        }
        (Some(end), _) => text.push_str(&describe(&end.status)),
        (None, _) => text.push_str("could not be killed: the kernel did not end the process"),
    }
    text
}

/// For a run with consequences only (`first` is one), or one whose `first` outlived a recall: the rank that a consequence names
/// and that is not a consequence itself, and the rank that names it. The named rank was stopped or hung; `first` may only
/// be the first one that timed out, or busy.
fn blamed(
    ranks: &[Rank<'_>],
    notes: &[Option<Failure>],
    first: usize,
    context: NodeContext<'_>,
) -> Option<(usize, usize)> {
    let is_consequence = |rank: usize| ranks.get(rank).is_some_and(Rank::is_consequence);
    let named = |witness: usize| {
        // A rank of another node is reported by its own node.
        let peer = notes[witness].as_ref()?.peer?.checked_sub(context.first_rank)?;
        let silent =
            if is_consequence(first) { !is_consequence(peer) } else { ranks.get(peer)?.is_unresponsive() };
        (is_consequence(witness) && silent && peer < ranks.len()).then_some((peer, witness))
    };
    if !is_consequence(first) && !ranks[first].is_unresponsive() {
        return None;
    }
    std::iter::once(first).chain(0..ranks.len()).find_map(named)
}

/// `exited with 78 (…)`, `was killed by signal 9 (SIGKILL; …)`.
pub fn describe(status: &WorkerStatus) -> String {
    match status {
        WorkerStatus::Exited(code) => match ExitCode::of_worker(*code) {
            Some(known) => format!("exited with {code} ({})", known.meaning()),
            None if *code == verdict::RUST_PANIC => "exited with 101 (a Rust panic)".to_string(),
            None => format!("exited with {code}"),
        },
        WorkerStatus::Signaled { signal, core_dumped } => {
            let name = signal_hook::low_level::signal_name(*signal).unwrap_or("unknown signal");
            let often = match *signal {
                libc::SIGKILL => "; often the kernel's out-of-memory killer",
                libc::SIGSEGV | libc::SIGBUS | libc::SIGILL => "; a crash in native code",
                libc::SIGABRT => "; the process aborted itself, usually after a message on standard error",
                _ => "",
            };
            let core = if *core_dumped { ", core dumped" } else { "" };
            format!("was killed by signal {signal} ({name}{often}{core})")
        }
        WorkerStatus::NotStarted(error) => format!("could not be started: {error}"),
    }
}

/// The end of a traceback, with the call that failed.
fn push_traceback(text: &mut String, traceback: &str, log: &Path) {
    let _ = write!(text, "\n\nits traceback (its log is {}):", log.display());
    let lines: Vec<&str> = traceback.lines().collect();
    for line in &lines[lines.len().saturating_sub(TRACEBACK_LINES)..] {
        let _ = write!(text, "\n    {line}");
    }
}

/// `shown`: unless it is redirected, the rank's output is on the terminal, and its log has only what is written there besides.
fn push_tail(text: &mut String, path: &Path, shown: bool) {
    match logs::tail(path, logs::TAIL_LINES, logs::TAIL_BYTES) {
        Ok(lines) if !lines.is_empty() => {
            let _ = write!(text, "\n\nthe last lines of its log, {}:", path.display());
            for line in lines {
                let _ = write!(text, "\n    {line}");
            }
        }
        Ok(_) if shown => {}
        Ok(_) => {
            let _ = write!(text, "\n\nits log, {}, is empty", path.display());
        }
        Err(e) => {
            let _ = write!(text, "\n\nits log, {}, can't be read: {e}", path.display());
        }
    }
}

/// One line for the ranks that failed as a consequence, so that their messages are not taken for the cause.
fn push_followers(text: &mut String, ranks: &[Rank<'_>], culprit: usize, context: NodeContext<'_>) {
    let others = ranks.iter().enumerate().filter(|(local, _)| *local != culprit);
    let groups = grouped(others.map(|(local, info)| (context.rank(local), ending(info))));
    if groups.is_empty() {
        return;
    }
    let parts: Vec<String> = groups.iter().map(|(how, members)| format!("{} {how}", name(members))).collect();
    let _ = write!(text, "\n\n{}", parts.join("; "));
}

/// How a rank ended that was not the first to fail.
fn ending(rank: &Rank<'_>) -> &'static str {
    match (rank.end, rank.class) {
        (Some(_), Some(Class::Done)) => "had finished",
        (Some(_), Some(Class::Stopped)) => "saved and stopped",
        (Some(_), Some(Class::OnRequestAfterLoss)) => "lost this peer and had to be killed",
        (Some(e), Some(Class::OnRequest)) if e.requested == Requested::Kill => {
            "did not exit when told to and had to be killed"
        }
        (Some(_), Some(Class::OnRequest)) => "exited when told to",
        (Some(_), _) if rank.is_consequence() => "exited after losing this peer",
        (Some(_), _) => "failed later",
        (None, _) if rank.pid.is_some() => "could not be killed",
        (None, _) => "had not been started",
    }
}

/// Where each rank was according to its failure note; a rank killed by a signal has none.
fn push_places(text: &mut String, notes: &[Option<Failure>], context: NodeContext<'_>) {
    let places = notes.iter().enumerate();
    let places =
        places.filter_map(|(local, note)| Some((context.rank(local), note.as_ref()?.whereabouts()?)));
    let groups = grouped(places);
    if !groups.is_empty() {
        text.push('\n');
    }
    for (place, members) in groups {
        let _ = write!(text, "\n{}: {place}", name(&members));
    }
}

/// One line that lists the flight records.
fn push_records(text: &mut String, local_world: usize, context: NodeContext<'_>) {
    let log_dir = context.log_dir;
    let own = context.first_rank..context.first_rank + local_world;
    let written: Vec<usize> = own.filter(|rank| FlightRecord::path(log_dir, *rank).exists()).collect();
    let Some(first) = written.first() else { return };
    let path = match written.len() {
        1 => FlightRecord::path(log_dir, *first),
        _ => {
            let numbers: Vec<String> = written.iter().map(usize::to_string).collect();
            log_dir.join(format!("collectives-rank-{{{}}}.json", numbers.join(",")))
        }
    };
    let _ = write!(text, "\n\nthe last collectives of {}: {}", name(&written), path.display());
}

/// Groups ranks with equal values.
pub fn grouped<T: PartialEq>(ranks: impl Iterator<Item = (usize, T)>) -> Vec<(T, Vec<usize>)> {
    let mut groups: Vec<(T, Vec<usize>)> = Vec::new();
    for (rank, what) in ranks {
        match groups.iter_mut().find(|(w, _)| *w == what) {
            Some((_, members)) => members.push(rank),
            None => groups.push((what, vec![rank])),
        }
    }
    groups
}

/// `rank 1`, `ranks 0, 2 and 3`, `ranks 0 to 7`.
fn name(ranks: &[usize]) -> String {
    match ranks {
        [first, .., last] if ranks.len() > 2 && last - first + 1 == ranks.len() => {
            format!("ranks {first} to {last}")
        }
        _ => name_ranks(ranks),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
