//! The same module on all ranks: its structure is compared, its values are sent by rank 0.

use crate::module::{
    Cursor, EditMapper, IdMapper, IdVisitor, MapCursor, ModuleState, ReadVisitor, Role, Selection,
    StateEntry, TensorCheck,
};
use crate::{DdpOptions, HookSource};
use base::error::{Error, ErrorKind, Result};
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, GradientCheckpointingStrategy, Tensor};
use collectives::{CommError, Element, ProcessGroup};
use xxhash_rust::xxh3::Xxh3;

/// The device of a module's float tensors.
///
/// # Errors
/// The module has no tensor, or one that is on another device than the first one or on one without autodiff or
/// with gradient checkpointing, or that is not f32.
pub(crate) fn device_of<M: Module>(module: &M) -> Result<Device> {
    let mut found = Devices::default();
    module.visit(&mut found);
    let Some((_, first, _)) = found.tensors.first().cloned() else {
        return Err(Error::spec("the module has no parameters, so there is nothing to train"));
    };
    for (name, device, dtype) in &found.tensors {
        let (wrong, hint) = if !device.is_autodiff() {
            let hint = "create the module on a device with autodiff: `Device::flex().autodiff()`";
            ("is on a device without autodiff".to_owned(), hint)
        } else if device.gradient_checkpointing_strategy() != Some(GradientCheckpointingStrategy::Disabled) {
            let wrong = "is on a device with gradient checkpointing, which data parallelism does not support"
                .to_owned();
            (wrong, "create the module on a device without `gradient_checkpointing()`")
        } else if *device != first {
            ("is on another device than the first one".to_owned(), "create all of the module on one device")
        } else if *dtype != DType::F32 {
            let wrong = format!("has type {dtype:?}; only f32 is supported");
            (wrong, "keep parameters in f32, and cast inside of `forward`")
        } else {
            continue;
        };
        return Err(Error::spec(format!("`{name}` of the module {wrong}")).hint(hint));
    }
    Ok(first)
}

#[derive(Default)]
struct Devices {
    path: Vec<String>,
    tensors: Vec<(String, Device, DType)>,
}

impl ModuleVisitor for Devices {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        self.tensors.push((self.path.join("."), tensor.device(), tensor.dtype()));
    }
}

/// This rank's result, if no rank has an error. A collective.
///
/// # Errors
/// That of this rank, or else that of the first rank that has one. A failed collective.
pub(crate) fn on_all_ranks<T>(own: Result<T>, group: &dyn ProcessGroup) -> Result<T> {
    // 0 without an error, else 1 + the number of its kind.
    let mut codes = vec![0i64; group.world_size()];
    let own_code = own.as_ref().err().map_or(0, |e| 1 + e.kind as i64);
    group.all_gather((&[own_code][..]).into(), (&mut codes).into())?;
    let Some(rank) = codes.iter().position(|code| *code != 0) else { return own };
    let kind = usize::try_from(codes[rank] - 1).ok().and_then(|number| ErrorKind::ALL.get(number));
    let kind = kind.copied().unwrap_or(ErrorKind::Internal);
    let (message, hint) = own.as_ref().err().map(|e| (e.message.clone(), e.hint.clone())).unwrap_or_default();
    let message = broadcast_text(message, rank, group)?;
    let hint = broadcast_text(hint.unwrap_or_default(), rank, group)?;
    own.and_then(|_| Err(Error::new(kind, format!("rank {rank}: {message}")).hint(hint)))
}

/// Checks that tensors with one parameter id have one value, because they stay tied.
///
/// # Errors
/// They have not. A failed device.
pub(crate) fn check_tied<M: Module>(module: &M, state: &ModuleState, device: &Device) -> Result<()> {
    let mut check = TensorCheck::new(state, device);
    module.visit(&mut check);
    check.result
}

/// Checks that all ranks have the same options and tensors as rank 0, the latter as PyTorch's
/// `_verify_param_shape_across_processes`. A collective.
///
/// # Errors
/// They have not: the same error on all ranks, which names the first rank that differs and its first option or
/// tensor that does. A failed collective.
pub(crate) fn verify_same(
    options: &DdpOptions,
    entries: &[StateEntry],
    group: &dyn ProcessGroup,
) -> Result<()> {
    let options = compared(options);
    let own: Vec<String> = options.iter().cloned().chain(entries.iter().map(described)).collect();
    let rank_0 = broadcast_text(own.join("\n"), 0, group)?;
    let rank_0: Vec<&str> = rank_0.lines().collect();
    let longer = own.len().max(rank_0.len());
    let differs = (0..longer).find(|i| own.get(*i).map(String::as_str) != rank_0.get(*i).copied());
    let mut first = vec![0i64; group.world_size()];
    group.all_gather((&[differs.map_or(-1, |i| i as i64)][..]).into(), (&mut first).into())?;
    let Some(rank) = first.iter().position(|first| *first >= 0) else { return Ok(()) };
    let at = first[rank] as usize;
    let theirs = broadcast_text(own.get(at).cloned().unwrap_or_default(), rank, group)?;
    let named = |tensor: &str| if tensor.is_empty() { "no tensor".to_owned() } else { tensor.to_owned() };
    let (theirs, rank_0) = (named(&theirs), named(rank_0.get(at).copied().unwrap_or_default()));
    let (what, hint) = if at < options.len() {
        ("options", "pass the same `DdpOptions` on all ranks, except for `state`")
    } else {
        (
            "modules",
            "build the same module on all ranks; only the values may differ, because rank 0's are used",
        )
    };
    Err(Error::spec(format!(
        "the ranks have different {what}: rank {rank} has {theirs} where rank 0 has {rank_0}"
    ))
    .hint(hint))
}

