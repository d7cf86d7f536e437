//! Whether two runs did the same, to the bit: the events of their metrics, and their checkpoints.

use base::error::{Error, IoContext, Result};
use base::files;
use checkpoint::format::{EMA_FILE, HOOK_FILE, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE};
use checkpoint::tensor_file::read_tensor_file;
use checkpoint::{RunState, TensorData, read_state, verify};
use record::Event;
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// What of an event depends on when and where it happened.
const TIMING: [&str; 9] = [
    "time",
    "seconds",
    "samples_per_s",
    "tokens_per_s",
    "flops_per_s",
    "mfu",
    "data_wait",
    "times",
    "overlap",
];
/// The same of `state.json`, and what names the run; the digests of the files are compared by the files.
const STATE_TIMING: [&str; 6] =
    ["format_version", "spec_hash", "name", "wall_seconds", "files", "extra.device"];
const FILES: [&str; 4] = [MODEL_FILE, OPTIMIZER_FILE, EMA_FILE, HOOK_FILE];
/// Bytes that are compared at a time.
const CHUNK: usize = 256 << 10;

/// Values by dotted key, in their order, as JSON: a number's text has all its bits.
pub type KeyValues = Vec<(String, String)>;

/// What kind of event it is; those of a step come before the end of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    Step,
    Epoch,
}

impl EventKind {
    pub fn noun(self) -> &'static str {
        match self {
            Self::Step => "step event",
            Self::Epoch => "epoch event",
        }
    }
}

/// The result of a step or an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    pub kind: EventKind,
    /// Completed optimizer steps.
    pub step: u64,
    pub values: KeyValues,
}

/// The first thing that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Completed optimizer steps.
    pub step: u64,
    /// A key of an event, or a part of a checkpoint.
    pub what: String,
    pub recorded: String,
    pub now: String,
}

impl StepOutcome {
    /// Of a line of metrics.jsonl; `None` for other events, and for what is no event or has no loss.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let Json::Object(mut event) = serde_json::from_slice(line).ok()? else { return None };
        let (kind, loss) = match event.shift_remove("event")?.as_str()? {
            "step" => (EventKind::Step, "loss"),
            "epoch" => (EventKind::Epoch, "train"),
            _ => return None,
        };
        event.get(loss)?;
        let step = event.get("step")?.as_u64()?;
        event.retain(|key, _| !TIMING.contains(&key.as_str()));
        let mut values = KeyValues::new();
        flatten("", &Json::Object(event), &mut values);
        Some(Self { kind, step, values })
    }

    /// Only one of two runs has it.
    pub fn lone(&self, recorded: &str, now: &str) -> Mismatch {
        let what = format!("the {}", self.kind.noun());
        Mismatch { step: self.step, what, recorded: recorded.to_owned(), now: now.to_owned() }
    }

    /// How `now` differs. Keys that only one of them has are no difference: another version may write more.
    pub fn differs(&self, now: &Self) -> Option<Mismatch> {
        let (what, recorded, now) = first_change(&self.values, &now.values)?;
        Some(Mismatch { step: self.step, what, recorded, now })
    }
}

/// The outcomes of a run, by step and kind.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(BTreeMap<(u64, EventKind), StepOutcome>);

impl Outcomes {
    /// # Errors
    /// Exit code 74: the file can't be read.
    pub fn read(metrics: &Path) -> Result<Self> {
        let mut all = Self::default();
        Tail::default().read(metrics, |outcome| all.add(outcome))?;
        Ok(all)
    }

    /// Of whole lines of metrics.jsonl.
    pub fn of_lines(lines: &[u8]) -> Self {
        let mut all = Self::default();
        lines
            .split_inclusive(|byte| *byte == b'\n')
            .filter_map(StepOutcome::parse)
            .for_each(|it| all.add(it));
        all
    }

    /// Adds an outcome; it replaces an earlier one of the same step and kind.
    pub fn add(&mut self, outcome: StepOutcome) {
        self.0.insert((outcome.step, outcome.kind), outcome);
    }

    /// The outcome with the step and kind of `outcome`; `None` if there is none.
    pub fn matching(&self, outcome: &StepOutcome) -> Option<&StepOutcome> {
        self.0.get(&(outcome.step, outcome.kind))
    }

