//! TensorBoard's event files, written directly: scalars, the spec as text, and hyperparameters. `tensorboard --logdir runs` shows the
//! curves of all runs, and compares the runs by their keys.

use super::event_file::{EventFile, bytes_field, key, now, plugin_value, varint_field, wall_time};
use super::events::{Event, RunEnd};
use super::hparams;
use base::error::{IoContext, Result};
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

/// The file of the hyperparameters. TensorBoard reads files in the order of their names: this one before those of the scalars.
const HPARAMS: &str = "events.out.tfevents.0000000000.hparams.ddp-run";

/// What a start of a run is, for TensorBoard.
#[derive(Clone, Debug, Default)]
pub struct StartOfRun {
    /// The resolved spec, as TOML.
    pub spec: String,
    /// The values that runs are compared by, by their dotted keys.
    pub values: Map<String, Value>,
}

/// Appends scalars to one event file. Each start of a run writes its own file; TensorBoard merges them.
#[derive(Debug)]
pub struct TensorBoardWriter {
    events: EventFile,
    /// TensorBoard takes the first values of a run that it finds: so that they are those of the last start, each start writes this file anew.
    hparams: EventFile,
}

impl TensorBoardWriter {
    /// Creates `<folder>/events.out.tfevents.<time>.<pid>.ddp-run` and the file of the hyperparameters. If there are earlier files, a session
    /// log tells TensorBoard to discard their values for steps after `done`.
    pub fn create(folder: &Path, done: u64, start: &StartOfRun) -> Result<Self> {
        let first = !folder.exists();
        fs::create_dir_all(folder).doing("create", folder)?;
        let seconds = now() as u64;
        // TensorBoard reads files in the order of their names, so the name begins with the time. Names are unique.
        let mut events = (0..)
            .find_map(|n| {
                let name = format!("events.out.tfevents.{seconds:010}.{}.{n}.ddp-run", std::process::id());
                EventFile::create(&folder.join(name)).transpose()
            })
            .expect("the range is endless")?;
        if !first {
            // SessionLog { status: START }: values of earlier files from this step on are stale.
            let mut begun = wall_time();
            varint_field(&mut begun, 2, done + 1);
            bytes_field(&mut begun, 7, &[0x08, 1]);
            events.record(&begun)?;
        }
        events.values(done, &[text("spec", &start.spec)])?;
        let path = folder.join(HPARAMS);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).doing("remove", &path),
            _ => {}
        }
        let exists = || Err(std::io::Error::from(std::io::ErrorKind::AlreadyExists)).doing("create", &path);
        let mut hparams = EventFile::create(&path)?.map_or_else(exists, Ok)?;
        hparams.values(0, &[hparams::start(&start.values, now())])?;
        Ok(Self { events, hparams })
    }

    /// Writes what an event has for TensorBoard: the scalars `step/loss`, `step/lr`, `train/…`, `val/…`, and how the run has ended.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let mut scalars = Vec::new();
        match event {
            Event::Step(e) => {
                scalars.push(("step/loss".to_owned(), e.loss));
                scalars.push(("step/lr".to_owned(), e.lr));
                scalars.push(("step/samples_per_s".to_owned(), e.samples_per_s));
                scalars.extend(e.tokens_per_s.map(|x| ("step/tokens_per_s".to_owned(), x)));
                scalars.extend(e.mfu.map(|x| ("step/mfu".to_owned(), x)));
                scalars.extend(e.grad_norm.map(|x| ("step/grad_norm".to_owned(), x)));
                scalars.push(("step/data_wait".to_owned(), e.data_wait));
            }
            Event::Epoch(e) => {
                scalars.extend(e.train.iter().map(|(name, value)| (format!("train/{name}"), value)));
                let val = e.val.iter().flat_map(|v| v.iter());
                scalars.extend(val.map(|(name, value)| (format!("val/{name}"), value)));
                scalars.push(("epoch/seconds".to_owned(), e.seconds));
            }
            Event::End(e) => {
                let done = match e.outcome() {
                    RunEnd::Stopped => None,
                    end => Some(end == RunEnd::Done),
                };
                return self.hparams.values(0, &[hparams::end(done, now())]);
            }
            _ => return Ok(()),
        }
        let step = event.step().unwrap_or(0);
        let scalars: Vec<(&str, f64)> = scalars.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        self.scalars(step, &scalars)
    }

    /// Writes named scalars for one step.
    pub(crate) fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        // Value { tag = 1, simple_value = 2 float }
        let encoded = |(tag, value): &(&str, f64)| {
            let mut entry = Vec::new();
            bytes_field(&mut entry, 1, tag.as_bytes());
            key(&mut entry, 2, 5);
            entry.extend_from_slice(&(*value as f32).to_le_bytes());
            entry
        };
        self.events.values(step, &scalars.iter().map(encoded).collect::<Vec<Vec<u8>>>())
    }
}

/// A text that TensorBoard shows as a block of code: it reads Markdown, where that is what is indented.
fn text(tag: &str, code: &str) -> Vec<u8> {
    let block: String = code.lines().map(|line| format!("    {line}\n")).collect();
    // TensorProto { dtype = 1 DT_STRING, tensor_shape = 2 {}, string_val = 8 }
    let mut tensor = vec![0x08, 7, 0x12, 0];
    bytes_field(&mut tensor, 8, block.as_bytes());
    plugin_value(tag, "text", &[], &tensor)
}

#[cfg(test)]
#[path = "tensorboard_tests.rs"]
mod tests;
