//! The bucket order is learnt in the first step: its value, that results do not depend on it, and that a resumed run uses it
//! from its first step.

use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData, activation::tanh};
use ddp_run::Registry;
use ddp_run::model::{Input, Net};
use ddp_run::testing::{
    ALL, Compute, ComputeDevice, JobTree, Plan, Position, ProgressMode, Provenance, RankJob, RecorderOptions,
    Resume, RunId, Start, StepReport, TrainingEnd, WorldRequest, provenance, train,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{ranks::on_ranks, read_json};
use crate::training::train_steps;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CrossedConfig {}

/// Registered in another order than its use, which is `inner`, `middle`, `outer`. `spare` is unused.
#[derive(Module, Debug)]
struct Crossed {
    outer: Linear,
    spare: Linear,
    inner: Linear,
    middle: Linear,
}

impl Net for Crossed {
    fn forward(&self, input: Input) -> Tensor<2> {
        let x = tanh(self.inner.forward(input.rows()));
        self.outer.forward(tanh(self.middle.forward(x)))
    }
}

/// Weights and biases of `outer`, `spare`, `inner`, `middle` are numbered 0 to 7. A layer uses its weight first.
const LEARNT: [usize; 8] = [1, 0, 7, 6, 5, 4, 3, 2];
const REGISTERED: [usize; 8] = [7, 6, 5, 4, 3, 2, 1, 0];

/// A layer with computed values: these ranks are threads, which share Burn's random stream.
fn linear(inputs: usize, outputs: usize, device: &Device) -> Linear {
    let mut layer = LinearConfig::new(inputs, outputs).with_initializer(Initializer::Zeros).init(device);
    let values = |n: usize| (0..n).map(|i| (i as f32 * 0.7).sin() / 14.0).collect::<Vec<f32>>();
    let weight = TensorData::new(values(inputs * outputs), [inputs, outputs]);
    layer.weight = Param::from_tensor(Tensor::from_data(weight, device));
    layer.bias =
        Some(Param::from_tensor(Tensor::from_data(TensorData::new(values(outputs), [outputs]), device)));
    layer
}

fn plan(world: usize) -> Plan {
    let spec = "name = \"crossed\"\nepochs = 2\nbatch_size = 8\nsave_every = \"never\"\n\
                [model]\nname = \"crossed\"\n\
                [dataset]\nname = \"random\"\nsamples = 240\nfeatures = 16\n\
                [train]\nclip_norm = 0.5\naccumulate = 2\n\
                [optimizer]\nname = \"adamw\"\nlr = 1e-3\n\
                [checkpoint]\nkeep_best = 0\n\
                [distributed]\nalgorithm = \"ring\"\nfirst_bucket_mb = 0.1\nbucket_cap_mb = 0.2\n";
    let registry = Registry::standard().model("crossed", |_: &CrossedConfig, _, device: &Device| Crossed {
        outer: linear(192, 1, device),
        spare: linear(3, 3, device),
        inner: linear(16, 192, device),
        middle: linear(192, 192, device),
    });
    let tree = JobTree::parse("crossed.toml", spec, &[]);
    Plan::resolve(&tree, &registry, WorldRequest::new(world)).unwrap_or_else(|e| panic!("{e}"))
}

/// Trains from the start, with a given or a learnt order; returns rank 0's final parameters and the orders.
fn trained(world: usize, order: Option<&[usize]>) -> (Vec<Vec<f32>>, Vec<Option<Vec<usize>>>) {
    let plan = plan(world);
    let ranks = on_ranks(world, &plan.gloo, |group| {
        let mut orders = Vec::new();
        let each = |position: &Position, _: &StepReport| orders.push(position.bucket_order.clone());
        let model = train_steps(&plan, group, &Compute::host(), order, |_| {}, each);
        let mut values = Vec::new();
        model.read(ALL, &mut |_, v| values.push(v.to_vec())).unwrap();
        (values, orders)
    });
    assert!(ranks.iter().all(|r| *r == ranks[0]), "ranks differ");
    ranks.into_iter().next().unwrap()
}

#[test]
fn learns_the_order_of_readiness_and_two_ranks_have_the_same_bits_with_either() {
    let (learnt, orders) = trained(2, None);
    assert!(orders.len() > 4 && orders.iter().all(|o| o.as_deref() == Some(&LEARNT)), "{orders:?}");
    let (registered, orders) = trained(2, Some(&REGISTERED));
    assert!(orders.iter().all(|o| o.as_deref() == Some(&REGISTERED)), "{orders:?}");
    assert!(learnt == registered, "the order of the buckets shows in the parameters");
}

/// Trains in the run folder `out` to the end, or for `steps` more steps.
fn run(out: &Path, world: usize, steps: u64) -> TrainingEnd {
    std::fs::create_dir_all(out).unwrap();
    let plan = plan(world);
    let provenance = Provenance::gather(provenance::Start {
        name: &plan.name,
        spec_hash: &plan.hash,
        source_dir: out,
        world,
        devices: vec!["cpu".to_owned(); world],
        backend: "gloo",
        launcher: "a test",
        versions: provenance::Versions::default(),
        run: RunId::default(),
    });
    let ended = on_ranks(world, &plan.gloo, |group| {
        let polled = AtomicU64::new(0);
        let stop = || polled.fetch_add(1, Ordering::Relaxed) + 1 >= steps;
        let device = ComputeDevice::Cpu;
        let recorder = RecorderOptions { progress: ProgressMode::None, ..RecorderOptions::default() };
        let start = Start { out_dir: out, provenance: &provenance, job_toml: "" };
        train(RankJob {
            failed: &|_| true,
            plan: &plan,
            local_rank: group.rank(),
            group,
            device,
            out_dir: out,
            resume: Resume::Auto,
            start: Some(start),
            stop: &stop,
            recorder,
            profile: None,
        })
        .unwrap_or_else(|e| panic!("{}", e.message))
    });
    ended[0]
}

/// With three ranks the order of summation, and so the bits, depend on a gradient's position in its bucket.
#[test]
fn a_resumed_run_uses_the_order_from_its_first_step() {
    let dir = tempfile::tempdir().unwrap();
    // 2 epochs with 10 samples per rank and batch: 80 samples per rank, 10 batches, 5 steps.
    const LAST: &str = "checkpoints/step-00000010";
    let files = |out: &Path| {
        ["model.safetensors", "optimizer.safetensors"].map(|f| std::fs::read(out.join(LAST).join(f)).unwrap())
    };
    let whole = dir.path().join("whole");
    assert_eq!(run(&whole, 3, 10), TrainingEnd::Stopped);
    for at in [1, 7] {
        let out = dir.path().join(format!("at-{at}"));
        assert_eq!(run(&out, 3, at), TrainingEnd::Stopped);
        let state = read_json(out.join(format!("checkpoints/step-{at:08}/state.json")));
        assert_eq!(state["extra"]["position"]["bucket_order"], serde_json::json!(LEARNT));
        assert_eq!(run(&out, 3, 10 - at), TrainingEnd::Stopped);
        assert!(files(&out) == files(&whole), "stopped at step {at}: model or optimizer differ");
    }
    assert!(trained(3, None).0 != trained(3, Some(&REGISTERED)).0, "the order has no effect to be seen");
}
