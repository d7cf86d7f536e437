//! The model card, `README.md`: what the hub reads in its front matter, and what people read.

use super::Exported;
use super::loading::Loading;
use base::display;
use base::numbers::metric_words;
use checkpoint::TensorMap;
use data::{DataFacts, Encoding, TableEncoding, TargetEncoding};
use record::provenance::{self, Provenance, Versions};
use serde_json::{Map, Value, json};
use std::fmt::Write;

pub(super) fn card(exported: &Exported, weights: &TensorMap) -> String {
    let used = &exported.used;
    let (plan, state) = (&used.plan, &used.loaded.state);
    let numbers: usize = weights.iter().map(|tensor| tensor.len()).sum();
    let average = if exported.averaged { " Its weights are averaged (`[ema]`)." } else { "" };
    let mut out = front_matter(exported);
    out += &format!("# {}\n\n", display::piece(&plan.name));
    out += &format!(
        "A `{}` for {}, trained on `{}` with ddp-run: {numbers} numbers in {}.{average}\n\n",
        plan.model.name,
        kind(exported).1,
        plan.dataset.name,
        display::count(weights.len(), "tensor")
    );
    out += "## Measured\n\n";
    out += &measured(exported);
    out += "\n## Use\n\n";
    out += &usage(exported, weights);
    out += "\n## Training\n\n";
    out += &format!(
        "* Checkpoint: step {}, after {}, {} samples\n* Data set: `{}`{}\n* Processes: {}; seed {}\n",
        state.global_step,
        display::count(state.epochs_completed, "epoch"),
        state.samples_seen,
        plan.dataset.name,
        sizes(&used.usage.facts),
        state.world,
        state.seed
    );
    out += &provenance_lines(exported);
    let spec = plan.results_toml();
    // A text in the spec may have backticks.
    let longest = spec.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let _ =
        write!(out, "\nWhat results depend on, of the job:\n\n{fence}toml\n{}\n{fence}\n", spec.trim_end());
    out
}

/// The hub's name of the task, and its description.
fn kind(exported: &Exported) -> (&'static str, &'static str) {
    match &exported.used.usage.encoding {
        Some(Encoding::Images(images)) if images.number.is_some() => ("other", "numbers of images"),
        Some(Encoding::Images(_)) => ("image-classification", "classes of images"),
        Some(Encoding::Text(text)) if text.tokenizer.characters().is_none() => {
            ("text-generation", "the next token of texts")
        }
        Some(Encoding::Text(_)) => ("text-generation", "the next character of texts"),
        Some(Encoding::Table(TableEncoding { target: TargetEncoding::Class { .. }, .. })) => {
            ("tabular-classification", "classes of rows of a table")
        }
        Some(Encoding::Table(_)) => ("tabular-regression", "numbers of rows of a table"),
        None => ("other", "a user-defined task"),
    }
}

/// YAML. JSON's strings are YAML's.
fn front_matter(exported: &Exported) -> String {
    let (plan, (task, _)) = (&exported.used.plan, kind(exported));
    let mut out = String::from("---\nlibrary_name: ddp-run\n");
    if task != "other" {
        out += &format!("pipeline_tag: {task}\n");
    }
    out += &format!("tags:\n- ddp-run\n- burn\n- {}\n", json!(plan.model.name));
    let results: Vec<String> = splits(exported)
        .filter_map(|(split, metrics)| {
            let metric = |(name, value): (&str, f64)| {
                format!("    - type: {}\n      value: {}\n", json!(name), yaml_number(value))
            };
            let metrics: String = numbers(exported, metrics).map(metric).collect();
            (!metrics.is_empty()).then(|| format!(
                "  - task:\n      type: {task}\n    dataset:\n      name: {name}\n      type: {name}\n      split: {split}\n    \
                 metrics:\n{metrics}",
                name = json!(plan.dataset.name)
            ))
        })
        .collect();
    if !results.is_empty() {
        out += &format!("model-index:\n- name: {}\n  results:\n{}", json!(plan.name), results.concat());
    }
    out + "---\n\n"
}

