use super::*;
use crate::Event;
use crate::samples::{self, line};
use checkpoint::CheckpointStore;
use std::fs;

/// A folder with checkpoints of these steps and the other files of a run.
struct Folder(tempfile::TempDir, PathBuf);

fn trained(step: u64) -> Event {
    samples::step(step, 1.0)
}

impl Folder {
    fn new(steps: &[u64]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        fs::create_dir(&out).unwrap();
        let mut metrics = String::new();
        for step in steps {
            let checkpoint = checkpoints(&out).join(format!("step-{step:08}"));
            fs::create_dir_all(&checkpoint).unwrap();
            fs::write(checkpoint.join("state.json"), step.to_string()).unwrap();
            metrics.push_str(&(line(&trained(*step)) + &line(&samples::checkpoint(*step))));
        }
        if let Some(last) = steps.last() {
            metrics.push_str(&line(&samples::end(*last, 0)));
        }
        for (name, text) in
            [("metrics.jsonl", metrics.as_str()), ("job.toml", "old"), ("report.html", "page")]
        {
            fs::write(out.join(name), text).unwrap();
        }
        for (folder, name) in [("tensorboard", "events"), ("logs", "rank-0.log")] {
            fs::create_dir(out.join(folder)).unwrap();
            fs::write(out.join(folder).join(name), folder).unwrap();
        }
        Self(dir, out)
    }

    fn beside(&self, number: u32) -> PathBuf {
        self.0.path().join(format!("run.{number}"))
    }

    fn at(&self, step: u64) -> Parent {
        let checkpoint = checkpoints(&self.1).join(format!("step-{step:08}"));
        Parent { checkpoint, step, complete: false, seconds: 0.0 }
    }

    fn accept(&self, provenance: &Provenance, from: Option<Parent>) -> Accepted {
        Start { out_dir: &self.1, provenance, job_toml: "new" }.accept(from.as_ref()).unwrap()
    }
}

fn start(name: &str) -> Provenance {
    let run = RunId { job: name.into(), attempt: 1, start: name.into() };
    Provenance { spec_hash: name.into(), run, ..provenance::sample(Path::new("/")) }
}

