use super::*;
use checkpoint::format::step_dir_name;
use checkpoint::{CheckpointStore, Snapshot, TensorMap};
use std::fs::File;
use std::io::Write;

const STEP: &str = r#"{"event":"step","step":10,"epoch":0,"loss":0.30000000000000004,"lr":0.1,"samples_per_s":9.5,"data_wait":0.25,"time":1.5}"#;
const EPOCH: &str = r#"{"event":"epoch","epoch":0,"train":{"loss":1.5},"val":{"loss":1.25,"n":50},"seconds":2.5,"step":10,"lr":0.1}"#;

fn outcome(line: &str) -> StepOutcome {
    StepOutcome::parse(line.as_bytes()).unwrap()
}

fn outcomes(lines: &[&str]) -> Outcomes {
    let mut all = Outcomes::default();
    lines.iter().for_each(|line| all.add(outcome(line)));
    all
}

#[test]
fn outcomes_are_compared_without_their_times() {
    let step = outcome(STEP);
    assert_eq!((step.kind, step.step), (EventKind::Step, 10));
    let keys: Vec<&str> = step.values.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["step", "epoch", "loss", "lr"]);
    assert_eq!(step.differs(&outcome(&STEP.replace("9.5", "7.25").replace("1.5", "2.5"))), None);
    // One bit.
    let other = step.differs(&outcome(&STEP.replace("0.30000000000000004", "0.3"))).unwrap();
    let expected = Mismatch {
        step: 10,
        what: "loss".to_owned(),
        recorded: "0.30000000000000004".to_owned(),
        now: "0.3".to_owned(),
    };
    assert_eq!(other, expected);
    let epoch = outcome(EPOCH);
    let other = epoch.differs(&outcome(&EPOCH.replace("1.25", "1.75"))).unwrap();
    assert_eq!((other.what.as_str(), other.recorded.as_str()), ("val.loss", "1.25"));
    // A newer version writes more.
    assert_eq!(epoch.differs(&outcome(&EPOCH.replace("\"n\":50", "\"n\":50,\"digest\":\"ab\""))), None);
    for none in [r#"{"event":"end","step":1}"#, "torn", r#"{"event":"step","step":3}"#, "[1]"] {
        assert_eq!(StepOutcome::parse(none.as_bytes()), None, "{none}");
    }
}

#[test]
fn the_first_difference_of_two_runs_is_found() {
    let later = STEP.replace("\"step\":10", "\"step\":20");
    let all = outcomes(&[STEP, &later, EPOCH]);
    assert_eq!((all.differs(&all), all.last_step()), (None, Some(20)));
    assert_eq!([0, 10, 11, 21].map(|step| all.step_from(step)), [Some(10), Some(10), Some(20), None]);
    let changed = outcomes(&[STEP, &later.replace("0.1", "0.2"), &EPOCH.replace("1.5", "1.75")]);
    assert_eq!(all.differs(&changed).map(|m| (m.step, m.what)), Some((10, "train.loss".to_owned())));
    let shorter = outcomes(&[STEP, EPOCH]);
    assert_eq!(all.differs(&shorter).map(|m| (m.step, m.now)), Some((20, "missing".to_owned())));
    assert_eq!(shorter.differs(&all).map(|m| (m.step, m.recorded)), Some((20, "missing".to_owned())));
}

#[test]
fn damaged_lines_are_told_by_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let end = r#"{"event":"end","step":1,"epoch":2,"reason":"done","exit_code":0,"seconds":60.0}"#;
    std::fs::write(
        &path,
        format!("{STEP}\n{}\n{end}\n{{\"event\":\"step\",\"step\":3}}\n\u{1}\n{}", &STEP[..40], &STEP[..9]),
    )
    .unwrap();
    assert_eq!(damaged_lines(&path).unwrap(), [2, 4, 5]);
}

#[test]
fn appended_lines_are_read_once_and_torn_ones_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics.jsonl");
    let (mut tail, mut seen) = (Tail::default(), Vec::new());
    tail.read(&path, |it| seen.push(it.step)).unwrap();
    let mut file = File::create(&path).unwrap();
    write!(file, "{STEP}\n{}", &EPOCH[..20]).unwrap();
    tail.read(&path, |it| seen.push(it.step)).unwrap();
    assert_eq!(seen, [10]);
    writeln!(file, "{}", &EPOCH[20..]).unwrap();
    tail.read(&path, |it| seen.push(it.step)).unwrap();
    assert_eq!(seen, [10, 10]);
    // A start replaces the file by a shorter one.
    std::fs::write(&path, format!("{}\n", STEP.replace("\"step\":10", "\"step\":5"))).unwrap();
    tail.read(&path, |it| seen.push(it.step)).unwrap();
    assert_eq!(seen, [10, 10, 5]);
}

fn save(folder: &Path, value: f32, seen: u64, seconds: f64) -> std::path::PathBuf {
    let tensors = |name: &str, value| {
        TensorMap::from_tensors([TensorData::from_f32(name, vec![2], &[1.0, value]).unwrap()]).unwrap()
    };
    let state = RunState { global_step: 7, samples_seen: seen, wall_seconds: seconds, ..RunState::default() };
    let (model, optimizer) = (tensors("fc.weight", value), tensors("momentum.fc.weight", 0.5));
    let snapshot = Snapshot { model, optimizer, state, ..Snapshot::default() };
    CheckpointStore::open(folder).unwrap().save(&snapshot).unwrap();
    folder.join(step_dir_name(7))
}

#[test]
fn checkpoints_are_compared_by_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let recorded = save(&at("a"), 0.1, 70, 1.0);
    assert_eq!(checkpoints(7, &recorded, &save(&at("b"), 0.1, 70, 2.0), true).unwrap(), None);
    let other = checkpoints(7, &recorded, &save(&at("c"), 0.100_000_01, 70, 1.0), true).unwrap().unwrap();
    assert_eq!((other.step, other.what.as_str()), (7, "model.safetensors fc.weight[1]"));
    assert_ne!(other.recorded, other.now);
    let other = checkpoints(7, &recorded, &save(&at("d"), 0.1, 71, 1.0), true).unwrap().unwrap();
    assert_eq!(other.what, "state.json samples_seen");
    assert_eq!([other.recorded, other.now], ["70", "71"]);
    // What was altered afterwards says nothing about the run.
    let altered = save(&at("e"), 0.1, 70, 1.0);
    let mut bytes = std::fs::read(altered.join(MODEL_FILE)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(altered.join(MODEL_FILE), bytes).unwrap();
    let error = checkpoints(7, &recorded, &altered, true).unwrap_err();
    assert!(error.message.contains("is damaged"), "{error}");
    std::fs::remove_file(recorded.join(OPTIMIZER_FILE)).unwrap();
    let error = checkpoints(7, &recorded, &at("b").join(step_dir_name(7)), true).unwrap_err();
    assert!(error.message.contains("is damaged"), "{error}");
}
