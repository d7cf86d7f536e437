//! Compares GPT-2, Llama and the models of its kind with what Hugging Face's transformers computes (`../shared/lm_ref`, skipped if missing):
//! logits, losses and gradient norms of 20 steps, with and without targets that are not trained, at several numbers of ranks and
//! micro-batches; and the loss of rows of several documents.

use crate::common::{ranks::on_ranks, read_json};
use crate::golden::{Held, NoKeys, shared};
use crate::training::train_steps;
use burn::tensor::Tensor;
use ddp_run::Registry;
use ddp_run::dataset::{FieldFacts, FieldKind, UNTRAINED};
use ddp_run::hook::ProcessGroup;
use ddp_run::model::Input;
use ddp_run::testing::{
    Compute, FieldData, HostField, JobTree, Model, Plan, Position, SoloGroup, StepReport, WorldRequest,
    gloo::GlooOptions, load_pretrained, read_weights,
};
use std::path::Path;
use std::sync::Arc;

const STEPS: usize = 20;
const ROWS: usize = 4;
const BLOCK: usize = 32;
const VOCABULARY: usize = 384;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Targets {
    All,
    /// Those of loss_mask.safetensors: of the first row of each step none, and of the others about half.
    Masked,
}

/// Inputs and targets of all steps, in order.
fn held(dir: &Path, which: Targets) -> Held {
    let file = read_weights(&dir.join("tokens.safetensors")).unwrap();
    let tokens = file.get("tokens").expect("tokens").to_f32_vec();
    let rows = tokens.chunks(BLOCK + 1);
    assert_eq!(rows.len(), STEPS * ROWS);
    let field = FieldFacts { shape: vec![BLOCK], kind: FieldKind::Index(VOCABULARY) };
    let mut targets: Vec<f32> = rows.clone().flat_map(|row| row[1..].to_vec()).collect();
    if which == Targets::Masked {
        // Its header has 8 bytes of length; bytes of 0 and 1 follow.
        let mask = std::fs::read(dir.join("loss_mask.safetensors")).unwrap();
        let mask = &mask[mask.len() - targets.len()..];
        let untrained = targets.iter_mut().zip(mask).filter(|(_, trained)| **trained == 0);
        untrained.for_each(|(target, _)| *target = UNTRAINED as f32);
    }
    Held {
        input: field.clone(),
        target: field,
        inputs: rows.clone().flat_map(|row| row[..BLOCK].to_vec()).collect(),
        targets,
        has_untrained: which == Targets::Masked,
        len: STEPS * ROWS,
    }
}

/// The plan of the references' training.
fn plan(dir: &Path, folder: &Path, targets: Targets, [world, batch, accumulate]: [usize; 3]) -> Plan {
    let model = if folder.ends_with("gpt2") { "gpt2" } else { "llama" };
    let spec = format!(
        "name = \"golden\"\nepochs = 1\nbatch_size = {batch}\nsave_every = \"never\"\n\
         [model]\nname = \"{model}\"\npretrained = {folder:?}\n[dataset]\nname = \"held\"\nshuffle = false\nworkers = 0\n\
         [checkpoint]\nkeep_best = 0\n[train]\naccumulate = {accumulate}\nclip_norm = 1.0\n\
         [optimizer]\nname = \"adamw\"\nlr = 1e-3\nbetas = [0.9, 0.95]\neps = 1e-8\nweight_decay = 0.1\n"
    );
    let held = held(dir, targets);
    let registry = Registry::standard().dataset("held", move |NoKeys {}| held.clone());
    let tree = JobTree::parse("golden.toml", &spec, &[]);
    Plan::resolve(&tree, &registry, WorldRequest::new(world)).unwrap_or_else(|e| panic!("{e}"))
}

/// Loss and gradient norm of each step.
fn train(plan: &Plan, group: Arc<dyn ProcessGroup>, folder: &Path, on: &Compute) -> Vec<[f64; 2]> {
    let mut steps = Vec::new();
    let prepare = |model: &mut dyn Model| assert_eq!(load_pretrained(model, folder, true).unwrap(), "");
    let each = |_: &Position, report: &StepReport| steps.push([report.sums.mean_loss(), report.grad_norm]);
    train_steps(plan, group, on, None, prepare, each);
    steps
}

