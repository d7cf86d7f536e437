//! The module's public interface: specs with custom components are resolved, printed, exported and hashed.

use super::*;
use crate::checkpoint::OnPreempt;
use crate::comm::gloo::{AlgorithmChoice, GlooOptions, Transport};
use crate::comm::testing::HANG;
use crate::comm::{CommError, ProcessGroup};
use crate::data::{DataFacts, DatasetKind, DatasetSource, FieldFacts, FieldKind, Splits};
use crate::ddp::CommHook;
use crate::launch::Nproc;
use crate::models::{ModelKind, ModelSource, Role, TensorFacts};
use crate::optim::{Optimizer, OptimizerConfig, schedule, standard_kinds};
use crate::spec::{Fields, Override};
use crate::telemetry::Top5;
use crate::train::{BufferSync, Loss, LossChoice, OnResize};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::sync::Arc;
use std::time::Duration;

/// 1000 samples in 10 classes unless the spec says otherwise; can't be opened.
#[derive(Debug, Clone)]
struct Stub(DataFacts);

struct StubKind;

#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct StubKeys {
    #[default = 1000]
    samples: usize,
    #[default = 10]
    classes: usize,
    #[default = true]
    known: bool,
    val: Option<usize>,
    #[default = "data"]
    #[schemars(extend("x-changes-results" = false))]
    #[allow(dead_code, reason = "nothing is opened")]
    root: String,
}

impl DatasetKind for StubKind {
    fn configure(&self, fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
        let StubKeys { samples, classes, known, val, .. } = fields.config();
        let kind = if classes == 0 { FieldKind::Float } else { FieldKind::Index(classes) };
        Arc::new(Stub(DataFacts {
            input: Some(FieldFacts { shape: vec![4], kind: FieldKind::Float }),
            target: known.then_some(FieldFacts { shape: vec![], kind }),
            train: known.then_some(samples),
            val,
            test: None,
        }))
    }
}

impl DatasetSource for Stub {
    fn facts(&self) -> DataFacts {
        self.0.clone()
    }
    fn prepare(&self, _say: &mut dyn FnMut(&str)) -> crate::error::Result<()> {
        unreachable!("a plan opens nothing")
    }
    fn open(&self) -> crate::error::Result<Splits> {
        unreachable!("a plan opens nothing")
    }
}

/// Weights of 4 x 10 and 10 values, and a buffer of 3.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct StubModel {
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[allow(dead_code, reason = "nothing is built")]
    dropout: f64,
}

impl ModelKind for StubModel {
    fn configure(&self, fields: &mut Fields<'_>, _facts: &DataFacts) -> Arc<dyn ModelSource> {
        Arc::new(fields.config::<StubModel>())
    }
}

impl ModelSource for StubModel {
    fn tensors(&self) -> Option<Vec<TensorFacts>> {
        let tensor = |name: &str, shape: &[usize], role| TensorFacts {
            name: name.to_owned(),
            shape: shape.to_vec(),
            role,
        };
        let parameter = Role::Parameter;
        Some(vec![
            tensor("w", &[10, 4], parameter),
            tensor("b", &[10], parameter),
            tensor("mean", &[3], Role::Statistic),
        ])
    }
    fn build(
        &self,
        _: &DataFacts,
        _: u64,
        _: &crate::device::Compute,
    ) -> crate::error::Result<Box<dyn crate::models::Model>> {
        unreachable!("a plan builds nothing")
    }
}

struct StubHook;

impl CommHook for StubHook {
    fn average(&mut self, _: usize, _: &mut [f32], _: &dyn ProcessGroup) -> Result<(), CommError> {
        unreachable!("a plan averages nothing")
    }
}

/// A custom optimizer that changes nothing.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct Still {
    #[default = 0.5]
    lr: f64,
    #[default = 2]
    #[schemars(range(min = 1))]
    often: usize,
}

impl OptimizerConfig for Still {
    fn lr(&self) -> f64 {
        self.lr
    }
}

impl Optimizer for Still {
    fn slots(&self) -> &'static [&'static str] {
        &[]
    }
    fn update(&self, _: u64, _: f64, _: f32, _: &[usize], _: &mut [f32], _: &[f32], _: &mut [&mut [f32]]) {}
    fn update_on_device(
        &self,
        _: u64,
        _: f64,
        _: Tensor<1>,
        _: &[usize],
        param: Tensor<1>,
        _: Tensor<1>,
        _: &mut [Tensor<1>],
    ) -> Tensor<1> {
        param
    }
}

