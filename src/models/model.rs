//! A network behind a trait object. The trainer, the reducer and the checkpoints see parameters as numbered host slices
//! (in the order of [`Model::entries`]) or, where the model computes on a device, as numbered flat tensors; only this file knows
//! the module that they belong to.

use super::cast::{in_dtype, in_f32};
use super::state::entries;
use super::{Input, Net, StateEntry};
use crate::device::{Compute, Tracked, is_host, read};
use crate::error::Result;
use burn::backend::Flex;
use burn::module::{ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use std::sync::Arc;

/// Replaces parameter `index` by its tapped twin when the forward pass first uses it.
pub type Tap = Arc<dyn Fn(usize, Tracked) -> Tracked + Send + Sync>;

/// Which tensors are meant, by number.
pub type Which<'a> = &'a dyn Fn(usize) -> bool;

/// Every tensor.
pub const ALL: Which<'static> = &|_| true;

/// A model that trains on one device.
pub trait Model: Send {
    /// Parameters and buffers, in the order that numbers them.
    fn entries(&self) -> &[StateEntry];

    /// The device of the training forward pass (autodiff on).
    fn device(&self) -> &Device;

    /// Forward pass with every trainable parameter passed through `tap` at its first use: outputs `[rows, outputs]`, in f32.
    fn forward(&self, input: Input, tap: Tap) -> Tensor<2>;

    /// A snapshot for evaluation: no autodiff, no dropout, running statistics. Shares memory with the model, so drop it
    /// before the next `edit`, which would otherwise copy.
    fn evaluator(&self) -> Box<dyn Evaluator>;

    /// Shows the values of the tensors that are meant, in the module's layout.
    ///
    /// # Errors
    /// What failed on the device; never in host memory. Nothing is shown from there on.
    fn read(&self, which: Which<'_>, see: &mut dyn FnMut(usize, &[f32])) -> Result<()>;

    /// Lets `change` write the values of the tensors that are meant: in place in host memory, else on a copy that goes back.
    ///
    /// # Errors
    /// As [`Model::read`]; nothing is changed from there on.
    fn edit(&mut self, which: Which<'_>, change: &mut dyn FnMut(usize, &mut [f32])) -> Result<()>;

    /// Lets `step` replace every trainable tensor, flat and without autodiff, on the model's own device.
    fn update(&mut self, step: &mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>);
}

/// Forward passes without autodiff.
pub trait Evaluator {
    fn device(&self) -> Device;
    fn forward(&self, input: Input) -> Tensor<2>;
}

/// Any [`Net`] as a [`Model`].
pub struct NetModel<N: Net> {
    net: Option<N>,
    entries: Vec<StateEntry>,
    device: Device,
    casts: Casts,
}

impl<N: Net> NetModel<N> {
    /// `build` makes the network on the device that it is given, which has autodiff; initial values are drawn from `seed`, in the
    /// order of the parameters, in host memory: they are the same on every device.
    pub fn new(on: &Compute, seed: u64, build: impl FnOnce(&Device) -> N) -> Self {
        let host = Device::flex().autodiff();
        host.seed(seed);
        let net = build(&host);
        let entries = entries(&net, N::rename);
        let casts = Casts::new::<N>(&entries, on.dtype);
        let mut model = Self { net: Some(net), entries, device: host, casts };
        // Draws lazy parameters now: their order, and so their values, must not depend on the first forward pass.
        model.edit(ALL, &mut |_, _| {}).expect("it is in host memory");
        if !is_host(&on.device) {
            model.device = on.device.clone().autodiff();
            model.net = model.net.map(|net| net.fork(&model.device));
        }
        model
    }

    /// State entries without drawing a single value.
    pub fn entries_of(net: &N) -> Vec<StateEntry> {
        entries(net, N::rename)
    }

    fn net(&self) -> &N {
        self.net.as_ref().expect("the network is only away while it is changed")
    }

    fn change(&mut self, mapper: &mut impl ModuleMapper) {
        let net = self.net.take().expect("changes do not nest");
        self.net = Some(net.map(mapper));
    }
}

impl<N: Net> Model for NetModel<N> {
    fn entries(&self) -> &[StateEntry] {
        &self.entries
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn forward(&self, input: Input, tap: Tap) -> Tensor<2> {
        let mut mapper = TapMapper { next: 0, tap, entries: &self.entries, casts: &self.casts };
        let output = self.net().clone().map(&mut mapper).forward(input.cast(self.casts.dtype));
        in_f32(output)
    }

    fn evaluator(&self) -> Box<dyn Evaluator> {
        let mut net = self.net().valid();
        if self.casts.dtype != DType::F32 {
            net = net.map(&mut CastMapper { next: 0, casts: &self.casts });
        }
        let device = self.device.clone().without_autodiff();
        Box::new(NetEvaluator { net, device, dtype: self.casts.dtype })
    }

    fn read(&self, which: Which<'_>, see: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        let mut reader = Reader { next: 0, which, see, done: Ok(()) };
        self.net().visit(&mut reader);
        reader.done
    }

    fn edit(&mut self, which: Which<'_>, change: &mut dyn FnMut(usize, &mut [f32])) -> Result<()> {
        let mut editor = Editor { next: 0, which, change, done: Ok(()) };
        self.change(&mut editor);
        editor.done
    }

    fn update(&mut self, step: &mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>) {
        let trainable: Vec<bool> = self.entries.iter().map(|e| e.trainable).collect();
        self.change(&mut Stepper { next: 0, trainable: &trainable, step });
    }
}

struct NetEvaluator<N> {
    net: N,
    device: Device,
    dtype: DType,
}

impl<N: Net> Evaluator for NetEvaluator<N> {
    fn device(&self) -> Device {
        self.device.clone()
    }
    fn forward(&self, input: Input) -> Tensor<2> {
        in_f32(self.net.forward(input.cast(self.dtype)))
    }
}

/// What the forward pass computes in, and which parameters it casts to that. The parameters themselves are f32, and so are their
/// gradients.
struct Casts {
    dtype: DType,
    /// By number.
    cast: Vec<bool>,
}

impl Casts {
    fn new<N: Net>(entries: &[StateEntry], dtype: DType) -> Self {
        let cast = |e: &StateEntry| dtype != DType::F32 && e.trainable && !N::stays_f32(&e.name);
        Self { dtype, cast: entries.iter().map(cast).collect() }
    }

    fn of<const D: usize>(&self, index: usize, tensor: Tensor<D>) -> Tensor<D> {
        if self.cast[index] { in_dtype(tensor, self.dtype) } else { tensor }
    }
}

struct TapMapper<'a> {
    next: usize,
    tap: Tap,
    entries: &'a [StateEntry],
    casts: &'a Casts,
}

impl ModuleMapper for TapMapper<'_> {
    /// A lazy parameter is made when it is first asked for: so the order of taps is that of use.
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let index = self.next;
        self.next += 1;
        if !self.entries[index].trainable {
            return param;
        }
        let (id, tensor, _) = param.consume();
        let (device, shape, tap) = (tensor.device(), tensor.shape(), self.tap.clone());
        let to = self.casts.cast[index].then_some(self.casts.dtype);
        let tapped = move |_: &Device, _| {
            let tensor: Tensor<D> = tap(index, Tracked::of(tensor)).into_tensor();
            match to {
                Some(to) => tensor.cast(to),
                None => tensor,
            }
        };
        Param::uninitialized(id, tapped, device, true, shape)
    }
}

struct CastMapper<'a> {
    next: usize,
    casts: &'a Casts,
}

