//! One run folder.

use super::course::{Course, RankedBy};
use base::display;
use base::error::{IoContext, Result};
use base::files;
use checkpoint::{CheckpointStore, Entry, RankBy};
use job::plan::{Plan, Purpose, WorldRequest};
use job::registry::Registry;
use record::history::{FolderLock, checkpoints, is_resolved};
use record::provenance::{self, RunFile};
use record::{Provenance, RunEnd, rfc3339};
use spec::{JobTree, Values, values};
use std::fs;
use std::path::{Path, PathBuf};

/// Ends the name of a folder that `runs rm` is removing.
pub(super) const REMOVING: &str = ".removing";

/// How a run is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// A process holds the folder's lock.
    Running,
    /// It ended successfully, with exit code 0.
    Done,
    /// On request; it can be resumed.
    Stopped,
    /// It ended with an error, or it has trained and stopped without an end event.
    Failed {
        /// Unknown if the run ended without a word.
        code: Option<u8>,
        /// Why it failed, for readers.
        reason: String,
    },
    /// Nothing was trained.
    Untrained,
    /// `runs rm` was interrupted.
    Removing,
}

impl RunStatus {
    /// The words of all states, as [`RunStatus::word`] returns them.
    pub const WORDS: [&str; 6] = ["running", "done", "stopped", "failed", "untrained", "removing"];

    /// The word of lists and filters.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed { .. } => "failed",
            Self::Untrained => "untrained",
            Self::Removing => "removing",
        }
    }
}

/// From a run's `job.toml`: whether larger values of the metric that ranks its checkpoints are better.
pub type Ranking<'a> = &'a dyn Fn(&str) -> Option<bool>;

/// What is in a run folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// Path of the folder, as given or found.
    pub folder: PathBuf,
    /// The spec's `name`; else the name of the folder.
    pub name: String,
    /// A numbered folder: what an earlier start of a run left.
    pub archived: bool,
    /// How the run is doing.
    pub state: RunStatus,
    /// RFC 3339: the last start, or, if that is unknown, the last change of the folder.
    pub started: String,
    /// What is damaged, a line each.
    pub problems: Vec<String>,
    /// `run.json`
    pub starts: Option<RunFile>,
    /// `job.toml`
    pub spec: Option<Values>,
    /// Metric that ranks the checkpoints; `None` if the spec names none, or its direction is unknown.
    pub by: Option<RankedBy>,
    /// What `metrics.jsonl` records; empty if the file is missing or can't be read.
    pub course: Course,
    /// Oldest first.
    pub checkpoints: Vec<Entry>,
    /// Size of all files in the folder, in bytes.
    pub bytes: u64,
}

impl RunFolder {
    /// Whether `folder` is one: it has what only a run writes.
    pub fn is_one(folder: &Path) -> bool {
        let resolved = || is_resolved(&folder.join("job.toml"));
        let saved =
            || CheckpointStore::read_only(checkpoints(folder)).list().is_ok_and(|all| !all.is_empty());
        let removed = || is_being_removed(folder) && is_empty(folder);
        ["run.json", "metrics.jsonl"].iter().any(|name| folder.join(name).is_file())
            || FolderLock::was_taken(folder)
            || resolved()
            || saved()
            || removed()
    }

    /// Reads a run folder, however much of it is there. `ranking` is asked where a user's crate measures the metric.
    pub fn read(folder: &Path, ranking: Ranking<'_>) -> Self {
        Self::read_with(folder, ranking, Course::read)
    }

    /// The same, with a course that `read` reads from `metrics.jsonl`.
    pub(super) fn read_with(
        folder: &Path,
        ranking: Ranking<'_>,
        read: impl FnOnce(&Path, Option<&RankedBy>) -> Result<Course>,
    ) -> Self {
        let mut problems = Vec::new();
        let mut report = |name: &str, why: String| problems.push(format!("{name}: {why}"));
        let starts = part(folder, "run.json", &mut report, provenance::read);
        let text = part(folder, "job.toml", &mut report, |path| files::read_text(path).doing("read", path));
        let spec = text.as_deref().and_then(values);
        if text.is_some() && spec.is_none() {
            report("job.toml", "it is not TOML".to_owned());
        }
        let by = ranked_by(spec.as_ref(), text.as_deref().unwrap_or_default(), ranking);
        let course = part(folder, "metrics.jsonl", &mut report, |path| read(path, by.as_ref()));
        let checkpoints =
            part(folder, "checkpoints", &mut report, |path| CheckpointStore::read_only(path).list());
        let course = course.unwrap_or_default();
        let latest = starts.as_ref().map(|file| &file.latest);
        let name = latest.map(|start| start.name.clone()).or_else(|| text_in(spec.as_ref()?, "name"));
        let name = name.unwrap_or_else(|| name_of(folder));
        let changed =
            || fs::metadata(folder).and_then(|about| about.modified()).map_or(String::new(), rfc3339);
        Self {
            archived: is_archived(folder, &name),
            state: state(folder, &course),
            started: latest.map_or_else(changed, |start| start.started.clone()),
            bytes: size(folder),
            folder: folder.to_owned(),
            name,
            problems,
            starts,
            spec,
            by,
            course,
            checkpoints: checkpoints.unwrap_or_default(),
        }
    }

