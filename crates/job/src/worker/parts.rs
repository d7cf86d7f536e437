//! A job as one rank needs it. This is the only file of `worker` that reads the fields of a [`Plan`]; the other files get the
//! configuration of one component.

use super::data::{facts_of, open_data, say_lacking};
use super::spec_changes::OwnSpec;
use super::{fit, norms, optimizer, same_data};
use crate::plan::{ModelPlan, Plan, World};
use base::error::{Error, Result};
use checkpoint::{CheckpointConfig, Every};
use collectives::gloo::GlooOptions;
use collectives::rendezvous::RdzvEndpoint;
use collectives::{Backend, DistributedConfig, SoloGroup};
use data::{DataFacts, DatasetSource, Encoding, Fingerprint, LoaderConfig, TransformPlan};
use ddp::device::{DeviceSpec, Precision};
use record::{MetricsConfig, ObserverPlan};
use spec::{Origin, ResolvedValue, Values};
use std::net::IpAddr;
use train::optim::OptimizerPlan;
use train::tasks::TaskPlan;
use train::training::{Batching, Ema, Position, TrainConfig, TrainSettings};

/// The parts of a job, each for the component that it configures.
#[derive(Clone, Copy)]
pub struct RankParts<'a> {
    plan: &'a Plan,
    /// The run's name.
    pub name: &'a str,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Samples per process and micro-batch.
    pub batch_size: usize,
    /// Device that each process computes on.
    pub device: DeviceSpec,
    /// Number type of the forward and backward passes.
    pub precision: Precision,
    /// Compute threads of a process, if the spec sets them.
    pub threads: Option<usize>,
    /// Whether a job of Slurm that is stopped on request is requeued.
    pub requeue: bool,
    /// Number of nodes and processes in the plan.
    pub world: World,
    /// How the ranks connect and exchange gradients.
    pub group: GroupParts<'a>,
    /// Data set, transforms and loader.
    pub data: DataParts<'a>,
    /// `[model]`.
    pub model: &'a ModelPlan,
    /// What the run minimises and measures.
    pub task: &'a TaskPlan,
    /// `[train]`.
    pub train: &'a TrainConfig,
    /// `[ema]`; `None` if weights are not averaged.
    pub ema: Option<Ema>,
    /// `[optimizer]`, with its parameter groups.
    pub optimizer: &'a OptimizerPlan,
    /// `[checkpoint]`.
    pub checkpoint: &'a CheckpointConfig,
    /// How often a checkpoint is saved.
    pub save_every: Every,
    /// `[metrics]`.
    pub metrics: &'a MetricsConfig,
    /// `[[observer]]` and `metrics.sinks`: receivers of the run's events.
    pub observers: &'a [ObserverPlan],
}

/// How the ranks meet and exchange gradients.
#[derive(Clone, Copy)]
pub struct GroupParts<'a> {
    /// Equal on all ranks of a run.
    pub plan_hash: &'a str,
    /// On which the hash depends.
    pub plan_keys: &'a Values,
    pub backend: Backend,
    pub distributed: &'a DistributedConfig,
    pub gloo: &'a GlooOptions,
    pub rdzv_endpoint: Option<&'a RdzvEndpoint>,
    /// The address to listen on.
    pub bind: IpAddr,
    /// Whether ranks of a node may have the same device.
    pub share_devices: bool,
}

/// Where the samples come from.
#[derive(Clone, Copy)]
pub struct DataParts<'a> {
    pub name: &'a str,
    pub source: &'a dyn DatasetSource,
    /// What is known of the data set before it is opened.
    pub facts: &'a DataFacts,
    pub transforms: &'a [TransformPlan],
    pub loader: LoaderConfig,
}

