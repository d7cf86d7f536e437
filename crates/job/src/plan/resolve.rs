//! Reads a job's tables in order; each component can use what earlier ones have resolved.

use super::job::JobConfig;
use super::{Machine, Plan, Purpose, Sizes, WorldRequest};
use super::{checks, components};
use crate::registry::{Registry, by_name};
use checkpoint::CheckpointConfig;
use collectives::DistributedConfig;
use collectives::gloo::GlooOptions;
use data::DataFacts;
use ddp::{HookSource, ReducerConfig};
use launch::LaunchConfig;
use launch::clusters::slurm::SlurmConfig;
use launch::nodes::NodesConfig;
use record::{MetricsConfig, ObserverPlan, SinksConfig, short_form};
use spec::Fields;
use train::optim::{OptimizerPlan, Schedule};
use train::tasks::{Own, TaskPlan};
use train::training::{Batching, EarlyStop, Ema, ReplicaConfig, TrainConfig};

/// Reads all tables, even after problems. `None` only after a problem.
pub(super) fn plan(root: &mut Fields<'_>, registry: &Registry, request: WorldRequest) -> Option<Plan> {
    let JobConfig { name, seed, epochs, batch_size, save_every, backend, device, precision } =
        JobConfig::read(root);
    let (dataset, loader) = components::dataset(root, registry);
    let facts = dataset.as_ref().map_or_else(DataFacts::default, |d| d.facts.clone());
    let transforms =
        root.own_tables("transform", by_name(&registry.transforms), |name, read, fields| read(name, fields));
    let model = components::model(root, registry, &facts);
    let own =
        Own::read(root, by_name(&registry.tasks), by_name(&registry.losses), by_name(&registry.metrics));
    checks::task(root, own.standard_task(), &facts);
    let (loss, train) = TrainConfig::read(&mut root.section("train"), facts.target.as_ref(), &own);
    let optimizer =
        OptimizerPlan::configure(&mut root.req_section("optimizer"), by_name(&registry.optimizers));
    let mut schedule = Schedule::configure(root, by_name(&registry.schedules));
    let task = own.plan(loss);
    let epochs = match train.max_steps {
        Some(_) => epochs,
        None => Some(root.or_default("epochs", epochs, 1)),
    };
    checks::mixing(root, &train, task.as_ref(), &facts);
    checks::plateau(root, &mut schedule, task.as_ref(), &facts, train.eval_every);
    let ema = Ema::read(&mut root.section("ema"));
    let early_stop = early_stop(root, &facts, &train, task.as_ref());
    let checkpoint = checkpoint(root, &facts, &train, task.as_ref());
    let (metrics, observers) = metrics(root, registry, &facts);
    let (launch, nodes, slurm) = launch(root);
    let (distributed, gloo, reducer, replicas, comm_hook) = distributed(root, registry);
    // Whether it exists or not: a run continues without it.
    root.without_effect(&["sweep"]);
    let swept = root.has("sweep");
    let sweep = root.section("sweep").config_if(swept);

    let world = request.resolve(nodes.nnodes.max, launch.nproc_per_node, device);
    let batching = Batching::new(world.world_size, batch_size, train.accumulate);
    let batch = match facts.train {
        Some(n) => batching.algebra(n, loader.drop_last),
        None => batching.algebra_without_data(),
    };
    checks::backend_and_device(root, backend, device, &world);
    checks::precision_and_device(root, precision, device);
    checks::precision_and_task(root, precision, task.as_ref());
    checks::requeue(root, slurm.requeue, save_every, checkpoint.on_preempt);
    if request.purpose != Purpose::Use {
        checks::batches(root, &batch, &batching, loader.drop_last);
    }
    let (dataset, model, optimizer) = (dataset?, model?, optimizer?);
    // After a problem it may be impossible to build the model.
    let tensors = if root.is_sound() { model.source.tensors() } else { None };
    checks::groups(root, &optimizer, tensors.as_deref());
    let sizes = tensors.map(|t| Sizes::new(&t, &optimizer, ema.is_some(), reducer.bucket_caps(), &world));
    let plan = Plan {
        name,
        seed,
        epochs,
        batch_size,
        save_every,
        backend,
        device,
        precision,
        machine: Machine::new(&world, request.local, request.world_size, request.memory),
        world,
        model,
        dataset,
        loader,
        transforms,
        task: task?,
        train,
        early_stop,
        ema,
        optimizer,
        schedule,
        checkpoint,
        metrics,
        observers,
        launch,
        nodes,
        slurm,
        sweep,
        distributed,
        gloo,
        reducer,
        replicas,
        comm_hook,
        batch,
        sizes,
        values: Vec::new(),
        without_effect: root.all_without_effect(),
        hash: String::new(),
        keys_of_results: Default::default(),
    };
    if request.purpose == Purpose::Start
        && let Some((why, hint)) = plan.too_few_for_norms()
    {
        root.problem_with_hint("batch_size", why, hint);
    }
    Some(plan)
}

