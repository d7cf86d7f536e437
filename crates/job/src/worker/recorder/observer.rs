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
        if let Some(run) = &mut self.run {
            run.counts.begin_epoch(position, algebra);
        }
    }

    fn step(&mut self, position: &Position, report: &StepReport) {
        let Some(run) = &mut self.run else { return };
        run.counts.last = (position.step, position.epoch);
        let saved = run.events.keep_error(run.checkpoints.poll()).flatten();
        run.saved(saved);
        if let (Some(line), Some(digests)) = (&report.digests, &mut run.digests) {
            run.events.keep_error(digests.write(line));
        }
        run.counts.count(report);
        run.progress.step(StepLine {
            epoch: position.epoch,
            step: position.step,
            loss: report.sums.mean_loss(),
            lr: report.lr,
            samples_per_s: report.sums.samples / report.seconds,
            per_sample: run.reported.per_sample,
        });
        if self.settings.logs(position.step) {
            let window = run.counts.take_window();
            let samples_per_s = window.samples_per_s();
            let rates = run.reported.per_sample.at(samples_per_s);
            run.events.write(&Event::Step(StepEvent {
                step: position.step,
                epoch: position.epoch,
                loss: position.window.mean_loss(),
                lr: report.lr,
                samples_per_s,
                tokens_per_s: rates.tokens,
                flops_per_s: rates.flops,
                mfu: rates.mfu,
                grad_norm: Some(report.grad_norm),
                data_wait: window.data_wait(),
                times: report.anatomy.as_ref().map(|anatomy| anatomy.times.clone()),
                overlap: report.anatomy.as_ref().and_then(|anatomy| anatomy.overlap),
            }));
            report.anatomy.iter().for_each(|anatomy| run.slow_ranks.warn_of(anatomy));
        }
    }

    fn evaluated(
        &mut self,
        position: &Position,
        model: &dyn Model,
        dataset: &dyn Dataset,
        tally: Option<&Tally>,
    ) {
        let Some(run) = &mut self.run else { return };
        let done = run.notes.evaluated(position, model, dataset, tally);
        run.events.tolerate(done);
        if run.reported_of_val.is_none() {
            run.reported_of_val = run.events.tolerate(run.reported.of(dataset));
        }
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
        let Some(run) = &mut self.run else { return };
        let seconds = training.as_secs_f64();
        let samples_per_s = run.counts.own_samples(train) / seconds;
        let rates = run.reported.per_sample.at(samples_per_s);
        let event = EpochEvent {
            epoch: position.epoch,
            train: metrics(train, run.reported),
            val: val.map(|v| metrics(v, run.reported_of_val.unwrap_or(run.reported))),
            seconds,
            step: position.step,
            lr,
            samples_per_s,
            tokens_per_s: rates.tokens,
            flops_per_s: rates.flops,
            mfu: rates.mfu,
            data_wait: data_wait.as_secs_f64() / seconds,
            cut: run.counts.is_cut(position),
        };
        tracing::info!(target: ALREADY_PRINTED, "{}", epoch_summary(&event, self.settings.epochs));
        run.progress.epoch(&event, run.closing.as_ref().map_or("", |closing| closing.best.name()));
        run.counts.last = (position.step, event.completed());
        let done = run.notes.measured(&event);
        run.events.tolerate(done);
        run.events.write(&Event::Epoch(event));
    }

    fn save(
        &mut self,
        position: &Position,
        tensors: RunTensors<'_>,
        hook: Option<HookState>,
        seconds: f64,
    ) -> Result<()> {
        let begun = Instant::now();
        let Some(run) = &mut self.run else { return Ok(()) };
        if let Some(e) = run.events.take_error() {
            return Err(e);
        }
        let before = run.checkpoints.flush()?;
        run.saved(before);
        let metrics = run.events.metrics.syncing()?;
        let digests = run.digests.as_ref().map(DigestWriter::syncing).transpose()?;
        let sync = move || metrics().and_then(|()| digests.map_or(Ok(()), |sync| sync()));
        let seconds = run.time.before + seconds;
        let saved = run.checkpoints.save(begun, position, tensors, hook, seconds, sync)?;
        run.saved(saved);
        Ok(())
    }

    fn agreed(&mut self, step: u64, digest: Digest) {
        let Some(run) = &mut self.run else { return };
        if let Some((event, line)) = run.undecided.decided(step, digest) {
            warn(&line);
            run.events.write(&Event::Divergence(event));
        }
    }

    fn diverged(&mut self, position: &Position, found: &Divergence) {
        tracing::error!(target: ALREADY_PRINTED, "{}", found.message());
        if let Some(run) = &mut self.run {
            run.events.write(&Event::Divergence(event_of(position, found)));
        }
    }
}
