//! The tracing layer that records spans while the chosen steps run.

use super::steps::ProfileSteps;
use super::trace::{self, TraceEvent};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Spans up to which a rank records: about 100 MB until they are written.
const MAX_SPANS: usize = if cfg!(test) { 900 } else { 500_000 };

/// The recording of one rank. Copies are the same recording.
#[derive(Clone)]
pub struct Profile(Arc<Recording>);

struct Recording {
    steps: ProfileSteps,
    rank: usize,
    host: String,
    place: PathBuf,
    /// An earlier attempt of the same start may have recorded the steps.
    restarted: bool,
    /// The same moment on both clocks: microseconds since 1970, so that the ranks' times can be compared.
    began: (Instant, u64),
    on: AtomicBool,
    /// Something was recorded.
    any: AtomicBool,
    state: Mutex<ProfileState>,
}

#[derive(Default)]
struct ProfileState {
    /// Steps that have begun.
    steps: u64,
    spans: Vec<Recorded>,
    /// The number of each thread, and the names by number; the first is the training thread. Threads that follow each other
    /// under one name, as those that load the batches of an epoch, are one.
    numbers: HashMap<ThreadId, usize>,
    threads: Vec<String>,
    written: Written,
}

#[derive(Default)]
enum Written {
    #[default]
    No,
    /// By a thread: where a span ends, nothing may be logged, and no step has to wait.
    By(JoinHandle<()>),
    Yes,
}

/// A span that was closed while the recording was on.
struct Recorded {
    name: &'static str,
    thread: usize,
    begin: Instant,
    end: Instant,
    fields: Fields,
}

type Fields = Vec<(&'static str, Value)>;

/// The times of a span that was opened while the recording was on; an extension of the span.
struct Open {
    begin: Option<Instant>,
    fields: Fields,
    /// It is the last step.
    last: bool,
}

impl Profile {
    /// A recording of `steps` of `rank`, which is written to `place`. `restarted`: existing files may be of this start, and
    /// stays if this attempt records nothing.
    pub fn new(steps: ProfileSteps, rank: usize, host: String, place: PathBuf, restarted: bool) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
        Self(Arc::new(Recording {
            steps,
            rank,
            host,
            place,
            restarted,
            began: (Instant::now(), since),
            on: AtomicBool::new(false),
            any: AtomicBool::new(false),
            state: Mutex::default(),
        }))
    }

    /// Whether a span of this kind is recorded: only spans of this program and of its crates are.
    pub fn records(metadata: &Metadata<'_>) -> bool {
        let of = metadata.target().split("::").next().unwrap_or_default();
        metadata.is_span() && (of == "ddp_run" || of.starts_with("ddp_run_"))
    }

    /// Why nothing was recorded; `None` if something was. Call it after [`Profile::finish`].
    pub fn why_none(&self) -> Option<String> {
        (!self.0.any.load(Relaxed)).then(|| self.0.steps.none())
    }

    /// Ends the recording. Returns when the file is written; what cannot be written is a warning.
    pub fn finish(&self) {
        self.0.on.store(false, Relaxed);
        let written = std::mem::replace(&mut self.lock().written, Written::Yes);
        match written {
            Written::No => self.write(),
            Written::By(thread) => drop(thread.join()),
            Written::Yes => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProfileState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last step is done, or nothing more fits.
    fn end_of_steps(&self) {
        self.0.on.store(false, Relaxed);
        let mut state = self.lock();
        if !matches!(state.written, Written::No) {
            return;
        }
        let of_thread = self.clone();
        let thread = std::thread::Builder::new().name("profile".into()).spawn(move || of_thread.write());
        // Without a thread, `finish` writes it.
        if let Ok(thread) = thread {
            state.written = Written::By(thread);
        }
    }

    fn write(&self) {
        let (spans, threads) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.spans), state.threads.clone())
        };
        if spans.is_empty() && self.0.restarted {
            return;
        }
        self.0.any.store(!spans.is_empty(), Relaxed);
        let rank = self.0.rank;
        if spans.len() >= MAX_SPANS {
            tracing::warn!("the profile of rank {rank} ends early: it has {MAX_SPANS} spans");
        }
        let process = format!("rank {rank} ({})", self.0.host);
        let mut names: Vec<TraceEvent> = TraceEvent::names("process", rank, 1, &process).into();
        for (at, name) in threads.iter().enumerate() {
            names.extend(TraceEvent::names("thread", rank, at + 1, name));
        }
        let mut events = names.into_iter().chain(spans.into_iter().map(|span| self.event(span)));
        if let Err(e) = trace::write(&self.0.place, |put| events.try_for_each(put)) {
            // With the target of printed lines; standard error of the other ranks is their log already.
            if rank == 0 {
                tracing::warn!(target: "ddp_run::said", "the profile of rank {rank} is lost: {}", e.message);
            }
            status!("warning: the profile of rank {rank} is lost: {}", e.message);
        }
    }

    /// Begin and end are rounded, not the length, so that spans stay within each other.
    fn event(&self, span: Recorded) -> TraceEvent {
        let Recorded { name, thread, begin, end, fields } = span;
        let (begin, end) = (self.micros(begin), self.micros(end));
        // A phase and a collective have the name of what they are.
        let kind = fields.iter().find(|(key, _)| ["phase", "operation"].contains(key));
        let shown = kind.and_then(|(_, value)| value.as_str()).unwrap_or(name).to_owned();
        let args = fields.into_iter().filter(|(key, _)| !["phase", "operation", "rank"].contains(key));
        TraceEvent {
            name: shown,
            ph: "X".to_owned(),
            cat: name.to_owned(),
            pid: self.0.rank,
            tid: thread + 1,
            ts: Some(begin),
            dur: Some(end - begin),
            // Spans count the steps that are done, and everything else the step itself.
            args: args
                .map(|(key, value)| match (key, value.as_u64()) {
                    ("step", Some(done)) => (key.to_owned(), (done + 1).into()),
                    _ => (key.to_owned(), value),
                })
                .collect::<Map<_, _>>(),
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        let (began, since) = self.0.began;
        since + at.saturating_duration_since(began).as_micros() as u64
    }

    /// A step begins. Returns whether it is the last one that is recorded.
    fn step_begins(&self, done: u64) -> bool {
        let (nth, written) = {
            let mut state = self.lock();
            state.steps += 1;
            state.number_of_this_thread();
            (state.steps, !matches!(state.written, Written::No))
        };
        if nth == 1 && !self.0.restarted {
            // Of an earlier start, whose times would be merged with those of this one.
            let _ = fs::remove_file(&self.0.place);
        }
        self.0.on.store(!written && self.0.steps.contains(done + 1, nth), Relaxed);
        self.0.steps.ends_with(done + 1, nth)
    }
}

