//! The resolved job: everything is resolved and checked before a device, a socket or a data set is touched.
//!
//! [`Plan::resolve`] reads a [`JobTree`] with the components of a [`Registry`] and the requested number of processes,
//! and returns an immutable [`Plan`] or all problems at once. A plan can be printed ([`Plan::text`], [`Plan::json`])
//! and written as a spec that resolves to the same plan ([`Plan::to_toml`]); its hash changes exactly when a value
//! changes that results depend on.

mod brief;
pub mod changes;
mod checks;
mod components;
mod data;
mod export;
mod job;
mod memory;
mod print;
mod resolve;
mod sizes;
pub mod sweep;
mod units;
mod warnings;
mod world;

pub use brief::Running;
pub use components::{DatasetPlan, ModelPlan};
pub use memory::Machine;
pub use print::{one_line, table_rank};
pub use sizes::Sizes;
pub use train::training::BatchAlgebra;
pub use units::show_bytes;
pub use world::{Purpose, World, WorldRequest};

use crate::registry::Registry;
use ::data::{DataFacts, LoaderConfig, TransformPlan};
use base::error::Error;
use checkpoint::{CheckpointConfig, Every};
use collectives::gloo::GlooOptions;
use collectives::{Backend, DistributedConfig};
use ddp::device::{DeviceSpec, Precision};
use ddp::{HookSource, ReducerConfig};
use launch::LaunchConfig;
use launch::clusters::slurm::SlurmConfig;
use launch::nodes::NodesConfig;
use record::{MetricsConfig, ObserverPlan};
use spec::{Declaration, Diagnostics, Examined, JobTree, Origin, ResolvedValue, Values};
use std::collections::BTreeSet;
use train::optim::{OptimizerPlan, Schedule};
use train::tasks::TaskPlan;
use train::training::{Batching, Details, EarlyStop, Ema, ReplicaConfig, TrainConfig, TrainSettings};

/// A resolved job: the configurations of its components, and the values derived from them together.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the run; its default folder is `runs/<name>`.
    pub name: String,
    /// Seed of all random numbers: initial weights, shuffling, augmentation, dropout.
    pub seed: u64,
    /// `None`: as many as `train.max_steps` takes.
    pub epochs: Option<u64>,
    /// Samples per process and micro-batch.
    pub batch_size: usize,
    /// How often a checkpoint is saved.
    pub save_every: Every,
    /// Library that exchanges gradients.
    pub backend: Backend,
    /// Device that each process computes on.
    pub device: DeviceSpec,
    /// Number type of the forward and backward passes; parameters and optimizer state are f32.
    pub precision: Precision,
    /// Number of nodes and processes.
    pub world: World,
    /// This machine's ranks and memory, for warnings.
    pub machine: Machine,
    /// `[model]`.
    pub model: ModelPlan,
    /// `[dataset]` without the loader's keys.
    pub dataset: DatasetPlan,
    /// `[dataset]`: how batches are assembled.
    pub loader: LoaderConfig,
    /// `[[transform]]`: user-defined transforms of samples, in the order of the spec.
    pub transforms: Vec<TransformPlan>,
    /// What the run minimises and measures: `[task]`, `[loss]`, `[[metric]]` and `train.loss`.
    pub task: TaskPlan,
    /// `[train]`.
    pub train: TrainConfig,
    /// `[early_stop]`; `None` if the run does not end early.
    pub early_stop: Option<EarlyStop>,
    /// `[ema]`; `None` if weights are not averaged.
    pub ema: Option<Ema>,
    /// `[optimizer]`, with its parameter groups.
    pub optimizer: OptimizerPlan,
    /// Learning-rate schedule, from `[scheduler]` or `[[scheduler]]`.
    pub schedule: Schedule,
    /// `[checkpoint]`.
    pub checkpoint: CheckpointConfig,
    /// `[metrics]`.
    pub metrics: MetricsConfig,
    /// `[[observer]]` and `metrics.sinks`: receivers of the run's events.
    pub observers: Vec<ObserverPlan>,
    /// `[launch]`: processes of each node.
    pub launch: LaunchConfig,
    /// `[launch]`: nodes and restarts.
    pub nodes: NodesConfig,
    /// `[launch]`: requeueing of the Slurm job.
    pub slurm: SlurmConfig,
    /// For `ddp-run sweep`.
    pub sweep: Option<sweep::SweepConfig>,
    /// `[distributed]`: time limits of the process group.
    pub distributed: DistributedConfig,
    /// `[distributed]`: connections and algorithms of the gloo engine.
    pub gloo: GlooOptions,
    /// `[distributed]`: how gradients are averaged.
    pub reducer: ReducerConfig,
    /// `[distributed]`: the check that all ranks have equal state.
    pub replicas: ReplicaConfig,
    /// Replaces the plain all-reduce of gradients.
    pub comm_hook: Option<HookSource>,
    /// Samples, micro-batches and optimizer steps of an epoch.
    pub batch: BatchAlgebra,
    /// `None` if the model's size depends on data that has not been read yet.
    pub sizes: Option<Sizes>,
    /// All values of the job with their origins, in the order of the tables.
    pub values: Vec<ResolvedValue>,
    /// Keys declared as not affecting results, whether the spec sets them or not.
    without_effect: BTreeSet<String>,
    /// SHA-256, in hex, over the values that results depend on. These do not include the job's name, the location of
    /// its data, how it is launched, monitored and saved, and the number of processes.
    pub hash: String,
    /// The keys on which results may depend, with their values as text.
    pub keys_of_results: Values,
}

