//! The state dict: which tensors a module holds, under which PyTorch names, in which layout.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// How the module's own array relates to the one in the state dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Same,
    /// Burn's `nn::Linear` holds `[in, out]` where PyTorch has `[out, in]`.
    Transposed,
}

/// One tensor of a model's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// State-dict name.
    pub name: String,
    /// State-dict shape.
    pub shape: Vec<usize>,
    /// Parameter (true) or buffer.
    pub trainable: bool,
    pub layout: Layout,
}

impl StateEntry {
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The shape of the module's own array.
    pub fn module_shape(&self) -> Vec<usize> {
        match self.layout {
            Layout::Same => self.shape.clone(),
            Layout::Transposed => self.shape.iter().rev().copied().collect(),
        }
    }

    /// Reorders values from the module's layout to the state dict's.
    pub fn to_dict(&self, values: &[f32]) -> Vec<f32> {
        match self.layout {
            Layout::Same => values.to_vec(),
            Layout::Transposed => transpose(values, self.shape[1], self.shape[0]),
        }
    }

    /// Reorders values from the state dict's layout to the module's.
    pub fn from_dict(&self, values: &[f32]) -> Vec<f32> {
        match self.layout {
            Layout::Same => values.to_vec(),
            Layout::Transposed => transpose(values, self.shape[0], self.shape[1]),
        }
    }
}

fn transpose(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|c| (0..rows).map(move |r| values[r * cols + c])).collect()
}

/// Walks a module and lists its float tensors in visiting order, without initialising lazy ones.
pub(super) fn entries<M: Module>(module: &M, rename: fn(&str) -> String) -> Vec<StateEntry> {
    let mut lister = Lister { path: Vec::new(), containers: Vec::new(), rename, entries: Vec::new() };
    module.visit(&mut lister);
    lister.entries
}

struct Lister {
    path: Vec<String>,
    containers: Vec<String>,
    rename: fn(&str) -> String,
    entries: Vec<StateEntry>,
}

impl ModuleVisitor for Lister {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(name.to_owned());
        self.containers.push(container.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut path = self.path.clone();
        let container = self.containers.last().map(String::as_str).unwrap_or_default();
        let mut shape = param.lazy_shape().to_vec();
        let mut layout = Layout::Same;
        if let Some(last) = path.last_mut() {
            match (container, last.as_str()) {
                ("Struct:Linear", "weight") if D == 2 => {
                    shape.swap(0, 1);
                    layout = Layout::Transposed;
                }
                (_, "gamma") => *last = "weight".to_owned(),
                (_, "beta") => *last = "bias".to_owned(),
                _ => {}
            }
        }
        // A buffer is a running statistic: Burn visits it as a parameter that takes no part in training.
        let buffer = path.last().is_some_and(|n| n.starts_with("running_"));
        let name = (self.rename)(&path.join("."));
        self.entries.push(StateEntry { name, shape, trainable: !buffer, layout });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposition_goes_there_and_back() {
        let entry =
            StateEntry { name: "w".into(), shape: vec![2, 3], trainable: true, layout: Layout::Transposed };
        let module = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]; // [3, 2]
        let dict = entry.to_dict(&module);
        assert_eq!(dict, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(entry.from_dict(&dict), module);
    }
}
