//! What the training loop reports, as events.

use super::Recorder;
use crate::worker::messages::warn;
use crate::worker::metrics::metrics;
use crate::worker::replicas::event_of;
use base::error::Result;
use data::Dataset;
use ddp::HookState;
use launch::logs::ALREADY_PRINTED;
use record::{
    Digest, DigestWriter, EpochEvent, EpochLine, Event, StepEvent, StepLine, epoch_summary, tutorial_line,
};
use std::time::{Duration, Instant};
use train::models::Model;
use train::training::{BatchAlgebra, Divergence, Observer, Position, RunTensors, StepReport, Sums, Tally};

impl Observer for Recorder {
    fn epoch_begins(&mut self, position: &Position, algebra: &BatchAlgebra) {
        let line = tutorial_line(EpochLine {
            rank: self.rank,
            epoch: position.epoch,
            batch_size: position.batching.batch_size,
            steps: algebra.micro_batches(),
        });
        tracing::info!("{line}");
        if let Some(first) = &mut self.first {
            first.micro_batches = algebra.micro_batches();
            first.before = position.epoch_sums.samples;
        }
    }

    fn step(&mut self, position: &Position, report: &StepReport) {
        let Some(first) = &mut self.first else { return };
        first.last = (position.step, position.epoch);
        let polled = first.checkpoints.poll();
        let saved = first.note(polled).flatten();
        first.saved(saved);
        if let (Some(line), Some(digests)) = (&report.digests, &mut first.digests) {
            let written = digests.write(line);
            first.note(written);
        }
        first.window.samples += report.sums.samples;
        first.window.seconds += report.seconds;
        first.window.data_wait += report.data_wait;
        first.progress.step(StepLine {
            epoch: position.epoch,
            step: position.step,
            loss: report.sums.mean_loss(),
            lr: report.lr,
            samples_per_s: report.sums.samples / report.seconds,
        });
        if self.settings.logs(position.step) {
            let window = std::mem::take(&mut first.window);
            first.write(&Event::Step(StepEvent {
                step: position.step,
                epoch: position.epoch,
                loss: position.window.mean_loss(),
                lr: report.lr,
                samples_per_s: window.samples / window.seconds,
                grad_norm: Some(report.grad_norm),
                data_wait: window.data_wait / window.seconds,
                times: report.anatomy.as_ref().map(|anatomy| anatomy.times.clone()),
                overlap: report.anatomy.as_ref().and_then(|anatomy| anatomy.overlap),
            }));
            report.anatomy.iter().for_each(|anatomy| first.name_stragglers(anatomy));
        }
    }

    fn evaluated(
        &mut self,
        position: &Position,
        model: &dyn Model,
        dataset: &dyn Dataset,
        tally: Option<&Tally>,
    ) {
        let Some(first) = &mut self.first else { return };
        let done = first.notes.evaluated(position, model, dataset, tally);
        first.unshown.note(done);
    }

    fn epoch(
        &mut self,
        position: &Position,
        train: &Sums,
        val: Option<&Sums>,
        training: Duration,
        data_wait: Duration,
        lr: f64,
    ) {
        let Some(first) = &mut self.first else { return };
        let seconds = training.as_secs_f64();
        let event = EpochEvent {
            epoch: position.epoch,
            train: metrics(train, first.reported),
            val: val.map(|v| metrics(v, first.reported)),
            seconds,
            step: position.step,
            lr,
            samples_per_s: (train.samples - first.before) / seconds,
            data_wait: data_wait.as_secs_f64() / seconds,
            cut: position.micro < first.micro_batches,
        };
        tracing::info!(target: ALREADY_PRINTED, "{}", epoch_summary(&event, self.settings.epochs));
        first.progress.epoch(&event, first.closing.as_ref().map_or("", |closing| closing.best.name()));
        first.last = (position.step, event.completed());
        let done = first.notes.measured(&event);
        first.unshown.note(done);
        first.write(&Event::Epoch(event));
    }

    fn save(
        &mut self,
        position: &Position,
        tensors: RunTensors<'_>,
        hook: Option<HookState>,
        seconds: f64,
    ) -> Result<()> {
        let begun = Instant::now();
        let Some(first) = &mut self.first else { return Ok(()) };
        if let Some(e) = first.failed.take() {
            return Err(e);
        }
        let before = first.checkpoints.flush()?;
        first.saved(before);
        let metrics = first.metrics.syncing()?;
        let digests = first.digests.as_ref().map(DigestWriter::syncing).transpose()?;
        let sync = move || metrics().and_then(|()| digests.map_or(Ok(()), |sync| sync()));
        let seconds = first.trained + seconds;
        let saved = first.checkpoints.save(begun, position, tensors, hook, seconds, sync)?;
        first.saved(saved);
        Ok(())
    }

    fn agreed(&mut self, step: u64, digest: Digest) {
        let Some(first) = &mut self.first else { return };
        if let Some((event, line)) = first.undecided.decided(step, digest) {
            warn(&line);
            first.write(&Event::Divergence(event));
        }
    }

    fn diverged(&mut self, position: &Position, found: &Divergence) {
        tracing::error!(target: ALREADY_PRINTED, "{}", found.message());
        if let Some(first) = &mut self.first {
            first.write(&Event::Divergence(event_of(position, found)));
        }
    }
}