/// A number that YAML 1.1 has, which the hub's library reads: `1e-7` is a text there, and `1e+16` is one.
fn yaml_number(value: f64) -> String {
    let text = json!(value).to_string();
    let Some((digits, power)) = text.split_once('e') else { return text };
    let point = if digits.contains('.') { "" } else { ".0" };
    let sign = if power.starts_with(['-', '+']) { "" } else { "+" };
    format!("{digits}{point}e{sign}{power}")
}

/// The splits other than that of training, with their metrics.
fn splits(exported: &Exported) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    let all = exported.metrics().into_iter().flatten();
    all.filter(|(split, _)| *split != "train")
        .filter_map(|(split, metrics)| Some((split.as_str(), metrics.as_object()?)))
}

/// The metrics that are finite and say something of this model, without the number of samples. Checkpoints have all of them.
fn numbers<'a>(
    exported: &Exported,
    metrics: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'a str, f64)> + use<'a> {
    let encoding = exported.used.usage.encoding.as_ref();
    let is_text = matches!(encoding, None | Some(Encoding::Text(_)));
    let few = encoding.and_then(Encoding::classes).is_some_and(|classes| classes.len() <= 5);
    let finite = |value: &Value| value.as_f64().filter(|x| x.is_finite());
    metrics
        .iter()
        .filter(move |(name, _)| match name.as_str() {
            "n" => false,
            "perplexity" => is_text,
            "top5" => !few,
            _ => true,
        })
        .filter_map(move |(name, value)| Some((name.as_str(), finite(value)?)))
}

fn measured(exported: &Exported) -> String {
    let all: Vec<(&String, &Map<String, Value>)> = exported
        .metrics()
        .into_iter()
        .flatten()
        .filter_map(|(split, metrics)| Some((split, metrics.as_object()?)))
        .collect();
    if all.is_empty() {
        return "Nothing was measured with these weights; `ddp-run eval` measures a checkpoint.\n".to_owned();
    }
    let mut out = String::from("| split | samples | metric | value |\n|---|---|---|---|\n");
    for (split, metrics) in all {
        let samples = metrics.get("n").and_then(Value::as_f64).unwrap_or(0.0);
        for (name, value) in numbers(exported, metrics) {
            let _ = writeln!(out, "| {split} | {samples} | {name} | {} |", metric_words(name, value));
        }
    }
    if exported.metrics().is_some_and(|all| all.contains_key("train")) {
        out += "\n`train` is over the last epoch of training, while the weights changed.\n";
    }
    out
}

fn usage(exported: &Exported, weights: &TensorMap) -> String {
    let plan = &exported.used.plan;
    let shapes = weights.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice())).collect();
    let (name, table) = (plan.model.name.as_str(), plan.table("model"));
    // What a user-defined transform does to inputs is not known here.
    let encoding = exported.used.usage.encoding.as_ref().filter(|_| plan.transforms.is_empty());
    let facts = &exported.used.usage.facts;
    let class = exported.published.as_ref().and_then(|config| config["architectures"][0].as_str());
    let program = Loading { name, class, table: &table, facts, encoding, shapes: &shapes }.program();
    let mut out = String::new();
    match &program {
        Some(program) => {
            let others = ["torchvision", "tokenizers", "transformers"]
                .into_iter()
                .filter(|name| program.contains(name));
            let others: String = others.map(|name| format!(", `{name}`")).collect();
            let _ = write!(
                out,
                "This program loads the {}{}. It needs `torch`{others} and `safetensors`.{}\n\n```python\n{program}```\n\n",
                if class.is_some() { "model" } else { "weights, a PyTorch state dict" },
                if encoding.is_some() { ", and predicts as `ddp-run predict` does" } else { "" },
                arguments(encoding)
            );
        }
        None => {
            let _ = write!(
                out,
                "The weights are a PyTorch state dict; `{}` is a model of the program that trained it, which does not say how \
                 PyTorch builds it:\n\n```python\nfrom safetensors.torch import load_file\n\nstate = load_file(\"model.safetensors\")\n```\n\n",
                display::piece(name)
            );
        }
    }
    if !plan.transforms.is_empty() {
        out += "Inputs pass through the `[[transform]]`s of the job, functions of the program that trained it, which are not part of this \
                folder.\n\n";
    }
    out += match (&exported.published, &exported.used.usage.encoding) {
        (Some(_), Some(Encoding::Text(text))) if text.tokenizer.json().is_some() => {
            "`AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained` of the `transformers` library load this folder."
        }
        (Some(_), Some(Encoding::Text(_))) => {
            "`AutoModelForCausalLM.from_pretrained` of the `transformers` library loads this folder; the tokens are those of the program above."
        }
        (Some(_), Some(Encoding::Images(_))) => {
            "`AutoModelForImageClassification.from_pretrained` of the `transformers` library loads this folder."
        }
        (Some(_), _) => "`from_pretrained` of the `transformers` library loads this folder.",
        (None, _) => {
            "The `transformers` library does not know the `model_type` in `config.json`, `ddp-run`: `AutoModel.from_pretrained` refuses this folder."
        }
    };
    if let Some(Encoding::Images(images)) = &exported.used.usage.encoding {
        if let (Some(_), Some(number)) = (&exported.published, images.number) {
            let _ = write!(
                out,
                " What it computes are not the numbers themselves: these are {} times that, plus {}.",
                number.std, number.mean
            );
        }
        out += match images.channels {
            1 => {
                " `AutoImageProcessor.from_pretrained` reads `preprocessor_config.json`, but makes colours of every image, and the model takes grey ones."
            }
            _ => " `AutoImageProcessor.from_pretrained` reads `preprocessor_config.json`.",
        };
    }
    out += " `config.json` has the model's table, the names of its classes and how inputs become samples. A job of ddp-run starts from the weights by \
            `[model] pretrained = \"DIR\"`, this folder.\n";
    out
}

