//! A start from PyTorch weights (`model.pretrained`).

use super::messages::tell;
use super::snapshot::batches_tracked;
use super::state::put;
use crate::checkpoint::{ModelTensor, TensorMap, match_weights, read_weights};
use crate::error::{Error, Result};
use crate::history::checkpoints;
use crate::models::{Model, StateEntry};
use crate::plan::ModelPlan;
use std::path::Path;

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
    let left_out = load_pretrained(model, path, config.pretrained_strict)?;
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
        Some(path) if !path.exists() => read_weights(path).map(drop),
        _ => Ok(()),
    }
}

/// Loads PyTorch weights; returns a description of what was left out, for the log.
pub fn load_pretrained(model: &mut dyn Model, path: &Path, strict: bool) -> Result<String> {
    let entries = model.entries().to_vec();
    let file = with_present_names(read_weights(path)?, &entries)?;
    let mut wanted = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        for entry in entry.names() {
            wanted.push(ModelTensor { name: entry.name.clone(), shape: entry.shape.clone(), tensor: number });
            if let Some(name) = batches_tracked(entry) {
                wanted.push(ModelTensor { name, shape: Vec::new(), tensor: entries.len() + number });
            }
        }
    }
    let matched = match_weights(&wanted, &file, strict)
        .map_err(|e| Error::data(format!("model.pretrained = {}: {}", path.display(), e.message)))?;
    let mut values = vec![None; entries.len()];
    for (name, tensor) in &matched.loaded {
        let named = |entry: &StateEntry| entry.names().find(|e| e.name == *name).cloned();
        let found = entries.iter().enumerate().find_map(|(number, entry)| Some((number, named(entry)?)));
        if let Some((number, entry)) = found {
            values[number] = Some(entry.of_dict(&tensor.as_f32()));
        }
    }
    put(model, values)?;
    Ok(matched.left_out())
}

/// The file with torchvision's present names: its published vision transformers were saved when the layers of their MLPs
/// had others (`MLPBlock._load_from_state_dict` does the same).
fn with_present_names(file: TensorMap, entries: &[StateEntry]) -> Result<TensorMap> {
    let present = |name: &str| {
        let present = name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.");
        let of_the_model = entries.iter().any(|entry| present.ends_with(&entry.name));
        (of_the_model && file.get(&present).is_none()).then_some(present)
    };
    let names: Vec<Option<String>> = file.iter().map(|tensor| present(&tensor.name)).collect();
    TensorMap::from_tensors(file.into_tensors().into_iter().zip(names).map(|(mut tensor, name)| {
        tensor.name = name.unwrap_or(tensor.name);
        tensor
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TensorData;
    use crate::models::{Layout, Role};

    #[test]
    fn torchvisions_published_vision_transformers_get_the_present_names() {
        let entry = |name: &str| StateEntry {
            name: name.to_owned(),
            shape: vec![1],
            role: Role::Parameter,
            layout: Layout::Same,
            aliases: Vec::new(),
        };
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
}
