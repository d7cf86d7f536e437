//! A start from PyTorch weights (`model.pretrained`).

use super::messages::tell;
use super::snapshot::batches_tracked;
use crate::plan::ModelPlan;
use base::display;
use base::error::{Error, Result};
use checkpoint::{HubTensor, ModelTensor, StoredMap, StoredTensor, from_hub, match_weights, open_weights};
use record::history::checkpoints;
use std::collections::HashMap;
use std::path::Path;
use train::models::{Model, Role, StateEntry};

/// Loads the weights that the spec names, if any, and prints a line about it.
pub fn start_from_weights(config: &ModelPlan, model: &mut dyn Model, out_dir: &Path) -> Result<()> {
    let Some(path) = &config.pretrained else { return Ok(()) };
    let own = checkpoints(out_dir).canonicalize();
    if own.is_ok_and(|own| path.canonicalize().is_ok_and(|path| path.starts_with(own))) {
        let what = format!(
            "{} is in this run's own folder, which is moved when the run starts over",
            path.display()
        );
        return Err(Error::spec(what)
            .hint("copy the weights elsewhere, or write the run to another folder with `--out DIR`"));
    }
    let hub_tensor = |name: &str| config.source.hub_tensor(name);
    let left_out = load(model, path, config.pretrained_strict, &hub_tensor)?;
    let mut line = format!("starts from the weights in {}", path.display());
    if !left_out.is_empty() {
        line.push_str(&format!("; left out:\n{left_out}"));
    }
    tell(&line);
    Ok(())
}

/// Finds before a start that the weights which the spec names are missing.
///
/// # Errors
/// There is no such file.
pub fn weights_are_there(config: &ModelPlan) -> Result<()> {
    match &config.pretrained {
        Some(path) if !path.exists() => open_weights(path).map(drop),
        _ => Ok(()),
    }
}

/// Loads PyTorch weights with the model's names; returns a description of what was left out, for the log.
pub fn load_pretrained(model: &mut dyn Model, path: &Path, strict: bool) -> Result<String> {
    load(model, path, strict, &HubTensor::same)
}

/// `hub_tensor`: how files of transformers have a tensor.
fn load(
    model: &mut dyn Model,
    path: &Path,
    strict: bool,
    hub_tensor: &dyn Fn(&str) -> HubTensor,
) -> Result<String> {
    let entries = model.entries().to_vec();
    let mut wanted = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        for entry in entry.names() {
            wanted.push(ModelTensor { name: entry.name.clone(), shape: entry.shape.clone(), tensor: number });
            if let Some(name) = batches_tracked(entry) {
                wanted.push(ModelTensor { name, shape: Vec::new(), tensor: entries.len() + number });
            }
        }
    }
    let file = with_present_names(open_weights(path)?, &entries)?;
    let names: Vec<&str> = wanted.iter().map(|tensor| tensor.name.as_str()).collect();
    let file = from_hub(file, &names, hub_tensor)?;
    let matched = match_weights(&wanted, &file, strict).map_err(|e| Error {
        message: format!("model.pretrained = {}: {}", path.display(), e.message),
        ..e
    })?;
    let mut found: HashMap<usize, (StateEntry, &StoredTensor)> = HashMap::new();
    for (name, tensor) in &matched.loaded {
        let named = |entry: &StateEntry| entry.names().find(|e| e.name == *name).cloned();
        let entry = entries.iter().enumerate().find_map(|(number, entry)| Some((number, named(entry)?)));
        found.extend(entry.map(|(number, entry)| (number, (entry, *tensor))));
    }
    // Besides the model, only one tensor is in memory.
    let mut done = Ok(());
    model.edit(&|index| found.contains_key(&index), &mut |index, own| {
        if let Some((entry, tensor)) = found.get(&index).filter(|_| done.is_ok()) {
            done = put(path, entry, tensor, own);
        }
    })?;
    done?;
    Ok(matched.left_out())
}

/// Sets one of the model's tensors, in its layout.
fn put(path: &Path, entry: &StateEntry, tensor: &StoredTensor, own: &mut [f32]) -> Result<()> {
    let read = tensor.read()?;
    let values = read.as_f32();
    check_finite(path, entry, &values)?;
    own.copy_from_slice(&entry.of_dict(&values));
    Ok(())
}

