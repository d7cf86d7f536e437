//! Files that no run has written: a run neither replaces them, nor appends to them, nor moves them. `run.json` tells a run's folder
//! from any other; where it was not copied with the rest, a checkpoint beside a resolved spec does. The first start finds nothing there under the names that a run uses, so from then on they are the run's.

use super::{FILES, FolderLock, SPECS, checkpoints, spec_named};
use crate::provenance;
use base::error::{Error, Result};
use base::files;
use checkpoint::format::{STATE_FILE, parse_step_dir};
use checkpoint::{CheckpointStore, sha256_hex};
use std::fs;
use std::path::{Path, PathBuf};

/// What the first line of a rank's log has, as text and as JSON.
pub const LOG_HEADERS: [&str; 2] = ["=== ddp-run ", "begins: ddp-run "];

/// The beginning of a resolved spec.
const RESOLVED: &[u8] = b"# Resolved by ddp-run";

/// Checks that a run in `out_dir`, with its logs in `log_dir`, writes to no file of others.
///
/// # Errors
/// `ErrorKind::Io`: it would, and the file is named. `ErrorKind::Usage`: `out_dir` is the root of
/// the file system.
pub fn writes_to_no_others(out_dir: &Path, log_dir: &Path) -> Result<()> {
    if out_dir.canonicalize().is_ok_and(|whole| whole.parent().is_none()) {
        let what =
            format!("{} is the root of the file system: no run's files belong there", out_dir.display());
        return Err(Error::usage(what).hint("`--out DIR` names a folder for the run"));
    }
    let refused = |path: PathBuf| {
        let what = format!(
            "{} was not written by a run, and a run in {} would take it for its own",
            path.display(),
            out_dir.display()
        );
        Err(Error::io(what).hint("`--out DIR` writes elsewhere; or move it away"))
    };
    let found = match of_others(out_dir) {
        Some(path) => Some(path),
        None => log_of_others(out_dir, log_dir)?,
    };
    found.map_or(Ok(()), refused)
}

/// The first entry under a name that a run uses, but logs, that no run has written.
fn of_others(out_dir: &Path) -> Option<PathBuf> {
    let path = |name: &str| out_dir.join(name);
    if FolderLock::is_of_others(out_dir) {
        return Some(path(".lock"));
    }
    let recorded = is_a_runs(out_dir);
    let is_own = |name: &str| match name {
        // A spec that a user put there later does not look like this.
        "job.toml" if recorded => is_resolved(&path(name)),
        _ if recorded => true,
        // A start was killed before it wrote `run.json`.
        "job.toml" => is_among_specs(out_dir),
        SPECS => has_only_specs(&path(SPECS)),
        _ => false,
    };
    let file = FILES.into_iter().find(|name| !is_own(name) && !is_nothing(&path(name))).map(path);
    file.or_else(|| if recorded { None } else { checkpoint_of_others(out_dir) })
}

/// A folder that is named as a checkpoint, and never was one.
fn checkpoint_of_others(out_dir: &Path) -> Option<PathBuf> {
    let listed = CheckpointStore::read_only(checkpoints(out_dir)).list().unwrap_or_default();
    listed.into_iter().map(|entry| entry.path).find(|path| path.join(STATE_FILE).symlink_metadata().is_err())
}

/// The first log of a rank in `log_dir` that no rank of a run has written.
///
/// # Errors
/// `ErrorKind::Io`: one can't be read.
pub fn log_of_others(out_dir: &Path, log_dir: &Path) -> Result<Option<PathBuf>> {
    if is_a_runs(out_dir) {
        return Ok(None);
    }
    let entries = fs::read_dir(log_dir).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_log(path)).collect();
    logs.sort();
    for log in logs {
        if !files::is_own(&log, &LOG_HEADERS)? {
            return Ok(Some(log));
        }
    }
    Ok(None)
}

fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // What is no file can't be appended to: the rank reports it.
    name.starts_with("rank-") && name.ends_with(".log") && path.is_file()
}

/// Whether a spec is one that a run, or `plan --format toml`, has resolved.
pub fn is_resolved(spec: &Path) -> bool {
    files::read(spec).is_ok_and(|text| text.starts_with(RESOLVED))
}

/// Whether a file is one of a run or of a checkpoint, and none that can be written again.
pub fn is_of_a_run(file: &Path) -> bool {
    let (folder, name) = (files::folder(file), file.file_name().unwrap_or_default().to_string_lossy());
    let whole = folder.canonicalize().unwrap_or_default();
    let of_folder = whole.file_name().unwrap_or_default().to_string_lossy();
    let of_checkpoint = parse_step_dir(&of_folder).is_some() && folder.join(STATE_FILE).is_file();
    of_checkpoint
        || (!["report.html", "prediction.json"].contains(&&*name)
            && FILES.contains(&&*name)
            && is_recorded(folder))
}

/// Whether it is the folder of a run, or a copy of its checkpoints and its spec.
fn is_a_runs(out_dir: &Path) -> bool {
    let listed = || CheckpointStore::read_only(checkpoints(out_dir)).list().unwrap_or_default();
    let is_copy = || is_resolved(&out_dir.join("job.toml"));
    is_recorded(out_dir) || is_copy() && listed().iter().any(|entry| entry.path.join(STATE_FILE).is_file())
}

/// Whether a start was accepted in the folder.
fn is_recorded(out_dir: &Path) -> bool {
    provenance::read(&out_dir.join("run.json")).is_ok()
}