/// What the program takes.
fn arguments(encoding: Option<&Encoding>) -> &'static str {
    match encoding {
        Some(Encoding::Images(_)) => " Its arguments are PNG and JPEG files.",
        Some(Encoding::Table(_)) => " Its arguments are text files with a header.",
        Some(Encoding::Text(_)) => " Its arguments are beginnings of texts.",
        None => "",
    }
}

fn sizes(facts: &DataFacts) -> String {
    let of = |n: Option<usize>, split: &str| n.map(|n| format!("{n} {split}"));
    let sizes =
        [of(facts.train, "for training"), of(facts.val, "for validation"), of(facts.test, "for tests")];
    let sizes: Vec<String> = sizes.into_iter().flatten().collect();
    if sizes.is_empty() { String::new() } else { format!(" ({})", sizes.join(", ")) }
}

/// Commit and versions of the run, as far as its folder tells; those of this program otherwise.
fn provenance_lines(exported: &Exported) -> String {
    let file = exported.used.run().map(|run| run.join("run.json"));
    let found: Option<Provenance> =
        file.and_then(|file| provenance::read(&file).ok()).map(|file| file.latest);
    let versions = |v: &Versions| {
        let rustc = v.rustc.as_ref().map_or_else(String::new, |rustc| format!(", {rustc}"));
        format!("ddp-run {}, Burn {}{rustc}", v.ddp_run, v.burn)
    };
    let mut out = String::new();
    if let Some(run) = &found {
        if let Some(git) = &run.git {
            let dirty = if git.dirty == Some(true) { ", with changes" } else { "" };
            let _ = writeln!(out, "* Commit: {}{dirty}", git.commit);
        }
        let _ = writeln!(out, "* Trained with: {}", versions(&run.versions));
        let _ = writeln!(
            out,
            "* Devices: {}; backend {}; started {}",
            run.devices.join(", "),
            run.backend,
            run.started
        );
    }
    let _ = writeln!(out, "* Exported with: {}", versions(&job::versions::here()));
    let _ = writeln!(out, "* Hash of the job: {}", exported.used.loaded.state.spec_hash);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_yaml_1_1() {
        for (value, expected) in [
            (1e-7, "1.0e-7"),
            (7.25e-7, "7.25e-7"),
            (1e16, "1.0e+16"),
            (0.5, "0.5"),
            (1.0, "1.0"),
            (-3e-9, "-3.0e-9"),
        ] {
            assert_eq!(yaml_number(value), expected);
        }
    }
}
