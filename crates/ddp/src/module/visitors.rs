//! Visitors and mappers over a module's tensors by number. A tensor that the module contains more than once is visited once.

use super::StateEntry;
use super::cast::in_dtype;
use super::state::{ModuleState, Role};
use crate::device::{Tracked, is_host, read, send};
use base::error::{Error, Result};
use burn::backend::Flex;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// Returns the tapped version of the parameter with this number; called when the forward pass first uses it.
pub type Tap = Arc<dyn Fn(usize, Tracked) -> Tracked + Send + Sync>;

/// Selects tensors by number.
pub type Selection<'a> = &'a dyn Fn(usize) -> bool;

/// The type in which the forward pass computes, and the parameters that it casts to it. The parameters themselves and their
/// gradients are f32.
pub struct Casts {
    /// Type in which the forward pass computes; with f32 nothing is cast.
    pub dtype: DType,
    /// Whether to cast, by number.
    cast: Vec<bool>,
}

impl Casts {
    /// `stays_f32`: whether the parameter with this name is not cast.
    pub fn new(entries: &[StateEntry], dtype: DType, stays_f32: fn(&str) -> bool) -> Self {
        let cast = |e: &StateEntry| dtype != DType::F32 && !e.role.is_buffer() && !stays_f32(&e.name);
        Self { dtype, cast: entries.iter().map(cast).collect() }
    }

    fn param<const D: usize>(&self, number: usize, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.cast[number] { param.map(|tensor| in_dtype(tensor, self.dtype)) } else { param }
    }
}

/// The position of a visitor or mapper.
pub struct Cursor<'a> {
    state: &'a ModuleState,
    at: usize,
    /// Numbers below this have been visited.
    visited: usize,
}

impl<'a> Cursor<'a> {
    /// Starts before the first tensor of the module that `state` lists.
    pub fn new(state: &'a ModuleState) -> Self {
        Self { state, at: 0, visited: 0 }
    }

    /// The next tensor's number, and whether this is its first visit.
    pub(super) fn next(&mut self) -> (usize, bool) {
        let number = self.state.numbers[self.at];
        self.at += 1;
        let first = number == self.visited;
        self.visited += usize::from(first);
        (number, first)
    }
}

/// The position of a mapper that replaces tensors.
pub struct MapCursor<'a> {
    cursor: Cursor<'a>,
    /// Replacements of tensors that the module contains more than once, to be used again.
    shared: HashMap<usize, Box<dyn Any>>,
}

impl<'a> MapCursor<'a> {
    /// Starts before the first tensor of the module that `state` lists.
    pub fn new(state: &'a ModuleState) -> Self {
        Self { cursor: Cursor::new(state), shared: HashMap::new() }
    }

    pub(super) fn next<const D: usize>(
        &mut self,
        param: Param<Tensor<D>>,
        change: impl FnOnce(usize, Param<Tensor<D>>) -> Param<Tensor<D>>,
    ) -> Param<Tensor<D>> {
        let (number, first) = self.cursor.next();
        if !first {
            let same = self.shared[&number].downcast_ref::<Param<Tensor<D>>>();
            return same.expect("one shape has one rank").clone();
        }
        let changed = change(number, param);
        if !self.cursor.state.entries[number].aliases.is_empty() {
            self.shared.insert(number, Box::new(changed.clone()));
        }
        changed
    }
}

/// Casts parameters and, for training, taps trainable ones.
pub struct ForwardMapper<'a> {
    /// The next tensor.
    pub cursor: MapCursor<'a>,
    /// Applied to trainable parameters before they are cast; `None` for evaluation.
    pub tap: Option<Tap>,
    /// The type to cast to, and the parameters to cast.
    pub casts: &'a Casts,
}

impl ModuleMapper for ForwardMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (entries, tap, casts) = (&self.cursor.cursor.state.entries, &self.tap, self.casts);
        self.cursor.next(param, |number, param| match (entries[number].role, tap) {
            (Role::Parameter, Some(tap)) => tapped(number, param, tap.clone(), casts),
            _ => casts.param(number, param),
        })
    }
}

/// A lazy parameter is initialised at its first use, so taps are in order of use.
fn tapped<const D: usize>(
    number: usize,
    param: Param<Tensor<D>>,
    tap: Tap,
    casts: &Casts,
) -> Param<Tensor<D>> {
    let (id, tensor, _) = param.consume();
    let (device, shape) = (tensor.device(), tensor.shape());
    let to = casts.cast[number].then_some(casts.dtype);
    let tapped = move |_: &Device, _| {
        let tensor: Tensor<D> = tap(number, Tracked::from_tensor(tensor)).into_tensor();
        match to {
            Some(to) => tensor.cast(to),
            None => tensor,
        }
    };
    Param::uninitialized(id, tapped, device, true, shape)
}

/// Draws the values of lazy parameters now, in the order of the module: their order, and so their values, must not depend on the first
/// forward pass.
pub fn draw_lazy(net: &impl Module) {
    net.visit(&mut LazyInit);
}

struct LazyInit;

impl ModuleVisitor for LazyInit {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        param.base();
    }
}

/// Checks that the tensors of a new module are on one device with autodiff, f32, and tied only if their values are equal.
pub struct TensorCheck<'a> {
    cursor: Cursor<'a>,
    device: &'a Device,
    /// Values of tensors that the module contains more than once.
    shared: HashMap<usize, Vec<f32>>,
    /// The first error: a visitor can't return it.
    pub result: Result<()>,
}

impl<'a> TensorCheck<'a> {
    /// Checks the module that `state` lists, whose tensors must be on `device`.
    pub fn new(state: &'a ModuleState, device: &'a Device) -> Self {
        Self { cursor: Cursor::new(state), device, shared: HashMap::new(), result: Ok(()) }
    }

