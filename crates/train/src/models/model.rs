//! A network as a trait object. The trainer, the reducer and the checkpoints access parameters as numbered host slices (in
//! the order of [`Model::entries`]) or, for a model on a device, as numbered flat tensors; only this file and `visitors.rs`
//! know the module that they belong to.

use super::{Input, Net, Role, StateEntry};
use base::error::{Error, Result};
use burn::module::ModuleMapper;
use burn::tensor::{DType, Device, Tensor};
use ddp::device::{Compute, drawn, is_host};
use ddp::module::{
    Casts, Cursor, EditMapper, ForwardMapper, FreezeMapper, MapCursor, ModuleState, ReadVisitor,
    ReplaceMapper, Selection, Tap, TensorCheck, draw_lazy, in_f32,
};
use std::any::Any;

/// Selects every tensor.
pub const ALL: Selection<'static> = &|_| true;

/// A model that trains on one device.
pub trait Model: Send {
    /// Parameters and buffers; the index is the tensor's number.
    fn entries(&self) -> &[StateEntry];

    /// The device of the training forward pass, with autodiff.
    fn device(&self) -> &Device;

    /// Calls `pass` with the network of a forward pass in which every trainable parameter goes through `tap` at its first
    /// use.
    fn run(&self, tap: Tap, pass: &mut dyn FnMut(&AnyNet));

    /// The outputs of such a pass, `[rows, outputs]`.
    fn forward(&self, input: Input, tap: Tap) -> Tensor<2> {
        passed(self, tap, |net| net.forward(input))
    }

    /// A snapshot for evaluation: no autodiff, no dropout, running statistics. It shares memory with the model; drop it
    /// before the next `edit`, which would otherwise copy.
    fn evaluator(&self) -> Evaluator;

