//! Matches the tensors of a weight file with those of a model, and lists what is left on either side.

use std::collections::{BTreeMap, HashSet};

use super::stored::{StoredMap, StoredTensor};
use base::display;
use base::error::{Error, Result};

/// Keys under which PyTorch programs store a model's weights: checkpoint dictionaries, the wrappers of DDP and
/// `torch.compile`, Lightning's attribute.
const WRAPPERS: [&str; 6] = ["state_dict", "model_state_dict", "model", "module", "_orig_mod", "net"];

/// A file's tensors, matched with the model's names.
#[derive(Debug, Default)]
pub struct Matched<'a> {
    /// The model's name and its tensor, in the model's order, with the file's element types.
    pub loaded: Vec<(String, &'a StoredTensor)>,
    /// Names of the model that are not in the file; these tensors keep their initial values.
    pub missing: Vec<String>,
    /// Names in the file (as written there) that the model does not have.
    pub(crate) unexpected: Vec<String>,
    /// Tensors in both with different shapes; not loaded.
    pub(crate) mismatched: Vec<Mismatch>,
}

/// A tensor whose shape in the file differs from the model's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub name: String,
    pub model: Vec<usize>,
    pub file: Vec<usize>,
}

/// A tensor of the model under one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTensor {
    /// One of the tensor's names, as in PyTorch's state dict.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The same number for all names of one tensor; the file needs only one of them.
    pub tensor: usize,
}

/// Finds the file's tensor for each tensor of the model. A wrapper's prefix (`module.`, `state_dict.`, …) is removed if
/// more names match without it; tensors outside the prefix (an optimizer's state) are then ignored.
///
/// # Errors
/// `ErrorKind::Spec` if nothing matches. With `strict`, also if a tensor is missing, unexpected or
/// of another shape (`num_batches_tracked` may be missing, as in PyTorch: files from before version
/// 0.4.1 have none).
pub fn match_weights<'a>(model: &[ModelTensor], file: &'a StoredMap, strict: bool) -> Result<Matched<'a>> {
    let prefix = wrapper_prefix(model, file);
    let mut found = Matched::default();
    let in_file = |name: &str| file.get(&format!("{prefix}{name}"));
    let found_tensors: HashSet<usize> =
        model.iter().filter(|w| in_file(&w.name).is_some()).map(|w| w.tensor).collect();
    for ModelTensor { name, shape, tensor } in model {
        match in_file(name) {
            None if found_tensors.contains(tensor) => {}
            None => found.missing.push(name.clone()),
            Some(t) if same_shape(&t.shape, shape) => found.loaded.push((name.clone(), t)),
            Some(t) => found.mismatched.push(Mismatch {
                name: name.clone(),
                model: shape.clone(),
                file: t.shape.clone(),
            }),
        }
    }
    let known: HashSet<&str> = model.iter().map(|w| w.name.as_str()).collect();
    let inside =
        file.iter().filter(|t| t.name.strip_prefix(&prefix).is_some_and(|name| !known.contains(name)));
    found.unexpected = inside.map(|t| t.name.clone()).collect();
    if found.loaded.is_empty() && !model.is_empty() {
        return Err(nothing_matches(model, file, &found));
    }
    if strict && !found.is_exact() {
        let what = format!("the weights do not match the model exactly:\n{}", found.left_out());
        return Err(Error::data(what).hint(match found.mismatched.is_empty() {
            true => "`pretrained_strict = false` loads the tensors that are in both",
            false => {
                "`pretrained_strict = false` loads the tensors that fit, and the others start anew, such as the head of other classes"
            }
        }));
    }
    found.check_layouts()?;
    Ok(found)
}

