//! Observers: the sinks that ship with ddp-run (`sinks`) and user-defined ones. Each gets the events of the run on a
//! separate thread: one that fails or stalls neither ends nor slows the run.

use super::events::Stamped;
use super::observed::ObservedRun;
use base::error::Result;
use base::panics::catch_model_panic;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spec::Fields;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Events that wait for an observer; later ones other than the end are left out.
const QUEUE: usize = 1024;
/// How long the end of the run waits for the observers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time without an event after which an observer may do deferred work.
const IDLE: Duration = Duration::from_secs(1);

/// Receives what happens in a run, `[[observer]] name = "…"`. It is its own config: its fields are the keys of the table.
///
/// All calls are on rank 0, one after another, on the observer's own thread. What a call returns as an error is printed as
/// a warning, the first time; the next call is still made. After a panic there are no more calls.
///
/// ```
/// use base::error::Result;
/// use ddp_run_record::EventObserver;
/// use serde_json::Value;
///
/// /// Prints a line when the validation loss is below a bound for the first time.
/// struct Announce {
///     bound: f64,
///     done: bool,
/// }
///
/// impl EventObserver for Announce {
///     fn event(&mut self, event: &Value) -> Result<()> {
///         let loss = event["val"]["loss"].as_f64().filter(|loss| *loss < self.bound);
///         if let (false, "epoch", Some(loss)) = (self.done, event["event"].as_str().unwrap_or(""), loss) {
///             self.done = true;
///             eprintln!("step {}: the validation loss is {loss}", event["step"]);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait EventObserver: Send + 'static {
    /// Called once, before the first event, with what the run is. By default it does nothing.
    ///
    /// # Errors
    /// A warning.
    fn start(&mut self, run: &ObservedRun) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// Called for each line of `metrics.jsonl`, in order, with the line as JSON.
    ///
    /// # Errors
    /// A warning.
    fn event(&mut self, event: &Value) -> Result<()>;

    /// Called when no event has come for a second, and after each further second without one: for observers that collect
    /// events and pass them on together. By default it does nothing.
    ///
    /// # Errors
    /// A warning.
    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called once, after the last event. The run waits for it, but not longer than `ObservedRun::waits_until` says. It
    /// is not called in a process that is killed. By default it does nothing.
    ///
    /// # Errors
    /// A warning, also if there was one before.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The keys of an observer, and how it is made of them.
pub(super) trait ObserverConfig:
    Clone + Send + Sync + DeserializeOwned + JsonSchema + 'static
{
    type Observer: EventObserver;

    /// A key that is wrong in a way that its type does not express, and why.
    fn problem(&self) -> Option<(&'static str, String)> {
        None
    }

    fn observer(&self) -> Self::Observer;
}

/// An observer without a state of its own besides its keys.
impl<T: EventObserver + Clone + Sync + DeserializeOwned + JsonSchema> ObserverConfig for T {
    type Observer = Self;

    fn observer(&self) -> Self {
        self.clone()
    }
}

/// How the observers of a name are made.
#[derive(Clone, Copy)]
pub struct ObserverKind {
    /// From an `[[observer]]` table; `None` after a problem.
    read: fn(&str, &mut Fields<'_>) -> Option<ObserverPlan>,
    /// With the defaults of all keys, for `[metrics] sinks`; the error says what is missing.
    pub(super) usual: fn(&str) -> Result<ObserverPlan, String>,
}

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

impl ObserverKind {
    /// The kind of `T`.
    pub fn new<T>() -> Self
    where
        T: EventObserver + Clone + Sync + DeserializeOwned + JsonSchema,
    {
        Self::of_config::<T>()
    }

    /// The kind of the observers that a `C` makes.
    pub(super) fn of_config<C: ObserverConfig>() -> Self {
        fn plan<C: ObserverConfig>(name: &str, config: C) -> ObserverPlan {
            ObserverPlan::new(name, move || config.observer())
        }
        Self {
            read: |name, fields| {
                let config = fields.parse::<C>()?;
                match config.problem() {
                    Some((key, why)) => {
                        fields.problem(key, why);
                        None
                    }
                    None => Some(plan(name, config)),
                }
            },
            usual: |name| {
                let config: C = serde_json::from_value(serde_json::json!({})).map_err(|e| e.to_string())?;
                config
                    .problem()
                    .map_or_else(|| Ok(plan(name, config)), |(key, why)| Err(format!("`{key}` {why}")))
            },
        }
    }