    /// The last start.
    pub fn latest(&self) -> Option<&Provenance> {
        self.starts.as_ref().map(|file| &file.latest)
    }

    /// A value of the spec, without quotes.
    pub fn of_spec(&self, key: &str) -> Option<String> {
        text_in(self.spec.as_ref()?, key)
    }

    /// The folder as `runs show` takes it: the name of one in `runs`, else the path.
    pub fn label(&self) -> String {
        let path = self.folder.strip_prefix("runs").unwrap_or(&self.folder);
        display::path(path)
    }

    /// By which metric checkpoints are ranked.
    pub fn rank_by(&self) -> Option<RankBy> {
        let by = self.by.as_ref()?;
        Some(
            checkpoint::StandardMetric::parse(&by.metric)
                .map_or_else(|| RankBy::own(&by.metric, by.prefers_larger), RankBy::Standard),
        )
    }
}

/// An entry of the folder as `read` reads it; `None` if there is none, or, after a `report`, if it can't be read.
fn part<T>(
    folder: &Path,
    name: &str,
    report: &mut impl FnMut(&str, String),
    read: impl FnOnce(&Path) -> Result<T>,
) -> Option<T> {
    let path = folder.join(name);
    path.symlink_metadata().ok()?;
    read(&path).map_err(|e| report(name, reason(&e.message))).ok()
}

/// The ranking by metrics that the components of `registry` measure.
pub fn ranking(registry: &Registry) -> impl Fn(&str) -> Option<bool> {
    move |job_toml: &str| {
        let tree = JobTree::parse("job.toml", job_toml, &[]);
        let plan = Plan::resolve(&tree, registry, WorldRequest::new(1).to(Purpose::Use)).ok()?;
        Some(plan.checkpoint.best.prefers_larger())
    }
}

fn ranked_by(spec: Option<&Values>, job_toml: &str, ranking: Ranking<'_>) -> Option<RankedBy> {
    let metric = text_in(spec?, "checkpoint.best")?;
    let standard = checkpoint::StandardMetric::parse(&metric).map(RankBy::Standard);
    let prefers_larger = match standard {
        Some(standard) => standard.prefers_larger(),
        None => ranking(job_toml)?,
    };
    Some(RankedBy { metric, prefers_larger })
}

/// Without the quotes of a TOML string.
fn text_in(spec: &Values, key: &str) -> Option<String> {
    let value = spec.get(key)?;
    Some(plain(value).to_owned())
}

/// A value without the quotes of a TOML string.
pub(super) fn plain(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

fn name_of(folder: &Path) -> String {
    folder
        .file_name()
        .map_or_else(|| folder.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Whether `folder` is `x.1` (`.2`, …) of a run in `x`. A run may be called `x.1` itself.
fn is_archived(folder: &Path, name: &str) -> bool {
    let of_folder = name_of(folder);
    let Some((stem, number)) = of_folder.rsplit_once('.') else { return false };
    let numbered = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    let parent = folder.parent();
    let inside = parent.is_some_and(|parent| name_of(parent) == stem);
    let beside = parent.is_some_and(|parent| parent.join(stem).is_dir());
    numbered && of_folder != name && (stem == name || inside || beside)
}

pub(super) fn is_being_removed(folder: &Path) -> bool {
    let name = name_of(folder);
    name.rsplit_once(REMOVING)
        .is_some_and(|(_, number)| number.chars().all(|c| c.is_ascii_digit() || c == '-'))
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

pub(super) fn state(folder: &Path, course: &Course) -> RunStatus {
    if FolderLock::is_held(folder) {
        return RunStatus::Running;
    }
    if is_being_removed(folder) {
        return RunStatus::Removing;
    }
    match &course.end {
        Some(end) => match end.outcome() {
            RunEnd::Done => RunStatus::Done,
            RunEnd::Stopped => RunStatus::Stopped,
            RunEnd::Failed => RunStatus::Failed { code: Some(end.exit_code), reason: end.reason.clone() },
        },
        None if course.trained || !course.resumes.is_empty() => RunStatus::Failed {
            code: None,
            reason: "it ended without a word: all its processes were killed, or the machine went down"
                .to_owned(),
        },
        None => RunStatus::Untrained,
    }
}

/// The size of all files below `folder`. Links are not followed.
pub(super) fn size(folder: &Path) -> u64 {
    let (mut bytes, mut open) = (0, vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => open.push(entry.path()),
                Ok(about) => bytes += about.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// An I/O error without its path, which is known.
pub(super) fn reason(message: &str) -> String {
    message.rsplit_once(": ").map_or(message, |(_, why)| why).to_owned()
}
