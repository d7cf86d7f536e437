//! What a job comes to: everything resolved and checked, before a device, a socket or a data set is touched.
//!
//! [`Plan::resolve`] reads a [`JobTree`] with the components of a [`Registry`] and the number of processes that is
//! asked for, and gives an immutable [`Plan`] or every problem at once. A plan prints itself ([`Plan::text`],
//! [`Plan::json`]), writes itself as a spec that resolves to the same plan ([`Plan::to_toml`]) and has a hash that
//! changes exactly when a value changes that results depend on.

mod checks;
mod export;
mod print;
mod resolve;
mod sections;
mod sizes;
mod tables;
mod units;
mod values;
mod warnings;
mod world;

pub use crate::train::BatchAlgebra;
pub(crate) use export::changes_results;
pub use sections::{
    CheckpointPlan, DatasetPlan, DistributedPlan, LaunchPlan, LoaderPlan, MetricsPlan, ModelPlan, OnPreempt,
    TrainPlan,
};
pub use sizes::Sizes;
pub(crate) use units::duration as parse_duration;
pub(crate) use units::show_bytes;
pub use values::{Backend, Every};
pub use world::{World, WorldRequest};

use crate::device::{DeviceSpec, Precision};
use crate::error::Error;
use crate::optim::{OptimizerPlan, Schedule};
use crate::registry::Registry;
use crate::spec::{Diagnostics, JobTree, Origin, ResolvedValue};
use crate::train::Loss;

/// A resolved job.
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
    pub loader: LoaderPlan,
    pub loss: Loss,
    pub train: TrainPlan,
    pub optimizer: OptimizerPlan,
    pub schedule: Schedule,
    pub checkpoint: CheckpointPlan,
    pub metrics: MetricsPlan,
    pub launch: LaunchPlan,
    pub distributed: DistributedPlan,
    pub batch: BatchAlgebra,
    /// Of a run that goes on: the steps that are done, and those to the end of its epochs with them.
    pub going_on: Option<(u64, u64)>,
    /// `None` where the model's size follows from data that is not read yet.
    pub sizes: Option<Sizes>,
    /// Every value that the job runs with, in the order of the tables, and who said so.
    pub values: Vec<ResolvedValue>,
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
        plan.hash = export::hash(&values);
        plan.values = values;
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
