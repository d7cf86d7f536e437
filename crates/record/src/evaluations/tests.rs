use super::*;

fn steps(dir: &Path) -> Vec<(u64, bool)> {
    read(dir).iter().map(|record| (record.step, record.best)).collect()
}

fn open(dir: &Path, step: u64) -> Evaluations {
    Evaluations::open(dir, step, "val.accuracy", true)
}

#[test]
fn the_newest_and_the_best_are_kept_and_later_ones_are_removed_by_a_resume() {
    let dir = tempfile::tempdir().unwrap();
    let mut evaluations = open(dir.path(), 0);
    let values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.55, f64::NAN, 0.6, 0.5, 0.4];
    for (step, value) in (1..).zip(values) {
        evaluations.write(EvaluationRecord::new(step, step - 1), Some(value)).unwrap();
    }
    // Of equal values the later is better.
    let kept = [(4, true), (5, true), (6, true), (8, false), (9, true), (10, false), (11, false)];
    assert_eq!(steps(dir.path()), kept);
    // The run continues from step 5, and 0.55 is better than what was best then.
    let mut evaluations = open(dir.path(), 5);
    assert_eq!(steps(dir.path()), kept[..2]);
    evaluations.write(EvaluationRecord::new(6, 5), Some(0.55)).unwrap();
    evaluations.write(EvaluationRecord::new(7, 6), None).unwrap();
    assert_eq!(steps(dir.path())[2..], [(6, true), (7, false)]);
    // The same step again, after an end by `max_steps`.
    open(dir.path(), 7).write(EvaluationRecord::new(7, 6), Some(0.7)).unwrap();
    assert_eq!(steps(dir.path()).last(), Some(&(7, true)));
}

#[test]
fn files_that_are_gone_or_were_not_finished_are_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(FOLDER);
    let mut evaluations = open(dir.path(), 0);
    for step in 1..=KEPT as u64 {
        evaluations.write(EvaluationRecord::new(step, 0), None).unwrap();
    }
    std::fs::remove_file(folder.join(file_name(1))).unwrap();
    evaluations.write(EvaluationRecord::new(5, 0), None).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    evaluations.write(EvaluationRecord::new(6, 0), None).unwrap();
    assert_eq!(steps(dir.path()), [(6, false)]);
    // A folder in the place of a file can't be removed as one.
    let begun = folder.join(".step-00000007.json.part-0123456789abcdef");
    for (path, is_kept) in [(begun, false), (folder.join(".mine.json.part-0123456789abcdef"), true)] {
        std::fs::write(&path, "").unwrap();
        open(dir.path(), 6);
        assert_eq!(path.exists(), is_kept);
    }
}

#[test]
fn values_of_another_metric_do_not_compare() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), 0).write(EvaluationRecord::new(1, 0), Some(0.9)).unwrap();
    let mut evaluations = Evaluations::open(dir.path(), 1, "val.loss", false);
    for (step, value, best) in [(2, 1.5, true), (3, 2.0, false), (4, 1.0, true)] {
        evaluations.write(EvaluationRecord::new(step, 0), Some(value)).unwrap();
        assert_eq!(steps(dir.path()).last(), Some(&(step, best)));
    }
}

#[test]
fn records_round_trip_and_what_is_none_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let picture = RecordedPicture { width: 2, height: 1, png: "AAAA".into() };
    let worst = WorstSample {
        index: 7,
        class: "<cat>".into(),
        predicted: "1".into(),
        probability: f64::NAN,
        loss: 1.0 / 3.0,
        picture: Some(picture),
        place: Some("/data/\u{7f}.csv, line 9".into()),
        cells: vec![("x".into(), "0.5".into())],
        more_cells: 3,
        text: None,
    };
    let text = GeneratedText { prompt: "a\u{2028}".into(), text: "\"b\"".into(), cut: true, place: None };
    let record = EvaluationRecord { worst: vec![worst], texts: vec![text], ..EvaluationRecord::new(3, 1) };
    open(dir.path(), 0).write(record.clone(), Some(0.25)).unwrap();
    let folder = dir.path().join("evaluations");
    std::fs::write(folder.join("step-00000009.json"), "{\"version\":1").unwrap();
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    let newer = std::fs::read_to_string(folder.join("step-00000003.json")).unwrap();
    let newer = newer.replacen("\"version\":1", "\"version\":2", 1).replacen("\"step\":3", "\"step\":4", 1);
    std::fs::write(folder.join("step-00000004.json"), newer).unwrap();
    let read = read(dir.path());
    assert_eq!(read.len(), 1);
    assert!(read[0].worst[0].probability.is_nan() && read[0].worst[0].loss == 1.0 / 3.0);
    assert_eq!((&read[0].texts, read[0].value, read[0].best), (&record.texts, 0.25, true));
    assert!(read[0].worst[0].probability.is_nan());
    let sound = WorstSample { probability: 0.5, ..read[0].worst[0].clone() };
    assert_eq!(sound, WorstSample { probability: 0.5, ..record.worst[0].clone() });
    // One of an earlier version.
    let old = r#"{"index":7,"class":"a","predicted":"b","probability":0.5,"loss":1.0}"#;
    let old: WorstSample = serde_json::from_str(old).unwrap();
    assert_eq!((old.place, old.cells.len(), old.more_cells, old.text), (None, 0, 0, None));
}