impl<'a> RankParts<'a> {
    /// Borrows the parts of `plan`.
    pub fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            name: &plan.name,
            seed: plan.seed,
            batch_size: plan.batch_size,
            device: plan.device,
            precision: plan.precision,
            threads: plan.launch.threads,
            requeue: plan.slurm.requeue,
            world: plan.world,
            group: GroupParts {
                plan_hash: &plan.hash,
                plan_keys: &plan.keys_of_results,
                backend: plan.backend,
                distributed: &plan.distributed,
                gloo: &plan.gloo,
                rdzv_endpoint: plan.nodes.rdzv_endpoint.as_ref(),
                bind: plan.nodes.bind,
                share_devices: plan.launch.share_devices,
            },
            data: DataParts {
                name: &plan.dataset.name,
                source: &*plan.dataset.source,
                facts: &plan.dataset.facts,
                transforms: &plan.transforms,
                loader: plan.loader,
            },
            model: &plan.model,
            task: &plan.task,
            train: &plan.train,
            ema: plan.ema,
            optimizer: &plan.optimizer,
            checkpoint: &plan.checkpoint,
            save_every: plan.save_every,
            metrics: &plan.metrics,
            observers: &plan.observers,
        }
    }

    /// The settings of the training loop.
    pub fn settings(&self) -> TrainSettings {
        self.plan.settings()
    }

    /// How a run that begins on `world` processes groups its samples.
    pub fn batching(&self, world: usize) -> Batching {
        self.plan.batching(world)
    }

    /// [`Plan::ranks_by`].
    ///
    /// # Errors
    /// A metric that does not apply to these targets, or that nobody measures (exit code 78).
    pub fn ranks_by(&self, facts: &DataFacts) -> Result<()> {
        self.plan.ranks_by(facts)
    }

    /// [`Plan::memory_warning`] for the opened data, unless it was known without.
    pub fn memory_warning(&self, facts: &DataFacts) -> Option<String> {
        if self.plan.memory_warning().is_some() {
            return None;
        }
        let tensors = self.model.source.tensors_for(facts).ok()?;
        let batching = self.batching(self.world.world_size);
        self.plan.with_data(facts.clone(), &tensors, &batching).memory_warning()
    }

    /// Why a run never measures the validation split; `None` if it may.
    pub fn never_evaluated(&self) -> Option<&'static str> {
        self.plan.never_evaluated()
    }

    /// The values that the spec or the command line sets.
    pub fn set(&self) -> impl Iterator<Item = &'a ResolvedValue> {
        self.plan.values.iter().filter(|value| value.origin != Origin::Default)
    }

    /// The spec as a whole, to be compared with that of a checkpoint.
    pub fn spec(&self) -> OwnSpec<'a> {
        OwnSpec::new(self.plan)
    }
}

/// The fingerprint of the data set of `plan` in its present state; downloads and opens it like a run.
///
/// # Errors
/// It is missing or damaged (exit 78).
pub fn present_data(plan: &Plan) -> Result<Fingerprint> {
    same_data::present(&RankParts::new(plan).data)
}

/// `plan` with what only the data tells. Downloads and opens it like a run, and checks what a run checks before it builds the model.
///
/// # Errors
/// Those of a run: the data is missing or damaged, or does not fit the spec (exit 78 or 74).
pub fn with_data(plan: &Plan) -> Result<Plan> {
    let parts = RankParts::new(plan);
    parts.data.source.check_files().map_err(Error::of_data)?;
    let splits = open_data(&parts.data, None, &SoloGroup::default(), 0)?;
    say_lacking(&splits);
    let facts = facts_of(&splits);
    parts.ranks_by(&facts)?;
    fit::fields(&parts, &*splits.train)?;
    let tensors = parts.model.source.tensors_for(&facts)?;
    optimizer::groups(parts.optimizer, &tensors)?;
    let batching = parts.batching(parts.world.world_size);
    let position = Position::new(batching);
    fit::batches(parts.data.loader.drop_last, &position, splits.train.len())?;
    norms::least(&parts, &facts, &position)?;
    let mut plan = plan.with_data(facts, &tensors, &batching);
    let encoding = splits.train.encoding();
    plan.dataset.classes = encoding.as_ref().and_then(Encoding::classes).map(<[String]>::to_vec);
    Ok(plan)
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