const JOB: &str = r#"
name = "job"
batch_size = 8
[model]
name = "stub"
[dataset]
name = "stub"
[optimizer]
name = "adamw"
"#;

fn resolve_for(text: &str, sets: &[&str], world: WorldRequest) -> Result<Plan, Diagnostics> {
    let registry = Registry::empty()
        .add_model("stub", StubModel::default())
        .add_dataset("stub", StubKind)
        .optimizer::<Still>("still")
        .comm_hook("mine", || StubHook);
    let registry = standard_kinds().into_iter().fold(registry, |r, (name, kind)| r.add_optimizer(name, kind));
    let schedules = schedule::standard_kinds().into_iter();
    let registry = schedules.fold(registry, |r, (name, kind)| r.add_schedule(name, kind));
    let edits: Vec<Override> = sets.iter().map(|s| Override::Set((*s).to_owned())).collect();
    Plan::resolve(&JobTree::parse("job.toml", text, &edits)?, &registry, world)
}

fn resolve(sets: &[&str]) -> Plan {
    resolve_for(JOB, sets, WorldRequest::default()).unwrap_or_else(|d| panic!("{d}"))
}

/// The messages for a job with these edits.
fn refused(sets: &[&str]) -> Vec<String> {
    match resolve_for(JOB, sets, WorldRequest::default()) {
        Ok(_) => Vec::new(),
        Err(d) => d.problems().iter().map(|p| p.message.clone()).collect(),
    }
}

#[test]
fn a_date_is_no_endpoint() {
    let message = "expected HOST:PORT, tcp://HOST:PORT or file:///ABSOLUTE/PATH, found the date 1979-05-27";
    assert_eq!(refused(&["launch.rdzv_endpoint=1979-05-27"]), [message]);
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let plan = resolve(&[]);
    assert_eq!((plan.seed, plan.epochs, plan.save_every), (0, 1, Every::Epochs(1)));
    assert_eq!((plan.backend, plan.device), (Backend::Auto, DeviceSpec::Auto));
    assert_eq!(plan.world, World { nnodes: 1, nproc_per_node: 1, world_size: 1 });
    assert_eq!(plan.loss, Loss::CrossEntropy { label_smoothing: 0.0 });
    let loader = LoaderConfig { shuffle: true, drop_last: false, workers: 1, prefetch: 2 };
    assert_eq!(plan.loader, loader);
    let train = TrainConfig {
        loss: LossChoice::Auto,
        label_smoothing: None,
        accumulate: 1,
        clip_norm: None,
        max_steps: None,
        eval_every: 1,
        buffers: BufferSync::Broadcast,
        on_resize: OnResize::KeepGlobalBatch,
    };
    assert_eq!(plan.train, train);
    assert_eq!((plan.checkpoint.keep_last, plan.checkpoint.asynchronous), (3, true));
    assert_eq!(plan.checkpoint.on_preempt, OnPreempt::Save);
    assert_eq!((*plan.checkpoint.grace, plan.slurm.requeue), (Duration::from_secs(600), false));
    assert_eq!(*plan.distributed.timeout, Duration::from_secs(1800));
    assert_eq!(*plan.distributed.init_timeout, Duration::from_secs(300));
    assert_eq!(plan.distributed.gloo(), GlooOptions::default());
    assert_eq!(plan.metrics, MetricsConfig { log_every: 10, top5: Top5(Some(true)) });
    assert_eq!(plan.nodes.bind.to_string(), "127.0.0.1");
    assert_eq!(plan.schedule, Schedule::constant());
    assert!(plan.values.iter().any(|v| v.key == "optimizer.eps" && v.origin.to_string() == "default"));
}

