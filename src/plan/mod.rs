//! What a job comes to: everything resolved and checked, before a device, a socket or a data set is touched.
//!
//! [`Plan::resolve`] reads a [`JobTree`] with the components of a [`Registry`] and the number of processes that is
//! asked for, and gives an immutable [`Plan`] or every problem at once. A plan prints itself ([`Plan::text`],
//! [`Plan::json`]), writes itself as a spec that resolves to the same plan ([`Plan::to_toml`]) and has a hash that
//! changes exactly when a value changes that results depend on.

mod checks;
mod components;
mod export;
mod job;
mod print;
mod resolve;
mod sizes;
mod units;
mod warnings;
mod world;

pub use crate::train::BatchAlgebra;
pub use components::{DatasetPlan, ModelPlan};
pub use sizes::Sizes;
pub(crate) use units::show_bytes;
pub use world::{World, WorldRequest};

use crate::checkpoint::{CheckpointConfig, Every};
use crate::clusters::slurm::SlurmConfig;
use crate::comm::{Backend, DistributedConfig};
use crate::data::{FieldFacts, LoaderConfig};
use crate::ddp::{HookSource, ReducerConfig};
use crate::device::{DeviceSpec, Precision};
use crate::error::Error;
use crate::launch::LaunchConfig;
use crate::nodes::NodesConfig;
use crate::optim::{OptimizerPlan, Schedule};
use crate::registry::Registry;
use crate::spec::{Diagnostics, JobTree, Origin, ResolvedValue};
use crate::telemetry::MetricsConfig;
use crate::train::{Batching, Loss, Settings, TrainConfig};
use std::collections::BTreeSet;

/// A resolved job: the configurations of its components, and what they come to together.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub seed: u64,
    pub epochs: u64,
    /// Samples per process and micro-batch.
    pub batch_size: usize,
    /// How often a checkpoint is saved.
    pub save_every: Every,
    pub backend: Backend,
    pub device: DeviceSpec,
    pub precision: Precision,
    pub world: World,
    pub model: ModelPlan,
    pub dataset: DatasetPlan,
    pub loader: LoaderConfig,
    pub loss: Loss,
    pub train: TrainConfig,
    pub optimizer: OptimizerPlan,
    pub schedule: Schedule,
    pub checkpoint: CheckpointConfig,
    pub metrics: MetricsConfig,
    pub launch: LaunchConfig,
    pub nodes: NodesConfig,
    pub slurm: SlurmConfig,
    pub distributed: DistributedConfig,
    pub reducer: ReducerConfig,
    /// What averages gradients in place of a plain all-reduce.
    pub comm_hook: Option<HookSource>,
    pub batch: BatchAlgebra,
    /// Of a run that goes on: the steps that are done, and those to the end of its epochs with them.
    pub going_on: Option<(u64, u64)>,
    /// `None` where the model's size follows from data that is not read yet.
    pub sizes: Option<Sizes>,
    /// Every value that the job runs with, in the order of the tables, and who said so.
    pub values: Vec<ResolvedValue>,
    /// The keys that results don't depend on, as they are declared, whether they are written or not.
    without_effect: BTreeSet<String>,
    /// SHA-256, in hex, over the values that results depend on. Not among them: the job's name, where its data
    /// lies, how it is launched, watched and saved, and the number of processes.
    pub hash: String,
}

impl Plan {
    /// Resolves and checks a job.
    ///
    /// # Errors
    /// Every problem of the spec, each at its place.
    pub fn resolve(tree: &JobTree, registry: &Registry, world: WorldRequest) -> Result<Plan, Diagnostics> {
        let (plan, mut values) = tree.read(|root| resolve::plan(root, registry, world))?;
        values.sort_by_key(|v| print::table_rank(&v.key));
        let mut plan = plan.expect("a plan is withheld only after a problem, which `read` returns");
        plan.values = values;
        plan.hash = export::hash(&plan);
        Ok(plan)
    }

    /// Whether anybody has said what `key` is; it may be the default.
    pub fn says(&self, key: &str) -> bool {
        self.values.iter().any(|value| value.key == key && value.origin != Origin::Default)
    }

    /// Whether this node's `processes` can each have a device of its own.
    ///
    /// # Errors
    /// Fewer devices without `launch.share_devices` (exit 2), or none (exit 69).
    pub fn devices_suffice(&self, processes: usize, devices: usize) -> Result<(), Error> {
        checks::devices_suffice(self.device, processes, devices, self.launch.share_devices)
    }

    /// Checks the metric that ranks checkpoints against the opened data's targets, which the spec may not have known.
    ///
    /// # Errors
    /// A metric that is not measured of them (exit 78).
    pub fn ranks_by(&self, target: &FieldFacts) -> Result<(), Error> {
        let hint = "`best` in `[checkpoint]` names the metric; \"val.loss\" fits every data set";
        let error = |why| Error::spec(why).hint(hint);
        checks::unmeasured(self.checkpoint.best, target).map_or(Ok(()), |why| Err(error(why)))
    }

    /// What the training loop goes by.
    pub fn settings(&self) -> Settings {
        Settings {
            seed: self.seed,
            epochs: self.epochs,
            precision: self.precision,
            loader: self.loader,
            loss: self.loss,
            train: self.train.clone(),
            lr: self.optimizer.lr,
            schedule: self.schedule.clone(),
            reducer: self.reducer.clone(),
            comm_hook: self.comm_hook.clone(),
            save_every: self.save_every,
            on_preempt: self.checkpoint.on_preempt,
            log_every: self.metrics.log_every,
        }
    }

    /// How the steps of a run on `world` processes are made up, when it starts.
    pub fn batching(&self, world: usize) -> Batching {
        Batching::of(world, self.batch_size, self.train.accumulate)
    }

    /// Optimizer steps of the whole run; `None` where only the data can tell.
    pub fn total_steps(&self) -> Option<u64> {
        let anew = || Some(self.epochs.saturating_mul(self.batch.steps_per_epoch? as u64));
        let by_epochs = self.going_on.map(|(_, all)| all).or_else(anew);
        match (by_epochs, self.train.max_steps) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests;
