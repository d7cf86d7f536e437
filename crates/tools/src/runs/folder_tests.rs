//! Folders on disk: what is read of them, found and removed.

use super::folder::{RunFolder, RunStatus};
use super::testing::{epoch, provenance};
use super::*;
use base::files::TempPath;
use checkpoint::format::step_dir_name;
use record::history::{FILES, FolderLock};
use record::provenance::RunFile;
use record::{Event, MetricsWriter, RunId, Stamped, samples};
use std::fs;
use std::path::{Path, PathBuf};

/// A folder `name` in `dir` with what a run writes.
fn written(dir: &Path, name: &str, of: &str) -> PathBuf {
    let folder = dir.join(name);
    fs::create_dir_all(folder.join("logs")).expect("created");
    let starts = RunFile { latest: provenance(of), earlier: Vec::new() };
    fs::write(folder.join("run.json"), serde_json::to_string(&starts).expect("JSON")).expect("written");
    let spec = format!(
        "# Resolved by ddp-run\nname = \"{of}\"\nepochs = 2\n[checkpoint]\nbest = \"val.accuracy\"\n"
    );
    fs::write(folder.join("job.toml"), spec).expect("written");
    let mut metrics = MetricsWriter::open(&folder.join("metrics.jsonl")).expect("opened");
    for event in [epoch(0, 0.875), epoch(1, 0.5)] {
        metrics.write(&Stamped::now(&event)).expect("written");
    }
    folder
}

fn read(folder: &Path) -> RunFolder {
    RunFolder::read(folder, &|_| None)
}

fn found(folders: &[PathBuf], archived: bool) -> Vec<String> {
    let runs = find(folders, archived, &|_| None).expect("a list");
    runs.iter().map(|run| run.folder.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

/// A reader would wait for ever for what nobody writes to it.
#[test]
fn a_pipe_in_the_place_of_a_file_is_a_problem_and_not_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    for name in ["run.json", "job.toml", "metrics.jsonl", ".lock"] {
        let _ = fs::remove_file(folder.join(name));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.join(name), mode).expect("a pipe");
    }
    let problems = read(&folder).problems;
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems.iter().all(|problem| problem.contains("no regular file")), "{problems:?}");
}

#[test]
fn a_folder_is_read_as_its_events_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    let add = |event: Event| {
        let mut metrics = MetricsWriter::open(&folder.join("metrics.jsonl")).expect("opened");
        metrics.write(&Stamped::now(&event)).expect("written");
    };
    let run = read(&folder);
    assert!(matches!(&run.state, RunStatus::Failed { code: None, .. }), "{:?}", run.state);
    assert_eq!((run.course.epochs, run.course.step, run.problems.len()), (2, 20, 0));
    assert_eq!(run.course.best.as_ref().map(|best| (best.value, best.epoch.epoch)), Some((0.875, 0)));
    for (code, state) in [(75, RunStatus::Stopped), (0, RunStatus::Done)] {
        add(samples::end(20, code));
        assert_eq!(read(&folder).state, state);
    }
    // A checkpoint may be the last event of a run that is done; any other shows that it went on.
    add(samples::checkpoint(20));
    assert_eq!(read(&folder).state, RunStatus::Done);
    add(samples::restart());
    assert!(matches!(read(&folder).state, RunStatus::Failed { .. }));
    let held = FolderLock::take(&folder, &RunId::default(), std::time::Duration::ZERO, &|| false);
    assert_eq!(read(&folder).state, RunStatus::Running);
    drop(held);
    assert_ne!(read(&folder).state, RunStatus::Running);
}

#[test]
fn damaged_and_half_written_folders_are_listed_with_their_problem() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    fs::write(folder.join("run.json"), "{").expect("written");
    fs::write(folder.join("job.toml"), "# Resolved by ddp-run\nname =").expect("written");
    fs::remove_file(folder.join("metrics.jsonl")).expect("removed");
    fs::create_dir(folder.join("metrics.jsonl")).expect("created");
    fs::write(folder.join("checkpoints"), "no folder").expect("written");
    let run = read(&folder);
    let named: Vec<&str> = run.problems.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(named, ["run.json", "job.toml", "metrics.jsonl", "checkpoints"], "{:?}", run.problems);
    assert_eq!((run.name.as_str(), &run.state), ("x", &RunStatus::Untrained));
    assert_eq!(run.started.len(), "2026-11-21T03:35:00Z".len());
    // Any number that can be read.
    let whole = written(dir.path(), "z", "z");
    let metrics = fs::read_to_string(whole.join("metrics.jsonl")).expect("read");
    fs::write(
        whole.join("metrics.jsonl"),
        metrics.replace("\"epoch\":1,", &format!("\"epoch\":{},", u64::MAX)),
    )
    .expect("written");
    let largest = read(&whole);
    assert_eq!(largest.course.epochs, u64::MAX);
    assert!(show(&largest, "ddp-run").contains(&format!("{}/2 epochs", u64::MAX)));
    fs::remove_dir_all(whole).expect("removed");
    fs::create_dir(dir.path().join("y")).expect("created");
    fs::write(dir.path().join("y/job.toml"), "name = \"a spec of one's own\"\n").expect("written");
    assert_eq!(found(&[dir.path().to_owned()], true), ["x"]);
    let listing = Listing { filters: Vec::new(), sort: SortBy::newest_first(), limit: None };
    let text = list_text(&[run], &listing, None);
    assert!(text.contains("run.json: ") && text.contains("job.toml: it is not TOML\n"), "{text}");
}

