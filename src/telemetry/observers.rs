//! Observers of users' crates. Each gets the events of the run on a thread of its own: one that fails or stalls neither
//! ends nor slows the run.

use super::events::Stamped;
use crate::caught::caught;
use crate::error::Result;
use crate::spec::Fields;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Events that wait for an observer; later ones are left out.
const QUEUE: usize = 1024;
/// How long the end of the run waits for the observers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Receives what happens in a run, `[[observer]] name = "…"`. It is its own config: its fields are the keys of the table.
pub trait EventObserver: Send + 'static {
    /// Called on rank 0 for each line of `metrics.jsonl`, in order, with the line as JSON; on the observer's own thread.
    ///
    /// # Errors
    /// The first is printed as a warning; the next event is passed all the same. After a panic there are no more.
    fn event(&mut self, event: &Value) -> Result<()>;
}

/// Reads an `[[observer]]` table of one observer; `None` after a problem.
pub type ObserverKind = fn(&str, &mut Fields<'_>) -> Option<ObserverPlan>;

/// A resolved `[[observer]]`.
#[derive(Clone)]
pub struct ObserverPlan {
    name: String,
    make: Arc<dyn Fn() -> Box<dyn EventObserver> + Send + Sync>,
}

impl fmt::Debug for ObserverPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObserverPlan").field(&self.name).finish()
    }
}

impl ObserverPlan {
    /// The [`ObserverKind`] of `T`.
    pub fn read<T>(name: &str, fields: &mut Fields<'_>) -> Option<Self>
    where
        T: EventObserver + Clone + Sync + DeserializeOwned + JsonSchema,
    {
        let observer = fields.parse::<T>()?;
        Some(Self { name: name.to_owned(), make: Arc::new(move || Box::new(observer.clone())) })
    }
}

/// The running observers.
pub struct Observers {
    all: Vec<Running>,
}

struct Running {
    name: String,
    /// `None` once the observer has ended.
    events: Option<Sender<Value>>,
    /// Disconnected when the thread has passed its last event.
    ended: Receiver<()>,
    queued: usize,
    taken: Arc<AtomicUsize>,
    left_out: usize,
}

impl Observers {
    /// Starts a thread for each observer.
    pub fn start(plans: &[ObserverPlan]) -> Self {
        Self { all: plans.iter().filter_map(|plan| Running::start(plan, QUEUE)).collect() }
    }

    pub fn pass(&mut self, event: &Stamped<'_>) {
        if self.all.is_empty() {
            return;
        }
        let Ok(event) = serde_json::to_value(event) else { return };
        self.all.iter_mut().for_each(|observer| observer.pass(&event));
    }

    /// Waits, not long, until the observers have got every event.
    pub fn finish(self) {
        let deadline = Instant::now() + PATIENCE;
        self.all.into_iter().for_each(|observer| observer.finish(deadline));
    }
}

impl Running {
    fn start(plan: &ObserverPlan, queue: usize) -> Option<Self> {
        let (events, queued) = bounded::<Value>(queue);
        let (end, ended) = bounded::<()>(0);
        let (name, make) = (plan.name.clone(), plan.make.clone());
        let (of_thread, taken) = (name.clone(), Arc::new(AtomicUsize::new(0)));
        let by_thread = taken.clone();
        let run = move || {
            let _end = end;
            let (mut observer, mut failures) = (make(), 0);
            for event in queued {
                by_thread.fetch_add(1, Relaxed);
                match caught(|| observer.event(&event)) {
                    Ok(Ok(())) => {}
                    Ok(Err(e)) => {
                        failures += 1;
                        if failures == 1 {
                            warn(&of_thread, &e.message);
                        }
                    }
                    Err(why) => {
                        return warn(&of_thread, &format!("it panicked and gets no more events: {why}"));
                    }
                }
            }
            if failures > 1 {
                warn(&of_thread, &format!("it failed in {failures} events"));
            }
        };
        match std::thread::Builder::new().name(format!("observer-{name}")).spawn(run) {
            Ok(_) => Some(Self { name, events: Some(events), ended, queued: 0, taken, left_out: 0 }),
            Err(e) => {
                warn(&name, &format!("cannot start its thread: {e}"));
                None
            }
        }
    }

    fn pass(&mut self, event: &Value) {
        match self.events.as_ref().map(|events| events.try_send(event.clone())) {
            Some(Err(TrySendError::Full(_))) => self.left_out += 1,
            Some(Err(TrySendError::Disconnected(_))) => self.events = None,
            Some(Ok(())) => self.queued += 1,
            None => {}
        }
    }

    fn finish(mut self, deadline: Instant) {
        let gets_more = self.events.take().is_some();
        // The thread never sends: the channel is disconnected when it ends.
        let hangs = self.ended.recv_deadline(deadline) == Err(RecvTimeoutError::Timeout);
        let waiting = if gets_more && hangs { self.queued - self.taken.load(Relaxed) } else { 0 };
        let missed = self.left_out + waiting;
        match (hangs, missed) {
            (false, 0) => {}
            (true, 0) => warn(&self.name, "it has not returned from its last event"),
            _ => warn(&self.name, &format!("it was too slow: {missed} events were not passed to it")),
        }
    }
}

fn warn(name: &str, what: &str) {
    tracing::warn!("observer `{name}`: {what}");
    say!("warning: observer `{name}`: {what}");
}

#[cfg(test)]
mod tests {
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
        (ObserverPlan { name: "noting".to_owned(), make: Arc::new(move || Box::new(observer.clone())) }, seen)
    }

    #[test]
    fn every_event_is_passed_in_order_until_a_panic() {
        let (plan, seen) = plan(None);
        let mut observers = Observers::start(&[plan.clone(), plan]);
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
        let mut running = Running::start(&plan, 2).unwrap();
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
}
