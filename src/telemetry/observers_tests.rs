use super::*;
use crate::error::Error;
use crate::telemetry::{EndEvent, Event};
use std::sync::Mutex;

type Seen = Arc<Mutex<Vec<u64>>>;

/// Notes the events' steps; fails at step 2 and panics at step 4. Each event waits for the gate, if there is one.
#[derive(Clone)]
struct Noting {
    seen: Seen,
    gate: Option<Receiver<()>>,
}

impl EventObserver for Noting {
    fn event(&mut self, event: &Value) -> Result<()> {
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
        let step = event["step"].as_u64().unwrap();
        self.seen.lock().unwrap().push(step);
        assert_ne!(step, 4, "as told");
        if step == 2 { Err(Error::data("not this one")) } else { Ok(()) }
    }
}

fn event(step: u64) -> Event {
    Event::End(EndEvent { step, epoch: 0, reason: String::new(), exit_code: 0, seconds: 0.0 })
}

fn plan(gate: Option<Receiver<()>>) -> (ObserverPlan, Seen) {
    let seen = Seen::default();
    let observer = Noting { seen: seen.clone(), gate };
    (ObserverPlan::new("noting", move || observer.clone()), seen)
}

#[test]
fn every_event_is_passed_in_order_until_a_panic() {
    let (plan, seen) = plan(None);
    let mut observers = Observers::start(&[plan.clone(), plan], ObservedRun::default());
    (1..=5).for_each(|step| observers.pass(&Stamped::now(&event(step))));
    observers.finish();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    // Of two observers.
    assert_eq!(seen, [1, 1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn one_that_stalls_misses_events_and_delays_nobody() {
    let (open, gate) = bounded::<()>(0);
    let (plan, seen) = plan(Some(gate));
    let mut running = Running::start(&plan, 2, &ObservedRun::default()).unwrap();
    let line = |step| serde_json::to_value(event(step)).unwrap();
    // The thread may have taken one of the first three.
    (11..=16).for_each(|step| running.pass(&line(step)));
    assert!((3..=4).contains(&running.left_out), "{}", running.left_out);
    let ended = running.ended.clone();
    running.finish(Instant::now());
    assert!(seen.lock().unwrap().is_empty());
    // It ends once it goes on.
    drop(open);
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
    let seen = seen.lock().unwrap();
    assert!(seen.starts_with(&[11, 12]), "{seen:?}");
}

/// Notes the names of its calls; fails in all of them.
#[derive(Clone, Default)]
struct Calling {
    seen: Arc<Mutex<Vec<String>>>,
    run: ObservedRun,
}

impl Calling {
    fn note(&self, what: &str) -> Result<()> {
        let what = format!("{what} {}", self.run.waits_until().is_some());
        self.seen.lock().unwrap().push(what);
        Err(Error::data("never"))
    }
}

impl EventObserver for Calling {
    fn start(&mut self, run: &ObservedRun) -> Result<()> {
        self.run = run.clone();
        self.note(&format!("start of {} at {}", run.name, run.step))
    }

    fn event(&mut self, event: &Value) -> Result<()> {
        self.note(&format!("event {}", event["step"]))
    }

    fn end(&mut self) -> Result<()> {
        self.note("end")
    }
}

#[test]
fn failing_calls_are_followed_by_the_others() {
    let observer = Calling::default();
    let seen = observer.seen.clone();
    let plan = ObserverPlan::new("calling", move || observer.clone());
    let run = ObservedRun { name: "toy".to_owned(), step: 7, ..ObservedRun::default() };
    let mut observers = Observers::start(&[plan], run);
    observers.pass(&Stamped::now(&event(8)));
    // Its thread is about to be told that the run is over.
    let deadline = Instant::now() + Duration::from_secs(60);
    while seen.lock().unwrap().len() < 2 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    observers.finish();
    assert_eq!(*seen.lock().unwrap(), ["start of toy at 7 false", "event 8 false", "end true"]);
}