/// A run from such weights would end at its first step, without a word about them. Buffers may be infinite, such as a mask.
fn check_finite(path: &Path, entry: &StateEntry, values: &[f32]) -> Result<()> {
    let is_buffer = !matches!(entry.role, Role::Parameter | Role::Statistic);
    let wrong = |x: &&f32| x.is_nan() || x.is_infinite() && !is_buffer;
    let Some(first) = values.iter().find(wrong) else { return Ok(()) };
    let (count, all) = (values.iter().filter(wrong).count(), values.len());
    Err(Error::data(format!(
        "model.pretrained = {}: {count} of the {all} values of tensor `{}` are not finite, such as {first}",
        path.display(),
        display::name(&entry.name)
    )))
}

/// The file with the names and layouts that the model has: torchvision's published vision transformers were saved when the layers of
/// their MLPs had other names (`MLPBlock._load_from_state_dict` does the same); Hugging Face's GPT-2 has other names, and transposed
/// matrices.
fn with_present_names(file: StoredMap, entries: &[StateEntry]) -> Result<StoredMap> {
    let file = with_linear_layouts(file, entries)?;
    let belongs = |name: &str| entries.iter().any(|entry| name.ends_with(&entry.name));
    let present = |name: &str| {
        // Files of a language model without its head, such as the published GPT-2.
        let within = ["transformer.", "model."].map(|module| format!("{module}{name}"));
        let within = within.into_iter().find(|name| entries.iter().any(|entry| entry.name == *name));
        if let Some(within) = within.filter(|within| !belongs(name) && file.get(within).is_none()) {
            return Some(within);
        }
        let replaced = OTHER_NAMES.iter().fold(name.to_owned(), |name, (old, new)| name.replace(old, new));
        let present = replaced.strip_prefix("transformer.").unwrap_or(&replaced).to_owned();
        (present != name && belongs(&present) && file.get(&present).is_none()).then_some(present)
    };
    let names: Vec<Option<String>> = file.iter().map(|tensor| present(&tensor.name)).collect();
    let named = file.into_tensors().into_iter().zip(names).map(|(mut tensor, name)| {
        tensor.name = name.unwrap_or(tensor.name);
        tensor
    });
    without_copies(StoredMap::from_tensors(named)?, entries)
}

/// Without what files of Hugging Face may have beside the parameters of a language model: the head of one that is the embedding, the
/// frequencies of rotary positions and the masks of GPT-2.
fn without_copies(file: StoredMap, entries: &[StateEntry]) -> Result<StoredMap> {
    const EMBEDDINGS: [&str; 2] = ["model.embed_tokens.weight", "transformer.wte.weight"];
    const HEAD: &str = "lm_head.weight";
    const CONSTANTS: [&str; 3] = [".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"];
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let Some(embedding) = EMBEDDINGS.into_iter().find(|name| has(name)) else { return Ok(file) };
    let is_copy = match (file.get(HEAD), file.get(embedding)) {
        (Some(head), Some(embedding)) if !has(HEAD) => {
            let alike = (&head.shape, head.dtype) == (&embedding.shape, embedding.dtype);
            alike && head.read()?.bytes == embedding.read()?.bytes
        }
        _ => false,
    };
    let is_needed = |name: &str| {
        let belongs = entries.iter().any(|entry| name.ends_with(&entry.name));
        let is_constant = CONSTANTS.iter().any(|end| name.ends_with(end)) && !belongs;
        !(is_copy && name == HEAD || is_constant)
    };
    StoredMap::from_tensors(file.into_tensors().into_iter().filter(|tensor| is_needed(&tensor.name)))
}

/// Parts of names, as files have them and as the models here do.
const OTHER_NAMES: [(&str, &str); 4] = [
    (".mlp.linear_1.", ".mlp.0."),
    (".mlp.linear_2.", ".mlp.3."),
    (".mlp.c_fc.", ".fc."),
    (".mlp.c_proj.", ".proj."),
];