fn is_among_specs(out_dir: &Path) -> bool {
    let text = files::read(&out_dir.join("job.toml"));
    text.is_ok_and(|text| spec_named(out_dir, &sha256_hex(&text)).is_some_and(|spec| spec.is_file()))
}

fn has_only_specs(specs: &Path) -> bool {
    let is_spec = |name: &str| {
        let digest = name.trim_end_matches(".partial").strip_suffix(".toml");
        digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let entries = fs::read_dir(specs).map(|entries| {
        entries.map(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_spec)))
    });
    entries.is_ok_and(|mut all| all.all(|is_spec| is_spec))
}

/// Whether nothing can be lost there: it is missing, an empty file or an empty folder.
fn is_nothing(path: &Path) -> bool {
    match fs::metadata(path) {
        Err(_) => true,
        Ok(about) if about.is_dir() => fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()),
        Ok(about) => about.is_file() && about.len() == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::sample;
    use base::error::ErrorKind;

    /// The name of the entry that a start in `out` refuses.
    fn refused(out: &Path) -> Option<String> {
        let error = writes_to_no_others(out, &out.join("logs")).err()?;
        assert_eq!(error.kind, ErrorKind::Io, "{error}");
        let path = error.message.split(" was not written by a run").next().unwrap_or_default();
        Some(path.strip_prefix(&format!("{}/", out.display()))?.to_owned())
    }

    #[test]
    fn each_name_that_a_run_uses_is_refused_if_others_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        assert_eq!((refused(&out.join("none")), refused(out)), (None, None));
        for name in [&FILES[..], &[".lock", "logs/rank-0.log"]].concat() {
            let (path, is_folder) = (out.join(name), !name.contains('.') && name != ".lock");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // Nothing is lost of what is empty: `logs/` and others may be made before a run, as a link for example.
            match is_folder {
                true => fs::create_dir(&path),
                false => fs::write(&path, ""),
            }
            .unwrap();
            assert_eq!(refused(out), None, "{name}");
            let file = if is_folder { path.join("notes.txt") } else { path.clone() };
            fs::write(file, "{\"mine\": 1}\n").unwrap();
            assert_eq!(refused(out).as_deref(), Some(name));
            let _ = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
        fs::create_dir_all(out.join("checkpoints/step-00000100")).unwrap();
        assert_eq!(refused(out).as_deref(), Some("checkpoints/step-00000100"));
        // Checkpoints may have been copied here.
        fs::write(out.join("checkpoints/step-00000100/state.json"), "{}").unwrap();
        // Names that no run uses.
        fs::write(out.join("README.md"), "mine").unwrap();
        fs::write(out.join("logs/other.log"), "mine").unwrap();
        assert_eq!(refused(out), None);
    }

    #[test]
    fn in_the_folder_of_a_run_only_a_spec_that_was_typed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        provenance::write(&out.join("run.json"), sample(out)).unwrap();
        for name in ["metrics.jsonl", "report.html", "logs/rank-0.log"] {
            fs::create_dir_all(out.join(name).parent().unwrap()).unwrap();
            fs::write(out.join(name), "text").unwrap();
        }
        fs::write(out.join("job.toml"), "# Resolved by ddp-run; …\nname = \"x\"\n").unwrap();
        assert_eq!(refused(out), None);
        fs::write(out.join("job.toml"), "# my notes\nextends = \"base.toml\"\n").unwrap();
        assert_eq!(refused(out).as_deref(), Some("job.toml"));
    }

    #[test]
    fn a_copy_of_checkpoints_and_spec_is_the_folder_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        fs::write(out.join("job.toml"), "# Resolved by ddp-run; …\nname = \"x\"\n").unwrap();
        fs::write(out.join("metrics.jsonl"), "text").unwrap();
        assert_eq!(refused(out).as_deref(), Some("metrics.jsonl"), "a plan that was written here");
        fs::create_dir_all(out.join("checkpoints/step-00000100")).unwrap();
        assert_eq!(refused(out).as_deref(), Some("metrics.jsonl"));
        fs::write(out.join("checkpoints/step-00000100/state.json"), "{}").unwrap();
        assert_eq!(refused(out), None);
        fs::write(out.join("job.toml"), "name = \"x\"\n").unwrap();
        assert!(refused(out).is_some());
    }

    #[test]
    fn a_start_that_was_killed_before_it_was_recorded_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        fs::create_dir(out.join("specs")).unwrap();
        let spec = spec_named(out, &sha256_hex(b"name = 1\n")).unwrap();
        fs::write(&spec, "name = 1\n").unwrap();
        assert_eq!(refused(out), None);
        fs::write(out.join("job.toml"), "name = 1\n").unwrap();
        assert_eq!(refused(out), None);
        fs::write(out.join("job.toml"), "name = 2\n").unwrap();
        assert_eq!(refused(out).as_deref(), Some("job.toml"));
        fs::remove_file(out.join("job.toml")).unwrap();
        fs::write(out.join("specs/mine.toml"), "").unwrap();
        assert_eq!(refused(out).as_deref(), Some("specs"));
    }

    #[test]
    fn the_root_is_no_folder_for_a_run() {
        for root in ["/", "/tmp/.."] {
            let error = writes_to_no_others(Path::new(root), Path::new("/logs")).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{error}");
        }
    }
}
