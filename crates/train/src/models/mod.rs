//! Networks, and the interface through which the rest of the program uses them.
//!
//! A network is a Burn module that implements [`Net`]. [`Model`] is its trait object: state by PyTorch name, forward passes
//! for training (with every parameter tapped, see `ddp::tap`) and for evaluation, and access to the values on the host.
//! `kind.rs` and `standard.rs` read the `[model]` table of a spec.

mod decoder;
mod documents;
mod flops;
#[cfg(test)]
mod frozen_tests;
mod gpt;
mod gpt2;
mod gpt2_table;
mod gpt_table;
#[cfg(test)]
mod hub_tests;
mod input;
mod kind;
mod layers;
mod llama;
mod llama_config;
mod llama_table;
mod model;
mod ops;
mod resnet;
mod resnet_table;
mod rope;
mod simple;
mod sizes;
mod standard;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod vit;
mod vit_table;

pub use ddp::module::{Layout, Role, StateEntry};
pub use decoder::{Decoder, KvCache, decoder, logits};
pub use documents::Documents;
pub use gpt::{Gpt, GptConfig, Preset};
pub use gpt2::{Gpt2, Gpt2Config};
pub use input::{Input, Target, TrainedRows};
pub use kind::{ModelKind, ModelSource, TensorFacts};
pub use llama::{Llama, LlamaConfig};
pub use model::{ALL, AnyNet, Evaluator, Forward, Model, NetModel, passed};
pub use ops::{MANY_LOGITS, ROWS_OF_LOGITS, cross_entropy, has_many_logits, head_cross_entropy};
pub use resnet::{Depth, ResNet, Stem};
pub use rope::{Rope, RopeParameters, RopeType};
pub use simple::{Cnn, CnnConfig, LinearNet, Mlp};
pub use standard::{from_fn, standard_kinds};
pub use vit::{Vit, VitConfig, VitPreset};

use burn::module::Module;
use burn::tensor::Tensor;

/// A network: a Burn module and its forward pass.
pub trait Net: Module + 'static {
    /// One row of outputs per sample (or per token): `[rows, outputs]`. Logits for cross-entropy, values for MSE. A model
    /// that only a user-defined task trains does not need it.
    fn forward(&self, _input: Input) -> Tensor<2> {
        panic!(
            "it has no forward pass that returns rows (`Net::forward`); name the task that trains it in `[task]`"
        )
    }

    /// The state-dict name of the parameter at a module path such as `layers.1.weight`. Names and layouts of Burn's own
    /// `nn` modules are translated to PyTorch's before this is called.
    fn rename(path: &str) -> String {
        path.to_owned()
    }

    /// Whether the parameter with this state-dict name stays f32 under reduced `precision`: for layers that compute in f32,
    /// such as the norms here.
    fn stays_f32(_name: &str) -> bool {
        false
    }
}