/// The linear layers of GPT-2 (`Conv1D` of the `transformers` library) are `[in, out]`. The projection to queries, keys and values shows
/// it: it has three times as many outputs as inputs. That of the attention's results is square, and would be loaded as it is.
fn with_linear_layouts(file: StoredMap, entries: &[StateEntry]) -> Result<StoredMap> {
    let is_wide = |shape: &[usize]| matches!(shape, [inputs, outputs] if *outputs == 3 * inputs);
    let qkv = |name: &str| name.ends_with(".c_attn.weight");
    let in_file = file.iter().any(|tensor| qkv(&tensor.name) && is_wide(&tensor.shape));
    if !in_file || entries.iter().any(|entry| qkv(&entry.name) && is_wide(&entry.shape)) {
        return Ok(file);
    }
    let linear = [".c_attn.weight", ".c_proj.weight", ".c_fc.weight"];
    StoredMap::from_tensors(file.into_tensors().into_iter().map(|tensor| {
        match linear.iter().any(|end| tensor.name.ends_with(end)) {
            true => tensor.transposed(),
            false => tensor,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;
    use checkpoint::{TensorData, TensorMap};
    use train::models::Layout;

    #[test]
    fn torchvisions_published_vision_transformers_get_the_present_names() {
        let entry = |name: &str| entry(name, &[1], Role::Parameter);
        let entries =
            ["encoder.layers.encoder_layer_0.mlp.0.bias", "encoder.layers.encoder_layer_0.mlp.3.bias"];
        let entries = entries.map(entry);
        let present = |names: &[&str]| -> Vec<String> {
            let tensor = |name: &&str| TensorData::from_f32(*name, vec![1], &[1.0]).unwrap();
            let file = TensorMap::from_tensors(names.iter().map(tensor)).unwrap();
            let file = with_present_names(file, &entries).unwrap();
            assert!(file.iter().all(|tensor| file.get(&tensor.name) == Some(tensor)));
            file.iter().map(|tensor| tensor.name.clone()).collect()
        };
        let block = "module.encoder.layers.encoder_layer_0.mlp";
        let (first, second) = (format!("{block}.linear_1.bias"), format!("{block}.linear_2.bias"));
        let now = [format!("{block}.0.bias"), format!("{block}.3.bias")];
        assert_eq!(present(&[&first, &second]), now);
        assert_eq!(
            present(&[&now[0], &now[1], "x.mlp.linear_1.bias"]),
            [&now[0], &now[1], "x.mlp.linear_1.bias"]
        );
        // Both names: neither is lost.
        assert_eq!(present(&[&first, &now[0]]), [first.as_str(), now[0].as_str()]);
    }

    /// With all values.
    fn with_present_names(file: TensorMap, entries: &[StateEntry]) -> Result<TensorMap> {
        super::with_present_names(file.into(), entries)?.read()
    }

    fn entry(name: &str, shape: &[usize], role: Role) -> StateEntry {
        StateEntry {
            name: name.to_owned(),
            shape: shape.to_vec(),
            role,
            layout: Layout::Same,
            aliases: Vec::new(),
        }
    }

    /// GPT-2's file as Hugging Face has it: `y = x @ w + b`, where PyTorch's linear layer is `y = x @ w.T + b`.
    #[test]
    fn matrices_of_gpt_2_are_transposed_and_have_the_names_of_the_model() {
        let shapes: [(&str, &[usize]); 4] = [
            ("h.0.attn.c_attn.weight", &[6, 2]),
            ("h.0.attn.c_proj.weight", &[2, 2]),
            ("h.0.fc.weight", &[8, 2]),
            ("h.0.proj.weight", &[2, 8]),
        ];
        let entries = shapes.map(|(name, shape)| entry(name, shape, Role::Parameter));
        let numbers = |n: usize| (0..n).map(|i| i as f32).collect::<Vec<f32>>();
        for prefix in ["", "transformer."] {
            let tensor = |(name, shape): (&str, &[usize])| {
                let count = shape.iter().product();
                TensorData::from_f32(format!("{prefix}h.0.{name}"), shape.to_vec(), &numbers(count)).unwrap()
            };
            let file: [(&str, &[usize]); 4] = [
                ("attn.c_attn.weight", &[2, 6]),
                ("attn.c_proj.weight", &[2, 2]),
                ("mlp.c_fc.weight", &[2, 8]),
                ("mlp.c_proj.weight", &[8, 2]),
            ];
            let read =
                with_present_names(TensorMap::from_tensors(file.map(tensor)).unwrap(), &entries).unwrap();
            for (name, shape) in shapes {
                assert_eq!(read.get(name).unwrap_or_else(|| panic!("{prefix}{name}")).shape, shape);
            }
            assert_eq!(read.get("h.0.attn.c_proj.weight").unwrap().to_f32_vec(), [0.0, 2.0, 1.0, 3.0]);
            assert_eq!(read.get("h.0.attn.c_attn.weight").unwrap().to_f32_vec()[..4], [0.0, 6.0, 1.0, 7.0]);
        }
        // nanoGPT's have the layout of linear layers.
        let own = shapes.map(|(name, shape)| {
            let count = shape.iter().product();
            TensorData::from_f32(name, shape.to_vec(), &numbers(count)).unwrap()
        });
        let own = TensorMap::from_tensors(own).unwrap();
        assert_eq!(with_present_names(own.clone(), &entries).unwrap(), own);
    }

    #[test]
    fn a_head_that_is_the_embedding_and_frequencies_are_left_out_for_a_tied_llama() {
        let tensor = |name: &str, value: f32| TensorData::from_f32(name, vec![1], &[value]).unwrap();
        let names = |head: f32, entries: &[StateEntry]| -> Vec<String> {
            let file = [
                tensor("model.embed_tokens.weight", 1.0),
                tensor("model.layers.0.self_attn.rotary_emb.inv_freq", 1.0),
                tensor("lm_head.weight", head),
            ];
            let file = with_present_names(TensorMap::from_tensors(file).unwrap(), entries).unwrap();
            file.iter().map(|tensor| tensor.name.clone()).collect()
        };
        let parameter = |name| entry(name, &[1], Role::Parameter);
        let tied = [parameter("model.embed_tokens.weight")];
        assert_eq!(names(1.0, &tied), ["model.embed_tokens.weight"]);
        // Of the model without its head.
        let body = TensorMap::from_tensors([tensor("embed_tokens.weight", 1.0)]).unwrap();
        assert!(with_present_names(body, &tied).unwrap().get("model.embed_tokens.weight").is_some());
        // Another head would be lost.
        assert_eq!(names(2.0, &tied), ["model.embed_tokens.weight", "lm_head.weight"]);
        let apart = [parameter("model.embed_tokens.weight"), parameter("lm_head.weight")];
        assert_eq!(names(1.0, &apart), ["model.embed_tokens.weight", "lm_head.weight"]);
        assert_eq!(names(1.0, &[parameter("lm_head.weight")]).len(), 3);
    }

    /// What a model of one's own calls as files of Hugging Face call other things.
    #[test]
    fn tensors_that_the_model_has_by_their_names_stay() {
        let tensor = |name: &str| TensorData::from_f32(name, vec![1], &[1.0]).unwrap();
        let names = ["fc.weight", "model.fc.weight", "model.embed_tokens.weight", "h.0.attn.bias"];
        let entries = names.map(|name| entry(name, &[1], Role::Parameter));
        for file in [&names[..], &names[..1]] {
            let read = TensorMap::from_tensors(file.iter().map(|name| tensor(name))).unwrap();
            let found = with_present_names(read, &entries).unwrap();
            assert_eq!(found.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), file);
        }
    }

    /// The names of openai-community/gpt2.
    #[test]
    fn the_published_gpt_2_gets_the_names_of_transformers() {
        let names = [
            "wte.weight",
            "h.0.attn.bias",
            "h.0.attn.masked_bias",
            "h.0.attn.c_attn.bias",
            "h.0.mlp.c_fc.bias",
        ];
        let tensor = |name: &str| TensorData::from_f32(name, vec![1], &[1.0]).unwrap();
        let kept =
            ["transformer.wte.weight", "transformer.h.0.attn.c_attn.bias", "transformer.h.0.mlp.c_fc.bias"];
        let entries = kept.map(|name| entry(name, &[1], Role::Parameter));
        let file = TensorMap::from_tensors(names.map(tensor)).unwrap();
        let found = with_present_names(file, &entries).unwrap();
        assert_eq!(found.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), kept);
        // With the head's module, and the head.
        let whole = kept.iter().copied().chain(["lm_head.weight"]).map(tensor);
        let found = with_present_names(TensorMap::from_tensors(whole).unwrap(), &entries).unwrap();
        assert_eq!(found.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), kept);
    }

    #[test]
    fn weights_that_are_not_finite_are_refused_by_name() {
        let path = Path::new("w.pt");
        let check = |role, value| check_finite(path, &entry("fc.weight", &[2], role), &[1.0, value]);
        let error = check(Role::Parameter, f32::NAN).unwrap_err();
        let expected =
            "model.pretrained = w.pt: 1 of the 2 values of tensor `fc.weight` are not finite, such as NaN";
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Spec, expected));
        check(Role::Statistic, f32::INFINITY).unwrap_err();
        check(Role::Buffer, f32::NAN).unwrap_err();
        check(Role::Buffer, f32::NEG_INFINITY).unwrap();
        check(Role::Parameter, 1.0).unwrap();
    }
}
