//! [`Task`]: a training step of one's own.

use super::{MetricFacts, StepOutput};
use crate::models::{AnyNet, Input, Target};
use base::error::{Error, Result};
use burn::module::Module;
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use collectives::ProcessGroup;
use data::no_field;
use ddp::device::read;
use std::collections::BTreeMap;

/// What happens between a batch and a loss, for training and evaluation alike. A task is its own config: its fields are
/// the keys of `[task]`.
pub trait Task: Send + Sync + 'static {
    /// The model that it trains: the type that the model's builder returns, or [`AnyNet`] for every model with a forward
    /// pass.
    type Model: TaskModel + ?Sized;
    /// What a step gets: [`Batch`], or a type that is made of one.
    type Batch: TryFrom<Batch, Error: Into<Error>>;

    /// The metrics that each [`Task::step`] measures.
    fn metrics(&self) -> Vec<MetricFacts> {
        Vec::new()
    }

    /// The loss of a batch, and the terms of its metrics. The parameters of `model` are those of this step: what is
    /// computed with them gets gradients.
    ///
    /// # Errors
    /// Ends the run. So does a panic, here or in the conversion of the batch; in the trial before the run begins it is an answer (exit 78).
    fn step(&self, model: &Self::Model, batch: Self::Batch, context: &StepContext<'_>) -> Result<StepOutput>;
}

/// A model that a task can ask for: a Burn module, or [`AnyNet`].
pub trait TaskModel {
    #[doc(hidden)]
    fn downcast(net: &AnyNet) -> Option<&Self>;
}

impl<M: Module + 'static> TaskModel for M {
    fn downcast(net: &AnyNet) -> Option<&Self> {
        net.module().downcast_ref()
    }
}

impl TaskModel for AnyNet {
    fn downcast(net: &AnyNet) -> Option<&Self> {
        Some(net)
    }
}

/// One micro-batch of this rank, on the model's device.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The samples' inputs; floats are in the precision that the model computes in.
    pub input: Input,
    /// The samples' targets; floats are f32. Indices may be [`UNTRAINED`](data::UNTRAINED) where the data set says so: [`Target::trained`] has the
    /// others.
    pub target: Target,
    /// The further fields that the data set declares ([`Dataset::fields`](data::Dataset::fields)), by name; floats are f32.
    pub fields: BTreeMap<String, Input>,
}

impl Batch {
    /// A further field, `[batch, …]`.
    ///
    /// # Errors
    /// The data set declares no such field (exit 78).
    pub fn field(&self, name: &str) -> Result<Input> {
        let missing = || no_field(name, self.fields.keys().map(String::as_str));
        self.fields.get(name).cloned().ok_or_else(missing)
    }
}

/// The targets of mixed images with the smaller weight.
#[derive(Clone, Debug)]
pub struct Lighter {
    /// Of the same shape as the batch's targets.
    pub target: Target,
    /// Share of these targets in the loss, at most 1/2.
    pub weight: f64,
}

/// What a step may know besides the model and the batch.
pub struct StepContext<'a> {
    training: bool,
    group: &'a dyn ProcessGroup,
    /// For the standard task: the batch's images are mixed, and its targets are those with the larger weight.
    pub(super) lighter: Option<Lighter>,
}

impl<'a> StepContext<'a> {
    /// For a step that trains or evaluates on the ranks of `group`.
    pub fn new(training: bool, group: &'a dyn ProcessGroup) -> Self {
        Self { training, group, lighter: None }
    }

    pub(crate) fn mixed(self, lighter: Option<Lighter>) -> Self {
        Self { lighter, ..self }
    }

    /// Whether this step trains; otherwise it evaluates.
    pub fn is_training(&self) -> bool {
        self.training
    }

    /// This process's number in the run.
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// Number of processes.
    pub fn world_size(&self) -> usize {
        self.group.world_size()
    }

    /// The rows of all ranks in the order of ranks, `[world_size * rows, columns]`, in f32. Gradients flow to this rank's
    /// own rows; the others' are constants, as with `torch.distributed.all_gather`. If every rank computes the same loss of
    /// all rows, [`StepOutput::add_gradients`] makes the step that of one process with all rows (for
    /// parameters that are used before the gather).
    ///
    /// A collective: while training, each rank calls it equally often in each step, with as many rows. In an evaluation ranks may have
    /// different numbers of batches: there it returns `rows` as they are.
    ///
    /// # Errors
    /// A rank is lost or late, or the ranks' calls differ.
    pub fn all_gather(&self, rows: Tensor<2>) -> Result<Tensor<2>> {
        let world = self.group.world_size();
        let [count, columns] = rows.dims();
        let rows = rows.cast(FloatDType::F32);
        if !self.training || world == 1 || count * columns == 0 {
            return Ok(rows);
        }
        let own = read(rows.clone().inner())?;
        let mut all = vec![0.0_f32; own.len() * world];
        self.group.all_gather(own.as_slice().into(), all.as_mut_slice().into())?;
        let device = rows.device();
        let mut parts: Vec<Tensor<2>> = Vec::with_capacity(world);
        for (rank, values) in all.chunks_exact(own.len()).enumerate() {
            parts.push(if rank == self.group.rank() {
                rows.clone()
            } else {
                Tensor::from_data(TensorData::new(values.to_vec(), [count, columns]), (&device, DType::F32))
            });
        }
        Ok(Tensor::cat(parts, 0))
    }
}
