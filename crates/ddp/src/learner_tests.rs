//! Trainings with Burn's `Learner` on two ranks, one of which does not go to the end.

use super::DdpStrategy;
use crate::DdpOptions;
use crate::device::drawn;
use crate::tests::on_ranks;
use base::error::ErrorKind;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use burn_optim::SgdConfig;
use burn_train::{
    InferenceStep, Interrupter, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep,
    TrainingStrategy,
};
use std::sync::Arc;

#[derive(Module, Debug)]
struct Slope {
    linear: Linear,
}

impl InferenceStep for Slope {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, x: Tensor<2>) -> RegressionOutput {
        let (output, targets) = (self.linear.forward(x.clone()), x * 2.0);
        RegressionOutput::new((output.clone() - targets.clone()).powi_scalar(2).mean(), output, targets)
    }
}

impl TrainStep for Slope {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, x: Tensor<2>) -> TrainOutput<RegressionOutput> {
        let item = InferenceStep::step(self, x);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

struct Floats;

impl Batcher<f32, Tensor<2>> for Floats {
    fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<2> {
        let len = items.len();
        Tensor::from_data(TensorData::new(items, [len, 1]), device)
    }
}

/// What happens on rank 1 in its second batch of two samples.
#[derive(Clone, Copy)]
enum Event {
    Nothing,
    Stop,
    Error,
}

struct Samples {
    event: Event,
    interrupter: Interrupter,
}

impl Dataset<f32> for Samples {
    fn get(&self, index: usize) -> Result<f32, DatasetError> {
        match self.event {
            Event::Stop if index == 3 => self.interrupter.stop(Some("enough")),
            Event::Error if index == 3 => {
                return Err(DatasetError::new(std::io::Error::other("sample 3 is damaged")));
            }
            _ => {}
        }
        Ok(index as f32 / 8.0)
    }

    fn len(&self) -> usize {
        8
    }
}

/// How the training ends on each of two ranks: the reason of its stop, and its error.
fn ended(event: Event) -> Vec<(Option<String>, Option<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::flex().autodiff();
    on_ranks(2, |group| {
        let rank = group.rank();
        let interrupter = Interrupter::new();
        let event = if rank == 1 { event } else { Event::Nothing };
        let samples = Samples { event, interrupter: interrupter.clone() };
        let train = DataLoaderBuilder::new(Floats).batch_size(2).build(samples);
        let valid = DataLoaderBuilder::new(Floats).batch_size(2).build(InMemDataset::new(vec![0.5f32, 1.0]));
        let model = drawn(&device, 1, || Slope { linear: LinearConfig::new(1, 1).init(&device) });
        let strategy = DdpStrategy::new(group, DdpOptions::default());
        let result = SupervisedTraining::new(folder.path().join(rank.to_string()), train, valid)
            .with_application_logger(None)
            .with_interrupter(interrupter)
            .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)))
            .num_epochs(2)
            .launch(Learner::new(model, SgdConfig::new().init(), 0.01));
        let reason = result.interrupted.map(|stop| stop.reason.unwrap_or_default());
        (reason, result.error.map(|error| error.to_string()))
    })
}

#[test]
fn a_training_without_incident_reports_neither_stop_nor_error() {
    assert_eq!(ended(Event::Nothing), [(None, None), (None, None)]);
}

#[test]
fn a_stop_on_one_rank_is_a_stop_on_all() {
    let reasons = ["rank 1 has stopped", "enough"].map(|reason| (Some(reason.to_owned()), None));
    assert_eq!(ended(Event::Stop), reasons);
}

#[test]
fn an_error_on_one_rank_is_an_error_on_all() {
    let ranks = ended(Event::Error);
    let other = "training worker on device 1 failed: the log of rank 1 has the error";
    assert_eq!(ranks[0], (None, Some(other.to_owned())));
    let (stopped, error) = &ranks[1];
    assert!(stopped.is_none());
    assert!(error.as_ref().is_some_and(|error| error.contains("sample 3 is damaged")), "{error:?}");
}

#[test]
fn ranks_that_start_at_different_epochs_are_refused() {
    let errors = on_ranks(2, |group| {
        let epoch = 1 + 2 * group.rank();
        let strategy = DdpStrategy::new(group, DdpOptions::default());
        strategy.verify_epoch(epoch).err().map(|error| (error.kind, error.message))
    });
    let expected = (ErrorKind::Io, "the ranks start at different epochs, 1 to 3".to_owned());
    assert_eq!(errors, vec![Some(expected); 2]);
}