fn early_stop(
    root: &mut Fields<'_>,
    facts: &DataFacts,
    train: &TrainConfig,
    task: Option<&TaskPlan>,
) -> Option<EarlyStop> {
    let mut fields = root.section("early_stop");
    let mut rule = EarlyStop::read(&mut fields)?;
    if let Some(task) = task {
        rule.metric = checks::metric(&mut fields, "metric", rule.metric, task, facts.target.as_ref())?;
    }
    checks::early_stop(&mut fields, rule.metric, facts, train.eval_every);
    Some(rule)
}

fn checkpoint(
    root: &mut Fields<'_>,
    facts: &DataFacts,
    train: &TrainConfig,
    task: Option<&TaskPlan>,
) -> CheckpointConfig {
    let mut fields = root.section("checkpoint");
    let mut config: CheckpointConfig = fields.config();
    if let Some(task) = task {
        config.best =
            checks::metric(&mut fields, "best", config.best, task, facts.target.as_ref()).unwrap_or_default();
    }
    checks::ranking(&mut fields, &mut config, facts, train.eval_every);
    checks::map_location(&mut fields, &config);
    config
}

/// `[metrics]` and the observers, which are there in two forms: `[[observer]]`, and `sinks` of `[metrics]`.
fn metrics(
    root: &mut Fields<'_>,
    registry: &Registry,
    facts: &DataFacts,
) -> (MetricsConfig, Vec<ObserverPlan>) {
    root.without_effect(&["observer"]);
    let mut named = Vec::new();
    let mut observers = root.own_tables("observer", by_name(&registry.observers), |name, kind, fields| {
        named.push(name);
        kind.read(name, fields)
    });
    let mut fields = root.section("metrics");
    let mut config = fields.config();
    checks::top5(&mut fields, &mut config, facts.target.as_ref());
    let SinksConfig { sinks } = fields.config();
    let kinds: Vec<_> = by_name(&registry.observers).collect();
    observers.extend(short_form(&mut fields, &sinks, &named, &kinds));
    (config, observers)
}

fn launch(root: &mut Fields<'_>) -> (LaunchConfig, NodesConfig, SlurmConfig) {
    let mut fields = root.section("launch");
    (fields.config(), fields.config(), fields.config())
}

fn distributed(
    root: &mut Fields<'_>,
    registry: &Registry,
) -> (DistributedConfig, GlooOptions, ReducerConfig, ReplicaConfig, Option<HookSource>) {
    let mut fields = root.section("distributed");
    let group = fields.config();
    let gloo = GlooOptions::read(&mut fields);
    let reducer: ReducerConfig = fields.config();
    let replicas = fields.config();
    let comm_hook = components::comm_hook(&mut fields, &reducer.comm_hook, registry);
    (group, gloo, reducer, replicas, comm_hook)
}