impl Matched<'_> {
    fn is_exact(&self) -> bool {
        let missing = self.missing.iter().any(|name| !name.ends_with("num_batches_tracked"));
        !missing && self.unexpected.is_empty() && self.mismatched.is_empty()
    }

    /// Where matrices of the file have rows and columns exchanged, nobody can see it of the square ones.
    fn check_layouts(&self) -> Result<()> {
        let reversed = |m: &&Mismatch| m.file.len() == 2 && m.file.iter().rev().eq(&m.model);
        let square = |(_, t): &&(String, &StoredTensor)| {
            t.shape.len() == 2 && t.shape[0] == t.shape[1] && t.shape[0] > 1
        };
        let (Some(reversed), Some((square, _))) =
            (self.mismatched.iter().find(reversed), self.loaded.iter().find(square))
        else {
            return Ok(());
        };
        let what = format!(
            "the file has `{}` with rows and columns exchanged ({}, in the model {}), so its square matrices, such as `{}`, \
             are probably exchanged too",
            display::name(&reversed.name),
            display::shape(&reversed.file),
            display::shape(&reversed.model),
            display::name(square)
        );
        Err(Error::data(what)
            .hint("transpose the weights of its linear layers, as PyTorch's `nn.Linear` has them: [out, in]"))
    }

    /// What was not loaded, in a few lines for the user; empty if everything was.
    pub fn left_out(&self) -> String {
        let mut lines = Vec::new();
        let mut list = |what: &str, names: Vec<String>| {
            if !names.is_empty() {
                let more =
                    if names.len() > 8 { format!(", … ({} in all)", names.len()) } else { String::new() };
                let first: Vec<String> = names.iter().take(8).map(|name| display::name(name)).collect();
                lines.push(format!("  {what}: {}{more}", first.join(", ")));
            }
        };
        list("not in the file", self.missing.clone());
        list("not in the model", self.unexpected.clone());
        let shapes = |m: &Mismatch| {
            format!("{} (model {}, file {})", m.name, display::shape(&m.model), display::shape(&m.file))
        };
        list("of another shape", self.mismatched.iter().map(shapes).collect());
        lines.join("\n")
    }
}

fn nothing_matches(model: &[ModelTensor], file: &StoredMap, found: &Matched<'_>) -> Error {
    let names = |names: &mut dyn Iterator<Item = &str>| {
        names.take(4).map(display::name).collect::<Vec<_>>().join(", ")
    };
    let why = match found.mismatched.is_empty() {
        true => "no tensor name in the file occurs in the model".to_owned(),
        false => found.left_out(),
    };
    Error::data(format!(
        "none of the file's {} tensors fits the model: {why}\n  the model has: {}, …\n  the file has: {}, …",
        file.len(),
        names(&mut model.iter().map(|w| w.name.as_str())),
        names(&mut file.iter().map(|t| t.name.as_str())),
    ))
}

/// A one-element tensor may be a scalar in PyTorch and a vector here.
fn same_shape(a: &[usize], b: &[usize]) -> bool {
    a == b || (a.iter().chain(b).all(|&d| d == 1) && a.len().max(b.len()) <= 1)
}

