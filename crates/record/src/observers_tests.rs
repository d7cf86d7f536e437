use super::*;
use crate::{Event, samples};
use base::error::Error;
use base::testing::HANG;
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
    samples::end(step, 0)
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
    observers.finish_by(Instant::now() + HANG);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    // Of two observers.
    assert_eq!(seen, [1, 1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn one_that_stalls_misses_events_but_not_the_end() {
    let (open, gate) = bounded::<()>(0);
    let (plan, seen) = plan(Some(gate));
    let mut running = Running::start(&plan, 2, &ObservedRun::default()).unwrap();
    let restart = |step: u64| serde_json::json!({ "event": "restart", "step": step });
    // The thread may have taken one of the first three.
    (11..=16).for_each(|step| running.pass(&restart(step)));
    assert!((3..=4).contains(&running.left_out), "{}", running.left_out);
    running.pass(&serde_json::to_value(event(17)).unwrap());
    let ended = running.ended.clone();
    let gets_more = running.events.take().is_some();
    running.finish(gets_more, Instant::now());
    assert!(seen.lock().unwrap().is_empty());
    // It ends once it goes on.
    drop(open);
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
    let seen = seen.lock().unwrap();
    assert!(seen.starts_with(&[11, 12]) && seen.ends_with(&[17]), "{seen:?}");
}

/// Waits in each event, and tells that it has ended.
#[derive(Clone)]
struct Waiting {
    gate: Receiver<()>,
    ended: Sender<()>,
}

impl EventObserver for Waiting {
    fn event(&mut self, _: &Value) -> Result<()> {
        let _ = self.gate.recv();
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let _ = self.ended.send(());
        Ok(())
    }
}

#[test]
fn one_that_hangs_keeps_no_other_from_its_end() {
    let (open, never) = bounded::<()>(0);
    let (now, ended) = unbounded::<()>();
    let hangs = Waiting { gate: never, ended: unbounded().0 };
    let ends = Waiting { gate: bounded(0).1, ended: now };
    let plans =
        [ObserverPlan::new("hangs", move || hangs.clone()), ObserverPlan::new("ends", move || ends.clone())];
    let mut observers = Observers::start(&plans, ObservedRun::default());
    observers.pass(&Stamped::now(&event(1)));
    // The run waits for the first one until the test ends.
    let waits = std::thread::spawn(move || observers.finish_by(Instant::now() + Duration::from_secs(3600)));
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(()));
    drop(open);
    waits.join().unwrap();
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
    let deadline = Instant::now() + HANG;
    while seen.lock().unwrap().len() < 2 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    observers.finish_by(Instant::now() + HANG);
    assert_eq!(*seen.lock().unwrap(), ["start of toy at 7 false", "event 8 false", "end true"]);
}