#[test]
fn steps_and_sizes_follow_from_the_world() {
    let plan = resolve_for(JOB, &["epochs=3"], WorldRequest::of(4)).unwrap();
    assert_eq!(
        (plan.batch.steps_per_epoch, plan.batch.global_batch, plan.total_steps()),
        (Some(32), 32, Some(96))
    );
    let sizes = plan.sizes.unwrap();
    assert_eq!((sizes.parameters, sizes.buffers, sizes.buckets), (50, 3, 1));
    assert_eq!((sizes.gradient_bytes, sizes.optimizer_bytes), (200, 400));
    assert_eq!(sizes.all_reduce_bytes_per_step, 300, "a ring of 4 sends 2 x 3/4 of the gradients");
    assert_eq!(sizes.checkpoint_bytes, 53 * 4 + 400);
    assert_eq!(resolve(&["train.max_steps=5"]).total_steps(), Some(5));
    assert_eq!(resolve(&["dataset.known=false"]).total_steps(), None);
}

/// Anything done or stored per process would take forever or exhaust memory.
#[test]
fn a_plan_costs_nothing_per_process() {
    let (done, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let samples = format!("dataset.samples={}", 1u64 << 60);
        let plan = resolve_for(JOB, &[&samples], WorldRequest::of(1 << 40));
        done.send(plan.map(|plan| (plan.world.world_size, plan.text())).map_err(|e| e.to_string()))
    });
    let (world_size, text) = end.recv_timeout(HANG).expect("it ends").expect("a plan");
    assert_eq!(world_size, 1 << 40);
    assert!(text.contains("1,099,511,627,776"), "{text}");
}

#[test]
fn values_with_a_syntax_of_their_own() {
    let plan = resolve(&[
        "save_every=10 min",
        "device=cuda:1",
        "distributed.timeout=90",
        "distributed.init_timeout=2 min",
        "launch.nproc_per_node=cpu",
        "launch.requeue=true",
        "checkpoint.on_preempt=exit",
        "checkpoint.grace=90 s",
        "launch.bind=\"::1\"",
        "metrics.top5=false",
        "checkpoint.map_location={\"cuda:0\"=\"cuda:2\"}",
    ]);
    assert_eq!(plan.save_every, Every::Time(Duration::from_secs(600)));
    assert_eq!(plan.device, DeviceSpec::Cuda(Some(1)));
    assert_eq!(*plan.distributed.timeout, Duration::from_secs(90));
    assert_eq!(*plan.distributed.init_timeout, Duration::from_secs(120));
    assert_eq!(plan.launch.nproc_per_node, Nproc::Cpu);
    assert!(plan.slurm.requeue);
    assert_eq!(plan.checkpoint.on_preempt, OnPreempt::Exit);
    assert_eq!(*plan.checkpoint.grace, Duration::from_secs(90));
    assert!(plan.nodes.bind.is_ipv6());
    assert_eq!(plan.metrics.top5, Top5(Some(false)));
    assert_eq!(plan.checkpoint.map_location.unwrap()["cuda:0"], "cuda:2");
}

#[test]
fn the_engine_gets_what_the_spec_says_of_it() {
    for transport in Transport::ALL {
        let set = format!("distributed.transport={transport}");
        assert_eq!(resolve(&[&set]).distributed.gloo().transport, *transport);
    }
    for algorithm in AlgorithmChoice::ALL {
        let set = format!("distributed.algorithm={algorithm}");
        assert_eq!(resolve(&[&set]).distributed.gloo().algorithm, *algorithm);
    }
    let plan = resolve(&["distributed.interface=eth0", "distributed.sockets=16"]);
    let options = plan.distributed.gloo();
    assert_eq!((options.interface.as_deref(), options.sockets), (Some("eth0"), Some(16)));
    assert!(plan.text().contains("sockets"));
}

#[test]
fn a_communication_hook_is_one_of_the_registry() {
    assert!(resolve(&[]).comm_hook.is_none());
    assert!(resolve(&["distributed.comm_hook=none"]).comm_hook.is_none());
    let plan = resolve_for(JOB, &["distributed.comm_hook=mine"], WorldRequest::of(2)).unwrap();
    assert_eq!(plan.comm_hook.as_ref().unwrap().name(), "mine");
    assert!(plan.text().contains("in 1 bucket, before the hook `mine`"));
    assert_eq!(refused(&["distributed.comm_hook=mine2"]), ["unknown value; did you mean \"mine\"?"]);
    assert_eq!(
        refused(&["distributed.comm_hook=powersgd"]),
        ["expected \"none\" or \"mine\", found the string \"powersgd\""]
    );
    for (name, hook) in [("bf16", "bf16"), ("f16", "f16")] {
        assert_eq!(Registry::standard().comm_hook_source(name).unwrap().name(), hook);
    }
}

