use super::*;
use std::path::Path;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// A step after `done` others, with a phase, in which a thread runs a collective.
fn step(done: u64) {
    let _step = tracing::trace_span!("step", rank = 1, step = done).entered();
    let _phase = tracing::trace_span!("phase", phase = "sync").entered();
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let collective = move || {
        let fields =
            || tracing::trace_span!("collective", rank = 1, operation = "all_reduce", bytes = 64_u64);
        tracing::dispatcher::with_default(&dispatch, || drop(fields().entered()));
    };
    let thread = std::thread::Builder::new().name("ddp-comm".into()).spawn(collective);
    thread.unwrap().join().unwrap();
}

/// Records `steps` of a start after `before` others, with `body` as its steps.
fn recorded(steps: &str, place: &Path, body: impl FnOnce()) -> Vec<Value> {
    recorded_after(false, steps, place, body)
}

/// The same, after another attempt of the same start.
fn recorded_after(restart: bool, steps: &str, place: &Path, body: impl FnOnce()) -> Vec<Value> {
    let profile = Profile::new(steps.parse().unwrap(), 1, "host".to_owned(), place.to_owned(), restart);
    let layer = profile.clone().with_filter(filter_fn(Profile::records));
    tracing::subscriber::with_default(registry().with(layer), body);
    profile.finish();
    // The second time it does nothing.
    profile.finish();
    let json: Value = serde_json::from_slice(&std::fs::read(place).unwrap()).unwrap();
    json["traceEvents"].as_array().unwrap().clone()
}

fn spans(events: &[Value]) -> impl Iterator<Item = &Value> {
    events.iter().filter(|event| event["ph"] == "X")
}

#[test]
fn the_chosen_steps_are_recorded_with_what_runs_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let events = recorded("2", &dir.path().join("profile/rank-1.json"), || (0..6).for_each(step));
    let of = |category: &str| spans(&events).filter(|e| e["cat"] == category).collect::<Vec<_>>();
    let steps = of("step");
    let numbers: Vec<_> = steps.iter().map(|step| step["args"]["step"].as_u64()).collect();
    assert_eq!(numbers, [Some(3), Some(4)]);
    assert_eq!((of("phase").len(), of("collective").len()), (2, 2));
    let within = |inner: &Value, outer: &Value| {
        let bounds = |event: &Value| {
            let begin = event["ts"].as_u64().unwrap();
            (begin, begin + event["dur"].as_u64().unwrap())
        };
        bounds(outer).0 <= bounds(inner).0 && bounds(inner).1 <= bounds(outer).1
    };
    for (at, step) in steps.iter().enumerate() {
        let (phase, call) = (of("phase")[at], of("collective")[at]);
        assert!(within(phase, step) && within(call, phase), "{events:?}");
        assert_eq!((&step["pid"], &step["tid"], &phase["tid"]), (&1.into(), &1.into(), &1.into()));
        assert_eq!(phase["name"], "sync");
        assert_eq!(call["name"], "all_reduce");
        assert_eq!(call["args"], serde_json::json!({ "bytes": 64 }));
        assert_ne!(call["tid"], 1);
    }
    let named = |what: &str| {
        let of_what = events.iter().filter(move |event| event["name"] == what);
        of_what.map(|event| event["args"]["name"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(named("process_name"), ["rank 1 (host)"]);
    assert_eq!(named("thread_name"), ["training", "ddp-comm"], "threads that follow each other");
}

#[test]
fn a_run_that_ends_early_leaves_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let events = recorded("20", &dir.path().join("a.json"), || (0..3).for_each(step));
    assert_eq!(spans(&events).count(), 3);
    let events = recorded("50..60", &dir.path().join("b.json"), || (0..3).for_each(step));
    assert_eq!(spans(&events).count(), 0);
}

#[test]
fn a_restart_keeps_what_was_recorded_before_and_a_new_start_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a.json");
    recorded("1..2", &place, || (0..3).for_each(step));
    let after = |restart| spans(&recorded_after(restart, "1..2", &place, || (2..5).for_each(step))).count();
    assert_eq!(after(true), 6, "two steps, each with a phase and a collective");
    assert_eq!(after(false), 0);
    // A step of the range again: the newer one counts.
    recorded("1..2", &place, || (0..2).for_each(step));
    assert_eq!(spans(&recorded_after(true, "1..2", &place, || (1..5).for_each(step))).count(), 3);
}

#[test]
fn a_recording_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let events = recorded("1..9000", &dir.path().join("a.json"), || (0..400).for_each(step));
    assert_eq!(spans(&events).count(), MAX_SPANS);
}

#[test]
fn a_new_start_removes_an_old_part_at_its_first_step() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a.json");
    for restart in [true, false] {
        std::fs::write(&place, "old").unwrap();
        let profile = Profile::new("50..60".parse().unwrap(), 1, "host".to_owned(), place.clone(), restart);
        let layer = profile.with_filter(filter_fn(Profile::records));
        tracing::subscriber::with_default(registry().with(layer), || step(0));
        assert_eq!(place.exists(), restart, "without the end of the recording, as after a kill");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("profile"), "a file").unwrap();
    let place = dir.path().join("profile/rank-1.json");
    let profile = Profile::new(ProfileSteps::default(), 1, "host".to_owned(), place.clone(), false);
    let layer = profile.clone().with_filter(filter_fn(Profile::records));
    tracing::subscriber::with_default(registry().with(layer), || (0..3).for_each(step));
    profile.finish();
    assert!(!place.exists());
    assert_eq!(profile.why_none(), None, "it is lost, but not empty");
}
