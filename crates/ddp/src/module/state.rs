//! The state dict: the tensors of a module with their PyTorch names and layouts.

use base::error::{Error, Result};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use std::collections::{HashMap, HashSet};

/// How the module's array relates to the one in the state dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Both have the same shape and order of elements.
    Same,
    /// Burn's `nn::Linear` stores `[in, out]`, PyTorch `[out, in]`. With a `Conv1D`, transformers' linear layer of GPT-2, it is the
    /// other way round.
    Transposed,
}

/// The role of a tensor in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Trained.
    Parameter,
    /// A parameter without gradient: of the network itself (`no_grad`, `freeze`), or by [`FreezeMapper`](super::FreezeMapper).
    Frozen,
    /// A running statistic of a batch norm: written but never read in training.
    Statistic,
    /// Any other state changed by forward passes (`RunningState`).
    Buffer,
}

impl Role {
    /// Whether forward passes change it.
    pub fn is_buffer(self) -> bool {
        matches!(self, Role::Statistic | Role::Buffer)
    }
}

/// A tensor in a model's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// State-dict name.
    pub name: String,
    /// State-dict shape.
    pub shape: Vec<usize>,
    /// Whether it is trained, frozen, or changed by forward passes.
    pub role: Role,
    /// How the module's array is stored, compared to `shape`.
    pub layout: Layout,
    /// The other names of the tensor, if the module contains it more than once.
    pub aliases: Vec<StateEntry>,
}

impl StateEntry {
    /// Whether the optimizer updates it.
    pub fn trainable(&self) -> bool {
        self.role == Role::Parameter
    }

    /// All entries of this tensor in a state dict, itself first.
    pub fn names(&self) -> impl Iterator<Item = &StateEntry> + Clone {
        std::iter::once(self).chain(&self.aliases)
    }

    /// Number of elements; 1 for a scalar.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The shape of the module's array.
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
    pub fn of_dict(&self, values: &[f32]) -> Vec<f32> {
        match self.layout {
            Layout::Same => values.to_vec(),
            Layout::Transposed => transpose(values, self.shape[0], self.shape[1]),
        }
    }
}

fn transpose(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|c| (0..rows).map(move |r| values[r * cols + c])).collect()
}

/// The float tensors of a module.
#[derive(Clone, Debug, Default)]
pub struct ModuleState {
    /// By number.
    pub entries: Vec<StateEntry>,
    /// The number of each tensor in the order of visitors and mappers. A tensor that the module contains more than once has a
    /// single number.
    pub numbers: Vec<usize>,
}

impl ModuleState {
    /// Lists the tensors of a module on a device with autodiff, without drawing the values of lazy parameters.
    pub fn from_module<M: Module>(module: &M, rename: fn(&str) -> String) -> Self {
        let mut probe = GradientProbe::default();
        let probed = module.clone().map(&mut probe);
        let mut lister = Lister {
            path: Vec::new(),
            containers: Vec::new(),
            rename,
            wants_gradient: probe.wants_gradient,
            known: HashMap::new(),
            state: ModuleState::default(),
        };
        probed.visit(&mut lister);
        lister.state
    }

    /// # Errors
    /// Two tensors have the same name, so one would be lost in a state dict (`ErrorKind::Spec`).
    pub fn check_names(&self) -> Result<()> {
        let mut seen = HashSet::new();
        let twice = self.entries.iter().flat_map(StateEntry::names).find(|e| !seen.insert(e.name.as_str()));
        twice.map_or(Ok(()), |entry| {
            let message = format!("two tensors of the model are named `{}` in its state dict", entry.name);
            Err(Error::spec(message).hint("rename a field of the module, or change `Net::rename`"))
        })
    }
}

/// Whether a parameter requires a gradient, without drawing its value if it is lazy: Burn shows this only on a tensor
/// loaded in its place.
fn wants_gradient<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    let stand_in = Tensor::zeros([1; D], &param.lazy_device());
    let loaded = param.clone().load_mapper(|tensor| tensor).transform_for_load(stand_in, param.id);
    loaded.base().is_require_grad()
}

/// Requests a gradient for every tensor. A frozen parameter then requires one, running state never does; nothing else
/// distinguishes them. Lazy parameters are skipped, because clones share them; running state is never lazy.
#[derive(Default)]
struct GradientProbe {
    /// Whether each tensor required a gradient before.
    wants_gradient: Vec<bool>,
}

impl ModuleMapper for GradientProbe {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let wants = wants_gradient(&param);
        self.wants_gradient.push(wants);
        if wants || !param.is_initialized() { param } else { param.set_require_grad(true) }
    }
}

/// Lists a module that has been probed.
struct Lister {
    path: Vec<String>,
    containers: Vec<String>,
    rename: fn(&str) -> String,
    wants_gradient: Vec<bool>,
    /// Clones of a parameter share its id. A frozen clone is only a copy of the initial value, and a separate tensor.
    known: HashMap<(ParamId, Role, Vec<usize>), usize>,
    state: ModuleState,
}

impl Lister {
    fn role<const D: usize>(&self, param: &Param<Tensor<D>>) -> Role {
        let container = self.containers.last().map(String::as_str).unwrap_or_default();
        if self.wants_gradient[self.state.numbers.len()] {
            Role::Parameter
        } else if !param.is_initialized() || wants_gradient(param) {
            Role::Frozen
        } else if matches!(container, "Struct:BatchNorm" | "Struct:BatchNorm2d") {
            Role::Statistic
        } else {
            Role::Buffer
        }
    }
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
        let role = self.role(param);
        let key = (param.id, role, shape.clone());
        let mut layout = Layout::Same;
        if let Some(last) = path.last_mut() {
            match (container, last.as_str()) {
                ("Struct:Linear" | "Struct:Conv1D", "weight") if D == 2 => {
                    shape.swap(0, 1);
                    layout = Layout::Transposed;
                }
                (_, "gamma") => *last = "weight".to_owned(),
                (_, "beta") => *last = "bias".to_owned(),
                _ => {}
            }
        }
        let name = (self.rename)(&path.join("."));
        let entry = StateEntry { name, shape, role, layout, aliases: Vec::new() };
        let ModuleState { entries, numbers } = &mut self.state;
        let number = *self.known.entry(key).or_insert(entries.len());
        numbers.push(number);
        match entries.get_mut(number) {
            Some(first) => first.aliases.push(entry),
            None => entries.push(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposition_round_trips() {
        let entry = StateEntry {
            name: "w".into(),
            shape: vec![2, 3],
            role: Role::Parameter,
            layout: Layout::Transposed,
            aliases: Vec::new(),
        };
        let module = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]; // [3, 2]
        let dict = entry.to_dict(&module);
        assert_eq!(dict, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(entry.of_dict(&dict), module);
    }
}
