//! One collective as a value: its arguments, their validation, and the header that announces it to the other ranks.

use super::header::{CallOperation, Header};
use super::{CommError, CommErrorKind, DType, ReduceOp, SliceMut, SliceRef, Wait};
use std::time::Duration;

/// A call on a [`ProcessGroup`](super::ProcessGroup), whose methods document each variant and its fields.
#[derive(Debug)]
#[allow(missing_docs, reason = "they are the methods and parameters of `ProcessGroup`")]
pub enum Call<'a> {
    AllReduce { buf: SliceMut<'a>, op: ReduceOp },
    Reduce { buf: SliceMut<'a>, op: ReduceOp, root: usize },
    Broadcast { buf: SliceMut<'a>, root: usize },
    AllGather { input: SliceRef<'a>, output: SliceMut<'a> },
    ReduceScatter { input: SliceRef<'a>, output: SliceMut<'a>, op: ReduceOp },
    Barrier(Wait),
    Send { buf: SliceRef<'a>, to: usize, tag: u32 },
    Recv { buf: SliceMut<'a>, from: usize, tag: u32 },
}

impl Call<'_> {
    /// Names of all calls.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CallOperation::ALL.into_iter().map(CallOperation::name)
    }

    /// The name of the method: `all_reduce`.
    pub fn name(&self) -> &'static str {
        self.operation().name()
    }

    fn operation(&self) -> CallOperation {
        match self {
            Call::AllReduce { .. } => CallOperation::AllReduce,
            Call::Reduce { .. } => CallOperation::Reduce,
            Call::Broadcast { .. } => CallOperation::Broadcast,
            Call::AllGather { .. } => CallOperation::AllGather,
            Call::ReduceScatter { .. } => CallOperation::ReduceScatter,
            Call::Barrier(_) => CallOperation::Barrier,
            Call::Send { .. } => CallOperation::Send,
            Call::Recv { .. } => CallOperation::Recv,
        }
    }

    /// Checks the arguments, for rank `me` of `world`, before any communication. The error is `Misuse`.
    pub(super) fn check(&self, me: usize, world: usize) -> Result<(), CommError> {
        let wrong = match self {
            Call::AllReduce { buf, op } => check_reduction(buf.dtype(), *op),
            Call::Reduce { buf, op, root } => {
                check_reduction(buf.dtype(), *op).or_else(|| check_root(*root, world))
            }
            Call::Broadcast { root, .. } => check_root(*root, world),
            Call::AllGather { input, output } => {
                check_blocks((input.dtype(), input.len()), (output.dtype(), output.len()), world)
            }
            Call::ReduceScatter { input, output, op } => check_reduction(input.dtype(), *op).or_else(|| {
                check_blocks((output.dtype(), output.len()), (input.dtype(), input.len()), world)
            }),
            Call::Barrier(_) => None,
            Call::Send { to: peer, .. } | Call::Recv { from: peer, .. } => check_peer(*peer, me, world),
        };
        let misuse = |why| CommError::new(CommErrorKind::Misuse, None, format!("{}: {why}", self.name()));
        wrong.map_or(Ok(()), |why| Err(misuse(why)))
    }

    /// The header that announces the call; fields that do not follow from the call are taken from `base`.
    pub(super) fn header(&self, base: Header) -> Header {
        let header = Header { operation: self.operation(), ..base };
        let of = |dtype: DType, count: usize| Header { dtype, count: count as u64, ..header };
        match self {
            Call::AllReduce { buf, op } => Header { reduce_op: *op, ..of(buf.dtype(), buf.len()) },
            Call::Reduce { buf, op, root } => {
                Header { reduce_op: *op, root: *root as u32, ..of(buf.dtype(), buf.len()) }
            }
            Call::Broadcast { buf, root } => Header { root: *root as u32, ..of(buf.dtype(), buf.len()) },
            Call::AllGather { input, .. } => of(input.dtype(), input.len()),
            Call::ReduceScatter { output, op, .. } => {
                Header { reduce_op: *op, ..of(output.dtype(), output.len()) }
            }
            Call::Barrier(_) => of(DType::U8, 0),
            Call::Send { buf, to, tag } => {
                Header { root: *to as u32, tag: *tag, ..of(buf.dtype(), buf.len()) }
            }
            Call::Recv { buf, from, tag } => {
                Header { root: *from as u32, tag: *tag, ..of(buf.dtype(), buf.len()) }
            }
        }
    }

    /// How long the call may wait for its peers in a group with this timeout; `None`: as long as they are alive.
    pub(super) fn time_limit(&self, timeout: Duration) -> Option<Duration> {
        match self {
            Call::Barrier(Wait::WhilePeersLive) => None,
            Call::Barrier(Wait::Longer(by)) => Some(timeout.saturating_add(*by)),
            _ => Some(timeout),
        }
    }

    /// Runs the call in a group of one rank.
    pub(super) fn run_solo(self) {
        if let Call::AllGather { input, output } | Call::ReduceScatter { input, output, .. } = self {
            output.into_bytes().copy_from_slice(input.bytes());
        }
    }
}

// Each returns what is wrong with the arguments, and what would be valid.

/// `Mean` requires a float type.
pub(super) fn check_reduction(dtype: DType, op: ReduceOp) -> Option<String> {
    (op == ReduceOp::Mean && !dtype.is_float())
        .then(|| format!("mean is not defined for {dtype}; use sum, or convert to a float type"))
}

fn check_root(root: usize, world: usize) -> Option<String> {
    (root >= world).then(|| format!("root {root} is out of range for world size {world}"))
}

fn check_peer(peer: usize, me: usize, world: usize) -> Option<String> {
    if peer == me {
        return Some(format!("rank {me} cannot send to or receive from itself"));
    }
    (peer >= world).then(|| format!("rank {peer} is out of range for world size {world}"))
}

/// The `whole` side of a gather or scatter holds `world` times the elements of the `block` side (type, elements).
fn check_blocks(block: (DType, usize), whole: (DType, usize), world: usize) -> Option<String> {
    if block.0 != whole.0 {
        return Some(format!("the types of input and output differ: {} and {}", block.0, whole.0));
    }
    let fits = block.1.checked_mul(world) == Some(whole.1);
    (!fits).then(|| format!("expected {world} blocks of {} elements, got {} elements", block.1, whole.1))
}
