//! Events with fixed values, and their lines in `metrics.jsonl`: for tests of this crate and of the program.

#![allow(missing_docs, reason = "only tests call it")]

use crate::{
    CheckpointEvent, EndEvent, EpochEvent, Event, Metrics, RankTimes, RestartEvent, ResumeEvent, Stamped,
    StepEvent,
};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

pub fn step(step: u64, loss: f64) -> Event {
    Event::Step(StepEvent { step, loss, lr: 0.1, samples_per_s: 8.0, ..StepEvent::default() })
}

/// An epoch of ten steps with this accuracy.
pub fn epoch(epoch: u64, accuracy: f64) -> EpochEvent {
    EpochEvent {
        epoch,
        train: Metrics::new(0.5),
        val: Some(Metrics::new(0.25).with("accuracy", accuracy)),
        seconds: 2.0,
        step: 10 * (epoch + 1),
        lr: 0.1,
        samples_per_s: 1000.0,
        tokens_per_s: None,
        flops_per_s: None,
        mfu: None,
        data_wait: 0.0,
        cut: false,
    }
}

pub fn checkpoint(step: u64) -> Event {
    let path = format!("checkpoints/step-{step:08}");
    Event::Checkpoint(CheckpointEvent { step, epoch: 1, path, bytes: 1, seconds: 0.1, held_up_s: None })
}

pub fn restart() -> Event {
    Event::Restart(RestartEvent { attempt: 2, reason: "rank 1 was killed".to_owned() })
}

pub fn resume(step: u64, world: usize) -> Event {
    let path = format!("checkpoints/step-{step:08}");
    Event::Resume(ResumeEvent { step, epoch: 0, path, world, global_batch: 8, accumulate: 1 })
}

pub fn end(step: u64, exit_code: u8) -> Event {
    let reason = if exit_code == 0 { "done" } else { "rank 1 was killed" }.to_owned();
    Event::End(EndEvent { step, epoch: 1, reason, exit_code, seconds: 1.0 })
}

/// No time on any of these ranks.
pub fn no_times(ranks: usize) -> RankTimes {
    let none = vec![0.0; ranks];
    RankTimes {
        data: none.clone(),
        forward: none.clone(),
        backward: none.clone(),
        comm: none.clone(),
        optimizer: none.clone(),
        checkpoint: none.clone(),
        other: none,
    }
}

/// The line of an event: a step takes a second.
pub fn line(event: &Event) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + event.step().unwrap_or(0));
    serde_json::to_string(&Stamped::at(event, time)).unwrap() + "\n"
}

/// Appends to a run's metrics.
pub fn append(folder: &Path, text: &str) {
    let mut file = File::options().create(true).append(true).open(folder.join("metrics.jsonl")).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