/// A path need not be text.
#[test]
fn a_folder_whose_name_is_not_utf_8_has_json() {
    let dir = tempfile::tempdir().expect("a folder");
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"x\xff");
    let run = read(&written(&dir.path().join(name), "y", "y"));
    let shown = format!("{}/x\u{fffd}/y", dir.path().display());
    assert_eq!(list_json(std::slice::from_ref(&run))[0]["folder"], shown);
    assert_eq!(diff_json(&run, &run)["b"], shown);
}

#[test]
fn numbered_folders_are_listed_where_they_are_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let all = [dir.path().to_owned()];
    for (name, of) in [("x", "x"), ("x.1", "x"), ("x/x.2", "x"), ("y.1", "y.1"), ("z.1", "z")] {
        written(dir.path(), name, of);
    }
    assert_eq!(found(&all, false), ["x", "y.1"]);
    assert_eq!(found(&all, true), ["x", "x.1", "y.1", "z.1", "x.2"]);
    // One that is named, once.
    assert_eq!(
        found(&[dir.path().join("x.1"), dir.path().join("y.1"), all[0].join("y.1")], false),
        ["x.1", "y.1"]
    );
    let missing = find(&[dir.path().join("none")], false, &|_| None).unwrap_err();
    assert_eq!(missing.kind, base::error::ErrorKind::Io);
    let error = of_argument(dir.path()).unwrap_err();
    assert!(error.message.ends_with("is not a run folder: no run has written to it"), "{error}");
    assert_eq!(error.kind, base::error::ErrorKind::Usage);
    assert!(of_argument(&dir.path().join("none")).unwrap_err().message.starts_with("there is no run "));
}

fn removal(folder: &Path, all_files: bool) -> base::error::Result<Removal> {
    Removal::new(&read(folder), KeptParts::Nothing, all_files)
}

#[test]
fn a_run_is_removed_and_links_are_not_followed() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = tempfile::tempdir().expect("a folder");
    fs::write(disk.path().join("weights"), "kept").expect("written");
    let folder = written(dir.path(), "x", "x");
    std::os::unix::fs::symlink(disk.path(), folder.join("checkpoints")).expect("linked");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&folder, &link).expect("linked");
    assert!(removal(&link, false).unwrap_err().message.contains("is a link to "));
    // What no run has written stops it.
    fs::write(folder.join("notes.txt"), "mine").expect("written");
    let error = removal(&folder, false).unwrap_err();
    assert!(error.message.ends_with("has files that no run has written: notes.txt"), "{error}");
    assert!(removal(&folder, true).is_ok());
    fs::remove_file(folder.join("notes.txt")).expect("removed");
    let running = FolderLock::take(&folder, &RunId::default(), std::time::Duration::ZERO, &|| false);
    assert!(removal(&folder, true).unwrap_err().message.ends_with(" is running"));
    let ready = {
        drop(running);
        removal(&folder, false).expect("it may be removed")
    };
    // One that has begun since then.
    let running = FolderLock::take(&folder, &RunId::default(), std::time::Duration::ZERO, &|| false);
    assert!(ready.carry_out().unwrap_err().message.contains("another run is writing to"));
    assert!(folder.join("run.json").exists());
    drop(running);
    ready.carry_out().expect("removed");
    let left: Vec<_> = fs::read_dir(dir.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["link"]);
    assert_eq!(fs::read_to_string(disk.path().join("weights")).ok().as_deref(), Some("kept"));
    assert!(ready.carry_out().unwrap_err().message.ends_with(" is gone") && !folder.exists());
}

/// With `--profile` and sinks, a run writes more than without.
#[test]
fn all_that_a_run_writes_can_be_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    for name in FILES {
        let path = folder.join(name);
        if !path.exists() {
            fs::write(path, "").expect("written");
        }
    }
    // What a killed process was writing.
    let profile = TempPath::beside(&folder.join("profile.json")).expect("a name");
    fs::write(profile.path(), "").expect("written");
    fs::write(folder.join("report.html.partial"), "").expect("written");
    removal(&folder, false).expect("it may be removed");
}

