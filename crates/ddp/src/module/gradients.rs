//! Gradients by number as Burn's `GradientsParams`, tied parameters after an update, and parameter ids.

use super::visitors::{Cursor, MapCursor};
use burn::module::{ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use burn_optim::GradientsParams;

/// Registers each parameter's gradient under the parameter's id, in its shape.
pub(crate) struct GradientVisitor<'a> {
    pub cursor: Cursor<'a>,
    /// The flat gradient of a tensor; `None` if it has none.
    pub gradient: &'a mut dyn FnMut(usize) -> Option<Tensor<1>>,
    pub into: GradientsParams,
}

impl ModuleVisitor for GradientVisitor<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (number, first) = self.cursor.next();
        if let Some(gradient) = first.then(|| (self.gradient)(number)).flatten() {
            self.into.register::<D>(param.id, gradient.reshape(param.lazy_shape()));
        }
    }
}

/// Makes tensors that the module contains more than once equal to their first occurrence. Burn's optimizers update only that
/// one, because its gradient is used up then.
pub(crate) struct TieMapper<'a> {
    pub cursor: MapCursor<'a>,
}

impl ModuleMapper for TieMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.cursor.next(param, |_, param| param)
    }
}

/// Reads the id of each tensor.
pub(crate) struct IdVisitor<'a> {
    pub cursor: Cursor<'a>,
    /// By number.
    pub ids: Vec<ParamId>,
}

impl ModuleVisitor for IdVisitor<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.cursor.next().1 {
            self.ids.push(param.id);
        }
    }
}

/// Gives each tensor the id of its number. Running state keeps its own, which no optimizer sees.
pub(crate) struct IdMapper<'a> {
    pub cursor: MapCursor<'a>,
    pub ids: &'a [ParamId],
}

impl ModuleMapper for IdMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.cursor.next(param, |number, param| {
            let (_, tensor, mapper) = param.consume();
            Param::from_mapped_value(self.ids[number], tensor, mapper)
        })
    }
}