fn steps(out: &Path) -> Vec<u64> {
    CheckpointStore::read_only(checkpoints(out)).list().unwrap().iter().map(|e| e.step).collect()
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn resuming_an_older_checkpoint_moves_later_files() {
    let folder = Folder::new(&[10, 20, 30]);
    let whole = text(folder.1.join("metrics.jsonl"));
    assert_eq!(folder.accept(&start("b"), Some(folder.at(10))), Accepted::Begins);
    assert_eq!((steps(&folder.1), steps(&folder.beside(1))), (vec![10], vec![20, 30]));
    assert_eq!(text(folder.1.join("metrics.jsonl")), line(&trained(10)) + &line(&samples::checkpoint(10)));
    assert_eq!(text(folder.beside(1).join("metrics.jsonl")), whole);
    for (name, kept) in [
        ("job.toml", "old"),
        ("report.html", "page"),
        ("tensorboard/events", "tensorboard"),
        ("logs/rank-0.log", "logs"),
    ] {
        assert_eq!(text(folder.beside(1).join(name)), kept);
    }
    assert_eq!(text(folder.1.join("job.toml")), "new");
    let latest = provenance::read(&folder.1.join("run.json")).unwrap().latest;
    assert_eq!(text(spec_of(&folder.1, &latest).unwrap()), "new");
    let parent = latest.parent.unwrap();
    assert_eq!((parent.path.as_str(), parent.step), ("checkpoints/step-00000010", 10));
    // A second start from the same step: there is nothing left to move.
    folder.accept(&start("b"), Some(folder.at(10)));
    assert!(!folder.beside(2).exists());
}

#[test]
fn starting_over_moves_all_files_of_the_run() {
    let folder = Folder::new(&[10, 20]);
    fs::write(folder.1.join("notes.txt"), "mine").unwrap();
    // This number is already taken.
    fs::create_dir(folder.beside(1)).unwrap();
    folder.accept(&start("b"), None);
    assert_eq!((steps(&folder.1), steps(&folder.beside(2))), (vec![], vec![10, 20]));
    let left = fs::read_dir(&folder.1).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut left: Vec<String> = left.collect();
    left.sort();
    assert_eq!(left, ["job.toml", "logs", "notes.txt", "run.json", "specs"]);
    assert_eq!(fs::read_dir(folder.beside(1)).unwrap().count(), 0);
}

#[test]
fn what_others_put_beside_checkpoints_stays() {
    let folder = Folder::new(&[10, 20]);
    let own = checkpoints(&folder.1);
    for name in [".lock", "notes.txt"] {
        fs::write(own.join(name), "mine").unwrap();
    }
    fs::create_dir(own.join(".tmp-mine")).unwrap();
    CheckpointStore::open(&own).unwrap();
    folder.accept(&start("b"), None);
    assert_eq!((steps(&folder.1), steps(&folder.beside(1))), (vec![], vec![10, 20]));
    assert!(own.join("notes.txt").is_file() && own.join(".tmp-mine").is_dir());
    assert_eq!(fs::read_dir(checkpoints(&folder.beside(1))).unwrap().count(), 2);
}

/// Otherwise each crash before the first save would add a folder with a copy of all previous logs.
#[test]
fn unsaved_steps_are_archived_only_if_the_plan_changes() {
    let folder = Folder::new(&[]);
    let unsaved = line(&trained(3));
    for run in ["a", "b"] {
        // The same plan in another start.
        let start = Provenance { spec_hash: "plan".into(), ..start(run) };
        folder.accept(&start, None);
        fs::write(folder.1.join("metrics.jsonl"), &unsaved).unwrap();
        assert!(!folder.beside(1).exists());
    }
    folder.accept(&start("another plan"), None);
    assert_eq!(text(folder.beside(1).join("metrics.jsonl")), unsaved);
}

#[test]
fn a_checkpoint_of_another_folder_starts_a_new_history() {
    let (folder, other) = (Folder::new(&[10, 20]), Folder::new(&[15]));
    folder.accept(&start("b"), Some(other.at(15)));
    assert_eq!(
        (steps(&folder.1), steps(&folder.beside(1)), steps(&other.1)),
        (vec![], vec![10, 20], vec![15])
    );
    assert!(!folder.1.join("metrics.jsonl").exists());
    // Its own checkpoint under another path does not count as one from elsewhere.
    let link = other.0.path().join("link");
    std::os::unix::fs::symlink(&other.1, &link).unwrap();
    Start { out_dir: &link, provenance: &start("c"), job_toml: "" }.accept(Some(&other.at(15))).unwrap();
    assert_eq!(steps(&other.1), [15]);
    assert!(!other.beside(1).exists());
}

#[test]
fn a_linked_folder_is_archived_beside_its_target() {
    let folder = Folder::new(&[10]);
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("mine");
    std::os::unix::fs::symlink(&folder.1, &link).unwrap();
    Start { out_dir: &link, provenance: &start("b"), job_toml: "new" }.accept(None).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), folder.1);
    assert_eq!(text(folder.1.join("job.toml")), "new");
    assert_eq!(steps(&folder.beside(1)), [10]);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

/// For example on a larger disk, from which nothing could be moved beside the folder.
#[test]
fn linked_checkpoints_stay_on_their_disk() {
    for back in [None, Some(10)] {
        let folder = Folder::new(&[10, 20]);
        let large = tempfile::tempdir().unwrap();
        let target = large.path().join("ck");
        fs::rename(checkpoints(&folder.1), &target).unwrap();
        std::os::unix::fs::symlink(&target, checkpoints(&folder.1)).unwrap();
        folder.accept(&start("b"), back.map(|step| folder.at(step)));
        assert_eq!(fs::read_link(checkpoints(&folder.1)).unwrap(), target);
        let (left, kept) = if back.is_some() { (vec![10], vec![20]) } else { (vec![], vec![10, 20]) };
        assert_eq!((steps(&folder.1), steps(&folder.beside(1))), (left, kept.clone()));
        assert_eq!(fs::read_link(checkpoints(&folder.beside(1))).unwrap(), large.path().join("ck.1"));
        assert_eq!(fs::read_dir(large.path().join("ck.1")).unwrap().count(), kept.len());
    }
    // The disk is missing.
    let folder = Folder::new(&[10]);
    fs::remove_dir_all(checkpoints(&folder.1)).unwrap();
    std::os::unix::fs::symlink("/nowhere", checkpoints(&folder.1)).unwrap();
    folder.accept(&start("b"), None);
    assert!(checkpoints(&folder.beside(1)).is_symlink() && !checkpoints(&folder.1).is_symlink());
}

