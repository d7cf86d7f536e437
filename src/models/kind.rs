//! What the registry holds for a model, and what the plan may know of it without a device.

use super::Role;
use crate::data::DataFacts;
use crate::device::Compute;
use crate::spec::Fields;
use std::sync::Arc;

/// Reads a `[model]` table. One per name in the registry.
pub trait ModelKind: Send + Sync {
    /// `facts` are the data set's (input shape, classes) where they are known before the data is read. Problems go into
    /// `fields`, all of them; the value returned after a problem is never built.
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource>;
}

impl<F> ModelKind for F
where
    F: Fn(&mut Fields<'_>, &DataFacts) -> Arc<dyn ModelSource> + Send + Sync,
{
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        self(fields, facts)
    }
}

/// One tensor of a model's state, by its PyTorch name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TensorFacts {
    pub name: String,
    pub shape: Vec<usize>,
    pub role: Role,
}

/// A model as the spec describes it, not yet built.
pub trait ModelSource: Send + Sync {
    /// Names and shapes of its state, in registration order; `None` where only the data can tell.
    fn tensors(&self) -> Option<Vec<TensorFacts>>;
    /// The running model, parameters drawn from `seed`. `facts` are those of the opened data.
    fn build(
        &self,
        facts: &DataFacts,
        seed: u64,
        on: &Compute,
    ) -> crate::error::Result<Box<dyn super::Model>>;
}