    /// Whether an epoch ended with this step.
    pub fn has_epoch_at(&self, step: u64) -> bool {
        self.0.contains_key(&(step, EventKind::Epoch))
    }

    /// The last step that has one.
    pub fn last_step(&self) -> Option<u64> {
        self.0.keys().next_back().map(|(step, _)| *step)
    }

    /// The first step from `step` on that has a step event.
    pub fn step_from(&self, step: u64) -> Option<u64> {
        self.0
            .range((step, EventKind::Step)..)
            .find(|((_, kind), _)| *kind == EventKind::Step)
            .map(|((at, _), _)| *at)
    }

    /// All outcomes by ascending step; a step event comes before the epoch event of the same step.
    pub fn iter(&self) -> impl Iterator<Item = &StepOutcome> {
        self.0.values()
    }

    /// The first difference of `now`: a value, or an event that it lacks or has besides.
    pub fn differs(&self, now: &Self) -> Option<Mismatch> {
        let mut found: Vec<Mismatch> = self
            .iter()
            .filter_map(|own| {
                now.matching(own).map_or_else(|| Some(own.lone("there", "missing")), |now| own.differs(now))
            })
            .collect();
        found.extend(
            now.iter().filter(|it| self.matching(it).is_none()).map(|it| it.lone("missing", "there")),
        );
        found.into_iter().min_by_key(|mismatch| mismatch.step)
    }
}

/// The numbers, from 1, of the lines of metrics.jsonl that are no event. A last line without its end is none: a crash leaves such a one.
///
/// # Errors
/// Exit code 74: the file can't be read.
pub fn damaged_lines(metrics: &Path) -> Result<Vec<usize>> {
    let (mut reader, mut line) = (BufReader::new(files::open(metrics).doing("read", metrics)?), Vec::new());
    let mut found = Vec::new();
    for number in 1.. {
        line.clear();
        reader.read_until(b'\n', &mut line).doing("read", metrics)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        if StepOutcome::parse(&line).is_none() && serde_json::from_slice::<Event>(&line).is_err() {
            found.push(number);
        }
    }
    Ok(found)
}

/// Reads the lines that are appended to a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail(u64);

impl Tail {
    /// Passes on the outcomes of the whole lines since the last call. A file that is not there has none.
    ///
    /// # Errors
    /// Exit code 74: the file can't be read.
    pub fn read(&mut self, metrics: &Path, mut f: impl FnMut(StepOutcome)) -> Result<()> {
        let mut file = match files::open(metrics) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => file.doing("read", metrics)?,
        };
        if file.metadata().doing("read", metrics)?.len() < self.0 {
            // A start has removed what it repeats.
            self.0 = 0;
        }
        file.seek(SeekFrom::Start(self.0)).doing("read", metrics)?;
        let (mut reader, mut line) = (BufReader::new(file), Vec::new());
        loop {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line).doing("read", metrics)?;
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
            self.0 += bytes as u64;
            StepOutcome::parse(&line).into_iter().for_each(&mut f);
        }
    }
}

/// How the checkpoint in `now` differs from the one in `recorded`, both of `step`; by the tensors alone without `whole`.
///
/// # Errors
/// Exit code 74: one of them can't be read, or is damaged.
pub fn checkpoints(step: u64, recorded: &Path, now: &Path, whole: bool) -> Result<Option<Mismatch>> {
    let mismatch = |(what, recorded, now)| Mismatch { step, what, recorded, now };
    for name in FILES {
        let [a, b] = [recorded, now].map(|folder| folder.join(name));
        match (a.exists(), b.exists()) {
            (false, false) => {}
            (true, true) if same_bytes(&a, &b)? => {}
            (true, true) => {
                undamaged(recorded)?;
                undamaged(now)?;
                return Ok(Some(mismatch(tensor_change(name, &a, &b)?)));
            }
            (there, _) => {
                undamaged(recorded)?;
                undamaged(now)?;
                let [a, b] = [there, !there].map(|is| if is { "there" } else { "missing" }.to_owned());
                return Ok(Some(mismatch((name.to_owned(), a, b))));
            }
        }
    }
    if !whole {
        return Ok(None);
    }
    let state = |folder: &Path| {
        let unread = |why| Error::checkpoint(format!("checkpoint {}: {why}", folder.display()));
        read_state(folder).map_err(unread).map(|state| of_state(&state))
    };
    let change = first_change(&state(recorded)?, &state(now)?);
    Ok(change.map(|(what, a, b)| mismatch((format!("{STATE_FILE} {what}"), a, b))))
}