/// The wrapper prefix with which most of the model's names are found; of equally good ones the shortest.
fn wrapper_prefix(model: &[ModelTensor], file: &StoredMap) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let known: HashSet<&str> = model.iter().map(|w| w.name.as_str()).collect();
    for t in file {
        let mut prefix = 0;
        loop {
            if known.contains(&t.name[prefix..]) {
                *counts.entry(t.name[..prefix].to_owned()).or_default() += 1;
            }
            match t.name[prefix..].split_once('.') {
                Some((key, _)) if WRAPPERS.contains(&key) => prefix += key.len() + 1,
                _ => break,
            }
        }
    }
    let best = counts.iter().max_by_key(|(prefix, n)| (**n, std::cmp::Reverse(prefix.len())));
    best.map(|(prefix, _)| prefix.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TensorData, TensorMap};

    fn file(tensors: &[(&str, &[usize])]) -> StoredMap {
        let make = |&(name, shape): &(&str, &[usize])| {
            TensorData::from_f32(name, shape.to_vec(), &vec![0.0; shape.iter().product()]).unwrap()
        };
        TensorMap::from_tensors(tensors.iter().map(make)).unwrap().into()
    }

    fn wanted(tensors: &[(&str, &[usize], usize)]) -> Vec<ModelTensor> {
        let one = |&(name, shape, tensor): &(&str, &[usize], usize)| ModelTensor {
            name: name.to_owned(),
            shape: shape.to_vec(),
            tensor,
        };
        tensors.iter().map(one).collect()
    }

    fn model() -> Vec<ModelTensor> {
        wanted(&[("conv.weight", &[2, 3], 0), ("fc.weight", &[4], 1), ("bn.num_batches_tracked", &[1], 2)])
    }

    #[test]
    fn one_name_of_a_tied_tensor_is_enough() {
        let tied = wanted(&[("wte.weight", &[2, 3], 0), ("head.weight", &[2, 3], 0), ("head.bias", &[2], 1)]);
        for names in [&["wte.weight"][..], &["head.weight"], &["head.weight", "wte.weight"]] {
            let weights: Vec<(&str, &[usize])> = names.iter().map(|n| (*n, &[2, 3][..])).collect();
            let f = file(&[&weights[..], &[("head.bias", &[2])]].concat());
            let m = match_weights(&tied, &f, true).unwrap();
            assert_eq!(m.loaded.len(), names.len() + 1);
        }
        let e = match_weights(&tied, &file(&[("head.bias", &[2])]), true).unwrap_err();
        assert!(e.message.contains("not in the file: wte.weight, head.weight"), "{e}");
    }

    #[test]
    fn matches_an_exact_file_in_the_models_order() {
        let f = file(&[("bn.num_batches_tracked", &[]), ("fc.weight", &[4]), ("conv.weight", &[2, 3])]);
        let m = match_weights(&model(), &f, true).unwrap();
        let names: Vec<&str> = m.loaded.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["conv.weight", "fc.weight", "bn.num_batches_tracked"]);
        assert_eq!(m.left_out(), "");
    }

    #[test]
    fn lists_unmatched_tensors_of_a_partial_file() {
        let f = file(&[("conv.weight", &[2, 3]), ("fc.weight", &[9]), ("head.bias", &[1])]);
        let m = match_weights(&model(), &f, false).unwrap();
        assert_eq!(m.loaded.len(), 1);
        assert_eq!(
            m.left_out(),
            "  not in the file: bn.num_batches_tracked\n  not in the model: head.bias\n  \
             of another shape: fc.weight (model [4], file [9])"
        );
        let e = match_weights(&model(), &f, true).unwrap_err();
        assert!(e.message.contains("not in the model: head.bias"), "{e}");
    }

    /// `loaded` would have the right shape and the wrong values.
    #[test]
    fn square_matrices_of_a_file_with_exchanged_ones_are_refused() {
        let model = wanted(&[("a.weight", &[2, 3], 0), ("b.weight", &[2, 2], 1)]);
        let e =
            match_weights(&model, &file(&[("a.weight", &[3, 2]), ("b.weight", &[2, 2])]), false).unwrap_err();
        assert!(
            e.message.contains("`a.weight` with rows and columns exchanged ([3, 2], in the model [2, 3])"),
            "{e}"
        );
        assert!(e.message.contains("such as `b.weight`"), "{e}");
        let other = file(&[("a.weight", &[4, 2]), ("b.weight", &[2, 2])]);
        assert_eq!(match_weights(&model, &other, false).unwrap().loaded.len(), 1);
    }

    #[test]
    fn a_head_of_other_classes_has_a_hint() {
        let f = file(&[("conv.weight", &[2, 3]), ("fc.weight", &[9])]);
        let hint = match_weights(&model(), &f, true).unwrap_err().hint.unwrap();
        assert!(hint.contains("`pretrained_strict = false` loads the tensors that fit"), "{hint}");
    }

    #[test]
    fn strips_wrapper_prefixes_and_ignores_other_tensors() {
        for prefix in
            ["module.", "model.", "state_dict.", "state_dict.module.", "model_state_dict._orig_mod."]
        {
            let (a, b) = (format!("{prefix}conv.weight"), format!("{prefix}fc.weight"));
            let mut entries: Vec<(&str, &[usize])> = vec![(&a, &[2, 3]), (&b, &[4])];
            if prefix.contains("state_dict") {
                entries.push(("optimizer.state.0.exp_avg", &[2, 3]));
            }
            let f = file(&entries);
            let m = match_weights(&model(), &f, true).unwrap();
            assert_eq!(m.loaded.len(), 2, "{prefix}");
        }
    }

    #[test]
    fn does_not_strip_a_prefix_that_the_model_has() {
        let own = wanted(&[("model.weight", &[1], 0)]);
        let f = file(&[("model.weight", &[1])]);
        assert_eq!(match_weights(&own, &f, true).unwrap().loaded.len(), 1);
    }

    #[test]
    fn rejects_a_file_without_matching_names() {
        let e = match_weights(&model(), &file(&[("encoder.0.w", &[1])]), false).unwrap_err();
        assert!(e.message.contains("conv.weight") && e.message.contains("encoder.0.w"), "{e}");
    }
}
