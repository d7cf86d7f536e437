use super::*;
use record::{EpochEvent, Metrics, provenance};

fn start(world: usize, hash: &str, parent: Option<(&str, u64)>) -> Provenance {
    let parent = parent.map(|(path, step)| provenance::Parent { path: path.to_owned(), step, seconds: 1.0 });
    Provenance { world, spec_hash: hash.to_owned(), parent, ..provenance::sample(Path::new(".")) }
}

fn resume(step: u64, epoch: u64, world: usize) -> Event {
    let path = format!("checkpoints/step-{step:08}");
    Event::Resume(ResumeEvent { step, epoch, path, world, global_batch: 8, accumulate: 1 })
}

fn epoch(epoch: u64, step: u64) -> Event {
    let train = Metrics::new(0.5);
    let (seconds, lr, samples_per_s, data_wait) = (1.0, 0.1, 1.0, 0.0);
    Event::Epoch(EpochEvent {
        epoch,
        train,
        val: None,
        seconds,
        step,
        lr,
        samples_per_s,
        tokens_per_s: None,
        flops_per_s: None,
        mfu: None,
        data_wait,
        cut: false,
    })
}

/// Of a folder of an early version that has no specs but `job.toml`.
fn history(starts: Vec<Provenance>, events: &[Event]) -> History {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("job.toml"), "").unwrap();
    history_in(dir.path(), starts, events)
}

fn history_in(folder: &Path, mut starts: Vec<Provenance>, events: &[Event]) -> History {
    let latest = starts.pop().unwrap();
    History::new(folder, &RunFile { latest, earlier: starts }, events).unwrap()
}

fn parts(history: &History) -> Vec<(u64, usize, bool)> {
    history.parts.iter().map(|part| (part.from, part.world, part.at_epoch_end)).collect()
}

#[test]
fn only_a_resize_begins_a_part() {
    let starts = vec![start(2, "a", None), start(1, "a", Some(("checkpoints/step-00000010", 10)))];
    let events = [epoch(0, 10), resume(4, 0, 2), resume(10, 1, 1), resume(12, 1, 1), resume(20, 1, 3)];
    let all = history(starts, &events);
    assert_eq!(parts(&all), [(0, 2, false), (10, 1, true), (20, 3, false)]);
    assert_eq!((all.origin.as_deref(), all.unknown.len()), (None, 0));
    let counts = [Some(3), Some(10), Some(11), Some(99), None].map(|last| all.up_to(last).len());
    assert_eq!(counts, [1, 1, 2, 3, 3]);
}

/// The parts of a run whose starts have these hashes, specs and steps, with the hash of each part; a start without a text has no spec in
/// the folder.
fn specs_of(starts: &[(&str, &str, u64)], events: &[Event]) -> (Vec<(u64, String)>, History) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("specs")).unwrap();
    let made = |(number, (hash, text, step)): (usize, &(&str, &str, u64))| {
        let (file, digest) = (dir.path().join(format!("specs/d{number}.toml")), Some(format!("d{number}")));
        if !text.is_empty() {
            std::fs::write(file, text).unwrap();
        }
        let parent = Some(("checkpoints/step", *step)).filter(|_| *step > 0);
        Provenance { spec_digest: digest, ..start(2, hash, parent) }
    };
    let all = history_in(dir.path(), starts.iter().enumerate().map(made).collect(), events);
    (all.parts.iter().map(|part| (part.from, all.specs[part.spec].hash.clone())).collect(), all)
}

