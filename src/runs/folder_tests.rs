//! Folders on disk: what is read of them, found and removed.

use super::folder::{RunFolder, State};
use super::testing::{epoch, provenance};
use super::*;
use crate::history::FolderLock;
use crate::telemetry::provenance::RunFile;
use crate::telemetry::{CheckpointEvent, EndEvent, Event, MetricsWriter, RestartEvent, RunId, Stamped};
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

#[test]
fn a_folder_is_read_as_its_events_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = written(dir.path(), "x", "x");
    let add = |event: Event| {
        let mut metrics = MetricsWriter::open(&folder.join("metrics.jsonl")).expect("opened");
        metrics.write(&Stamped::now(&event)).expect("written");
    };
    let run = read(&folder);
    assert!(matches!(&run.state, State::Failed { code: None, .. }), "{:?}", run.state);
    assert_eq!((run.course.epochs, run.course.step, run.problems.len()), (2, 20, 0));
    assert_eq!(run.course.best.as_ref().map(|best| (best.value, best.epoch.epoch)), Some((0.875, 0)));
    let end = |exit_code| {
        let reason = "x".to_owned();
        Event::End(EndEvent { step: 20, epoch: 2, reason, exit_code, seconds: 5.0 })
    };
    for (code, state) in [(75, State::Stopped), (0, State::Done)] {
        add(end(code));
        assert_eq!(read(&folder).state, state);
    }
    // A checkpoint may be the last event of a run that is done; any other shows that it went on.
    let path = "checkpoints/step-00000020".to_owned();
    add(Event::Checkpoint(CheckpointEvent {
        step: 20,
        epoch: 2,
        path,
        bytes: 1,
        seconds: 0.1,
        held_up_s: None,
    }));
    assert_eq!(read(&folder).state, State::Done);
    add(Event::Restart(RestartEvent { attempt: 2, reason: "x".to_owned() }));
    assert!(matches!(read(&folder).state, State::Failed { .. }));
    let held = FolderLock::take(&folder, &RunId::default(), std::time::Duration::ZERO, &|| false);
    assert_eq!(read(&folder).state, State::Running);
    drop(held);
    assert_ne!(read(&folder).state, State::Running);
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
    assert_eq!((run.name.as_str(), &run.state), ("x", &State::Untrained));
    assert_eq!(run.started.len(), "2026-11-21T03:35:00Z".len());
    fs::create_dir(dir.path().join("y")).expect("created");
    fs::write(dir.path().join("y/job.toml"), "name = \"a spec of one's own\"\n").expect("written");
    assert_eq!(found(&[dir.path().to_owned()], true), ["x"]);
    let listing = Listing { filters: Vec::new(), sort: SortBy::newest_first(), limit: None };
    let text = list_text(&[run], &listing, None);
    assert!(text.contains("run.json: ") && text.contains("job.toml: it is not TOML\n"), "{text}");
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
    assert_eq!(missing.code, crate::error::ExitCode::Checkpoint);
    let error = of_argument(dir.path()).unwrap_err();
    assert!(error.message.ends_with("is not a run folder: no run has written to it"), "{error}");
    assert!(of_argument(&dir.path().join("none")).unwrap_err().message.starts_with("there is no run "));
}

fn removal(folder: &Path, all_files: bool) -> crate::error::Result<Removal> {
    Removal::of(&read(folder), Kept::Nothing, all_files)
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
        assert!(RunFolder::is_one(folder) && run.state == State::Removing, "{:?}", run.state);
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
