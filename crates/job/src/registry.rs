//! The components that a spec can name. [`Registry::standard`] holds those that ship with ddp-run; a user's own crate
//! adds its own to it and calls `Program::run` of ddp-run, which is the whole program with those names known.

use burn::tensor::Device;
use data::{self, BurnData, DataFacts, DatasetKind, DatasetSource, Transform, TransformKind, TransformPlan};
use ddp::{CommHook, HookKind, HookSource, hook_kind};
use record::{EventObserver, ObserverKind};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use train::models::{self, ModelKind, Net};
use train::optim::schedule::{self, ScheduleConfig, ScheduleKind, Segment};
use train::optim::{OptimizerConfig, OptimizerKind, OptimizerPlan, standard_kinds};
use train::tasks::{self, Loss, LossKind, Metric, MetricKind, Task, TaskKind};

/// Names and what they build. Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry {
    models: BTreeMap<String, Arc<dyn ModelKind>>,
    datasets: BTreeMap<String, Arc<dyn DatasetKind>>,
    comm_hooks: BTreeMap<String, HookKind>,
    /// Optimizers by name in specs, each with the function that reads its table.
    pub optimizers: Vec<(String, OptimizerKind)>,
    /// Learning-rate schedules by name in specs, each with the function that reads its table.
    pub schedules: Vec<(String, ScheduleKind)>,
    pub(crate) tasks: Vec<(String, TaskKind)>,
    pub(crate) losses: Vec<(String, LossKind)>,
    pub(crate) metrics: Vec<(String, MetricKind)>,
    pub(crate) observers: Vec<(String, ObserverKind)>,
    pub(crate) transforms: Vec<(String, TransformKind)>,
}

impl Registry {
    /// No components at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The components that ship with ddp-run.
    pub fn standard() -> Self {
        let hooks = HookSource::standard().into_iter();
        Self {
            models: owned(models::standard_kinds()),
            datasets: owned(data::standard_kinds()),
            comm_hooks: hooks.map(|hook| (hook.name().to_owned(), hook.without_keys())).collect(),
            optimizers: owned(standard_kinds()),
            schedules: owned(schedule::standard_kinds()),
            tasks: owned(tasks::standard_kinds()),
            observers: owned(record::standard_kinds()),
            ..Self::default()
        }
    }

    /// Adds a model: `[model] name = "…"` and the keys of `C`, built by `build` from them, what is known of the data, and
    /// the device. `C` derives `Deserialize` and [`JsonSchema`]: a wrong key is reported by its
    /// type there, and by its range (`#[schemars(range(min = 1))]`).
    pub fn model<C, N, F>(self, name: &str, build: F) -> Self
    where
        C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
        N: Net,
        F: Fn(&C, &DataFacts, &Device) -> N + Send + Sync + 'static,
    {
        self.try_model(name, move |config: &C, facts: &DataFacts, device: &Device| {
            Ok(build(config, facts, device))
        })
    }

    /// As [`model`](Self::model), with a builder that may fail: `?` takes what [`Error`](base::error::Error) can be made of, an `io::Error`
    /// too. The run ends before its first step, with the error's exit code (78 for a file that is missing or can't be read).
    pub fn try_model<C, N, F>(self, name: &str, build: F) -> Self
    where
        C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
        N: Net,
        F: Fn(&C, &DataFacts, &Device) -> base::error::Result<N> + Send + Sync + 'static,
    {
        self.add_model(name, models::from_fn(build))
    }

    /// Adds a data set: `[dataset] name = "…"` and the keys of `C`, from which `make` makes the source that reads it.
    pub fn dataset<C, S, F>(self, name: &str, make: F) -> Self
    where
        C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
        S: DatasetSource + 'static,
        F: Fn(C) -> S + Send + Sync + 'static,
    {
        self.add_dataset(name, data::from_fn(make))
    }

    /// Adds a Burn `Dataset` with its `Batcher`, opened by `open` from the `[dataset]` table's own keys `C`. The table also
    /// has `val_split`, `split_seed`, `max_train` and `max_val`.
    pub fn burn_dataset<C, F>(self, name: &str, open: F) -> Self
    where
        C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
        F: Fn(&C) -> base::error::Result<BurnData> + Send + Sync + 'static,
    {
        self.add_dataset(name, data::from_burn(open))
    }

    /// Adds a communication hook without keys, `[distributed] comm_hook = "…"`; each rank makes its own with `make`. A later one
    /// replaces an earlier one; `none` stays the plain all-reduce.
    pub fn comm_hook<H, F>(self, name: &str, make: F) -> Self
    where
        H: CommHook + 'static,
        F: Fn() -> H + Send + Sync + 'static,
    {
        self.comm_hook_with(name, move |(): &()| make())
    }

    /// As [`comm_hook`](Self::comm_hook), with keys: those of `C`, in `[distributed.hook]`.
    pub fn comm_hook_with<C, H, F>(mut self, name: &str, make: F) -> Self
    where
        C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
        H: CommHook + 'static,
        F: Fn(&C) -> H + Send + Sync + 'static,
    {
        self.comm_hooks.insert(name.to_owned(), hook_kind(name, make));
        self
    }

    /// Adds an optimizer, `[optimizer] name = "…"` and the keys that `T` declares.
    pub fn optimizer<T: OptimizerConfig>(mut self, name: &str) -> Self {
        replace(&mut self.optimizers, name, OptimizerPlan::read::<T>);
        self
    }

