//! Components registered by name; each reads the other keys of its table itself.

use crate::registry::Registry;
use data::{DataFacts, DatasetSource, LoaderConfig, TokenizerPlan};
use ddp::{HookKeys, HookSource};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use spec::Fields;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::models::{ModelKind, ModelSource};

/// `[dataset]` without the loader's keys.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    /// Name of the data set in the spec (`dataset.name`).
    pub name: String,
    /// Opens the data set.
    pub source: Arc<dyn DatasetSource>,
    /// What is known of the data set; may be incomplete until it is opened.
    pub facts: DataFacts,
    /// The names of the classes of opened data, by index, if samples are of named classes.
    pub classes: Option<Vec<String>>,
}

/// `[model]`
#[derive(Clone)]
pub struct ModelPlan {
    /// Name of the model in the spec (`model.name`).
    pub name: String,
    /// Builds the model.
    pub source: Arc<dyn ModelSource>,
    /// Weights to start from: a file, a run's folder or a checkpoint; `None` for newly initialised weights.
    pub pretrained: Option<PathBuf>,
    /// Whether every tensor of the model must be in `pretrained` with its shape.
    pub pretrained_strict: bool,
}

/// The keys of `[model]` that all models share.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Pretrained {
    /// PyTorch weights to start from: a `.safetensors`, `.pt`, `.pth`, `.ckpt` or `.bin` file; a folder of Hugging Face, whose config.json also
    /// gives the sizes of a language model or `vit`; or a run's folder or a checkpoint.
    #[schemars(extend("format" = "path"))]
    pretrained: Option<PathBuf>,
    /// Only with `pretrained`. `true`, the default: every tensor of the model must be in the file with its shape; `false`
    /// loads the tensors that fit and lists the others.
    pretrained_strict: Option<bool>,
}

impl fmt::Debug for ModelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelPlan")
            .field("name", &self.name)
            .field("pretrained", &self.pretrained)
            .field("pretrained_strict", &self.pretrained_strict)
            .finish_non_exhaustive()
    }
}

pub(super) fn dataset(root: &mut Fields<'_>, registry: &Registry) -> (Option<DatasetPlan>, LoaderConfig) {
    let mut fields = root.req_section("dataset");
    let kind = fields.kind(registry.dataset_kinds());
    let loader = fields.config();
    let is_tokenized = root.has("tokenizer");
    let tokenizer = TokenizerPlan::read(&mut root.section("tokenizer"), is_tokenized);
    let plan = kind.map(|(name, kind)| {
        let mut source = kind.configure(&mut fields);
        if is_tokenized {
            match source.tokenized(&tokenizer) {
                Some(tokenized) => source = tokenized,
                None => root.problem_with_key(
                    "tokenizer",
                    format!("has no effect: the data set `{name}` is not read as text"),
                ),
            }
        }
        if let (TokenizerPlan::Characters, Some(key)) = (&tokenizer, source.needs_documents()) {
            fields.problem_with_hint(
                key,
                "needs documents, and a text of characters has no token that ends one",
                "set `[tokenizer]`: `kind = \"bytes\"` needs no file",
            );
        }
        DatasetPlan { name: name.to_owned(), facts: source.facts(), source, classes: None }
    });
    (plan, loader)
}

pub(super) fn model(root: &mut Fields<'_>, registry: &Registry, facts: &DataFacts) -> Option<ModelPlan> {
    let mut fields = root.req_section("model");
    let kind = fields.kind(registry.model_kinds());
    let (pretrained, pretrained_strict) = pretrained(&mut fields);
    let (name, kind) = kind?;
    if let Some(folder) = &pretrained {
        inherit_config(folder, &**kind, &mut fields);
    }
    let source = kind.configure(&mut fields, facts);
    Some(ModelPlan { name: name.to_owned(), source, pretrained, pretrained_strict })
}

/// Extensions of weights that are neither safetensors nor PyTorch's.
const FOREIGN: [&str; 9] = ["onnx", "h5", "hdf5", "keras", "pb", "tflite", "npz", "gguf", "msgpack"];

fn pretrained(fields: &mut Fields<'_>) -> (Option<PathBuf>, bool) {
    let Pretrained { pretrained: path, pretrained_strict: strict } = fields.config();
    let Some(path) = path else {
        if !fields.has("pretrained") {
            fields.misplaced(&["pretrained_strict"], "without `pretrained`");
        }
        return (None, true);
    };
    // The format follows from the content: a run's folder may have any name. These are files of other programs.
    if path.extension().is_some_and(|e| FOREIGN.iter().any(|other| e.eq_ignore_ascii_case(other))) {
        let expected = "expected a `.safetensors`, `.pt`, `.pth`, `.ckpt` or `.bin` file, or a folder of Hugging Face or of a run";
        fields.problem("pretrained", expected);
    }
    (Some(path), fields.or_default("pretrained_strict", strict, true))
}

/// The sizes of the model from a folder of Hugging Face.
fn inherit_config(folder: &Path, kind: &dyn ModelKind, fields: &mut Fields<'_>) {
    let path = folder.join("config.json");
    if !path.exists() {
        return;
    }
    let read = std::fs::read(&path).map_err(|e| e.to_string());
    let read =
        read.and_then(|text| serde_json::from_slice::<Map<String, Json>>(&text).map_err(|e| e.to_string()));
    // Our own export has the spec there.
    if read.as_ref().is_ok_and(|config| config.get("model_type").is_some_and(|name| name == "ddp-run")) {
        return;
    }
    match read.and_then(|config| kind.keys_of_config(&config)) {
        Ok(keys) => fields.inherit(keys, path.display().to_string()),
        Err(why) => fields.problem("pretrained", format!("{}: {why}", path.display())),
    }
}

/// The communication hook of this name with its keys; `none` is the plain all-reduce.
pub(super) fn comm_hook(fields: &mut Fields<'_>, name: &str, registry: &Registry) -> Option<HookSource> {
    const NONE: &str = "none";
    const KEYS: &str = "hook";
    fields.config_if::<HookKeys>(false);
    let mut keys = fields.section(KEYS);
    match registry.comm_hook_kind(name) {
        Some(read) if name != NONE => return read(&mut keys),
        None if name != NONE => {
            let known: Vec<&str> = [NONE].into_iter().chain(registry.comm_hook_names()).collect();
            fields.unknown_name("comm_hook", &known);
        }
        _ if fields.has(KEYS) => {
            fields.problem_with_key(KEYS, "has no effect without a hook in `comm_hook`");
        }
        _ => {}
    }
    keys.ignore_rest();
    None
}