/// The options that must be the same on all ranks, one a line.
fn compared(options: &DdpOptions) -> [String; 4] {
    let DdpOptions { bucket_cap_mb, first_bucket_mb, hook, broadcast_buffers, state: _ } = options;
    [
        format!("`bucket_cap_mb` {bucket_cap_mb}"),
        format!("`first_bucket_mb` {first_bucket_mb}"),
        format!("`hook` {}", hook.as_ref().map_or("none", HookSource::name)),
        format!("`broadcast_buffers` {broadcast_buffers}"),
    ]
}

fn described(entry: &StateEntry) -> String {
    let kind = match entry.role {
        Role::Parameter => "parameter",
        Role::Frozen => "frozen parameter",
        Role::Statistic | Role::Buffer => "buffer",
    };
    let others: Vec<String> = entry.aliases.iter().map(|alias| format!(" = `{}`", alias.name)).collect();
    format!("{kind} `{}`{} of shape {:?}", entry.name, others.concat(), entry.module_shape())
}

fn broadcast_text(text: String, root: usize, group: &dyn ProcessGroup) -> Result<String, CommError> {
    let bytes = broadcast_vec(text.into_bytes(), root, group)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `root`'s `values`, whose number the other ranks do not know. A collective.
pub(crate) fn broadcast_vec<T: Element>(
    mut values: Vec<T>,
    root: usize,
    group: &dyn ProcessGroup,
) -> Result<Vec<T>, CommError> {
    let mut len = [values.len() as i64];
    group.broadcast((&mut len[..]).into(), root)?;
    values.resize(len[0] as usize, T::zeroed());
    if !values.is_empty() {
        group.broadcast((&mut values).into(), root)?;
    }
    Ok(values)
}

/// Checks that parameters have the same values on all ranks. Buffers may differ. A collective.
///
/// # Errors
/// They have not: the same error on all ranks. A failed collective or device.
pub(crate) fn verify_values<M: Module>(
    module: &M,
    state: &ModuleState,
    group: &dyn ProcessGroup,
) -> Result<()> {
    let mut digest = Xxh3::new();
    let mut see = |number: usize, values: &[f32]| {
        digest.update(bytemuck::cast_slice(&values[..state.entries[number].numel()]));
    };
    let which = |number: usize| !state.entries[number].role.is_buffer();
    let mut reader = ReadVisitor { cursor: Cursor::new(state), which: &which, see: &mut see, result: Ok(()) };
    module.visit(&mut reader);
    reader.result?;
    let mut all = vec![0i64; group.world_size()];
    group.all_gather((&[digest.digest() as i64][..]).into(), (&mut all).into())?;
    let Some(rank) = all.iter().position(|other| *other != all[0]) else { return Ok(()) };
    let message = format!("the parameters of rank {rank} differ from those of rank 0");
    Err(Error::new(ErrorKind::Diverged, message)
        .hint("load model and optimizer on every rank, and step with equal optimizers and learning rates"))
}

/// Gives all tensors rank 0's parameter ids on all ranks: Burn's optimizers store their state by id. A collective.
pub(crate) fn broadcast_ids<M: Module>(
    module: M,
    state: &ModuleState,
    group: &dyn ProcessGroup,
) -> Result<M> {
    let mut own = IdVisitor { cursor: Cursor::new(state), ids: Vec::new() };
    module.visit(&mut own);
    let mut bits: Vec<i64> = own.ids.iter().map(|id| id.val() as i64).collect();
    group.broadcast((&mut bits).into(), 0)?;
    let ids: Vec<ParamId> = bits.iter().map(|bits| ParamId::from(*bits as u64)).collect();
    Ok(module.map(&mut IdMapper { cursor: MapCursor::new(state), ids: &ids }))
}

/// Gives the selected tensors rank 0's values on all ranks. The module comes back after an error too. A collective.
pub(crate) fn broadcast_tensors<M: Module>(
    module: M,
    state: &ModuleState,
    which: Selection<'_>,
    group: &dyn ProcessGroup,
) -> (M, Result<()>) {
    let mut received = match read_and_broadcast(&module, state, which, group) {
        Ok(read) => read.into_iter(),
        Err(error) => return (module, Err(error)),
    };
    let mut write = |_: usize, values: &mut [f32]| {
        if let Some(of_rank_0) = received.next() {
            values[..of_rank_0.len()].copy_from_slice(&of_rank_0);
        }
    };
    let mut mapper = EditMapper { cursor: MapCursor::new(state), which, change: &mut write, result: Ok(()) };
    let module = module.map(&mut mapper);
    let done = mapper.result;
    (module, done)
}

/// Rank 0's values of the selected tensors, in order. Nothing is sent while the module is visited: Burn holds the
/// lock of running state meanwhile, and ranks that are threads may share it.
fn read_and_broadcast<M: Module>(
    module: &M,
    state: &ModuleState,
    which: Selection<'_>,
    group: &dyn ProcessGroup,
) -> Result<Vec<Vec<f32>>> {
    let mut read = Vec::new();
    let mut see = |number: usize, values: &[f32]| read.push(values[..state.entries[number].numel()].to_vec());
    let mut reader = ReadVisitor { cursor: Cursor::new(state), which, see: &mut see, result: Ok(()) };
    module.visit(&mut reader);
    reader.result?;
    for values in read.iter_mut().filter(|values| !values.is_empty()) {
        group.broadcast(values.into(), 0)?;
    }
    Ok(read)
}
