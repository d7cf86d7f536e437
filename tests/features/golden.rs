//! Compares losses and weights with PyTorch's, step by step (`../shared/torch_ref`, skipped if missing): the same initial
//! weights, the same batches, one and two ranks, with the trainer that runs every job.

use ddp_run::dataset::{
    DataFacts, Dataset, DatasetSource, FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, Splits,
};
use ddp_run::hook::ProcessGroup;
use ddp_run::testing::{
    ALL, Compute, JobTree, Model, Plan, Position, SoloGroup, StepReport, WorldRequest, gloo::GlooOptions,
    load_pretrained, read_weights,
};
use ddp_run::{Registry, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{ranks::on_ranks, read_json};
use crate::training::train_steps;

const STEPS: usize = 20;

/// A folder of references.
pub fn shared(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("DDP_RUN_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from)
        .join(name);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

/// Samples in memory, in the order of the sampler without shuffling.
#[derive(Clone, Debug)]
pub struct Held {
    pub input: FieldFacts,
    pub target: FieldFacts,
    pub inputs: Vec<f32>,
    pub targets: Vec<f32>,
    /// Some targets are `UNTRAINED`.
    pub has_untrained: bool,
    pub len: usize,
}

fn copy(from: &[f32], to: FieldMut<'_>) {
    match to {
        FieldMut::Float(out) => out.copy_from_slice(from),
        FieldMut::Index(out) => out.iter_mut().zip(from).for_each(|(o, v)| *o = *v as i64),
    }
}

impl Dataset for Held {
    fn len(&self) -> usize {
        self.len
    }
    fn input(&self) -> FieldFacts {
        self.input.clone()
    }
    fn target(&self) -> FieldFacts {
        self.target.clone()
    }
    fn has_untrained(&self) -> bool {
        self.has_untrained
    }
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
        let (i, x, y) = (key.sample as usize, self.inputs.len() / self.len, self.targets.len() / self.len);
        copy(&self.inputs[i * x..(i + 1) * x], to.input);
        copy(&self.targets[i * y..(i + 1) * y], to.target);
        Ok(())
    }
}

impl DatasetSource for Held {
    fn facts(&self) -> DataFacts {
        DataFacts {
            input: Some(self.input.clone()),
            target: Some(self.target.clone()),
            train: Some(self.len),
            ..DataFacts::default()
        }
    }
    fn prepare(&self, _: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }
    fn open(&self) -> Result<Splits> {
        Ok(Splits { train: Arc::new(self.clone()), val: None, test: None })
    }
}

/// A table without keys.
#[derive(serde::Deserialize, schemars::JsonSchema)]
pub struct NoKeys {}

/// How a run distributes the reference's inputs `[steps, 2, B, …]` to ranks.
#[derive(Clone, Copy, PartialEq)]
enum Deal {
    /// One rank, the first half.
    First,
    /// Two ranks, one half each.
    Halves,
    /// One rank, both halves as one batch.
    Concat,
}

struct Case {
    model: &'static str,
    table: &'static str,
    optimizer: &'static str,
    classes: usize,
}

const CASES: [Case; 3] = [
    Case { model: "linear", table: "", optimizer: "sgd", classes: 0 },
    Case { model: "mlp", table: "", optimizer: "sgd", classes: 10 },
    Case { model: "gpt", table: "", optimizer: "adamw", classes: 65 },
];

fn held(case: &Case, dir: &Path, deal: Deal) -> (Held, usize) {
    let file = read_weights(&dir.join(format!("{}_inputs.safetensors", case.model))).unwrap();
    let (x, y) = (file.get("x").expect("inputs x"), file.get("y").expect("targets y"));
    let batch = x.shape[2];
    let (xs, ys) = (x.to_f32_vec(), y.to_f32_vec());
    let tokens = case.model == "gpt";
    let field = |shape: &[usize], index: bool| FieldFacts {
        shape: shape[3..].to_vec(),
        kind: if index { FieldKind::Index(case.classes) } else { FieldKind::Float },
    };
    let mut order = Vec::new();
    for step in 0..STEPS {
        let at = |half: usize, i: usize| (step * 2 + half) * batch + i;
        match deal {
            Deal::First => order.extend((0..batch).map(|i| at(0, i))),
            Deal::Concat => order.extend((0..2 * batch).map(|i| at(i / batch, i % batch))),
            Deal::Halves => order.extend((0..2 * batch).map(|i| at(i % 2, i / 2))),
        }
    }
    let pick = |values: &[f32], shape: &[usize]| -> Vec<f32> {
        let n: usize = shape[3..].iter().product();
        order.iter().flat_map(|i| values[i * n..(i + 1) * n].to_vec()).collect()
    };
    let held = Held {
        input: field(&x.shape, tokens),
        target: field(&y.shape, case.classes > 0),
        inputs: pick(&xs, &x.shape),
        targets: pick(&ys, &y.shape),
        has_untrained: false,
        len: order.len(),
    };
    (held, if deal == Deal::Concat { 2 * batch } else { batch })
}

/// The losses and final parameters of one rank.
type Run = (Vec<f64>, Vec<(String, Vec<f32>)>);

fn run_rank(plan: &Plan, group: Arc<dyn ProcessGroup>, init: &Path, on: &Compute) -> Run {
    let mut losses = Vec::new();
    let prepare = |model: &mut dyn Model| assert_eq!(load_pretrained(model, init, true).unwrap(), "");
    let each = |_: &Position, report: &StepReport| losses.push(report.local.mean_loss());
    let model = train_steps(plan, group, on, None, prepare, each);
    let mut weights = Vec::new();
    let read = model.read(ALL, &mut |i, values| {
        weights.push((model.entries()[i].name.clone(), model.entries()[i].to_dict(values)))
    });
    read.unwrap();
    (losses, weights)
}

fn run(case: &Case, dir: &Path, deal: Deal, on: &Compute) -> Vec<Run> {
    let (held, batch) = held(case, dir, deal);
    let trajectory = read_json(dir.join(format!("{}_traj.json", case.model)));
    let mut optimizer = format!("name = \"{}\"\n", case.optimizer);
    for (key, value) in trajectory["opt_args"].as_object().expect("opt_args") {
        optimizer.push_str(&format!("{key} = {value}\n"));
    }
    let spec = format!(
        "name = \"golden\"\nepochs = 1\nbatch_size = {batch}\nsave_every = \"never\"\n\
         [model]\nname = \"{}\"\n{}\n[dataset]\nname = \"held\"\nshuffle = false\nworkers = 0\n\
         [checkpoint]\nkeep_best = 0\n[optimizer]\n{optimizer}",
        case.model, case.table
    );
    let registry = Registry::standard().dataset("held", move |NoKeys {}| held.clone());
    let tree = JobTree::parse("golden.toml", &spec, &[]);
    let world = if deal == Deal::Halves { 2 } else { 1 };
    let plan = Plan::resolve(&tree, &registry, WorldRequest::new(world)).unwrap_or_else(|e| panic!("{e}"));
    let init = dir.join(format!("{}_init.safetensors", case.model));
    if world == 1 {
        return vec![run_rank(&plan, Arc::new(SoloGroup::default()), &init, on)];
    }
    on_ranks(2, &GlooOptions::default(), |group| run_rank(&plan, group, &init, on))
}

/// The losses of each rank in one of the reference runs.
fn reference(dir: &Path, model: &str, run: &str) -> Vec<Vec<f64>> {
    let json = read_json(dir.join(format!("{model}_traj.json")));
    let ranks = json["runs"][run].as_array().unwrap_or_else(|| panic!("no run {run}"));
    let losses = |rank: &serde_json::Value| -> Vec<f64> {
        rank["losses"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
    };
    ranks.iter().map(losses).collect()
}

fn largest_gap(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!((a.len(), b.len()), (STEPS, STEPS));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Losses may differ from PyTorch's by `tolerance`, and those of two ranks from one rank with twice the batch by `apart`.
fn check(case: &Case, on: &Compute, tolerance: f64, apart: f64) {
    let Some(dir) = shared("torch_ref") else { return };
    let one = run(case, &dir, Deal::First, on);
    let gap = largest_gap(&one[0].0, &reference(&dir, case.model, "w1_f32")[0]);
    println!("{}: world 1, largest loss gap to PyTorch {gap:.2e}", case.model);
    assert!(gap < tolerance, "{} at world 1: {gap:e}", case.model);

    let two = run(case, &dir, Deal::Halves, on);
    let expected = reference(&dir, case.model, "w2_f32");
    for rank in 0..2 {
        let gap = largest_gap(&two[rank].0, &expected[rank]);
        println!("{}: world 2, rank {rank}, largest loss gap to PyTorch {gap:.2e}", case.model);
        assert!(gap < tolerance, "{} at world 2, rank {rank}: {gap:e}", case.model);
    }
    assert!(two[0].1 == two[1].1, "ranks must end with the same bits");

    let concat = run(case, &dir, Deal::Concat, on);
    let mean: Vec<f64> = two[0].0.iter().zip(&two[1].0).map(|(a, b)| (a + b) / 2.0).collect();
    let gap = largest_gap(&mean, &concat[0].0);
    println!("{}: mean of two ranks against one of twice the batch {gap:.2e}", case.model);
    assert!(gap < apart, "{}: {gap:e}", case.model);
    let gap = largest_gap(&concat[0].0, &reference(&dir, case.model, "w1_concat_f32")[0]);
    assert!(gap < tolerance, "{} concatenated: {gap:e}", case.model);
}

#[test]
fn linear_follows_pytorch() {
    check(&CASES[0], &Compute::host(), 1e-5, 2e-6);
}

#[test]
fn mlp_follows_pytorch() {
    check(&CASES[1], &Compute::host(), 1e-5, 2e-6);
}

#[test]
fn gpt_follows_pytorch() {
    check(&CASES[2], &Compute::host(), 1e-5, 2e-6);
}

/// Both ranks use one device; gradients are reduced on the host.
#[cfg(feature = "wgpu")]
pub mod on_wgpu {
    use super::*;
    use ddp_run::testing::{ComputeDevice, Precision};

    pub fn wgpu() -> Option<Compute> {
        let device = ComputeDevice::Wgpu(0).open(Precision::F32);
        if device.is_err() {
            println!("skipped: there is no Vulkan, Metal or DX12 device");
        }
        Some(Compute { device: device.ok()?, ..Compute::host() })
    }

    #[test]
    fn linear_and_mlp_follow_pytorch() {
        let Some(on) = wgpu() else { return };
        check(&CASES[0], &on, 1e-4, 1e-5);
        check(&CASES[1], &on, 1e-4, 1e-5);
    }

    #[test]
    #[ignore = "in software it takes minutes, most of them to compile and tune kernels"]
    fn gpt_follows_pytorch() {
        let Some(on) = wgpu() else { return };
        check(&CASES[2], &on, 1e-4, 1e-4);
    }
}

/// Both ranks use one emulated card, whose libraries must be there when a process starts: another one than the tests'.
#[cfg(feature = "cuda")]
mod on_cuda {
    use super::*;
    use crate::emulated_cuda;
    use ddp_run::testing::{ComputeDevice, Precision};

    fn follows_pytorch(case: usize) {
        emulated_cuda::on_a_card("golden::on_cuda::process", &[("GOLDEN_CASE", case.to_string().into())]);
    }

    #[test]
    #[ignore = "started by the tests beside it"]
    fn process() {
        let Ok(case) = std::env::var("GOLDEN_CASE") else { return };
        let device = ComputeDevice::Cuda(0).open(Precision::F32).unwrap();
        check(&CASES[case.parse::<usize>().unwrap()], &Compute { device, ..Compute::host() }, 1e-4, 1e-5);
    }

    #[test]
    fn linear_follows_pytorch() {
        follows_pytorch(0);
    }

    #[test]
    #[ignore = "at its size an emulated card takes eight minutes, most of them to choose kernels"]
    fn mlp_follows_pytorch() {
        follows_pytorch(1);
    }
}

/// Compares the weights after 20 steps.
#[test]
fn final_weights_are_pytorchs() {
    let Some(dir) = shared("torch_ref") else { return };
    for (case, deal, file) in [
        (&CASES[0], Deal::First, "linear_final_w1"),
        (&CASES[0], Deal::Halves, "linear_final_w2"),
        (&CASES[0], Deal::Concat, "linear_final_w1_concat"),
        (&CASES[1], Deal::Halves, "mlp_final_w2"),
    ] {
        let expected = read_weights(&dir.join(format!("{file}.safetensors"))).unwrap();
        for (name, values) in &run(case, &dir, deal, &Compute::host())[0].1 {
            let wanted = expected.get(name).unwrap_or_else(|| panic!("{file} has no {name}")).to_f32_vec();
            let gap = values.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(gap < 1e-5, "{file} {name}: {gap:e}");
        }
    }
}
