use super::filter::{Filter, SortBy};
use super::folder::{RunFolder, State};
use super::list::Listing;
use super::testing::{epoch, provenance, run, two};
use super::*;
use crate::checkpoint::format::step_dir_name;
use crate::history::FolderLock;
use crate::telemetry::provenance::RunFile;
use crate::telemetry::{CheckpointEvent, Event, MetricsWriter, RestartEvent, ResumeEvent, RunId, Stamped};
use std::fs;
use std::path::{Path, PathBuf};

fn listing(filters: &[&str], sort: &str) -> Listing {
    let filters = filters.iter().map(|filter| filter.parse().expect("a filter")).collect();
    Listing { filters, sort: sort.parse().expect("a key"), limit: None }
}

fn names(filters: &[&str], sort: &str) -> Vec<String> {
    listing(filters, sort).of(two()).0.into_iter().map(|run| run.name).collect()
}

#[test]
fn the_list_fits_the_terminal() {
    let listing = listing(&[], "-started");
    let (runs, unknown) = listing.of(two());
    assert_eq!(unknown, [""; 0]);
    assert_eq!(
        list_text(&runs, &listing, None),
        "RUN  STATE        EPOCHS  BEST                   LAST  STARTED            TIME  STEPS  SAMPLES/S  RANKS     SIZE\n\
         b    failed (92)     1/3  val.accuracy 50.0 %  50.0 %  2026-11-22 03:35  7.5 s     10       1000      2  2.0 KiB\n\
         a    done            3/3  val.accuracy 87.5 %  50.0 %  2026-11-21 03:35  7.5 s     30       1000      2  2.0 KiB\n"
    );
    assert_eq!(
        list_text(&runs, &listing, Some(80)),
        "RUN  STATE        EPOCHS  BEST                   LAST  STARTED            TIME\n\
         b    failed (92)     1/3  val.accuracy 50.0 %  50.0 %  2026-11-22 03:35  7.5 s\n\
         a    done            3/3  val.accuracy 87.5 %  50.0 %  2026-11-21 03:35  7.5 s\n"
    );
    assert_eq!(
        list_text(&runs, &listing, Some(40)),
        "RUN  STATE        BEST\n\
         b    failed (92)  val.accuracy 50.0 %\n\
         a    done         val.accuracy 87.5 %\n"
    );
    let mut long = two();
    long[0].folder = format!("runs/{}", "x".repeat(60)).into();
    let text = list_text(&long, &listing, Some(40));
    assert!(text.lines().all(|line| line.chars().count() <= 40) && text.contains("xxx…  done"), "{text}");
    assert_eq!(list_text(&[], &listing, None), "no runs\n");
}

/// A filter's key and that of the order are shown, as the spec has them.
#[test]
fn keys_that_are_asked_for_have_a_column() {
    let listing = listing(&["optimizer.lr<1"], "-val.loss");
    let text = list_text(&two(), &listing, Some(44));
    assert_eq!(
        text,
        "RUN  STATE        optimizer.lr  val.loss\n\
         a    done                  0.1    0.2500\n\
         b    failed (92)           0.2    0.2500\n"
    );
}

#[test]
fn filters_compare_numbers_texts_and_parts_of_texts() {
    for (filters, expected) in [
        (&["state=done"][..], &["a"][..]),
        (&["state != done"], &["b"]),
        (&["val.accuracy >= 0.5"], &["a", "b"]),
        (&["best>0.8"], &["a"]),
        (&["optimizer.lr<=0.1", "epochs==3"], &["a"]),
        (&["optimizer.lr=0.2"], &["b"]),
        (&["optimizer.name='sgd'", "name~b"], &["b"]),
        (&["started>=2026-11-22"], &["b"]),
        (&["name!~b"], &["a"]),
        (&["device=cpu", "world=2", "commit=c0ffee", "step<30"], &["b"]),
        (&["bytes>1e9"], &[]),
        // No run has it.
        (&["model.dropout=0.1"], &[]),
        (&["model.dropout!=0.1"], &["a", "b"]),
    ] {
        assert_eq!(names(filters, "name"), expected, "{filters:?}");
    }
    let refused = |typed: &str| typed.parse::<Filter>().expect_err(typed);
    assert!(refused("state").starts_with("there is no comparison; expected KEY=VALUE"));
    assert!(refused("!x").starts_with("`!` alone compares nothing"));
    assert!(refused("= 1").starts_with("`` is not a key"));
    assert!(refused("the loss < 1").starts_with("`the loss` is not a key"));
}

#[test]
fn runs_are_sorted_by_any_key_and_those_without_it_come_last() {
    assert_eq!(names(&[], "started"), ["a", "b"]);
    assert_eq!(names(&[], "-started"), ["b", "a"]);
    assert_eq!(names(&[], "-best"), ["a", "b"]);
    assert_eq!(names(&[], "-optimizer.lr"), ["b", "a"]);
    let mut runs = two();
    runs[0].course.measured.clear();
    for sort in ["val.loss", "-val.loss"] {
        let (sorted, _) = listing(&[], sort).of(runs.clone());
        assert_eq!(sorted.last().map(|run| run.name.as_str()), Some("a"), "{sort}");
    }
    let (one, unknown) =
        Listing { limit: Some(1), ..listing(&["optimiser.lr<1", "val.acuracy>0"], "name") }.of(two());
    assert_eq!(one.len(), 0);
    assert_eq!(
        unknown,
        [
            "no run has `optimiser.lr`; did you mean `optimizer.lr`?",
            "no run has `val.acuracy`; did you mean `val.accuracy`?"
        ]
    );
    assert_eq!("-".parse::<SortBy>().ok(), None);
}

