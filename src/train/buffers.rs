//! Buffers (running state, such as batch norms' statistics) over the ranks, as `train.buffers` says.

use crate::comm::{CommError, ProcessGroup, ReduceOp};
use crate::error::Result;
use crate::models::{Model, Role};
use crate::spec::choice;

choice! {
    /// What happens to buffers (batch-norm statistics), which each rank gathers from its own samples.
    BufferSync:
    /// Rank 0's are the model's, as in PyTorch's DDP: the others take them over before an evaluation. PyTorch copies them before
    /// every forward pass, which comes to the same, because training never reads them.
    Broadcast = "broadcast",
    /// The mean over ranks, after each step.
    Mean = "mean",
}

/// `"mean"`: buffers are averaged over the ranks after each step. `"broadcast"`: the others take over those of rank 0's that their
/// next step may depend on.
pub(super) fn after_step(sync: BufferSync, model: &mut dyn Model, group: &dyn ProcessGroup) -> Result<()> {
    if group.world_size() == 1 {
        return Ok(());
    }
    match sync {
        BufferSync::Mean => {
            over(Role::is_buffer, model, &mut |values| group.all_reduce(values.into(), ReduceOp::Mean))
        }
        BufferSync::Broadcast => {
            over(|role| role == Role::Buffer, model, &mut |values| group.broadcast(values.into(), 0))
        }
    }
}

/// `"broadcast"`: rank 0's buffers are the model's. Training never reads a batch norm's statistics, so one broadcast before an
/// evaluation equals PyTorch's broadcast before every forward pass.
pub(super) fn before_evaluation(
    sync: BufferSync,
    model: &mut dyn Model,
    group: &dyn ProcessGroup,
) -> Result<()> {
    if sync != BufferSync::Broadcast || group.world_size() == 1 {
        return Ok(());
    }
    over(Role::is_buffer, model, &mut |values| group.broadcast(values.into(), 0))
}

/// Runs `collective` over all tensors of the roles that are meant, as one array.
fn over(
    meant: impl Fn(Role) -> bool,
    model: &mut dyn Model,
    collective: &mut dyn FnMut(&mut [f32]) -> Result<(), CommError>,
) -> Result<()> {
    let meant: Vec<bool> = model.entries().iter().map(|e| meant(e.role)).collect();
    if !meant.contains(&true) {
        return Ok(());
    }
    let which = |i: usize| meant[i];
    let mut flat = Vec::new();
    model.read(&which, &mut |_, values| flat.extend_from_slice(values))?;
    collective(&mut flat)?;
    let mut rest = flat.as_slice();
    model.edit(&which, &mut |_, values| {
        let (own, tail) = rest.split_at(values.len());
        values.copy_from_slice(own);
        rest = tail;
    })
}
