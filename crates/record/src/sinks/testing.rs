//! What the tests of sinks share: a run's events as its observers get them.

use crate::{EndEvent, EpochEvent, Event, Metrics, ObservedRun, Stamped, StepEvent, samples};
use serde_json::Value;
use std::path::Path;

/// A run whose folder is `folder`, at a position.
pub fn run(folder: &Path, step: u64, epochs: u64) -> ObservedRun {
    let spec = serde_json::json!({ "train.accumulate": 2, "optimizer.name": "sgd" });
    ObservedRun {
        name: "toy".to_owned(),
        folder: folder.to_owned(),
        spec: spec.as_object().cloned().unwrap_or_default(),
        run: serde_json::json!({ "world": 2, "git": { "commit": "abc123" }, "host": { "name": "here" } }),
        step,
        epochs,
        ..ObservedRun::default()
    }
}

pub fn value(event: &Event) -> Value {
    serde_json::to_value(Stamped::now(event)).unwrap()
}

/// The loss of step 3 is NaN.
pub fn step(step: u64) -> Value {
    let loss = if step == 3 { f64::NAN } else { 1.0 / step as f64 };
    value(&Event::Step(StepEvent {
        step,
        epoch: step / 4,
        loss,
        lr: 0.5,
        samples_per_s: 100.0,
        tokens_per_s: None,
        flops_per_s: None,
        mfu: None,
        grad_norm: Some(2.5),
        data_wait: 0.25,
        ..StepEvent::default()
    }))
}

pub fn epoch(epoch: u64, val: bool) -> Value {
    let metrics = Metrics::new(0.25).with("accuracy", 0.75).samples(40);
    value(&Event::Epoch(EpochEvent {
        train: metrics.clone(),
        val: val.then_some(metrics),
        seconds: 1.5,
        step: 4 * (epoch + 1),
        lr: 0.5,
        samples_per_s: 99.0,
        tokens_per_s: None,
        flops_per_s: None,
        mfu: None,
        data_wait: 0.25,
        ..samples::epoch(epoch, 0.75)
    }))
}

pub fn end(exit_code: u8) -> Value {
    let reason = "it ended".to_owned();
    value(&Event::End(EndEvent { step: 8, epoch: 2, reason, exit_code, seconds: 9.0 }))
}