    /// Reads an `[[observer]]` table. `None` after a problem.
    pub fn read(self, name: &str, fields: &mut Fields<'_>) -> Option<ObserverPlan> {
        (self.read)(name, fields)
    }
}

impl ObserverPlan {
    /// An observer that `make` makes for each start.
    pub(super) fn new<T: EventObserver>(name: &str, make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self { name: name.to_owned(), make: Arc::new(move || Box::new(make())) }
    }
}

/// The running observers.
pub struct Observers {
    all: Vec<Running>,
    run: ObservedRun,
}

struct Running {
    name: String,
    /// `None` once the observer has ended.
    events: Option<Sender<Value>>,
    /// Disconnected when the thread has passed its last event.
    ended: Receiver<()>,
    /// How many events may wait.
    most: usize,
    queued: usize,
    taken: Arc<AtomicUsize>,
    left_out: usize,
}

impl Observers {
    /// Starts a thread for each observer.
    pub fn start(plans: &[ObserverPlan], run: ObservedRun) -> Self {
        Self { all: plans.iter().filter_map(|plan| Running::start(plan, QUEUE, &run)).collect(), run }
    }

    /// Queues the event for each observer; never blocks.
    pub fn pass(&mut self, event: &Stamped<'_>) {
        if self.all.is_empty() {
            return;
        }
        let Ok(event) = serde_json::to_value(event) else { return };
        self.all.iter_mut().for_each(|observer| observer.pass(&event));
    }

    /// Waits, not long, until the observers have got every event and have ended.
    pub fn finish(self) {
        self.finish_by(Instant::now() + PATIENCE);
    }

    fn finish_by(mut self, deadline: Instant) {
        self.run.end(deadline);
        // All are notified before the first wait: none has less time because another one hangs.
        let notified: Vec<bool> =
            self.all.iter_mut().map(|observer| observer.events.take().is_some()).collect();
        self.all
            .into_iter()
            .zip(notified)
            .for_each(|(observer, gets_more)| observer.finish(gets_more, deadline));
    }
}

impl Running {
    fn start(plan: &ObserverPlan, most: usize, run: &ObservedRun) -> Option<Self> {
        let (events, queued) = unbounded::<Value>();
        let (end, ended) = bounded::<()>(0);
        let (name, make) = (plan.name.clone(), plan.make.clone());
        let (of_thread, taken, run) = (name.clone(), Arc::new(AtomicUsize::new(0)), run.clone());
        let by_thread = taken.clone();
        let work = move || {
            let _end = end;
            let mut calls = Calls { name: of_thread, observer: make(), failures: 0 };
            calls.all(&run, &queued, &by_thread);
        };
        match std::thread::Builder::new().name(format!("observer-{name}")).spawn(work) {
            Ok(_) => Some(Self { name, events: Some(events), ended, most, queued: 0, taken, left_out: 0 }),
            Err(e) => {
                warn(&name, &format!("cannot start its thread: {e}"));
                None
            }
        }
    }

    fn pass(&mut self, event: &Value) {
        let Some(events) = &self.events else { return };
        // The end is passed in any case: it says how the run has ended.
        if events.len() >= self.most && event["event"] != "end" {
            self.left_out += 1;
        } else if events.send(event.clone()).is_ok() {
            self.queued += 1;
        } else {
            self.events = None;
        }
    }

    /// `gets_more`: it has not ended on its own, and its queue has been closed.
    fn finish(self, gets_more: bool, deadline: Instant) {
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

/// What an observer's thread calls.
struct Calls {
    name: String,
    observer: Box<dyn EventObserver>,
    failures: usize,
}

impl Calls {
    /// Everything from the start to the end; returns after a panic.
    fn all(&mut self, run: &ObservedRun, queued: &Receiver<Value>, taken: &AtomicUsize) -> Option<()> {
        self.call(|observer| observer.start(run))?;
        loop {
            match queued.recv_timeout(IDLE) {
                Ok(event) => {
                    taken.fetch_add(1, Relaxed);
                    self.call(|observer| observer.event(&event))?;
                }
                Err(RecvTimeoutError::Timeout) => self.call(|observer| observer.idle())?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.failures > 1 {
            warn(&self.name, &format!("it failed {} times", self.failures));
        }
        self.failures = 0;
        self.call(|observer| observer.end())
    }

    /// `None` after a panic.
    fn call(&mut self, what: impl FnOnce(&mut dyn EventObserver) -> Result<()>) -> Option<()> {
        match catch_model_panic(|| what(&mut *self.observer)) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => {
                self.failures += 1;
                if self.failures == 1 {
                    warn(&self.name, &e.message);
                }
            }
            Err(why) => {
                warn(&self.name, &format!("it panicked and gets no more events: {why}"));
                return None;
            }
        }
        Some(())
    }
}

fn warn(name: &str, what: &str) {
    tracing::warn!("observer `{name}`: {what}");
    status!("warning: observer `{name}`: {what}");
}

#[cfg(test)]
#[path = "observers_tests.rs"]
mod tests;
