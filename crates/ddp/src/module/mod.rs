//! The tensors of a Burn module by number: their names and layouts in PyTorch's state dict, and passes over them.

mod cast;
mod gradients;
mod state;
mod visitors;

pub use cast::{in_dtype, in_f32};
pub(crate) use gradients::{GradientVisitor, IdMapper, IdVisitor, TieMapper};
pub use state::{Layout, ModuleState, Role, StateEntry};
pub use visitors::{
    Casts, Cursor, EditMapper, ForwardMapper, FreezeMapper, MapCursor, ReadVisitor, ReplaceMapper, Selection,
    Tap, TensorCheck, draw_lazy,
};