impl Plan {
    /// Resolves and checks a job.
    ///
    /// # Errors
    /// All problems of the spec, each with its position.
    pub fn resolve(tree: &JobTree, registry: &Registry, world: WorldRequest) -> Result<Plan, Diagnostics> {
        let Examined { made, problems, .. } = Self::examine(tree, registry, world);
        match (made, problems) {
            (Some(plan), None) => Ok(plan),
            (None, None) => unreachable!("a plan is withheld only after a problem"),
            (_, Some(problems)) => Err(problems),
        }
    }

    /// As [`Plan::resolve`], for tools: also after a problem, it returns the values that could be read and the keys that apply.
    pub fn examine(tree: &JobTree, registry: &Registry, world: WorldRequest) -> Examined<Option<Plan>> {
        let mut examined = tree.examine(|root| resolve::plan(root, registry, world));
        examined.values.sort_by_key(|v| table_rank(v.key.rsplit_once('.').map_or("", |(table, _)| table)));
        if let (Some(plan), None) = (&mut examined.made, &examined.problems) {
            plan.values.clone_from(&examined.values);
            plan.hash = export::hash(plan);
            plan.keys_of_results = plan.hashed_keys();
        }
        examined
    }

    /// The declarations of all keys that reading this spec reads, for `reference`; its problems are ignored.
    pub fn declarations(tree: &JobTree, registry: &Registry) -> Vec<Declaration> {
        Self::examine(tree, registry, WorldRequest::new(1)).declarations
    }

    /// Whether the spec or the command line sets `key`, even to its default.
    pub fn is_set(&self, key: &str) -> bool {
        self.values.iter().any(|value| value.key == key && value.origin != Origin::Default)
    }

    /// Checks that each of this node's `processes` can have its own device.
    ///
    /// # Errors
    /// Too few devices without `launch.share_devices` (exit code 2), or none (exit code 69).
    pub fn devices_suffice(&self, processes: usize, devices: usize) -> Result<(), Error> {
        checks::devices_suffice(self.device, processes, devices, self.launch.share_devices)
    }

