use super::*;
use crate::EpochEvent;
use crate::samples::{self, append, line};
use serde_json::Value;

fn step(step: u64, loss: f64) -> String {
    line(&samples::step(step, loss))
}

fn epoch(epoch: u64, step: u64) -> String {
    line(&Event::Epoch(EpochEvent { step, ..samples::epoch(epoch, 0.5) }))
}

fn refreshed(live: &mut LiveRun) {
    assert!(live.refresh().is_ok());
}

/// The news of one run, as a page reads it.
fn told(live: &LiveRun, place: PagePosition) -> Option<Value> {
    news(&[("a", live)], &[place]).unwrap().map(|text| serde_json::from_str(&text).unwrap())
}

/// The steps of a series.
fn steps<'a>(news: &'a Value, title: &str, name: &str) -> &'a Value {
    let at = news["titles"].as_array().unwrap().iter().position(|own| own == title);
    let series =
        news["figures"][at.unwrap_or_else(|| panic!("no {title}: {news}"))]["series"].as_array().unwrap();
    &series.iter().find(|series| series["name"] == name).unwrap()["step"]
}

#[test]
fn steps_are_told_as_points() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &(step(1, 2.0) + &step(2, 1.5)));
    let mut live = LiveRun::open(dir.path()).unwrap();
    let place = live.place();
    assert_eq!(told(&live, place), None);
    append(dir.path(), &(step(3, 1.0) + &step(4, 0.5)));
    assert!(live.refresh().unwrap());
    let news = told(&live, place).unwrap();
    assert_eq!(*steps(&news, "Loss", "training"), serde_json::json!([3.0, 4.0]));
    assert_eq!(
        (&news["whole"], &news["anew"], &news["around"]),
        (&false.into(), &false.into(), &Value::Null)
    );
    assert_eq!(news["axes"][0]["step"], serde_json::json!([3.0, 4.0]), "the rows that the page lacks");
    assert_eq!(news["axes"][0]["time"], serde_json::json!([2.0, 3.0]));
    assert!(news["head"].as_str().unwrap().contains("<dd>4</dd>"), "{}", news["head"]);
    assert!(!live.refresh().unwrap());
    assert_eq!(told(&live, live.place()), None);
}

#[test]
fn an_epoch_is_told_with_what_is_around_the_charts() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &step(1, 2.0));
    let mut live = LiveRun::open(dir.path()).unwrap();
    let place = live.place();
    append(dir.path(), &(step(2, 1.5) + &epoch(0, 2)));
    live.refresh().unwrap();
    let news = told(&live, place).unwrap();
    assert_eq!(
        *steps(&news, "Accuracy", "validation"),
        serde_json::json!([2.0]),
        "a chart that the page lacks"
    );
    let order: Vec<&str> =
        news["order"].as_array().unwrap().iter().map(|title| title.as_str().unwrap()).collect();
    assert_eq!(order[..3], ["Loss", "Accuracy", "Learning rate"]);
    assert_eq!((&news["anew"], &news["axes"][0]["step"]), (&true.into(), &serde_json::json!([1.0, 2.0])));
    assert!(news["around"]["rest"].as_str().unwrap().contains("<h2>Epochs</h2>"));
}

#[test]
fn a_page_of_another_file_is_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &(step(1, 2.0) + &step(2, 1.5)));
    let mut live = LiveRun::open(dir.path()).unwrap();
    let place = live.place();
    let next = dir.path().join("next");
    std::fs::write(&next, step(1, 2.0)).unwrap();
    std::fs::rename(&next, dir.path().join("metrics.jsonl")).unwrap();
    assert!(live.refresh().unwrap());
    assert!(news(&[("a", &live)], &[place]).is_err());
    assert!(news(&[("a", &live)], &[]).is_err());
    let read_again = LiveRun::open(dir.path()).unwrap();
    assert!(news(&[("a", &read_again)], &[live.place()]).is_err(), "nobody knows what happened between");
}

