//! Which run folders there are.

use super::folder::{Ranking, RunFolder};
use base::error::{Error, IoContext, Result};
use spec::closest;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where runs are by default.
const RUNS: &str = "runs";
/// A folder with this file is the folder of a sweep, whose runs are in it.
pub const SWEEP: &str = "sweep.json";

/// The runs in `folders` (by default in `runs`), and those that are among them themselves; without `archived`, not the numbered folders
/// of earlier starts.
///
/// # Errors
/// Exit code 74: a folder that was named can't be read.
pub fn find(folders: &[PathBuf], archived: bool, ranking: Ranking<'_>) -> Result<Vec<RunFolder>> {
    let found = places(folders, archived)?;
    let runs = found.iter().map(|path| RunFolder::read(path, ranking));
    Ok(runs.filter(|run| is_listed(run, folders, archived)).collect())
}

/// Whether a list of the runs in `folders` has it. A run that is named itself is shown in any case.
pub(crate) fn is_listed(run: &RunFolder, folders: &[PathBuf], archived: bool) -> bool {
    archived || !run.archived || folders.contains(&run.folder)
}

/// The folders that [`find`] reads, by name.
///
/// # Errors
/// As [`find`].
pub(crate) fn places(folders: &[PathBuf], archived: bool) -> Result<Vec<PathBuf>> {
    let mut failed = None;
    let found = places_but(folders, archived, |e| failed = failed.take().or(Some(e)));
    failed.map_or(Ok(found), Err)
}

/// The same without the `folders` that can't be read, whose errors are passed to `report`.
pub(crate) fn places_but(folders: &[PathBuf], archived: bool, mut report: impl FnMut(Error)) -> Vec<PathBuf> {
    let mut found = Vec::new();
    match folders {
        [] if !Path::new(RUNS).exists() => {}
        [] => within(Path::new(RUNS), &mut found).unwrap_or_else(&mut report),
        folders => {
            for folder in folders {
                if RunFolder::is_one(folder) {
                    found.push(folder.clone());
                } else {
                    within(folder, &mut found).unwrap_or_else(&mut report);
                }
            }
        }
    }
    if archived {
        // Where nothing could be moved beside a run, its numbered folders are in it.
        for run in found.clone() {
            // One that can't be read is listed nevertheless.
            let _ = within(&run, &mut found);
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    found
}

/// Adds the runs in `folder` by name, and the runs of the sweeps in it.
fn within(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).doing("read", folder)?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.is_dir());
    paths.sort();
    for path in paths {
        if RunFolder::is_one(&path) {
            found.push(path);
        } else if path.join(SWEEP).is_file() {
            // One that can't be read hides no others.
            let _ = within(&path, found);
        }
    }
    Ok(())
}

/// The folder that an argument names: by its path, or by its name in `runs`.
///
/// # Errors
/// Exit code 2: it is not a run folder.
pub fn of_argument(argument: &Path) -> Result<PathBuf> {
    let in_runs = Path::new(RUNS).join(argument);
    let found = [argument, &in_runs].into_iter().find(|path| path.is_dir() && RunFolder::is_one(path));
    if let Some(found) = found {
        return Ok(found.to_owned());
    }
    let shown = argument.display();
    if let Some(folder) = [argument, &in_runs].into_iter().find(|path| path.is_dir()) {
        let what = format!("{} is not a run folder: no run has written to it", folder.display());
        return Err(Error::usage(what).hint("`ddp-run runs list DIR` lists the runs in a folder"));
    }
    let known: Vec<String> = fs::read_dir(RUNS)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let near = closest(&argument.to_string_lossy(), known.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Err(Error::usage(format!("there is no run {shown}, and none in {RUNS}{near}"))
        .hint("RUN is a run's folder, or its name in `runs`; `ddp-run runs list` lists them"))
}
