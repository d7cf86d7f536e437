use super::folder::{RunFolder, RunStatus};
use super::watch::Watched;
use record::samples::{self, append, line};
use record::{EpochEvent, Event, Metrics};
use std::fs;

fn none(_: &str) -> Option<bool> {
    None
}

fn step(step: u64) -> String {
    line(&samples::step(step, 1.0))
}

fn epoch(epoch: u64, step: u64, loss: f64) -> String {
    let val = Some(Metrics::new(loss));
    line(&Event::Epoch(EpochEvent { step, val, ..samples::epoch(epoch, 0.5) }))
}

/// A poll has the same result as a whole read.
fn is_as_read(watched: &Watched) {
    let mut read = RunFolder::read(&watched.run.folder, &none);
    // Without a `run.json` it is the last change of the folder.
    read.started.clone_from(&watched.run.started);
    assert_eq!(format!("{:?}", watched.run), format!("{read:?}"));
}

#[test]
fn looks_find_what_a_whole_read_finds() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    fs::write(folder.join("job.toml"), "name = \"a\"\n[checkpoint]\nbest = \"val.loss\"\n").unwrap();
    let mut watched = Watched::open(folder, &none);
    assert_eq!(watched.run.state, RunStatus::Untrained);
    is_as_read(&watched);
    assert!(!watched.look(&none), "nothing has changed");
    append(folder, &(step(1) + &step(2) + &epoch(0, 2, 0.5)));
    assert!(watched.look(&none));
    assert_eq!((watched.run.course.step, watched.run.course.epochs), (2, 1));
    is_as_read(&watched);
    append(folder, &(epoch(1, 4, 0.75) + &line(&samples::end(4, 0))));
    assert!(watched.look(&none));
    assert_eq!(watched.run.course.best.as_ref().unwrap().value, 0.5, "that of the first look");
    assert_eq!(watched.run.state, RunStatus::Done);
    is_as_read(&watched);
    assert!(!watched.look(&none));
}

#[test]
fn what_can_be_read_again_is_no_problem_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    fs::create_dir(folder.join("metrics.jsonl")).unwrap();
    let mut watched = Watched::open(folder, &none);
    assert!(watched.run.problems[0].starts_with("metrics.jsonl: "), "{:?}", watched.run.problems);
    fs::remove_dir(folder.join("metrics.jsonl")).unwrap();
    append(folder, &step(1));
    assert!(watched.look(&none));
    assert_eq!(watched.run.problems, [""; 0]);
    is_as_read(&watched);
}

#[test]
fn a_resume_and_another_spec_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    append(folder, &(step(1) + &epoch(0, 1, 0.5) + &step(2) + &step(3)));
    let mut watched = Watched::open(folder, &none);
    assert!(watched.run.course.best.is_none(), "there is no spec, so nothing ranks");
    // As a resume at step 1 leaves it.
    let next = dir.path().join("next");
    fs::write(&next, step(1) + &epoch(0, 1, 0.5)).unwrap();
    fs::rename(&next, folder.join("metrics.jsonl")).unwrap();
    assert!(watched.look(&none));
    assert_eq!(watched.run.course.step, 1);
    fs::write(folder.join("job.toml"), "name = \"b\"\n[checkpoint]\nbest = \"val.loss\"\n").unwrap();
    assert!(watched.look(&none));
    assert_eq!(
        (watched.run.of_spec("name").unwrap(), watched.run.course.best.is_some()),
        ("b".to_owned(), true)
    );
    is_as_read(&watched);
}
