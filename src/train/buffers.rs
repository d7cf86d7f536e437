//! Buffers (batch-norm statistics) over the ranks, as `train.buffers` says.

use crate::comm::{CommError, ProcessGroup, ReduceOp};
use crate::error::Result;
use crate::models::Model;
use crate::plan::BufferSync;

/// `"mean"`: running statistics are averaged over the ranks after each step.
pub(super) fn after_step(sync: BufferSync, model: &mut dyn Model, group: &dyn ProcessGroup) -> Result<()> {
    if sync != BufferSync::Mean || group.world_size() == 1 {
        return Ok(());
    }
    over_buffers(model, &mut |values| group.all_reduce(values.into(), ReduceOp::Mean))
}

/// `"broadcast"`: rank 0's running statistics are the model's. Training never reads them, so one broadcast before an
/// evaluation equals PyTorch's broadcast before every forward pass.
pub(super) fn before_evaluation(
    sync: BufferSync,
    model: &mut dyn Model,
    group: &dyn ProcessGroup,
) -> Result<()> {
    if sync != BufferSync::Broadcast || group.world_size() == 1 {
        return Ok(());
    }
    over_buffers(model, &mut |values| group.broadcast(values.into(), 0))
}

/// Runs `collective` over every buffer (not the parameters), one after the other.
fn over_buffers(
    model: &mut dyn Model,
    collective: &mut dyn FnMut(&mut [f32]) -> Result<(), CommError>,
) -> Result<()> {
    let buffers: Vec<bool> = model.entries().iter().map(|e| !e.trainable).collect();
    if !buffers.contains(&true) {
        return Ok(());
    }
    let which = |i: usize| buffers[i];
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