#[test]
fn only_a_complete_run_stays_unchanged() {
    let folder = Folder::new(&[10, 20]);
    let complete = |step| Some(Parent { complete: true, ..folder.at(step) });
    assert_eq!(folder.accept(&start("b"), complete(20)), Accepted::Complete);
    assert_eq!(text(folder.1.join("job.toml")), "old");
    assert!(!folder.1.join("run.json").exists());
    // So is the run of another folder's checkpoint: nothing of it would take this one's place.
    let other = Folder::new(&[30]);
    let from = Parent { complete: true, ..other.at(30) };
    assert_eq!(folder.accept(&start("b"), Some(from)), Accepted::Complete);
    assert_eq!((steps(&folder.1), folder.beside(1).exists()), (vec![10, 20], false));
    // Complete according to a shorter plan, at a checkpoint that is not the last one.
    assert_eq!(folder.accept(&start("b"), complete(10)), Accepted::Begins);
    assert_eq!(steps(&folder.beside(1)), [20]);
}

#[test]
fn unreadable_metrics_fail_only_a_start_that_continues_them() {
    let folder = Folder::new(&[10, 20]);
    let metrics = folder.1.join("metrics.jsonl");
    fs::remove_file(&metrics).unwrap();
    fs::create_dir(&metrics).unwrap();
    let provenance = start("b");
    let start = Start { out_dir: &folder.1, provenance: &provenance, job_toml: "new" };
    let error = start.accept(Some(&folder.at(20))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    assert_eq!((text(folder.1.join("job.toml")).as_str(), folder.beside(1).exists()), ("old", false));
    start.accept(None).unwrap();
    assert!(folder.beside(1).join("metrics.jsonl").is_dir());
}

#[test]
fn the_spec_of_each_start_is_kept() {
    let folder = Folder::new(&[10]);
    let accept = |hash: &str, job_toml: &str, from: Option<Parent>| {
        let provenance = start(hash);
        Start { out_dir: &folder.1, provenance: &provenance, job_toml }.accept(from.as_ref()).unwrap();
    };
    accept("a", "first", None);
    fs::create_dir_all(checkpoints(&folder.1).join("step-00000010")).unwrap();
    accept("b", "second", Some(folder.at(10)));
    // Differs in what results do not depend on.
    accept("a", "third", Some(folder.at(10)));
    accept("c", "third", Some(folder.at(10)));
    let kept = |out: &Path| {
        let file = provenance::read(&out.join("run.json")).unwrap();
        let starts = file.earlier.iter().chain([&file.latest]);
        starts.map(|start| text(spec_of(out, start).unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(kept(&folder.1), ["first", "second", "third", "third"]);
    assert_eq!(text(folder.1.join("job.toml")), "third");
    assert_eq!(fs::read_dir(folder.1.join("specs")).unwrap().count(), 3);
    // They go where their run goes.
    accept("c", "fourth", None);
    assert_eq!(kept(&folder.beside(2)), ["first", "second", "third", "third"]);
    assert_eq!(fs::read_dir(folder.1.join("specs")).unwrap().count(), 1);
    // Early versions named it by the hash.
    let early = start("a");
    assert_eq!(spec_of(&folder.1, &early), Some(folder.1.join("specs/a.toml")));
    for no_digest in ["", "..", "../job", "a b"] {
        let start = Provenance { spec_digest: Some(no_digest.to_owned()), ..early.clone() };
        assert_eq!(spec_of(&folder.1, &start), None);
    }
}

#[test]
fn a_run_has_begun_if_its_start_was_accepted_last() {
    let folder = Folder::new(&[]);
    let (first, second) = (start("a"), start("b"));
    let begun = |p: &Provenance| Start { out_dir: &folder.1, provenance: p, job_toml: "" }.begun();
    assert!(!begun(&first), "there is no run.json yet");
    folder.accept(&first, None);
    assert!(begun(&first) && !begun(&second));
    // Restarted workers do not count as a new start.
    folder.accept(&first, None);
    assert!(provenance::read(&folder.1.join("run.json")).unwrap().earlier.is_empty());
    folder.accept(&second, None);
    assert!(begun(&second) && !begun(&first));
}
