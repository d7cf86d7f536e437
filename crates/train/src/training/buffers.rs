//! Synchronises buffers (running state, such as batch-norm statistics) between ranks, as `train.buffers` says.

use crate::models::{Model, Role};
use base::error::Result;
use collectives::{CommError, ProcessGroup, ReduceOp};
use spec::choice;

choice! {
    /// Running state of the model, such as batch-norm statistics, which each rank computes from its own samples.
    BufferSync:
    /// Rank 0's, sent to the other ranks before an evaluation. PyTorch's DDP sends them before every forward pass;
    /// training never reads them, so the result is the same.
    Broadcast = "broadcast",
    /// The mean over the ranks, after each step.
    Mean = "mean",
}

/// `"mean"`: averages buffers over the ranks after each step. `"broadcast"`: sends rank 0's buffers on which the next
/// training step may depend.
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

/// `"broadcast"`: sends rank 0's buffers to the other ranks. Training never reads batch-norm statistics, so one
/// broadcast before an evaluation equals PyTorch's broadcast before every forward pass.
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

/// Copies rank 0's parameters and buffers to all ranks.
pub fn share_model(model: &mut dyn Model, group: &dyn ProcessGroup) -> Result<()> {
    over(|_| true, model, &mut |values| group.broadcast(values.into(), 0))
}

/// Runs `collective` on all tensors of the selected roles, as one array.
fn over(
    selected: impl Fn(Role) -> bool,
    model: &mut dyn Model,
    collective: &mut dyn FnMut(&mut [f32]) -> Result<(), CommError>,
) -> Result<()> {
    let selected: Vec<bool> = model.entries().iter().map(|e| selected(e.role)).collect();
    if !selected.contains(&true) {
        return Ok(());
    }
    let which = |i: usize| selected[i];
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