#[test]
fn a_comparison_has_a_column_for_each_run_and_only_the_keys_that_differ() {
    assert_eq!(
        compare(&two(), None),
        "              a                              b
state         done                           failed (92)
started       2026-11-21 03:35               2026-11-22 03:35
epochs        3/3                            1/3
steps         30                             10
time          7.5 s                          7.5 s
samples/s     1000                           1000
restarts      0                              0
best          val.accuracy 87.5 % (epoch 2)  val.accuracy 50.0 % (epoch 1)
train.loss    0.5000                         0.5000
val.loss      0.2500                         0.2500
val.accuracy  50.0 %                         50.0 %
size          2.0 KiB                        2.0 KiB

spec          a    b
name          \"a\"  \"b\"
optimizer.lr  0.1  0.2
"
    );
    let json = compare_json(&two());
    assert_eq!(json["spec"], serde_json::json!({ "name": ["a", "b"], "optimizer.lr": [0.1, 0.2] }));
    assert_eq!(
        (json["runs"][0]["state"].as_str(), json["runs"][1]["exit_code"].as_u64()),
        (Some("done"), Some(92))
    );
}

#[test]
fn a_difference_has_spec_provenance_and_metrics() {
    let mut runs = two();
    let latest = &mut runs[1].starts.as_mut().expect("it has started").latest;
    (latest.world, latest.devices, latest.git) = (1, vec!["cuda:0".to_owned()], None);
    assert_eq!(
        diff(&runs[0], &runs[1], None),
        "spec          a    b
name          \"a\"  \"b\"
optimizer.lr  0.1  0.2

provenance     a       b
commit         c0ffee  -
changed files  yes     -
devices        cpu     cuda:0
processes      2       1

metrics  a                              b
epochs   3/3                            1/3
steps    30                             10
best     val.accuracy 87.5 % (epoch 2)  val.accuracy 50.0 % (epoch 1)
"
    );
    assert_eq!(diff(&runs[0], &runs[0], None), "a and a do not differ\n");
    let json = diff_json(&runs[0], &runs[1]);
    assert_eq!(json["spec"][1], serde_json::json!({ "key": "optimizer.lr", "a": 0.1, "b": 0.2 }));
    assert_eq!(json["provenance"][0], serde_json::json!({ "key": "commit", "a": "c0ffee", "b": null }));
    assert_eq!(json["metrics"], serde_json::json!([]));
}

#[test]
fn a_run_is_shown_with_its_history_and_the_next_command() {
    let mut shown = run("b", "0.2", &[0.5], (90, "rank 1 was killed"));
    let resume = ResumeEvent {
        step: 10,
        epoch: 1,
        path: "checkpoints/step-00000010".to_owned(),
        world: 1,
        global_batch: 8,
        accumulate: 1,
    };
    shown.course.restarts.push(RestartEvent { attempt: 2, reason: "rank 0 was killed".to_owned() });
    shown.course.resumes.push(resume);
    shown.problems.push("run.json: damaged".to_owned());
    let starts = shown.starts.as_mut().expect("it has started");
    starts
        .earlier
        .push(crate::telemetry::Provenance { started: "2026-11-20T00:00:00Z".to_owned(), ..provenance("b") });
    assert_eq!(
        show(&shown, "mynet"),
        "runs/b (b)
  state        failed (90): rank 1 was killed
  started      2026-11-21T03:35:00Z, the last of 2 starts since 2026-11-20T00:00:00Z
  trained      1/3 epochs, 10 steps in 7.5 s, 1000 samples/s, 1 restart
  last         epoch 1/3  train loss 0.5000  val loss 0.2500 acc 50.0 %  2.0 s  1000 samples/s  data wait 0.0 %
  best         epoch 1/3  val.accuracy 50.0 %
  restart      attempt 2: rank 0 was killed
  resume       at step 10 from checkpoints/step-00000010, 1 process
  checkpoints  none
  processes    2 processes on cpu (gloo), started by ddp-run
  host         n1, EPYC
  commit       c0ffee with changed files
  versions     ddp-run 0.1.0, Burn 0.22
  hash         5ca1e
  size         2.0 KiB
  problem      run.json: damaged
"
    );
    let mut done = run("a", "0.1", &[0.75, 0.5], (0, "done"));
    let entry =
        |step: u64| crate::checkpoint::Entry { step, path: PathBuf::from("c").join(step_dir_name(step)) };
    done.checkpoints = vec![entry(10), entry(20)];
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join("checkpoints")).expect("created");
    done.folder = dir.path().to_owned();
    let text = show(&done, "mynet");
    assert!(
        text.contains("  best         epoch 1/3  val.accuracy 75.0 %  checkpoints/step-00000010\n"),
        "{text}"
    );
    let next = format!("  next         mynet eval {} --checkpoint best\n", dir.path().display());
    assert!(text.ends_with(&next), "{text}");
}

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
        Event::End(crate::telemetry::EndEvent { step: 20, epoch: 2, reason, exit_code, seconds: 5.0 })
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
    let listing = listing(&[], "name");
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