    /// Checks the metrics that rank checkpoints, lower the rate and end the run early against the targets and splits of the opened
    /// data set, which may be unknown when the spec is read.
    ///
    /// # Errors
    /// A metric that does not apply to these targets, or that ends the run or lowers the rate and is never measured (exit code 78).
    pub fn ranks_by(&self, facts: &DataFacts) -> Result<(), Error> {
        let named = [
            (Some(self.checkpoint.best), "`best` in `[checkpoint]`"),
            (self.early_stop.map(|rule| rule.metric), "`metric` in `[early_stop]`"),
            (self.schedule.on_plateau().map(|rule| rule.metric), "`metric` in `[scheduler]`"),
        ];
        for (metric, key) in named {
            if let Some(why) = metric
                .zip(facts.target.as_ref())
                .and_then(|(metric, target)| checks::unmeasured(metric, target))
            {
                let hint = format!("{key} names the metric; \"val.loss\" fits every data set");
                return Err(Error::spec(why).hint(hint));
            }
        }
        // The best checkpoint is a matter of course, and there may be none.
        for (metric, key) in &named[1..] {
            let Some(metric) = *metric else { continue };
            if let Some(why) = checks::never_measured(metric, facts, self.train.eval_every) {
                return Err(Error::spec(format!("{key} is `{metric}`, which is never measured: {why}")));
            }
        }
        Ok(())
    }

    /// Why a run never measures the validation split; `None` if it may.
    pub fn never_evaluated(&self) -> Option<&'static str> {
        checks::never_evaluated(&self.dataset.facts, self.train.eval_every)
    }

    /// The settings of the training loop.
    pub fn settings(&self) -> TrainSettings {
        TrainSettings {
            seed: self.seed,
            epochs: self.epochs.unwrap_or(u64::MAX),
            precision: self.precision,
            loader: self.loader,
            task: self.task.build(),
            train: self.train.clone(),
            early_stop: self.early_stop,
            lr: self.optimizer.lr,
            schedule: self.schedule.clone(),
            reducer: self.reducer.clone(),
            comm_hook: self.comm_hook.clone(),
            save_every: self.save_every,
            best: self.saves_best().then_some(self.checkpoint.best),
            on_preempt: self.checkpoint.on_preempt,
            log_every: self.metrics.log_every,
            details: Details { per_class: self.metrics.per_class, samples: self.metrics.samples },
            digests: self.metrics.digests,
            check_replicas: self.replicas.check_replicas,
        }
    }

    /// Whether an epoch that is the best so far is saved in any case.
    fn saves_best(&self) -> bool {
        self.save_every != Every::Never && self.checkpoint.keep_best != Some(0)
    }

    /// The composition of micro-batches and steps at the start of a run on `world` processes.
    pub fn batching(&self, world: usize) -> Batching {
        Batching::new(world, self.batch_size, self.train.accumulate)
    }

    /// Checks that a run from the beginning has no batch on which a batch norm can't train. Where sizes are only known once the
    /// data is read, and for other runs, `job/worker/norms.rs` does.
    ///
    /// # Errors
    /// Exit code 78.
    pub fn may_start(&self) -> Result<(), Error> {
        self.too_few_for_norms().map_or(Ok(()), |(why, hint)| Err(Error::spec(why).hint(hint)))
    }

    fn too_few_for_norms(&self) -> Option<(String, &'static str)> {
        let values = self.model.source.least_norm_values(&self.dataset.facts)?;
        let known = self.batch.train_samples.is_some_and(|n| n > 0);
        let batching = self.batching(self.world.world_size);
        known.then(|| self.batch.too_few_for_norms(&batching, values, self.train.max_steps))?
    }

    /// Optimizer steps of the whole run; `None` if this depends on the data.
    pub fn total_steps(&self) -> Option<u64> {
        let by_epochs = self.epochs.zip(self.batch.steps_per_epoch);
        let by_epochs = by_epochs.map(|(epochs, steps)| epochs.saturating_mul(steps as u64));
        match (by_epochs, self.train.max_steps) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Epochs of the whole run, the last of which may be cut short; `None` if this depends on the data.
    pub fn total_epochs(&self) -> Option<u64> {
        let by_steps = || {
            let (max_steps, each) = self.train.max_steps.zip(self.batch.steps_per_epoch)?;
            Some(max_steps.div_ceil((each as u64).max(1)))
        };
        self.epochs.or_else(by_steps)
    }
}

#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
