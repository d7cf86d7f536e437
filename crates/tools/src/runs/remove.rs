//! `ddp-run runs rm`: removes run folders, or all their checkpoints but the best.
//!
//! A folder is renamed first, `NAME.removing`, and `run.json` is removed last: whenever the process is killed, what is left is a
//! run folder that lists show as such, and that can be removed. Links are removed, and never followed.

use super::folder::{REMOVING, RunFolder, RunStatus, is_being_removed, size};
use base::display;
use base::error::{Error, ErrorKind, IoContext, Result};
use checkpoint::{CheckpointStore, RankBy, format::step_dir_name};
use record::RunId;
use record::history::{FILES, FolderLock, checkpoints, has_mount};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a run writes to its folder in addition to [`FILES`], numbered folders and files that are being written.
const OWN: [&str; 3] = ["checkpoints", "logs", ".lock"];

/// The parts of a run that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptParts {
    /// Nothing stays: the folder is removed.
    Nothing,
    /// Everything but its checkpoints, of which the best stays; the newest if none was measured.
    Best,
}

/// A folder that may be removed.
#[derive(Debug)]
pub struct Removal {
    folder: PathBuf,
    kept: KeptParts,
    /// The step of the best of the checkpoints, by this metric.
    best: Option<u64>,
    by: Option<RankBy>,
    /// Size of what is removed, in bytes.
    pub bytes: u64,
}

impl Removal {
    /// Checks that `run` may be removed. Changes nothing. With `all_files`, also what no run has written.
    ///
    /// # Errors
    /// Exit code 2: it is running, it is a link, it has files of others, or the best checkpoint is unknown.
    pub fn new(run: &RunFolder, kept: KeptParts, all_files: bool) -> Result<Self> {
        // Without a slash at its end, with which a link is the folder that it leads to.
        let folder: PathBuf = run.folder.components().collect();
        let shown = folder.display();
        if run.state == RunStatus::Running {
            return Err(Error::usage(format!("{shown} is running"))
                .hint("stop the run first, with Ctrl-C or SIGTERM"));
        }
        if kept == KeptParts::Best {
            return Self::but_the_best(run, folder);
        }
        if folder.is_symlink() {
            let target = fs::read_link(&folder).unwrap_or_default();
            let what = format!("{shown} is a link to {}", target.display());
            return Err(Error::usage(what).hint("name the folder itself, and remove the link afterwards"));
        }
        let numbered = numbered(&folder)?;
        if let Some(running) = numbered.iter().find(|path| FolderLock::is_held(path)) {
            return Err(Error::usage(format!("{} is running", running.display()))
                .hint("it is in the folder that is to be removed; stop it first, with Ctrl-C or SIGTERM"));
        }
        if !all_files {
            let earlier = of_earlier_starts(&checkpoints(&folder));
            let found = [
                ("checkpoints of earlier starts, which are runs of their own", earlier),
                ("files that no run has written", others(&folder)?),
            ];
            if let Some((what, names)) = found.into_iter().find(|(_, names)| !names.is_empty()) {
                let named: Vec<String> = names.iter().take(8).map(|name| display::name(name)).collect();
                return Err(Error::usage(format!("{shown} has {what}: {}", named.join(", ")))
                    .hint("move them away, or `--all-files` removes them too"));
            }
        }
        Ok(Self { folder, kept, best: None, by: None, bytes: run.bytes })
    }

    /// All checkpoints but the best.
    fn but_the_best(run: &RunFolder, folder: PathBuf) -> Result<Self> {
        // Without a ranking the best would be taken for any other.
        if run.by.is_none() && run.checkpoints.len() > 1 {
            let what = format!("which checkpoint of {} is the best is unknown", folder.display());
            let own = run.of_spec("checkpoint.best").map(|metric| display::name(&metric));
            return Err(Error::usage(what).hint(match own {
                Some(metric) => format!(
                    "the program that has trained it knows `{metric}`: its `runs rm` removes the others"
                ),
                None => "its job.toml, which names the metric in `checkpoint.best`, is missing or damaged"
                    .to_owned(),
            }));
        }
        let store = CheckpointStore::read_only(checkpoints(&folder));
        let by = run.rank_by();
        let best = store.best_or_newest(by)?.map(|entry| entry.step);
        // Without one that can be loaded, all stay.
        let others = store.list()?.into_iter().filter(|entry| best.is_some_and(|best| entry.step != best));
        let bytes = others.map(|entry| size(&entry.path)).sum();
        Ok(Self { folder, kept: KeptParts::Best, best, by, bytes })
    }

    /// Each folder once, and none that is removed with the one that it is in.
    pub fn without_repeats(mut all: Vec<Self>) -> Vec<Self> {
        let place = |it: &Self| it.folder.canonicalize().unwrap_or_else(|_| it.folder.clone());
        all.sort_by_cached_key(place);
        all.dedup_by(|next, before| {
            let [next_at, before_at] = [&*next, &*before].map(place);
            next_at == before_at || (before.kept == KeptParts::Nothing && next_at.starts_with(before_at))
        });
        all
    }

    /// A description of what would be removed.
    pub fn words(&self) -> String {
        let folder = self.folder.display();
        match (self.kept, self.best) {
            (KeptParts::Nothing, _) => format!("{folder}"),
            (KeptParts::Best, None) => format!("no checkpoint of {folder}"),
            (KeptParts::Best, Some(best)) => {
                format!("the checkpoints of {folder} but {}", step_dir_name(best))
            }
        }
    }

