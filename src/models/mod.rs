//! Networks and how the rest of the program holds them.
//!
//! A network is a Burn module that implements [`Net`]. [`Model`] is the same thing behind a trait object: its state by
//! PyTorch name, forward passes for training (with every parameter tapped, see `ddp::tap`) and for evaluation, and
//! access to the values on the host. `kind.rs` and `standard.rs` are what a spec's `[model]` table turns into.

mod cast;
mod gpt;
mod input;
mod kind;
mod layers;
mod model;
mod ops;
mod resnet;
mod simple;
mod sizes;
mod standard;
mod state;
#[cfg(test)]
mod tests;
mod walk;

pub use gpt::{Gpt, GptConfig, Preset};
pub use input::{Input, Target};
pub use kind::{ModelKind, ModelSource, TensorFacts};
pub use model::{ALL, Model, NetModel};
pub use ops::cross_entropy;
pub use resnet::{Depth, ResNet, Stem};
pub use simple::{Cnn, CnnConfig, LinearNet, Mlp};
pub use standard::{from_fn, standard_kinds};
pub use state::{Layout, Role, StateEntry};

use burn::module::Module;
use burn::tensor::Tensor;

/// A network: a Burn module and its forward pass.
pub trait Net: Module + 'static {
    /// One row of outputs for each sample (or each token): `[rows, outputs]`. Logits for cross-entropy, values for MSE.
    fn forward(&self, input: Input) -> Tensor<2>;

    /// The state-dict name of the parameter at a module path such as `layers.1.weight`. Names and layouts of Burn's own
    /// `nn` modules are translated to PyTorch's before this is asked.
    fn rename(path: &str) -> String {
        path.to_owned()
    }

    /// Whether the parameter with this state-dict name stays f32 where `precision` has the rest cast: for layers that compute in f32
    /// themselves, such as the norms here.
    fn stays_f32(_name: &str) -> bool {
        false
    }
}
