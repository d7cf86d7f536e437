//! Compares GPT-2, Llama and the models of its kind with what Hugging Face's transformers computes (`../shared/lm_ref`, skipped if missing):
//! logits, and losses and gradient norms of 20 steps, at several numbers of ranks and micro-batches.

use crate::common::{ranks::on_ranks, read_json};
use crate::golden::{Held, NoKeys, shared};
use crate::training::train_steps;
use ddp_run::Registry;
use ddp_run::dataset::{FieldFacts, FieldKind};
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

/// Inputs and targets of all steps, in order.
fn held(dir: &Path) -> Held {
    let file = read_weights(&dir.join("tokens.safetensors")).unwrap();
    let tokens = file.get("tokens").expect("tokens").to_f32_vec();
    let rows = tokens.chunks(BLOCK + 1);
    assert_eq!(rows.len(), STEPS * ROWS);
    let field = FieldFacts { shape: vec![BLOCK], kind: FieldKind::Index(VOCABULARY) };
    Held {
        input: field.clone(),
        target: field,
        inputs: rows.clone().flat_map(|row| row[..BLOCK].to_vec()).collect(),
        targets: rows.flat_map(|row| row[1..].to_vec()).collect(),
        len: STEPS * ROWS,
    }
}

/// The plan of the references' training.
fn plan(dir: &Path, folder: &Path, world: usize, batch: usize, accumulate: usize) -> Plan {
    let model = if folder.ends_with("gpt2") { "gpt2" } else { "llama" };
    let spec = format!(
        "name = \"golden\"\nepochs = 1\nbatch_size = {batch}\nsave_every = \"never\"\n\
         [model]\nname = \"{model}\"\npretrained = {folder:?}\n[dataset]\nname = \"held\"\nshuffle = false\nworkers = 0\n\
         [checkpoint]\nkeep_best = 0\n[train]\naccumulate = {accumulate}\nclip_norm = 1.0\n\
         [optimizer]\nname = \"adamw\"\nlr = 1e-3\nbetas = [0.9, 0.95]\neps = 1e-8\nweight_decay = 0.1\n"
    );
    let held = held(dir);
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
    let plan = |[world, batch, accumulate]: [usize; 3]| plan(&dir, &folder, world, batch, accumulate);

    let alone = plan(layouts[0]);
    let mut built = alone.model.source.build(&alone.dataset.facts, alone.seed, on).unwrap();
    load_pretrained(&mut *built, &folder, true).unwrap();
    let inputs = held(&dir).inputs[..ROWS * BLOCK].iter().map(|&token| token as i64).collect();
    let field = HostField { shape: vec![BLOCK], data: FieldData::Index(inputs) };
    let evaluator = built.evaluator();
    let logits = evaluator.forward(Input::from_host(&field, ROWS, &evaluator.device()));
    let logits = logits.into_data().try_into_vec::<f32>().unwrap();
    let expected = read_weights(&folder.join("logits_step0.safetensors")).unwrap();
    let expected = expected.get("logits").expect("logits").to_f32_vec();
    assert_eq!(logits.len(), expected.len());
    let gap = logits.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("{model}: largest gap of a logit to transformers {gap:.2e}");
    assert!(f64::from(gap) < tolerance, "{model}: {gap:e}");

    let reference = read_json(dir.join("reference.json"));
    let expected = reference["models"][model]["losses_and_norms"].as_array().unwrap().clone();
    for layout in layouts {
        let (plan, world) = (plan(*layout), layout[0]);
        let steps = match world {
            1 => vec![train(&plan, Arc::new(SoloGroup::default()), &folder, on)],
            _ => on_ranks(world, &GlooOptions::default(), |group| train(&plan, group, &folder, on)),
        };
        for steps in steps {
            assert_eq!(steps.len(), expected.len());
            let gap = |which: usize| {
                let gaps = steps.iter().zip(&expected).map(|(found, expected)| {
                    let expected = expected[which].as_f64().unwrap();
                    (found[which] / expected - 1.0).abs()
                });
                gaps.fold(0.0, f64::max)
            };
            let [loss, norm] = [0, 1].map(gap);
            println!("{model}, {layout:?}: largest gap to transformers: loss {loss:.2e}, norm {norm:.2e}");
            assert!(loss < tolerance && norm < 10.0 * tolerance, "{model}, {layout:?}: {loss:e}, {norm:e}");
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