    fn check<const D: usize>(&mut self, number: usize, tensor: Tensor<D>) -> Result<()> {
        let entry = &self.cursor.state.entries[number];
        let name = &entry.name;
        if !tensor.device().is_autodiff() || tensor.device() != *self.device {
            return Err(Error::spec(format!("the model's tensor `{name}` is on another device"))
                .hint("create the module's tensors on the device that is passed to its constructor"));
        }
        if tensor.dtype() != DType::F32 {
            let found = tensor.dtype();
            return Err(Error::spec(format!(
                "the model's tensor `{name}` has type {found:?}; only f32 is supported"
            ))
            .hint("`precision` in the spec sets the type for computation"));
        }
        if entry.aliases.is_empty() {
            return Ok(());
        }
        let values = read(tensor.inner())?;
        let before = self.shared.entry(number).or_insert_with(|| values.clone());
        if before.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits()) {
            return Ok(());
        }
        let names: Vec<&str> = entry.names().map(|e| e.name.as_str()).collect();
        Err(Error::spec(format!("`{}` have the same parameter id, but different values", names.join("`, `")))
            .hint("clones of a parameter are tied; `Param::from_tensor` creates a separate one"))
    }
}

impl ModuleVisitor for TensorCheck<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (number, _) = self.cursor.next();
        let tensor = param.base();
        if self.result.is_ok() {
            self.result = self.check(number, tensor);
        }
    }
}

/// Passes the values of the selected tensors to a closure, in the order of their numbers.
pub struct ReadVisitor<'a> {
    /// The next tensor.
    pub cursor: Cursor<'a>,
    /// The tensors to read.
    pub which: Selection<'a>,
    /// Called with the number and the values of each of them, in the module's layout.
    pub see: &'a mut dyn FnMut(usize, &[f32]),
    /// The first error: a visitor can't return it.
    pub result: Result<()>,
}

impl ModuleVisitor for ReadVisitor<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (number, first) = self.cursor.next();
        if !first || self.result.is_err() || !(self.which)(number) {
            return;
        }
        let tensor = param.base().inner();
        if is_host(&tensor.device()) {
            let flex = tensor.try_into_primitive::<Flex>().expect("it is in host memory").to_contiguous();
            (self.see)(number, flex.storage::<f32>());
        } else {
            self.result = read(tensor).map(|values| (self.see)(number, &values));
        }
    }
}

/// Lets a closure change the values of the selected tensors: in place if they are in host memory, else in a copy.
pub struct EditMapper<'a> {
    /// The next tensor.
    pub cursor: MapCursor<'a>,
    /// The tensors to change.
    pub which: Selection<'a>,
    /// Called with the number and the values of each of them, in the module's layout.
    pub change: &'a mut dyn FnMut(usize, &mut [f32]),
    /// See [`ReadVisitor::result`].
    pub result: Result<()>,
}

impl ModuleMapper for EditMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Self { cursor, which, change, result } = self;
        cursor.next(param, |number, param| match result.is_ok() && which(number) {
            true => map_values(param, |tensor| edited(tensor, &mut |values| change(number, values), result)),
            false => param,
        })
    }
}

/// Dropping the wrapper drops the leaf's graph node and leaves a single reference to the buffer, so that `storage_mut`
/// writes in place.
fn edited<const D: usize>(
    tensor: Tensor<D>,
    change: &mut dyn FnMut(&mut [f32]),
    done: &mut Result<()>,
) -> Tensor<D> {
    let device = tensor.device();
    if !is_host(&device) {
        return match read(tensor.clone()) {
            Ok(mut values) => {
                change(&mut values);
                send(values, tensor.shape(), &device)
            }
            Err(failed) => {
                *done = Err(failed);
                tensor
            }
        };
    }
    let mut flex = tensor.try_into_primitive::<Flex>().expect("it is in host memory");
    if !flex.is_contiguous() || flex.layout().start_offset() != 0 {
        flex = flex.to_contiguous();
    }
    change(flex.storage_mut::<f32>());
    Tensor::from_primitive::<Flex>(flex)
}

/// The leaf itself loses its gradient, so that the backward pass does not compute it.
pub struct FreezeMapper<'a> {
    /// The next tensor.
    pub cursor: MapCursor<'a>,
    /// The tensors to freeze; those that are not trainable stay as they are.
    pub which: Selection<'a>,
}

impl ModuleMapper for FreezeMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (entries, which) = (&self.cursor.cursor.state.entries, self.which);
        self.cursor.next(param, |number, param| match entries[number].trainable() && which(number) {
            true => param.set_require_grad(false),
            false => param,
        })
    }
}

/// Replaces the values of the selected tensors, on their device and without autodiff.
pub struct ReplaceMapper<'a> {
    /// The next tensor.
    pub cursor: MapCursor<'a>,
    /// The tensors to replace.
    pub which: Selection<'a>,
    /// Returns the replacement of a tensor, given its number; both are flat, in the module's layout.
    pub by: &'a mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>,
}

impl ModuleMapper for ReplaceMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Self { cursor, which, by } = self;
        cursor.next(param, |number, param| match which(number) {
            true => map_values(param, |tensor| {
                let shape = tensor.shape();
                let flat = tensor.reshape([shape.num_elements()]);
                by(number, flat).reshape(shape)
            }),
            false => param,
        })
    }
}

/// The parameter with its values replaced by `change`, without autodiff; it stays a leaf of the graph.
fn map_values<const D: usize>(
    param: Param<Tensor<D>>,
    change: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    let (id, tensor, mapper) = param.consume();
    let tracked = tensor.is_require_grad();
    let tensor = Tensor::from_inner(change(tensor.inner())).set_require_grad(tracked);
    Param::from_mapped_value(id, tensor, mapper)
}
