use super::*;
use data::NumberEncoding;
use data_encoding::HEXLOWER;
use job::plan::testing::resolved;
use job::registry::Registry;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::process::{Command, Stdio};
use train::models::standard_kinds;

/// What PyTorch makes of the programs, and transformers of the configurations. The test writes it, with `UPDATE_DOCS`, by the Python that `DDP_RUN_TORCH_PYTHON` names.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/cards.json");

/// Of one program, SHA-256 each.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    /// Of the definition of the model, or of its config.json.
    program: String,
    /// Of the names and shapes of its state dict, as PyTorch has them.
    state: String,
}

const SHAPES: &str = "name = 'shapes'\nsize = 32\nchannels = 3";
const GREY: &str = "name = 'shapes'\nsize = 32";
/// Their images become 32 x 48.
const WIDE: &str = "name = 'shapes'\nsize = 32\nchannels = 3\n# wide";
const NUMBERS: &str = "name = 'random'\nfeatures = 7\noutputs = 2";
const TEXT: &str = "name = 'tinyshakespeare'\npath = 'x.txt'\nblock_size = 16";

/// Keys of `[model]`, and the data set.
const CASES: &[(&str, &str)] = &[
    ("name = 'linear'", NUMBERS),
    ("name = 'linear'", SHAPES),
    ("name = 'mlp'\nhidden = [16, 8]\ndropout = 0.1", NUMBERS),
    ("name = 'mlp'\nhidden = []", GREY),
    ("name = 'cnn'\nchannels = [4, 8, 8]\nhidden = 12\ndropout = 0.2", SHAPES),
    ("name = 'cnn'", WIDE),
    ("name = 'resnet18'", SHAPES),
    ("name = 'resnet18'\nstem = 'cifar'", GREY),
    ("name = 'resnet34'", GREY),
    ("name = 'resnet34'\nstem = 'cifar'", SHAPES),
    ("name = 'resnet50'", WIDE),
    ("name = 'resnet50'\nstem = 'cifar'", SHAPES),
    ("name = 'vit'\npreset = 'cifar'\ndropout = 0.1", SHAPES),
    ("name = 'vit'\npreset = 'ti_16'\nnum_layers = 2\nmlp_dim = 100", GREY),
    ("name = 'vit'\npreset = 'cifar'\nnum_layers = 1\nlayer_norm_eps = 1e-5", WIDE),
    ("name = 'gpt'", TEXT),
    ("name = 'gpt'\nn_layer = 1\nn_head = 3\nn_embd = 12\nblock_size = 20\nvocab_size = 70", TEXT),
    ("name = 'gpt2'\npreset = 'gpt2'\nn_layer = 1\nn_inner = 20\nattn_pdrop = 0.1", TEXT),
    ("name = 'llama'", TEXT),
    (
        "name = 'llama'\nmodel_type = 'qwen3'\nhead_dim = 12\nsliding_window = 5\nmax_window_layers = 1\ntie_word_embeddings = true",
        TEXT,
    ),
    ("name = 'llama'\nmodel_type = 'qwen2'\nmlp_bias = true\nvocab_size = 90", TEXT),
    (
        "name = 'llama'\nattention_bias = true\nmax_position_embeddings = 64\n\
         rope_parameters = { rope_type = 'yarn', factor = 4.0, original_max_position_embeddings = 16 }",
        TEXT,
    ),
];

/// The definition of the model, or the config.json by which transformers builds it, and the names and shapes of its state in the
/// exported file, a tensor a line.
fn spec((model, dataset): &(&str, &str)) -> (String, String) {
    let spec = format!(
        "name = 'x'\nseed = 1\nepochs = 1\nbatch_size = 2\n[model]\n{model}\n[dataset]\n{dataset}\n[optimizer]\nname = 'sgd'\nlr = 0.1\n"
    );
    let plan = resolved(&Registry::standard(), &spec, &[], 1).unwrap_or_else(|e| panic!("{e}"));
    let mut facts = plan.dataset.facts.clone();
    if *dataset == WIDE {
        facts.input.as_mut().unwrap().shape[2] = 48;
    }
    let model = &plan.model.source;
    let tensors = model.tensors_for(&facts).unwrap();
    if let Some(config) = model.config_json(&facts) {
        let named = tensors.iter().flat_map(|tensor| model.hub_tensor(&tensor.name).named(&tensor.shape));
        let named: Vec<(String, Vec<usize>)> = named.collect();
        let lines = state(named.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())));
        return (serde_json::to_string(&config).unwrap(), lines);
    }
    let shapes = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice())).collect();
    let (name, table) = (plan.model.name.as_str(), plan.table("model"));
    let loading =
        Loading { name, class: None, table: &table, facts: &facts, encoding: None, shapes: &shapes };
    let program = loading.program().unwrap_or_else(|| panic!("`{name}` has no program"));
    let (definition, rest) = program.split_once("model.load_state_dict(").unwrap();
    assert_eq!(rest, "load_file(f\"{folder}/model.safetensors\"))\nmodel.eval()\n");
    (definition.to_owned(), state(shapes.iter().map(|(name, shape)| (*name, *shape))))
}

