//! Burn's `Learner` on several processes: its optimizers, schedulers, metrics, checkpoints and early stopping, with gradients
//! averaged over a process group.

use crate::{DdpOptions, DistributedDataParallel};
use base::error::{Error, Result};
use burn::data::dataloader::Progress;
use burn_train::train::WorkerFailure;
use burn_train::{
    EventProcessorTraining, InferenceStep, Interrupter, Learner, LearnerEvent, LearnerModel,
    SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainStep, TrainingComponents,
    TrainingError, TrainingItem, ValidLoader,
};
use collectives::{ProcessGroup, ReduceOp};
use std::sync::Arc;

/// A strategy for Burn's `SupervisedTraining`: each process trains on its own samples, all with the same model.
///
/// ```ignore
/// let strategy = DdpStrategy::new(group.clone(), DdpOptions::default());
/// SupervisedTraining::new(format!("{folder}/rank-{}", group.rank()), train, valid)
///     .metrics((AccuracyMetric::new(), LossMetric::new()))
///     .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)))
///     .num_epochs(10)
///     .launch(Learner::new(model, optimizer, lr));
/// ```
///
/// * The training loader of a rank has that rank's samples, such as those of a [`DistributedSampler`](crate::DistributedSampler).
///   An epoch ends when the first rank runs out of batches. Metrics of training are those of the rank's own samples.
/// * Every rank validates with its own loader, with rank 0's buffers. If all have the whole split, their metrics are equal, and so
///   are the decisions that depend on them. Rank 0's decides when training stops early.
/// * Each rank has a folder of its own, and saves there what others save too: a run is continued on every rank by `checkpoint`,
///   from the same epoch.
/// * The learner's model is on a device with autodiff. Its `TrainStep` runs the backward pass itself, once; gradient accumulation
///   adds up, as in Burn.
/// * A stop or an error on one rank stops all, after the same step, and is in the `LearningResult` of each: `interrupted` or `error`.
///   The model is that of an unfinished training then, with this rank's buffers.
/// * The [`DdpState`](crate::DdpState) is not saved: a training that is continued forms its buckets anew, without what a hook has
///   kept, so it is not equal to an uninterrupted one to the bit.
pub struct DdpStrategy {
    group: Arc<dyn ProcessGroup>,
    options: DdpOptions,
}

impl DdpStrategy {
    /// Trains over `group`.
    pub fn new(group: Arc<dyn ProcessGroup>, options: DdpOptions) -> Self {
        Self { group, options }
    }

    fn failed(&self, error: &Error) -> TrainingError {
        let message = error.to_string();
        TrainingError::Workers(vec![WorkerFailure { device_id: self.group.rank(), message }])
    }

    /// The last rank whose flag is set, for each flag. A collective.
    fn any<const N: usize>(&self, own: [bool; N]) -> Result<[Option<usize>; N]> {
        let rank = self.group.rank() as i64;
        let mut ranks = own.map(|set| if set { rank } else { -1 });
        self.group.all_reduce((&mut ranks[..]).into(), ReduceOp::Max)?;
        Ok(ranks.map(|rank| usize::try_from(rank).ok()))
    }

    /// Checks that all ranks start at the same epoch. A collective.
    fn verify_epoch(&self, starting_epoch: usize) -> Result<()> {
        let mut range = [starting_epoch as i64, -(starting_epoch as i64)];
        self.group.all_reduce((&mut range[..]).into(), ReduceOp::Max)?;
        let (least, most) = (-range[1], range[0]);
        if least == most {
            return Ok(());
        }
        Err(Error::checkpoint(format!("the ranks start at different epochs, {least} to {most}"))
            .hint("continue all ranks from checkpoints of the same epoch"))
    }

    /// Whether rank 0 says so. A collective.
    fn rank_0(&self, own: bool) -> Result<bool> {
        let mut flag = [u8::from(own)];
        self.group.broadcast((&mut flag[..]).into(), 0)?;
        Ok(flag[0] > 0)
    }
}

impl<M: LearnerModel> SupervisedLearningStrategy<M> for DdpStrategy {
    fn fit(
        &self,
        components: TrainingComponents<M>,
        mut learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        starting_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        let interrupter = components.interrupter.clone();
        let mut run = match LearnerRun::start(self, components, &mut learner, train, valid) {
            Ok(run) => run,
            Err((error, events)) => {
                interrupter.fail(self.failed(&error));
                return (learner.model(), events);
            }
        };
        if let Err(error) = run.epochs(&mut learner, starting_epoch) {
            interrupter.fail(self.failed(&error));
        }
        (run.ddp.into_module(), run.components.event_processor)
    }
}

/// One training.
struct LearnerRun<'a, M: LearnerModel> {
    strategy: &'a DdpStrategy,
    ddp: DistributedDataParallel<M>,
    components: TrainingComponents<M>,
    interrupter: Interrupter,
    train: TrainLoader<M>,
    valid: ValidLoader<M>,
}

impl<'a, M: LearnerModel> LearnerRun<'a, M> {
    /// Gives the learner rank 0's model.
    fn start(
        strategy: &'a DdpStrategy,
        components: TrainingComponents<M>,
        learner: &mut Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
    ) -> Result<Self, (Error, SupervisedTrainingEventProcessor<M>)> {
        let model = learner.model();
        let ddp = match DistributedDataParallel::new(model, strategy.group.clone(), strategy.options.clone())
        {
            Ok(ddp) => ddp,
            Err(error) => return Err((error, components.event_processor)),
        };
        let device = ddp.device().clone();
        learner.load_model(ddp.module().clone().into_record());
        Ok(Self {
            strategy,
            ddp,
            interrupter: components.interrupter.clone(),
            train: train.to_device(&device.clone().autodiff()),
            valid: valid.to_device(&device),
            components,
        })
    }