#[test]
fn an_optimizer_may_be_a_users_own() {
    let plan = resolve(&["optimizer={name=\"still\",often=3}"]);
    assert_eq!((plan.optimizer.name.as_str(), plan.optimizer.lr), ("still", 0.5));
    assert_eq!(plan.json()["optimizer"], serde_json::json!({ "name": "still", "lr": 0.5, "often": 3 }));
    assert_eq!(
        refused(&["optimizer={name=\"still\",often=0,ofen=1}"]),
        ["expected an integer of at least 1, found 0", "unknown key; did you mean `often`?"]
    );
    assert_eq!(refused(&["optimizer.name=stil"]), ["unknown value; did you mean \"still\"?"]);
}

#[test]
fn a_resolved_job_resolves_to_the_same_plan() {
    let sets = [
        "seed=3",
        "save_every=500 steps",
        "scheduler=[{name=\"warmup\", steps=4}, {name=\"cosine\"}]",
        "checkpoint.map_location={\"cuda:0\"=\"cpu\"}",
        "train.clip_norm=0.1",
        "train.label_smoothing=0.1",
        "launch.nproc_per_node=3",
        "distributed.transport=tcp",
        "distributed.interface=eth0",
        "distributed.sockets=2",
        "dataset.val=100",
        "optimizer.eps=1e-12",
        "optimizer.lr=0.1",
    ];
    let first = resolve(&sets);
    let text = first.to_toml();
    let second = resolve_for(&text, &[], WorldRequest::default()).unwrap_or_else(|d| panic!("{d}\n{text}"));
    let plain =
        |plan: &Plan| -> Vec<_> { plan.values.iter().map(|v| (v.key.clone(), v.value.clone())).collect() };
    assert_eq!(plain(&first), plain(&second));
    assert_eq!(first.hash, second.hash);
    assert_eq!(first.optimizer, second.optimizer);
    assert_eq!(first.schedule, second.schedule);
    assert_eq!(second.to_toml(), text);
    assert_eq!((first.world, first.batch, first.sizes), (second.world, second.batch, second.sizes));
}

#[test]
fn the_hash_changes_exactly_when_results_would() {
    let base = resolve(&[]).hash;
    assert_eq!(base.len(), 64);
    let same = [
        "name=other",
        "save_every=never",
        "launch.nproc_per_node=2",
        "metrics.log_every=1",
        "checkpoint.keep_last=1",
        "distributed.timeout=5",
        "distributed.interface=eth0",
        "distributed.sockets=2",
        "dataset.root=elsewhere",
        "dataset.workers=4",
        "train.on_resize=keep-local-batch",
        "seed=0",
        "optimizer.lr=0.001",
        "optimizer.weight_decay=1e-2",
    ];
    for set in same {
        assert_eq!(resolve(&[set]).hash, base, "{set}");
    }
    let different = [
        "seed=1",
        "batch_size=16",
        "epochs=2",
        "optimizer.lr=0.002",
        "train.accumulate=2",
        "dataset.shuffle=false",
        "model.dropout=0.1",
        "scheduler.name=cosine",
        "distributed.bucket_cap_mb=1",
        "distributed.transport=tcp",
        "distributed.algorithm=ring",
        "distributed.comm_hook=mine",
    ];
    let mut seen = std::collections::BTreeSet::from([base]);
    for set in different {
        assert!(seen.insert(resolve(&[set]).hash), "{set}");
    }
}

