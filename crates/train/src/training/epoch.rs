//! An epoch of the training loop: its steps from the position on, then its evaluation.

use super::evaluate::{EvaluationResult, evaluate};
use super::feed::Feed;
use super::state::TrainState;
use super::{Sums, TEXT_TIME, TrainSettings, Trainer, TrainingEnd, buffers};
use base::error::Result;
use collectives::{Phase, Wait};
use data::{Dataset, LoaderOptions};
use sampler::{DistributedSampler, Prefix};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Trainer<'_> {
    /// Trains from the position to the end of its epoch.
    pub(super) fn epoch(&mut self) -> Result<TrainingEnd> {
        let begun = Instant::now();
        self.phases.begin_epoch(self.state.position.epoch);
        let mut feed = self.feed()?;
        let rest = self.state.position.rest_algebra(self.samples(), self.settings.loader.drop_last);
        self.observer.epoch_begins(&self.state.position, &rest);
        let micro_batches = rest.micro_batches();
        while self.ahead().micro < micro_batches && !self.reached_max_steps() {
            let flags = self.step(&mut feed, micro_batches)?;
            if self.act_on(flags, micro_batches)? == TrainingEnd::Stopped {
                return Ok(TrainingEnd::Stopped);
            }
        }
        drop(feed);
        self.phases.end_steps();
        if !self.queue.is_empty() {
            let flags = self.land()?;
            if self.act_on(flags, micro_batches)? == TrainingEnd::Stopped {
                return Ok(TrainingEnd::Stopped);
            }
        }
        self.finish_epoch(self.state.position.micro >= micro_batches, begun.elapsed())?;
        Ok(TrainingEnd::Done)
    }

    /// This rank's batches of the epoch, from the position on.
    fn feed(&self) -> Result<Feed> {
        let (position, loader) = (&self.state.position, &self.settings.loader);
        let sampler = DistributedSampler {
            len: self.samples(),
            world: self.group.world_size(),
            rank: self.group.rank(),
            start: position.start as usize,
            shuffle: loader.shuffle,
            drop_last: loader.drop_last,
            seed: self.settings.seed,
        };
        let rest = position.rest_algebra(sampler.len, sampler.drop_last);
        let order = sampler.epoch(position.epoch);
        Feed::new(
            self.splits.train.clone(),
            Prefix { order, len: rest.taken_per_rank(sampler.world) },
            LoaderOptions {
                epoch: position.epoch,
                start_batch: position.micro as usize,
                ..loader.options(position.batching.batch_size, self.settings.seed)
            },
            self.state.model.device(),
            self.state.is_in_host_memory(),
        )
    }

    /// Evaluates if due, and closes the epoch. One that is not `whole` was cut short by
    /// `max_steps`.
    fn finish_epoch(&mut self, whole: bool, training: Duration) -> Result<()> {
        let every = self.settings.train.eval_every;
        let epoch = self.state.position.epoch;
        let last = epoch + 1 == self.settings.epochs || self.reached_max_steps();
        let regular = every > 0 && (epoch + 1).is_multiple_of(every);
        let due = regular || every > 0 && last;
        let mut val = None;
        if let Some(dataset) = self.splits.val.clone().filter(|d| due && !d.is_empty()) {
            val = Some(self.evaluate(&dataset)?);
        }
        let train = self.state.position.epoch_sums.clone();
        // Of a run that goes on with more epochs nothing may depend on where it ended before: the
        // evaluation of a last epoch that has one only for that does not count, and an epoch that
        // `max_steps` cut short is evaluated again at its end.
        let counted = val.as_ref().filter(|_| regular);
        if whole {
            let (samples, rates) = (self.samples(), self.state.updater.rates(|base| base));
            let position = &mut self.state.position;
            position.plateau = self.settings.plateau_after(position, samples, rates, &train, counted);
        }
        let lr = self.lr(&self.state.position);
        let position = &mut self.state.position;
        let data_wait = std::mem::take(&mut self.data_wait);
        self.observer.epoch(position, &train, val.as_ref(), training, data_wait, lr);
        if let Some(rule) = self.settings.early_stop.filter(|_| whole) {
            position.early_stop = rule.after(position.early_stop.take(), &train, counted);
        }
        let due = self.saves.is_due_at_end(position, whole, &train, val.as_ref());
        position.close(whole, val);
        if due { self.save() } else { Ok(()) }
    }

    /// Evaluates a split over all ranks, with the average of the weights if there is one.
    pub fn evaluate(&mut self, dataset: &Arc<dyn Dataset>) -> Result<Sums> {
        self.report_phase(Phase::Evaluate);
        self.state.swap_average()?;
        let sums = self.evaluate_model(dataset);
        self.state.swap_average()?;
        self.phases.leave();
        sums
    }

    fn evaluate_model(&mut self, dataset: &Arc<dyn Dataset>) -> Result<Sums> {
        let TrainSettings { train, loader, details, task, seed, .. } = &self.settings;
        buffers::before_evaluation(train.buffers, &mut *self.state.model, &*self.group)?;
        let options = loader.options(self.state.position.batching.batch_size, *seed);
        let EvaluationResult { sums, tally } =
            evaluate(&*self.state.model, &**task, dataset, options, &*self.group, *details)?;
        let has_texts = details.has_texts(&dataset.input(), &dataset.target());
        if has_texts {
            self.report_phase(Phase::Generate);
        }
        if self.group.rank() == 0 {
            let TrainState { position, model, .. } = &self.state;
            self.observer.evaluated(position, &**model, &**dataset, tally.as_ref());
        }
        if has_texts {
            self.group.barrier(Wait::Longer(TEXT_TIME))?;
        }
        Ok(sums)
    }
}