#[track_caller]
fn assert_parts(found: &[(u64, String)], expected: &[(u64, &str)]) {
    let found: Vec<(u64, &str)> = found.iter().map(|(step, hash)| (*step, hash.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn another_spec_begins_a_part() {
    let [a, b] = ["n = 1\n", "n = 2\n"];
    // The run ended with its first epoch, went on with "b" and one process less, and then with "a" again.
    let events = [epoch(0, 10), resume(10, 1, 2), resume(14, 1, 1), resume(16, 1, 1)];
    let (found, all) = specs_of(&[("a", a, 0), ("b", b, 10), ("a", a, 16)], &events);
    assert_parts(&found, &[(0, "a"), (10, "b"), (14, "b"), (16, "a")]);
    assert_eq!(parts(&all), [(0, 2, false), (10, 2, true), (14, 1, false), (16, 1, false)]);
    assert_eq!((all.specs.len(), all.last_spec().text.as_str()), (2, a));
    // The spec of one start is not there.
    let events = [resume(4, 0, 2), resume(8, 0, 2)];
    let (found, all) = specs_of(&[("a", a, 0), ("lost", "", 4), ("b", b, 8)], &events);
    assert_parts(&found, &[(0, "a"), (4, "b")]);
    let [lost] = &all.unknown[..] else { panic!("{:?}", all.unknown) };
    assert!((lost.from, lost.to) == (4, Some(8)) && lost.why.contains("the start at step 4"), "{lost:?}");
    let told = [(0, None), (0, Some(4)), (7, Some(9)), (8, None)];
    assert_eq!(told.map(|(first, last)| all.unknown_of(first, last).len()), [1, 0, 1, 0]);
}

#[test]
fn another_course_begins_a_part() {
    let [ends, on, last] = ["[train]\nstop_after = 1\n", "root = \"a\"\n", "root = \"b\"\n"];
    let events = [epoch(0, 10), resume(10, 1, 2), resume(14, 1, 2)];
    let (found, all) = specs_of(&[("a", ends, 0), ("a", on, 10), ("a", last, 14)], &events);
    assert_parts(&found, &[(0, "a"), (10, "a")]);
    assert_eq!(parts(&all), [(0, 2, false), (10, 2, true)]);
    let jobs: Vec<String> = all.specs.iter().map(|spec| spec.job.text()).collect();
    assert_eq!(jobs, ["root = \"b\"\n\n[train]\nstop_after = 1\n", "root = \"b\"\n"]);
}

/// Nothing of it is repeated, so that its spec does not have to be there.
#[test]
fn a_start_whose_steps_were_undone_is_no_part() {
    let [a, b] = ["n = 1\n", "n = 2\n"];
    let (found, all) = specs_of(&[("a", a, 0), ("lost", "", 10), ("b", b, 4)], &[resume(4, 0, 2)]);
    assert_parts(&found, &[(0, "a"), (4, "b")]);
    assert_eq!((all.specs.len(), all.unknown), (2, Vec::new()));
}

#[test]
fn a_resume_that_goes_back_takes_the_place_of_what_it_undoes() {
    let events = [resume(10, 0, 1), resume(20, 0, 4), resume(10, 0, 3)];
    assert_eq!(parts(&history(vec![start(2, "a", None)], &events)), [(0, 2, false), (10, 3, false)]);
    let events = [resume(10, 0, 1), resume(8, 0, 2)];
    assert_eq!(parts(&history(vec![start(2, "a", None)], &events)), [(0, 2, false)]);
}

#[test]
fn a_run_begins_with_its_last_start_over() {
    let starts = vec![start(4, "old", None), start(2, "a", None)];
    let all = history(starts, &[]);
    assert_eq!((parts(&all), all.unknown), (vec![(0, 2, false)], Vec::new()));
    let starts = vec![start(2, "old", None), start(2, "a", Some(("checkpoints/step-00000010", 10)))];
    let told = history(starts, &[resume(10, 0, 2)]).unknown;
    assert!(told.len() == 1 && told[0].why.contains("had another spec"), "{told:?}");
    // From another run.
    let all =
        history(vec![start(2, "a", Some(("runs/b/checkpoints/step-00000010", 10)))], &[resume(10, 1, 2)]);
    assert_eq!(parts(&all), [(10, 2, false)]);
    assert_eq!(all.origin.as_deref(), Some(Path::new("runs/b/checkpoints/step-00000010")));
    let all = history(vec![start(2, "a", Some(("checkpoints/step-00000010", 10)))], &[resume(10, 1, 2)]);
    assert_eq!((parts(&all), all.unknown.len()), (vec![(0, 2, false)], 1));
}