    fn epochs(&mut self, learner: &mut Learner<M>, starting_epoch: usize) -> Result<()> {
        self.strategy.verify_epoch(starting_epoch)?;
        for epoch in starting_epoch..=self.components.num_epochs {
            self.event(LearnerEvent::StartSplit { epoch_number: epoch, total_items: self.train.num_items() });
            let stopped = self.train_epoch(learner)?;
            self.event(LearnerEvent::EndSplit(epoch));
            if stopped {
                return Ok(());
            }
            self.validate(epoch)?;
            self.event(LearnerEvent::EndEpoch(epoch));
            let TrainingComponents { checkpointer, early_stopping, event_processor, event_store, .. } =
                &mut self.components;
            if checkpointer.is_some() || early_stopping.is_some() {
                self.interrupter.fail_on_error(event_processor.flush());
            }
            if let Some(checkpointer) = checkpointer.as_mut().filter(|_| !self.interrupter.should_stop()) {
                checkpointer.checkpoint(learner, epoch, event_store);
            }
            let early = early_stopping.as_mut().is_some_and(|rule| rule.should_stop(epoch, event_store));
            let [failed, stopped] = self.strategy.any(self.interrupted())?;
            if self.follow(failed, stopped) || self.strategy.rank_0(early)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether this rank has failed, and whether it is to stop.
    fn interrupted(&self) -> [bool; 2] {
        [self.interrupter.error().is_some(), self.interrupter.should_stop()]
    }

    /// Stops this rank with another one, so that no rank takes an unfinished training for a whole one. Returns whether the training
    /// is to stop.
    fn follow(&self, failed: Option<usize>, stopped: Option<usize>) -> bool {
        if let Some(rank) = failed.filter(|_| self.interrupter.error().is_none()) {
            let message = format!("the log of rank {rank} has the error");
            self.interrupter.fail(TrainingError::Workers(vec![WorkerFailure { device_id: rank, message }]));
        } else if let Some(rank) = stopped.filter(|_| !self.interrupter.should_stop()) {
            self.interrupter.stop(Some(&format!("rank {rank} has stopped")));
        }
        failed.or(stopped).is_some()
    }

    /// Returns whether the training is to stop.
    fn train_epoch(&mut self, learner: &mut Learner<M>) -> Result<bool> {
        let (train, accumulation) = (self.train.clone(), self.components.grad_accumulation.unwrap_or(1));
        let mut batches = train.iter();
        let (mut iteration, mut accumulated) = (0, 0);
        loop {
            let batch = match batches.next() {
                Some(Ok(batch)) => Some(batch),
                Some(Err(error)) => {
                    self.interrupter.fail(error);
                    None
                }
                None => None,
            };
            let progress = batches.progress();
            let [failing, stopping] = self.interrupted();
            let flags = [failing, stopping, batch.is_none(), progress.is_completed()];
            let [failed, stopped, over, last] = self.strategy.any(flags)?;
            let stop = self.follow(failed, stopped);
            let Some(batch) = batch.filter(|_| !stop && over.is_none()) else { return Ok(stop) };
            iteration += 1;
            accumulated += 1;
            let average = last.is_some() || accumulated >= accumulation;
            self.ddp.begin(average);
            // Its gradients have gone through the taps.
            let item = self.ddp.forward(|model| TrainStep::step(model, batch)).item;
            if average {
                let gradients = self.ddp.finish()?;
                learner.lr_step();
                learner.optimizer_step(gradients);
                self.ddp.set_module(learner.model());
                accumulated = 0;
            } else {
                self.ddp.finish_no_sync();
            }
            let lr = Some(learner.lr_current());
            self.event(LearnerEvent::ProcessedItem(TrainingItem::new(item, progress, Some(iteration), lr)));
        }
    }

    fn validate(&mut self, epoch: usize) -> Result<()> {
        let model = self.ddp.valid()?;
        let (valid, total_items) = (self.valid.clone(), self.valid.num_items());
        let interrupter = self.interrupter.clone();
        let events = &mut self.components.event_processor;
        interrupter.fail_on_error(
            events.process_valid(LearnerEvent::StartSplit { epoch_number: epoch, total_items }),
        );
        let mut batches = valid.iter();
        let mut iteration = 0;
        while let Some(batch) = batches.next().filter(|_| !interrupter.should_stop()) {
            match batch {
                Ok(batch) => {
                    iteration += 1;
                    let progress: Progress = batches.progress();
                    let item = InferenceStep::step(&model, batch);
                    let item = TrainingItem::new(item, progress, Some(iteration), None);
                    interrupter.fail_on_error(events.process_valid(LearnerEvent::ProcessedItem(item)));
                }
                Err(error) => interrupter.fail(error),
            }
        }
        interrupter.fail_on_error(events.process_valid(LearnerEvent::EndSplit(epoch)));
        Ok(())
    }

    fn event(&mut self, event: LearnerEvent<<M as TrainStep>::Output>) {
        self.interrupter.fail_on_error(self.components.event_processor.process_train(event));
    }
}

#[cfg(test)]
#[path = "learner_tests.rs"]
mod tests;
