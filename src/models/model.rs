//! A network behind a trait object. The trainer, the reducer and the checkpoints see parameters as numbered host slices
//! (in the order of [`Model::entries`]); only this file knows that they are Burn tensors.

use super::state::entries;
use super::{Input, Net, StateEntry};
use burn::backend::{Autodiff, Flex};
use burn::module::{ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use burn_autodiff_tensor::AdTensor;
use std::sync::Arc;

mod burn_autodiff_tensor {
    /// The primitive of a float tensor on the CPU with autodiff.
    pub type AdTensor = <super::Autodiff<super::Flex> as burn::backend::BackendTypes>::FloatTensorPrimitive;
}

/// Replaces parameter `index` by its tapped twin when the forward pass first uses it.
pub type Tap = Arc<dyn Fn(usize, AdTensor) -> AdTensor + Send + Sync>;

/// A model that trains on one device.
pub trait Model: Send {
    /// Parameters and buffers, in the order that numbers them.
    fn entries(&self) -> &[StateEntry];

    /// The device of the training forward pass (autodiff on).
    fn device(&self) -> &Device;

    /// Forward pass with every trainable parameter passed through `tap` at its first use: outputs `[rows, outputs]`.
    fn forward(&self, input: Input, tap: Tap) -> Tensor<2>;

    /// A snapshot for evaluation: no autodiff, no dropout, running statistics. Shares memory with the model, so drop it
    /// before the next `edit`, which would otherwise copy.
    fn evaluator(&self) -> Box<dyn Evaluator>;

    /// Shows every tensor's values, in the module's layout.
    fn read(&self, see: &mut dyn FnMut(usize, &[f32]));

    /// Lets `change` write every tensor's values in place.
    fn edit(&mut self, change: &mut dyn FnMut(usize, &mut [f32]));
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
}

impl<N: Net> NetModel<N> {
    /// `build` makes the network on the device that it is given, which is `device` with autodiff; initial values are
    /// drawn from `seed`, in the order of the parameters.
    pub fn new(device: Device, seed: u64, build: impl FnOnce(&Device) -> N) -> Self {
        let device = device.autodiff();
        device.seed(seed);
        let net = build(&device);
        let entries = entries(&net, N::rename);
        let mut model = Self { net: Some(net), entries, device };
        // Draws lazy parameters now: their order, and so their values, must not depend on the first forward pass.
        model.edit(&mut |_, _| {});
        model
    }

    /// State entries without drawing a single value.
    pub fn entries_of(net: &N) -> Vec<StateEntry> {
        entries(net, N::rename)
    }

    fn net(&self) -> &N {
        self.net.as_ref().expect("the network is only away inside `edit`")
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
        let mut mapper = TapMapper { next: 0, tap, entries: &self.entries };
        self.net().clone().map(&mut mapper).forward(input)
    }

    fn evaluator(&self) -> Box<dyn Evaluator> {
        Box::new(NetEvaluator { net: self.net().valid(), device: self.device.clone().without_autodiff() })
    }

    fn read(&self, see: &mut dyn FnMut(usize, &[f32])) {
        self.net().visit(&mut Reader { next: 0, see });
    }

    fn edit(&mut self, change: &mut dyn FnMut(usize, &mut [f32])) {
        let net = self.net.take().expect("`edit` does not nest");
        self.net = Some(net.map(&mut Editor { next: 0, change }));
    }
}

struct NetEvaluator<N> {
    net: N,
    device: Device,
}

impl<N: Net> Evaluator for NetEvaluator<N> {
    fn device(&self) -> Device {
        self.device.clone()
    }
    fn forward(&self, input: Input) -> Tensor<2> {
        self.net.forward(input)
    }
}

type Ad = Autodiff<Flex>;

fn primitive<const D: usize>(tensor: Tensor<D>) -> AdTensor {
    tensor.try_into_primitive::<Ad>().expect("parameters live on the CPU device with autodiff")
}

struct TapMapper<'a> {
    next: usize,
    tap: Tap,
    entries: &'a [StateEntry],
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
        let tapped = move |_: &Device, _| Tensor::from_primitive::<Ad>(tap(index, primitive(tensor)));
        Param::uninitialized(id, tapped, device, true, shape)
    }
}

struct Reader<'a> {
    next: usize,
    see: &'a mut dyn FnMut(usize, &[f32]),
}

impl ModuleVisitor for Reader<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let flex = primitive(param.base()).into_primitive().to_contiguous();
        (self.see)(self.next, flex.storage::<f32>());
        self.next += 1;
    }
}

struct Editor<'a> {
    next: usize,
    change: &'a mut dyn FnMut(usize, &mut [f32]),
}

impl ModuleMapper for Editor<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let index = self.next;
        self.next += 1;
        let (id, tensor, mapper) = param.consume();
        let tracked = tensor.is_require_grad();
        // Dropping the leaf's graph node with the wrapper leaves the buffer to us alone: `storage_mut` then writes in place.
        let mut flex = primitive(tensor).into_primitive();
        if !flex.is_contiguous() || flex.layout().start_offset() != 0 {
            flex = flex.to_contiguous();
        }
        (self.change)(index, flex.storage_mut::<f32>());
        let plain = Tensor::<D>::from_primitive::<Flex>(flex);
        let tensor = Tensor::from_inner(plain).set_require_grad(tracked);
        Param::from_mapped_value(id, tensor, mapper)
    }
}