/// A line for each tensor, by name.
fn state<'a>(tensors: impl Iterator<Item = (&'a str, &'a [usize])>) -> String {
    let mut lines: Vec<String> = tensors.map(|(name, shape)| format!("{name} {shape:?}\n")).collect();
    lines.sort();
    lines.concat()
}

fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

/// The state that each definition has in PyTorch; `None` without a Python that has it.
fn by_pytorch(definitions: &[&String]) -> Option<Vec<BTreeMap<String, Vec<usize>>>> {
    let Ok(python) = std::env::var("DDP_RUN_TORCH_PYTHON") else {
        println!(
            "skipped: DDP_RUN_TORCH_PYTHON does not name a Python that has torch, torchvision, transformers and safetensors"
        );
        return None;
    };
    let script = include_str!("python/state_dicts.py");
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(definitions).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// `load_state_dict` is strict: each name and each shape. Without PyTorch by what it once said of the same definitions.
#[test]
fn definitions_have_the_state_of_their_models() {
    let found: Vec<(String, String)> = CASES.iter().map(spec).collect();
    let definitions: Vec<&String> = found.iter().map(|(definition, _)| definition).collect();
    let named = |at: usize| format!("{:?}", CASES[at]);
    if let Some(states) = by_pytorch(&definitions) {
        for (at, pytorch) in states.iter().enumerate() {
            let pytorch = state(pytorch.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())));
            assert_eq!(pytorch, found[at].1, "{}:\n{}", named(at), found[at].0);
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let case =
                |(program, state): &(String, String)| Case { program: digest(program), state: digest(state) };
            let all: BTreeMap<String, Case> =
                found.iter().map(case).enumerate().map(|(at, case)| (named(at), case)).collect();
            std::fs::write(REFERENCE, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
        }
    }
    let expected: BTreeMap<String, Case> =
        serde_json::from_str(&std::fs::read_to_string(REFERENCE).unwrap()).unwrap();
    for (at, (definition, state)) in found.iter().enumerate() {
        let case = Case { program: digest(definition), state: digest(state) };
        assert_eq!(
            Some(&case),
            expected.get(&named(at)),
            "{}: PyTorch has not confirmed this definition, or not these names; run the test with DDP_RUN_TORCH_PYTHON and \
             UPDATE_DOCS=1:\n{definition}\n{state}",
            named(at)
        );
    }
}

#[test]
fn every_model_that_ships_has_a_program() {
    for (name, _) in standard_kinds() {
        let key = format!("name = '{name}'");
        assert!(CASES.iter().any(|(model, _)| model.lines().next() == Some(&key)), "{name} is not tested");
    }
}

#[test]
fn a_model_of_a_users_program_has_none() {
    let facts = DataFacts::default();
    let (table, shapes) = (Map::new(), BTreeMap::new());
    for name in ["own", "linear"] {
        let loading =
            Loading { name, class: None, table: &table, facts: &facts, encoding: None, shapes: &shapes };
        assert_eq!(loading.program(), None, "{name}");
    }
}

#[test]
fn numbers_of_images_are_in_the_units_of_their_target() {
    let images = |number| ImageEncoding {
        channels: 1,
        size: 8,
        mean: vec![0.5],
        std: vec![0.25],
        resize: Resize::Crop,
        interpolation: Interpolation::Pil,
        classes: vec!["a".to_owned()],
        number,
    };
    let program = of_images(&images(Some(NumberEncoding { mean: 40.5, std: 0.1 })));
    assert!(program.contains("\nTARGET_MEAN = 40.5\nTARGET_STD = 0.1\n"), "{program}");
    assert!(program.contains(" * TARGET_STD + TARGET_MEAN\n") && !program.contains("classes"), "{program}");
    let program = of_images(&images(None));
    assert!(program.contains("classes = ") && !program.contains("TARGET"), "{program}");
}