impl ProfileState {
    fn number_of_this_thread(&mut self) -> usize {
        let thread = std::thread::current();
        let (numbers, threads) = (&mut self.numbers, &mut self.threads);
        *numbers.entry(thread.id()).or_insert_with(|| {
            let name = match (threads.is_empty(), thread.name()) {
                (true, _) => "training",
                (false, name) => name.unwrap_or("unnamed"),
            };
            let known = threads.iter().position(|known| known == name && name != "unnamed");
            known.unwrap_or_else(|| {
                threads.push(name.to_owned());
                threads.len() - 1
            })
        })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Profile {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let is_step = attributes.metadata().name() == "step";
        if !is_step && !self.0.on.load(Relaxed) {
            return;
        }
        let mut fields = Reader::default();
        attributes.record(&mut fields);
        let Reader(fields) = fields;
        let done = fields.iter().find(|(key, _)| *key == "step").and_then(|(_, value)| value.as_u64());
        let last = is_step && self.step_begins(done.unwrap_or(0));
        if let Some(span) = context.span(id).filter(|_| self.0.on.load(Relaxed)) {
            span.extensions_mut().insert(Open { begin: None, fields, last });
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            open.begin = Some(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(Open { begin: Some(begin), fields, last }) = span.extensions_mut().remove::<Open>() else {
            return;
        };
        let mut full = false;
        if self.0.on.load(Relaxed) {
            let (name, end) = (span.name(), Instant::now());
            let mut state = self.lock();
            let thread = state.number_of_this_thread();
            state.spans.push(Recorded { name, thread, begin, end, fields });
            full = state.spans.len() >= MAX_SPANS;
        }
        if last || full {
            self.end_of_steps();
        }
    }
}

/// Reads the fields of a span.
#[derive(Default)]
struct Reader(Fields);

impl Visit for Reader {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push((field.name(), value.into()));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.push((field.name(), value.into()));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.into()));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}").into()));
    }
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
