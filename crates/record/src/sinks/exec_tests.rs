use super::super::testing::{end, epoch, run, step};
use super::*;
use std::fs;

/// What ends a test that hangs.
const HUNG: Duration = Duration::from_secs(60);

fn started(folder: &Path, script: &str) -> (Bridge, ObservedRun, Result<()>) {
    let command = ["sh", "-c", script, "sh", folder.to_str().unwrap()].map(str::to_owned).to_vec();
    let mut sink = Exec { command }.observer();
    let run = run(folder, 4, 1);
    let done = sink.start(&run);
    (sink, run, done)
}

#[test]
fn the_program_reads_every_event_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sink, run, done) = started(dir.path(), "echo hello; cat > $1/got");
    done.unwrap();
    let events = [step(5), epoch(1, true), end(0)];
    events.iter().for_each(|event| sink.event(event).unwrap());
    run.end(Instant::now() + HUNG);
    sink.end().unwrap();
    let got = fs::read_to_string(dir.path().join("got")).unwrap();
    let got: Vec<Value> = got.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys = ["event", "name", "folder", "spec", "set", "run", "step", "epochs", "resumes", "restarts"];
    assert!(got[0].as_object().unwrap().keys().eq(keys), "{}", got[0]);
    assert_eq!((&got[0]["spec"]["optimizer.name"], &got[0]["step"]), (&json!("sgd"), &json!(4)));
    assert_eq!(got[1..], events);
}

#[test]
fn a_program_that_ends_early_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sink, run, first) = started(dir.path(), "exit 3");
    sink.moment = HUNG;
    // It may have ended before or after the first line.
    let mut all = vec![first];
    for n in 1..=50_000 {
        all.push(sink.event(&step(n)));
        if all.iter().any(Result::is_err) {
            break;
        }
    }
    all.extend([sink.event(&step(1)), sink.event(&end(0))]);
    run.end(Instant::now() + HUNG);
    all.push(sink.end());
    let errors: Vec<String> = all.into_iter().filter_map(Result::err).map(|e| e.message).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("has ended (exit status: 3) and gets no more events"), "{errors:?}");
}

#[test]
fn a_failure_at_the_end_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sink, run, done) = started(dir.path(), "cat > /dev/null; exit 5");
    done.unwrap();
    run.end(Instant::now() + HUNG);
    let error = sink.end().unwrap_err();
    assert!(error.message.contains("ended with exit status: 5; logs/rank-0.log"), "{error}");
}

#[test]
fn a_program_that_does_not_read_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sink, run, done) = started(dir.path(), "sleep 1000");
    done.unwrap();
    // The run is over while the thread waits for the program to read.
    run.end(Instant::now() + TO_KILL);
    let large = json!({ "event": "a pipe does not hold it", "text": "x".repeat(1 << 20) });
    let error = sink.event(&large).unwrap_err();
    assert!(error.message.contains("does not read its input and was killed"), "{error}");
    sink.event(&end(0)).unwrap();
    sink.end().unwrap();
}

#[test]
fn a_program_that_does_not_end_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sink, run, done) = started(dir.path(), "cat > /dev/null; sleep 1000");
    done.unwrap();
    run.end(Instant::now() + TO_KILL);
    let error = sink.end().unwrap_err();
    assert!(error.message.contains("did not end with its input and was killed"), "{error}");
}

#[test]
fn a_program_that_is_not_there() {
    let mut sink = Exec { command: vec!["no-such-program".to_owned()] }.observer();
    let error = sink.start(&run(Path::new("."), 0, 0)).unwrap_err();
    assert!(error.message.starts_with("cannot start no-such-program: "), "{error}");
    sink.event(&step(1)).unwrap();
    sink.end().unwrap();
    assert!(Exec { command: Vec::new() }.problem().is_some());
}
