//! What the registry holds for a model, and what the plan can find out about it without a device.

use super::{Role, StateEntry};
use checkpoint::HubTensor;
use data::DataFacts;
use ddp::device::Compute;
use serde_json::{Map, Value as Json};
use spec::Fields;
use std::sync::Arc;

/// Reads the `[model]` table. One per name in the registry.
pub trait ModelKind: Send + Sync {
    /// `facts` are those of the data set (input shape, classes), if known before the data is read. Reports all problems to
    /// `fields`; the value returned after a problem is never built.
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource>;

    /// The keys of the `[model]` table that follow from the config.json of a folder of Hugging Face which has the weights.
    ///
    /// # Errors
    /// It is that of another model, or has values that the model does not support.
    fn keys_of_config(&self, _config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
        Ok(Map::new())
    }
}

impl<F> ModelKind for F
where
    F: Fn(&mut Fields<'_>, &DataFacts) -> Arc<dyn ModelSource> + Send + Sync,
{
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        self(fields, facts)
    }
}

/// What [`ModelKind::keys_of_config`] says of a value that config.json may only have as `expected`.
///
/// # Errors
/// It has another one.
pub(super) fn expect(key: &str, expected: &Json, found: Option<&Json>) -> Result<(), String> {
    match found {
        Some(found) if found != expected => Err(format!("expected `{key}` {expected}, found {found}")),
        _ => Ok(()),
    }
}

/// Reports `preset`, which is set, where the sizes are those of a config.json and not its own.
pub(super) fn check_preset(fields: &mut Fields<'_>, has_its_sizes: bool) {
    if let Some(from) = fields.inherits_from()
        && !has_its_sizes
    {
        let problem = format!("contradicts the sizes in {from}");
        fields.problem("preset", problem);
    }
}

/// A tensor in a model's state, with its PyTorch name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TensorFacts {
    /// State-dict name.
    pub name: String,
    /// State-dict shape.
    pub shape: Vec<usize>,
    /// Whether it is trained, frozen, or changed by forward passes.
    pub role: Role,
    /// The other names of the tensor, if the model contains it more than once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

impl TensorFacts {
    /// The facts of a tensor of a built model.
    pub fn from_entry(entry: &StateEntry) -> Self {
        let aliases = entry.aliases.iter().map(|alias| alias.name.clone()).collect();
        Self { name: entry.name.clone(), shape: entry.shape.clone(), role: entry.role, aliases }
    }

    /// All names of the tensor.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }
}

/// A model as described in the spec, not yet built.
pub trait ModelSource: Send + Sync {
    /// Names and shapes of its state, in registration order; `None` if they depend on data that has not been read.
    fn tensors(&self) -> Option<Vec<TensorFacts>>;
    /// Values per channel that the smallest batch norm sees of one sample; `None` without batch norm, or if that is not known.
    fn least_norm_values(&self, _facts: &DataFacts) -> Option<usize> {
        None
    }
    /// Values of one sample that the layers keep in host memory until their backward pass, besides its input and outputs, if all parameters
    /// are trained: at least so many. `None` if that is not known.
    fn kept_values(&self, _facts: &DataFacts) -> Option<usize> {
        None
    }
    /// Floating-point operations of the forward and backward pass of one sample of tokens, if all parameters are trained; `None` if
    /// that is not known.
    fn training_flops(&self, _facts: &DataFacts) -> Option<f64> {
        None
    }
    /// The config.json by which Hugging Face's transformers builds the model for these data, whose tensors it has as
    /// [`hub_tensor`](Self::hub_tensor) says; `None` if it has no such model.
    fn config_json(&self, _facts: &DataFacts) -> Option<Map<String, Json>> {
        None
    }
    /// How files of transformers have the tensor with this state-dict name.
    fn hub_tensor(&self, name: &str) -> HubTensor {
        HubTensor::same(name)
    }
    /// [`tensors`](Self::tensors) for the facts of opened data, as [`build`](Self::build) makes them. No values are drawn, so that nothing large is allocated.
    ///
    /// # Errors
    /// The model does not fit the data.
    fn tensors_for(&self, facts: &DataFacts) -> base::error::Result<Vec<TensorFacts>>;
    /// Builds the model with parameters drawn from `seed`. `facts` are those of the opened data.
    fn build(&self, facts: &DataFacts, seed: u64, on: &Compute)
    -> base::error::Result<Box<dyn super::Model>>;
}