fn check(model: &str, on: &Compute, layouts: &[[usize; 3]], tolerance: f64) {
    let Some(dir) = shared("lm_ref") else { return };
    let folder = dir.join(model);
    let reference = read_json(dir.join("reference.json"));
    let reference = &reference["models"][model];

    let alone = plan(&dir, &folder, Targets::All, layouts[0]);
    let mut built = alone.model.source.build(&alone.dataset.facts, alone.seed, on).unwrap();
    load_pretrained(&mut *built, &folder, true).unwrap();
    let held = held(&dir, Targets::All);
    let row = |values: Vec<i64>| HostField { shape: vec![BLOCK], data: FieldData::Index(values) };
    let field = row(held.inputs[..ROWS * BLOCK].iter().map(|&token| token as i64).collect());
    let evaluator = built.evaluator();
    let input = Input::from_host(&field, ROWS, &evaluator.device());
    let read = |logits: Tensor<2>| logits.into_data().try_into_vec::<f32>().unwrap();
    let logits = read(evaluator.forward(input.clone()));
    let expected = read_weights(&folder.join("logits_step0.safetensors")).unwrap();
    let expected = expected.get("logits").expect("logits").to_f32_vec();
    assert_eq!(logits.len(), expected.len());
    let gap = logits.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("{model}: largest gap of a logit to transformers {gap:.2e}");
    assert!(f64::from(gap) < tolerance, "{model}: {gap:e}");

    // The first batch's rows, each of three documents.
    let cuts: Vec<usize> = serde_json::from_value(reference["packed"]["cuts"].clone()).unwrap();
    let positions = cuts.windows(2).flat_map(|cut| 0..(cut[1] - cut[0]) as i64);
    let positions = row(positions.cycle().take(ROWS * BLOCK).collect());
    let packed = read(evaluator.forward(input.with_positions(&positions).unwrap()));
    let losses = packed.chunks(VOCABULARY).zip(&held.targets).map(|(row, target)| {
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        sum.ln() - f64::from(row[*target as usize])
    });
    let found = losses.sum::<f64>() / (ROWS * BLOCK) as f64;
    let gap = (found / reference["packed"]["loss"].as_f64().unwrap() - 1.0).abs();
    println!("{model}, documents: largest gap to transformers: loss {gap:.2e}");
    assert!(gap < tolerance, "{model}, documents: {gap:e}");

    let steps = [("losses_and_norms", Targets::All), ("masked", Targets::Masked)];
    for (layout, (key, targets)) in layouts.iter().flat_map(|layout| steps.map(|step| (layout, step))) {
        let expected = reference[key].as_array().unwrap();
        let (plan, world) = (plan(&dir, &folder, targets, *layout), layout[0]);
        let steps = match world {
            1 => vec![train(&plan, Arc::new(SoloGroup::default()), &folder, on)],
            _ => on_ranks(world, &GlooOptions::default(), |group| train(&plan, group, &folder, on)),
        };
        for steps in steps {
            assert_eq!(steps.len(), expected.len());
            let gap = |which: usize| {
                let gaps = steps.iter().zip(expected).map(|(found, expected)| {
                    let expected = expected[which].as_f64().unwrap();
                    (found[which] / expected - 1.0).abs()
                });
                gaps.fold(0.0, f64::max)
            };
            let [loss, norm] = [0, 1].map(gap);
            println!(
                "{model}, {layout:?}, {targets:?}: largest gap to transformers: loss {loss:.2e}, norm {norm:.2e}"
            );
            assert!(
                loss < tolerance && norm < 10.0 * tolerance,
                "{model}, {layout:?}, {targets:?}: {loss:e}, {norm:e}"
            );
        }
    }
}

/// Ranks, rows of a rank's micro-batch, and micro-batches.
const LAYOUTS: [[usize; 3]; 5] = [[1, 4, 1], [1, 1, 4], [2, 2, 1], [2, 1, 2], [4, 1, 1]];

#[test]
fn llama_follows_transformers() {
    check("llama", &Compute::host(), &LAYOUTS, 1e-5);
}

#[test]
fn a_tied_llama_with_scaled_positions_follows_transformers() {
    check("llama3-tied", &Compute::host(), &LAYOUTS, 1e-5);
}

#[test]
fn mistral_follows_transformers() {
    check("mistral", &Compute::host(), &LAYOUTS, 1e-5);
}

#[test]
fn qwen2_follows_transformers() {
    check("qwen2", &Compute::host(), &LAYOUTS, 1e-5);
}

#[test]
fn gpt2_follows_transformers() {
    check("gpt2", &Compute::host(), &LAYOUTS, 1e-5);
}

#[test]
fn qwen3_follows_transformers() {
    check("qwen3", &Compute::host(), &LAYOUTS, 1e-5);
}

#[cfg(feature = "wgpu")]
mod on_wgpu {
    use super::*;
    use crate::golden::on_wgpu::wgpu;

    #[test]
    #[ignore = "in software it takes minutes, most of them to compile and tune kernels"]
    fn decoders_follow_transformers() {
        let Some(on) = wgpu() else { return };
        for model in ["llama3-tied", "mistral", "qwen3", "gpt2"] {
            check(model, &on, &LAYOUTS[..1], 1e-4);
        }
    }
}

/// A process of its own has the card, as in `golden::on_cuda`.
#[cfg(feature = "cuda")]
mod on_cuda {
    use super::*;
    use crate::common::alone;
    use crate::emulated_cuda;
    use ddp_run::testing::{ComputeDevice, Precision};

    fn follows_transformers(model: &str) {
        let _alone = alone();
        emulated_cuda::on_a_card("golden_lm::on_cuda::process", &[("GOLDEN_MODEL", model.into())]);
    }

    #[test]
    #[ignore = "started by the tests beside it"]
    fn process() {
        let Ok(model) = std::env::var("GOLDEN_MODEL") else { return };
        let device = ComputeDevice::Cuda(0).open(Precision::F32).unwrap();
        check(&model, &Compute { device, ..Compute::host() }, &LAYOUTS[..1], 1e-4);
    }

    /// With a window of positions, grouped heads and no bias.
    #[test]
    fn mistral_follows_transformers() {
        follows_transformers("mistral");
    }

    #[test]
    fn gpt2_follows_transformers() {
        follows_transformers("gpt2");
    }
}