/// Completion of a shell ends the name of a link to a folder with a slash.
#[test]
fn a_link_with_a_slash_is_a_link() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    std::os::unix::fs::symlink(&folder, dir.path().join("link")).expect("linked");
    for name in ["link/", "link/."] {
        let error = removal(&dir.path().join(name), true).unwrap_err();
        assert!(error.message.contains("is a link to "), "{error}");
    }
}

#[test]
fn only_numbered_folders_of_a_run_are_removed_with_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    let numbered = written(&folder, "x.1", "x");
    removal(&folder, false).expect("it may be removed");
    let other = written(&folder, "y", "y");
    fs::write(numbered.join("notes.txt"), "mine").expect("written");
    let error = removal(&folder, false).unwrap_err();
    assert!(error.message.ends_with("has files that no run has written: x.1/notes.txt, y"), "{error}");
    let running = FolderLock::take(&numbered, &RunId::default(), std::time::Duration::ZERO, &|| false);
    assert!(removal(&folder, true).unwrap_err().message.ends_with("x.1 is running"));
    drop(running);
    fs::remove_dir_all(other).expect("removed");
    fs::remove_file(numbered.join("notes.txt")).expect("removed");
    // An interrupted removal has renamed it.
    let renamed = dir.path().join("x.removing-2");
    fs::rename(&folder, &renamed).expect("renamed");
    removal(&renamed, false).expect("it may be removed");
}

#[test]
fn a_run_under_several_paths_is_removed_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    let inner = written(&folder, "x.1", "x");
    let paths = [inner.clone(), folder.join("."), folder.clone(), folder.join("logs/..")];
    let all = |kept| {
        let all = paths.iter().map(|path| Removal::new(&read(path), kept, false).expect("it may be removed"));
        Removal::without_repeats(all.collect())
    };
    assert_eq!((all(KeptParts::Nothing).len(), all(KeptParts::Best).len()), (1, 2));
    all(KeptParts::Nothing).iter().for_each(|removal| removal.carry_out().expect("removed"));
    assert!(!folder.exists());
}

/// Larger or smaller: only the program that measures a metric of one's own knows.
#[test]
fn the_best_checkpoint_is_not_guessed() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    for step in [10, 20] {
        fs::create_dir_all(folder.join("checkpoints").join(step_dir_name(step))).expect("created");
    }
    let keep_best = || Removal::new(&read(&folder), KeptParts::Best, false);
    keep_best().expect("the metric is known");
    for (spec, why) in [
        ("# Resolved by ddp-run\n[checkpoint]\nbest = \"val.dice\"\n", "knows `val.dice`"),
        ("x =", "job.toml"),
    ] {
        fs::write(folder.join("job.toml"), spec).expect("written");
        let error = keep_best().unwrap_err();
        assert!(error.message.ends_with("is the best is unknown"), "{error}");
        assert!(error.hint.clone().unwrap_or_default().contains(why), "{error}");
    }
}

/// They are where nothing could be moved out of `checkpoints/`, a mount point.
#[test]
fn checkpoints_of_earlier_starts_are_removed_only_when_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    fs::create_dir_all(folder.join("checkpoints/checkpoints.1/step-00000008")).expect("created");
    let error = Removal::new(&read(&folder), KeptParts::Nothing, false).unwrap_err();
    assert!(error.message.ends_with("runs of their own: checkpoints/checkpoints.1"), "{error}");
    Removal::new(&read(&folder), KeptParts::Nothing, true).expect("asked for").carry_out().expect("removed");
    assert!(!folder.exists());
}

/// Killed after the rename, or after everything in the folder was removed.
#[test]
fn what_an_interrupted_removal_leaves_is_recognised() {
    let dir = tempfile::tempdir().expect("a folder");
    let half = written(dir.path(), "x.removing", "x");
    fs::remove_file(half.join("metrics.jsonl")).expect("removed");
    let empty = dir.path().join("y.removing-2");
    fs::create_dir(&empty).expect("created");
    for folder in [&half, &empty] {
        let run = read(folder);
        assert!(RunFolder::is_one(folder) && run.state == RunStatus::Removing, "{:?}", run.state);
        let next = format!("next         ddp-run runs rm {}\n", folder.display());
        assert!(show(&run, "ddp-run").ends_with(&next), "{}", show(&run, "ddp-run"));
    }
    // A run that has the same name by now is removed beside it.
    let again = written(dir.path(), "x", "x");
    removal(&again, false).expect("it may be removed").carry_out().expect("removed");
    assert!(half.exists() && !again.exists());
    for folder in [&half, &empty] {
        removal(folder, false).expect("it may be removed").carry_out().expect("removed");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0);
}