/// What was altered since says nothing about the run.
fn undamaged(folder: &Path) -> Result<()> {
    verify(folder)
        .map(drop)
        .map_err(|why| Error::checkpoint(format!("checkpoint {} is damaged: {why}", folder.display())))
}

fn same_bytes(a: &Path, b: &Path) -> Result<bool> {
    let [mut first, mut second] = [files::open(a).doing("read", a)?, files::open(b).doing("read", b)?];
    if first.metadata().doing("read", a)?.len() != second.metadata().doing("read", b)?.len() {
        return Ok(false);
    }
    let [mut left, mut right] = [vec![0; CHUNK], vec![0; CHUNK]];
    loop {
        let n = first.read(&mut left).doing("read", a)?;
        if n == 0 {
            return Ok(true);
        }
        second.read_exact(&mut right[..n]).doing("read", b)?;
        if left[..n] != right[..n] {
            return Ok(false);
        }
    }
}

/// The first tensor that differs, with the first value of it that does.
fn tensor_change(file: &str, a: &Path, b: &Path) -> Result<(String, String, String)> {
    let read = |path: &Path| {
        let unread = |why| Error::io(format!("cannot read {}: {why}", path.display()));
        read_tensor_file(path).map(|(tensors, _)| tensors).map_err(unread)
    };
    let [before, now] = [read(a)?, read(b)?];
    for tensor in before.iter() {
        let named = format!("{file} {}", tensor.name);
        let Some(other) = now.get(&tensor.name) else {
            return Ok((named, "there".to_owned(), "missing".to_owned()));
        };
        if tensor.shape != other.shape || tensor.dtype != other.dtype {
            let facts = |t: &TensorData| format!("{:?} {:?}", t.dtype, t.shape);
            return Ok((named, facts(tensor), facts(other)));
        }
        if tensor.bytes != other.bytes {
            let [x, y] = [tensor, other].map(values);
            let at = x.iter().zip(&y).position(|(x, y)| x.to_bits() != y.to_bits());
            let shown = |of: &[f64]| at.map_or_else(|| "other bytes".to_owned(), |at| of[at].to_string());
            return Ok((format!("{named}[{}]", at.unwrap_or(0)), shown(&x), shown(&y)));
        }
    }
    Ok((file.to_owned(), "its bytes".to_owned(), "other bytes".to_owned()))
}

fn values(tensor: &TensorData) -> Vec<f64> {
    let mut all = Vec::with_capacity(tensor.len());
    tensor.for_each_f64(|value| all.push(value));
    all
}

/// What of `state.json` a run's results depend on.
fn of_state(state: &RunState) -> KeyValues {
    let mut values = KeyValues::new();
    flatten("", &serde_json::to_value(state).unwrap_or_default(), &mut values);
    let apart = |key: &str| {
        STATE_TIMING
            .iter()
            .any(|name| key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    };
    values.retain(|(key, _)| !apart(key));
    values
}

/// The first key of both whose values differ, in the order of `before`.
fn first_change(before: &KeyValues, now: &KeyValues) -> Option<(String, String, String)> {
    let now: BTreeMap<&str, &str> = now.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    before.iter().find_map(|(key, value)| {
        let other = *now.get(key.as_str())?;
        (other != value).then(|| (key.clone(), value.clone(), other.to_owned()))
    })
}

fn flatten(path: &str, value: &Json, out: &mut KeyValues) {
    let inner = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Json::Object(map) => map.iter().for_each(|(key, value)| flatten(&inner(key), value, out)),
        value => out.push((path.to_owned(), value.to_string())),
    }
}

#[cfg(test)]
#[path = "same_tests.rs"]
mod tests;