impl ModuleMapper for CastMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let index = self.next;
        self.next += 1;
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(id, self.casts.of(index, tensor), mapper)
    }
}

struct Reader<'a> {
    next: usize,
    which: Which<'a>,
    see: &'a mut dyn FnMut(usize, &[f32]),
    /// The first thing that failed: a visitor can't return it.
    done: Result<()>,
}

impl ModuleVisitor for Reader<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let index = self.next;
        self.next += 1;
        if self.done.is_err() || !(self.which)(index) {
            return;
        }
        let tensor = param.base().inner();
        if is_host(&tensor.device()) {
            let flex = tensor.try_into_primitive::<Flex>().expect("it is in host memory").to_contiguous();
            (self.see)(index, flex.storage::<f32>());
        } else {
            self.done = read(tensor).map(|values| (self.see)(index, &values));
        }
    }
}

struct Editor<'a> {
    next: usize,
    which: Which<'a>,
    change: &'a mut dyn FnMut(usize, &mut [f32]),
    /// As the reader's.
    done: Result<()>,
}

impl Editor<'_> {
    /// Dropping the leaf's graph node with the wrapper leaves the buffer to us alone: `storage_mut` then writes in place.
    fn edit<const D: usize>(&mut self, index: usize, tensor: Tensor<D>) -> Tensor<D> {
        let device = tensor.device();
        if !is_host(&device) {
            return match read(tensor.clone()) {
                Ok(mut values) => {
                    (self.change)(index, &mut values);
                    Tensor::from_data(TensorData::new(values, tensor.shape()), &device)
                }
                Err(failed) => {
                    self.done = Err(failed);
                    tensor
                }
            };
        }
        let mut flex = tensor.try_into_primitive::<Flex>().expect("it is in host memory");
        if !flex.is_contiguous() || flex.layout().start_offset() != 0 {
            flex = flex.to_contiguous();
        }
        (self.change)(index, flex.storage_mut::<f32>());
        Tensor::from_primitive::<Flex>(flex)
    }
}

impl ModuleMapper for Editor<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let index = self.next;
        self.next += 1;
        if self.done.is_err() || !(self.which)(index) {
            return param;
        }
        changed(param, |tensor| self.edit(index, tensor))
    }
}

struct Stepper<'a> {
    next: usize,
    trainable: &'a [bool],
    step: &'a mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>,
}

impl ModuleMapper for Stepper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let index = self.next;
        self.next += 1;
        if !self.trainable[index] {
            return param;
        }
        changed(param, |tensor| {
            let shape = tensor.shape();
            let flat = tensor.reshape([shape.num_elements()]);
            (self.step)(index, flat).reshape(shape)
        })
    }
}

/// The parameter with other values, from those that it has, without autodiff; it stays a leaf of the graph.
fn changed<const D: usize>(
    param: Param<Tensor<D>>,
    change: impl FnOnce(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    let (id, tensor, mapper) = param.consume();
    let tracked = tensor.is_require_grad();
    let tensor = Tensor::from_inner(change(tensor.inner())).set_require_grad(tracked);
    Param::from_mapped_value(id, tensor, mapper)
}