    /// Adds a learning-rate schedule, `[scheduler] name = "…"` and the keys that `T` declares.
    pub fn schedule<T: ScheduleConfig>(mut self, name: &str) -> Self {
        replace(&mut self.schedules, name, Segment::read::<T>);
        self
    }

    /// Adds a task, `[task] name = "…"` and the keys that `T` declares: a user-defined training step.
    pub fn task<T: Task + DeserializeOwned + JsonSchema>(mut self, name: &str) -> Self {
        replace(&mut self.tasks, name, TaskKind::Own(tasks::task::<T>));
        self
    }

    /// Adds the task that trains a model written for Burn's `Learner` by its `TrainStep`, and evaluates it by its
    /// `InferenceStep`: `[task] name = "…"`. The model itself is added with [`Registry::model`].
    #[cfg(feature = "learner")]
    pub fn learner<M: tasks::LearnerModel>(mut self, name: &str) -> Self {
        replace(&mut self.tasks, name, TaskKind::Own(tasks::learner::<M>));
        self
    }

    /// Adds a loss, `[loss] name = "…"` and the keys that `L` declares.
    pub fn loss<L: Loss + DeserializeOwned + JsonSchema>(mut self, name: &str) -> Self {
        replace(&mut self.losses, name, tasks::loss::<L>);
        self
    }

    /// Adds a metric, `[[metric]] name = "…"` and the keys that `M` declares.
    pub fn metric<M: Metric + DeserializeOwned + JsonSchema>(mut self, name: &str) -> Self {
        replace(&mut self.metrics, name, tasks::metric::<M>);
        self
    }

    /// Adds a transform of samples, `[[transform]] name = "…"` and the keys that `T` declares.
    pub fn transform<T: Transform + DeserializeOwned + JsonSchema>(mut self, name: &str) -> Self {
        replace(&mut self.transforms, name, TransformPlan::read::<T>);
        self
    }

    /// Adds an observer of the run's events, `[[observer]] name = "…"` and the keys that `T` declares.
    pub fn observer<T>(mut self, name: &str) -> Self
    where
        T: EventObserver + Clone + Sync + DeserializeOwned + JsonSchema,
    {
        replace(&mut self.observers, name, ObserverKind::new::<T>());
        self
    }

    /// The tables whose `name` selects a component, and the names there are.
    pub(crate) fn names(&self) -> [(&'static str, Vec<&str>); 9] {
        fn names_of<K>(kinds: &[(String, K)]) -> Vec<&str> {
            kinds.iter().map(|(name, _)| name.as_str()).collect()
        }
        [
            ("model", self.models.keys().map(String::as_str).collect()),
            ("dataset", self.datasets.keys().map(String::as_str).collect()),
            ("optimizer", names_of(&self.optimizers)),
            ("scheduler", names_of(&self.schedules)),
            ("task", names_of(&self.tasks)),
            ("loss", names_of(&self.losses)),
            ("metric", names_of(&self.metrics)),
            ("transform", names_of(&self.transforms)),
            ("observer", names_of(&self.observers)),
        ]
    }

    /// Models by their names in specs.
    pub fn model_kinds(&self) -> impl Iterator<Item = (&str, &Arc<dyn ModelKind>)> {
        self.models.iter().map(|(name, kind)| (name.as_str(), kind))
    }

    /// Data sets by their names in specs.
    pub fn dataset_kinds(&self) -> impl Iterator<Item = (&str, &Arc<dyn DatasetKind>)> {
        self.datasets.iter().map(|(name, kind)| (name.as_str(), kind))
    }

    /// How the communication hook of a name in specs reads its keys.
    pub(crate) fn comm_hook_kind(&self, name: &str) -> Option<&HookKind> {
        self.comm_hooks.get(name)
    }

    /// Names of the communication hooks in specs, in alphabetical order.
    pub fn comm_hook_names(&self) -> impl Iterator<Item = &str> {
        self.comm_hooks.keys().map(String::as_str)
    }

    /// Adds a model kind under `name`; a later one replaces an earlier one.
    pub(crate) fn add_model(mut self, name: &str, kind: impl ModelKind + 'static) -> Self {
        self.models.insert(name.to_owned(), Arc::new(kind));
        self
    }

    /// Adds a data-set kind under `name`; a later one replaces an earlier one.
    pub(crate) fn add_dataset(mut self, name: &str, kind: impl DatasetKind + 'static) -> Self {
        self.datasets.insert(name.to_owned(), Arc::new(kind));
        self
    }
}

/// Adds a kind at the end; it replaces an earlier one of this name.
fn replace<K>(kinds: &mut Vec<(String, K)>, name: &str, kind: K) {
    kinds.retain(|(known, _)| known != name);
    kinds.push((name.to_owned(), kind));
}

/// Kinds that ship with ddp-run, to which others may be added.
fn owned<K, C: FromIterator<(String, K)>>(kinds: impl IntoIterator<Item = (&'static str, K)>) -> C {
    kinds.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect()
}

/// Names, and how each reads its table.
pub fn by_name<K: Copy>(kinds: &[(String, K)]) -> impl Iterator<Item = (&str, K)> {
    kinds.iter().map(|(name, kind)| (name.as_str(), *kind))
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