#[test]
fn a_new_start_and_a_prediction_are_told() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &step(1, 2.0));
    let mut live = LiveRun::open(dir.path()).unwrap();
    let place = live.place();
    let start = crate::provenance::sample(dir.path());
    crate::provenance::write(&dir.path().join("run.json"), start).unwrap();
    assert!(live.refresh().unwrap());
    let rest = told(&live, place).unwrap()["around"]["rest"].as_str().unwrap().to_owned();
    assert!(rest.contains("<h2>Provenance</h2>"), "{rest}");
    let place = live.place();
    let prediction = crate::prediction::sample();
    let path = crate::prediction::path(dir.path());
    std::fs::write(path, serde_json::to_string(&prediction).unwrap()).unwrap();
    assert!(live.refresh().unwrap());
    let rest = told(&live, place).unwrap()["around"]["rest"].as_str().unwrap().to_owned();
    assert!(rest.contains("Prediction and measurement"), "{rest}");
}

#[test]
fn an_evaluation_is_told() {
    use crate::evaluations::{EvaluationRecord, Evaluations, GeneratedText};
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &step(1, 2.0));
    let mut live = LiveRun::open(dir.path()).unwrap();
    let mut evaluations = Evaluations::open(dir.path(), 0, "val.loss", false);
    for (step, text) in [(1, "the first"), (2, "the second")] {
        let place = live.place();
        let mut record = EvaluationRecord::new(step, 0);
        record.texts.push(GeneratedText {
            prompt: "p".to_owned(),
            text: text.to_owned(),
            cut: false,
            place: None,
        });
        evaluations.write(record, Some(1.0 / step as f64)).unwrap();
        assert!(live.refresh().unwrap());
        let rest = told(&live, place).unwrap()["around"]["rest"].as_str().unwrap().to_owned();
        assert!(rest.contains(text), "{rest}");
        assert!(!live.refresh().unwrap());
    }
}

#[test]
fn a_damaged_run_json_stops_no_chart() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &step(1, 2.0));
    let mut live = LiveRun::open(dir.path()).unwrap();
    let place = live.place();
    std::fs::write(dir.path().join("run.json"), "{").unwrap();
    append(dir.path(), &step(2, 1.0));
    assert!(live.refresh().unwrap());
    assert_eq!(*steps(&told(&live, place).unwrap(), "Loss", "training"), serde_json::json!([2.0]));
}

#[test]
fn of_several_runs_an_epoch_tells_all_charts() {
    let dir = tempfile::tempdir().unwrap();
    let folders = ["a", "b"].map(|name| dir.path().join(name));
    let mut runs = folders.each_ref().map(|folder| {
        std::fs::create_dir(folder).unwrap();
        append(folder, &(step(1, 2.0) + &step(2, 1.0)));
        LiveRun::open(folder).unwrap()
    });
    let places = runs.each_ref().map(LiveRun::place);
    let told = |runs: &[LiveRun; 2]| -> Value {
        let named = [("a", &runs[0]), ("b", &runs[1])];
        serde_json::from_str(&news(&named, &places).unwrap().unwrap()).unwrap()
    };
    append(&folders[1], &step(3, 0.5));
    runs.iter_mut().for_each(refreshed);
    let some = told(&runs);
    assert_eq!(*steps(&some, "Training loss", "b"), serde_json::json!([3.0]));
    assert_eq!((&some["whole"], &some["axes"][0]["step"]), (&false.into(), &serde_json::json!([])));
    append(&folders[0], &epoch(0, 2));
    runs.iter_mut().for_each(refreshed);
    let all = told(&runs);
    assert_eq!(all["whole"], true);
    assert_eq!(*steps(&all, "Training loss", "a"), serde_json::json!([1.0, 2.0]));
    assert_eq!(*steps(&all, "Validation accuracy", "a"), serde_json::json!([2.0]));
}

#[test]
fn places_are_read_as_they_are_written() {
    let place = PagePosition { generation: 3, facts: 1, records: 20, windows: 10 };
    assert_eq!(place.to_string().parse::<PagePosition>(), Ok(place));
    for bad in ["", "1.2.3", "1.2.3.4.5", "1.2.3.x", "-1.0.0.0"] {
        assert!(bad.parse::<PagePosition>().is_err(), "{bad}");
    }
}