#[test]
fn impossible_combinations_are_refused() {
    let one = |sets: &[&str], part: &str| {
        let found = refused(sets);
        assert!(found.len() == 1 && found[0].contains(part), "{sets:?}: {found:#?}");
    };
    one(&["backend=nccl", "device=cpu"], "nccl moves data between CUDA devices");
    one(
        &["backend=nccl", "device=cuda:1", "launch.nproc_per_node=2"],
        "a CUDA device for each of 2 processes",
    );
    one(&["dataset.drop_last=true", "batch_size=1001"], "larger than the 1000 samples of each of 1 ranks");
    one(&["train.accumulate=126"], "more than the 125 batches");
    one(&["dataset.classes=0", "train.label_smoothing=0.1"], "label smoothing requires cross-entropy");
    one(&["dataset.classes=0", "train.loss=cross-entropy"], "cross-entropy requires class targets");
    one(&["train.loss=mse"], "mse requires numbers as targets, but the data set has 10 classes");
    one(&["train.max_steps=0"], "expected an integer of at least 1, found 0");
    one(&["metrics.top5=true", "dataset.classes=4"], "top-5 accuracy of 4 classes is always 1");
    one(&["metrics.top5=true", "dataset.classes=0"], "top-5 accuracy needs class targets");
    one(
        &["checkpoint.keep_best=1"],
        "`val.loss`, which is never measured: the data set has no validation split",
    );
    one(&["checkpoint.keep_best=1", "dataset.val=10", "train.eval_every=0"], "`train.eval_every = 0`");
    one(&["checkpoint.best=val.r2", "dataset.val=10"], "`val.r2` needs numbers");
    one(
        &["checkpoint.best=val.accuracy", "dataset.val=10", "dataset.classes=0"],
        "`val.accuracy` needs class targets",
    );
    one(
        &["checkpoint.best=val.top5", "dataset.val=10", "dataset.classes=5"],
        "`val.top5` of 5 classes is always 1",
    );
    one(&["checkpoint.best=val.perplexity", "dataset.val=10"], "`val.perplexity` is one of tokens");
    one(&["checkpoint.map_location={\"gpu\"=\"cuda:1\"}"], "not a device: `gpu`");
    one(&["checkpoint.map_location={\"cpu\"=\"cuda:x\"}"], "not a device: `cuda:x`");
    one(&["model.pretrained=w.onnx"], "expected a `.safetensors`, `.pt` or `.pth` file");
    one(&["model.pretrained_strict=true"], "no effect without `pretrained`");
    one(&["distributed.sockets=17"], "expected an integer from 1 to 16");
    one(&["distributed.interface=\"eth 0\""], "the name of a network interface");
    one(&["distributed.transport=shm", "distributed.sockets=2"], "counts TCP connections");
    one(&["dataset.samples=0"], "no training samples");
    one(&["name=a b"], "a name is made of letters");
    one(&["name=.."], "a name is made of letters");
    one(&["name=\"\""], "a name can't be empty");
    assert_eq!(refused(&["checkpoint.keep_best=1", "checkpoint.best=train.loss"]), [""; 0]);
    assert_eq!(resolve(&[]).checkpoint.keep_best, Some(0), "no validation split, so nothing to rank by");
    assert_eq!(resolve(&["dataset.val=10"]).checkpoint.keep_best, Some(1));
}

#[test]
fn an_empty_spec_lacks_everything_at_once() {
    let d = resolve_for("", &[], WorldRequest::default()).expect_err("empty");
    let found: Vec<&str> = d.problems().iter().map(|p| p.message.as_str()).collect();
    let expected = [
        "missing key `name`",
        "missing key `batch_size`",
        "missing table `[dataset]`",
        "missing table `[model]`",
        "missing table `[optimizer]`",
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_text_has_every_value_and_what_they_come_to() {
    let text = resolve_for(JOB, &["seed=9", "dataset.val=100"], WorldRequest::of(3)).unwrap().text();
    let has = |line: &str| {
        assert!(text.lines().any(|l| l.split_whitespace().eq(line.split_whitespace())), "{line}\n{text}")
    };
    has("seed 9 override");
    has("name \"adamw\" spec");
    has("eps 1e-8 default");
    has("[optimizer]");
    has("global batch 24 (8 x 3 processes)");
    has("steps per epoch 42");
    has("padding 2 samples an epoch drawn twice");
    has("dropped none");
    has("last step 18 samples an epoch; micro-batches weigh by their samples");
    has("parameters 50 (200 B)");
    has("validation 100");
    has("test none");
}

#[test]
fn the_json_has_the_same_for_programs() {
    let json = resolve(&["dataset.val=100"]).json();
    assert_eq!(json["batch"]["steps_per_epoch"], 125);
    assert_eq!(json["world"]["world_size"], 1);
    assert_eq!(json["values"][0], serde_json::json!({ "key": "name", "value": "job", "origin": "spec" }));
    assert_eq!(json["loss"]["name"], "cross-entropy");
}