    /// Removes it.
    ///
    /// # Errors
    /// Exit code 74: a run has begun to write to it meanwhile, or something can't be removed; what is left can be removed again.
    pub fn carry_out(&self) -> Result<()> {
        if !self.folder.is_dir() {
            return Err(Error::io(format!("{} is gone", self.folder.display())));
        }
        let own = RunId { job: "ddp-run runs rm".to_owned(), attempt: 1, start: RunId::draw()? };
        let lock = FolderLock::take(&self.folder, &own, Duration::ZERO, &|| false);
        let lock = lock.map_err(|e| Error { hint: None, ..e })?;
        match (self.kept, self.best) {
            (KeptParts::Best, None) => Ok(()),
            (KeptParts::Best, Some(best)) => {
                CheckpointStore::open(checkpoints(&self.folder))?.keep_best(self.by, best)
            }
            (KeptParts::Nothing, _) => {
                let renamed = renamed(&self.folder)?;
                // A network file system keeps an open file under another name.
                drop(lock);
                remove_folder(&renamed)
            }
        }
    }
}

/// Entries of a run's folder, and of the numbered folders in it, that no run writes.
fn others(folder: &Path) -> Result<Vec<String>> {
    let (mut others, numbered) = (Vec::new(), numbered(folder)?);
    for entry in fs::read_dir(folder).doing("read", folder)? {
        let path = entry.doing("read", folder)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let known = FILES.contains(&name.as_str()) || OWN.contains(&name.as_str());
        if numbered.contains(&path) {
            others.extend(self::others(&path)?.into_iter().map(|within| format!("{name}/{within}")));
        } else if !known && !is_unfinished(&name) {
            others.push(name);
        }
    }
    others.sort();
    Ok(others)
}

/// The checkpoints of earlier starts in a `checkpoints/` that was a mount point when they were archived.
fn of_earlier_starts(checkpoints: &Path) -> Vec<String> {
    if checkpoints.is_symlink() {
        return Vec::new();
    }
    let entries = fs::read_dir(checkpoints).into_iter().flatten().flatten();
    let names = entries.map(|entry| format!("checkpoints/{}", entry.file_name().to_string_lossy()));
    names.filter(|name| name.starts_with("checkpoints/checkpoints.")).collect()
}

/// What a killed process was writing, or what a network file system keeps of an open file.
fn is_unfinished(name: &str) -> bool {
    name.ends_with(".partial") || name.starts_with('.') && name.contains(".part-") || name.starts_with(".nfs")
}

/// The numbered folders of earlier starts that are in `folder`, where they could not be beside it.
fn numbered(folder: &Path) -> Result<Vec<PathBuf>> {
    let whole = folder.canonicalize().doing("read", folder)?;
    let name = whole.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.rsplit_once(REMOVING).map_or(&*name, |(stem, _)| stem);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('.'));
        number.is_some_and(is_number) && path.is_dir() && !path.is_symlink() && RunFolder::is_one(path)
    };
    let entries = fs::read_dir(folder).doing("read", folder)?.flatten().map(|entry| entry.path());
    Ok(entries.filter(is_one).collect())
}

/// Gives the folder the name of one that is being removed, if it has none yet. Returns its path.
fn renamed(folder: &Path) -> Result<PathBuf> {
    // `.` and `..` have no name.
    let folder = folder.canonicalize().doing("read", folder)?;
    // A mount point stays, and its name with it.
    if is_being_removed(&folder) || has_mount(&folder) {
        return Ok(folder);
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut free = (1u32..).map(|n| match n {
        1 => folder.with_file_name(format!("{name}{REMOVING}")),
        n => folder.with_file_name(format!("{name}{REMOVING}-{n}")),
    });
    let to = free.find(|path| path.symlink_metadata().is_err()).unwrap_or_default();
    match fs::rename(&folder, &to) {
        Ok(()) => Ok(to),
        // A mount point, or a parent without write permission: its content goes, and the folder stays.
        Err(e) if [io::ErrorKind::ResourceBusy, io::ErrorKind::PermissionDenied].contains(&e.kind()) => {
            Ok(folder)
        }
        Err(e) => Err(e).doing("rename", &folder),
    }
}

/// Removes a file, or a folder with all that is in it. Mount points `stay`, and the folders in which they are.
fn remove(path: &Path, stay: &mut Vec<PathBuf>) -> io::Result<()> {
    let is_folder = |path: &Path| path.symlink_metadata().map(|about| about.is_dir());
    let gone = |e: io::Error| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) };
    match is_folder(path) {
        Ok(true) => {}
        Ok(false) => return fs::remove_file(path).or_else(gone),
        Err(e) => return gone(e),
    }
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {}
        removed => return removed.or_else(gone),
    }
    let before = stay.len();
    for entry in fs::read_dir(path)? {
        remove(&entry?.path(), stay)?;
    }
    match fs::remove_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => stay.push(path.to_owned()),
        removed if stay.len() == before => return removed,
        _ => {}
    }
    Ok(())
}

/// Removes all entries, then the folder. `run.json`, and before it the lock, by which it is known as a run's, come last.
fn remove_folder(folder: &Path) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).doing("read", folder)?.flatten().map(|entry| entry.path()).collect();
    entries.sort_by_key(|path| (path.ends_with("run.json"), path.ends_with(".lock")));
    let mut stay = Vec::new();
    for path in &entries {
        remove(path, &mut stay).doing("remove", path)?;
    }
    stay.iter()
        .for_each(|path| status!("{} is a mount point: it stays, and is empty", base::display::path(path)));
    match fs::remove_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy || !stay.is_empty() => Ok(()),
        removed => removed.doing("remove", folder).map_err(|e| Error { kind: ErrorKind::Io, ..e }),
    }
}