    /// Passes the values of the selected tensors to `see`, in the module's layout.
    ///
    /// # Errors
    /// The device fails; never in host memory. `see` is not called after an error.
    fn read(&self, which: Selection<'_>, see: &mut dyn FnMut(usize, &[f32])) -> Result<()>;

    /// Takes the gradient of the selected parameters away: they become `Role::Frozen`.
    fn freeze(&mut self, which: Selection<'_>);

    /// Lets `change` write the values of the selected tensors: in place in host memory, otherwise in a copy that is sent back.
    fn edit(&mut self, which: Selection<'_>, change: &mut dyn FnMut(usize, &mut [f32])) -> Result<()>;

    /// Replaces every trainable tensor by the result of `step`; flat and without autodiff, on the model's device.
    fn update(&mut self, step: &mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>);

    /// The same for the selected tensors.
    fn replace(&mut self, which: Selection<'_>, by: &mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>);
}

/// What `pass` returns in [`Model::run`].
pub fn passed<T>(model: &(impl Model + ?Sized), tap: Tap, pass: impl FnOnce(&AnyNet) -> T) -> T {
    let (mut pass, mut result) = (Some(pass), None);
    model.run(tap, &mut |net| result = pass.take().map(|pass| pass(net)));
    result.expect("`run` calls the pass")
}

/// The network of a forward pass, whatever its type.
pub trait Forward {
    /// [`Net::forward`] in the precision of the run; outputs `[rows, outputs]`, in f32.
    fn forward(&self, input: Input) -> Tensor<2>;
    /// The Burn module.
    #[doc(hidden)]
    fn module(&self) -> &dyn Any;
    /// The type of floats that the network takes.
    #[doc(hidden)]
    fn dtype(&self) -> DType;
}

/// A model of any type with a forward pass.
pub type AnyNet = dyn Forward;

/// A network for forward passes without autodiff.
pub struct Evaluator {
    net: Box<AnyNet>,
    device: Device,
}

impl Evaluator {
    /// The network, without autodiff.
    pub fn net(&self) -> &AnyNet {
        &*self.net
    }

    /// The network's device, without autodiff; inputs must be on it.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Runs the forward pass: outputs `[rows, outputs]`.
    pub fn forward(&self, input: Input) -> Tensor<2> {
        self.net.forward(input)
    }
}

/// A [`Net`] as a [`Model`].
pub struct NetModel<N: Net> {
    net: Option<N>,
    state: ModuleState,
    device: Device,
    casts: Casts,
}

impl<N: Net> NetModel<N> {
    /// `build` creates the network on the given device, which has autodiff. Initial values are drawn from `seed`, in the order
    /// of the parameters, in host memory, so they are the same on every device.
    ///
    /// # Errors
    /// `build` fails, or the network has two tensors of the same name, a tensor that is not f32, or one on another device
    /// (exit 78).
    pub fn new(on: &Compute, seed: u64, build: impl FnOnce(&Device) -> Result<N>) -> Result<Self> {
        let host = Device::flex().autodiff();
        let net = drawn(&host, seed, || {
            let net = build(&host)?;
            draw_lazy(&net);
            Ok::<N, Error>(net)
        })?;
        let state = ModuleState::from_module(&net, N::rename);
        state.check_names()?;
        let mut check = TensorCheck::new(&state, &host);
        net.visit(&mut check);
        check.result?;
        let casts = Casts::new(&state.entries, on.dtype, N::stays_f32);
        let mut model = Self { net: Some(net), state, device: host, casts };
        if !is_host(&on.device) {
            model.device = on.device.clone().autodiff();
            model.net = model.net.map(|net| net.fork(&model.device));
        }
        Ok(model)
    }

    /// State entries, without drawing any values; `net` is on a device with autodiff.
    pub fn entries_of(net: &N) -> Vec<StateEntry> {
        ModuleState::from_module(net, N::rename).entries
    }

    fn net(&self) -> &N {
        self.net.as_ref().expect("the network is only away while it is changed")
    }

    fn forward_mapper(&self, tap: Option<Tap>) -> ForwardMapper<'_> {
        ForwardMapper { cursor: MapCursor::new(&self.state), tap, casts: &self.casts }
    }

    /// Burn stores updates to running state separately until the next forward pass; `valid` applies them, so that later reads
    /// and writes use the current values.
    fn apply_buffer_updates(&self) {
        if self.state.entries.iter().any(|e| e.role.is_buffer()) {
            drop(self.net().valid());
        }
    }
}

fn change<N: Net>(net: &mut Option<N>, mapper: &mut impl ModuleMapper) {
    let taken = net.take().expect("changes do not nest");
    *net = Some(taken.map(mapper));
}

fn replace<N: Net>(
    net: &mut Option<N>,
    state: &ModuleState,
    which: Selection<'_>,
    by: &mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>,
) {
    change(net, &mut ReplaceMapper { cursor: MapCursor::new(state), which, by });
}

impl<N: Net> Model for NetModel<N> {
    fn entries(&self) -> &[StateEntry] {
        &self.state.entries
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn run(&self, tap: Tap, pass: &mut dyn FnMut(&AnyNet)) {
        let net = self.net().clone().map(&mut self.forward_mapper(Some(tap)));
        pass(&Pass { net, dtype: self.casts.dtype });
        self.apply_buffer_updates();
    }

    fn evaluator(&self) -> Evaluator {
        let mut net = self.net().valid();
        if self.casts.dtype != DType::F32 {
            net = net.map(&mut self.forward_mapper(None));
        }
        let net = Box::new(Pass { net, dtype: self.casts.dtype });
        Evaluator { net, device: self.device.clone().without_autodiff() }
    }

    fn read(&self, which: Selection<'_>, see: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        let mut visitor = ReadVisitor { cursor: Cursor::new(&self.state), which, see, result: Ok(()) };
        self.net().visit(&mut visitor);
        visitor.result
    }

    fn freeze(&mut self, which: Selection<'_>) {
        change(&mut self.net, &mut FreezeMapper { cursor: MapCursor::new(&self.state), which });
        let frozen = |(number, entry): &(usize, &mut StateEntry)| entry.trainable() && which(*number);
        for (_, entry) in self.state.entries.iter_mut().enumerate().filter(frozen) {
            entry.role = Role::Frozen;
            entry.aliases.iter_mut().for_each(|alias| alias.role = Role::Frozen);
        }
    }

    fn edit(&mut self, which: Selection<'_>, edit: &mut dyn FnMut(usize, &mut [f32])) -> Result<()> {
        let cursor = MapCursor::new(&self.state);
        let mut mapper = EditMapper { cursor, which, change: edit, result: Ok(()) };
        change(&mut self.net, &mut mapper);
        mapper.result
    }

    fn update(&mut self, step: &mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>) {
        let trainable = |index: usize| self.state.entries[index].trainable();
        replace(&mut self.net, &self.state, &trainable, step);
    }

    fn replace(&mut self, which: Selection<'_>, by: &mut dyn FnMut(usize, Tensor<1>) -> Tensor<1>) {
        replace(&mut self.net, &self.state, which, by);
    }
}

/// The network of one forward pass.
struct Pass<N> {
    net: N,
    dtype: DType,
}

impl<N: Net> Forward for Pass<N> {
    fn forward(&self, input: Input) -> Tensor<2> {
        in_f32(self.net.forward(input.cast(self.dtype)))
    }
    fn module(&self) -> &dyn Any {
        &self.net
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
}
