//! The averages of a step's gradients over the ranks: the taps that receive gradients during a
//! backward pass, the buckets and their communication hook.

use super::{Position, TrainSettings};
use crate::models::Model;
use base::error::{Error, Result};
use collectives::ProcessGroup;
use ddp::device::Precision;
use ddp::{BucketLayout, HookSource, HookState, Reducer, TapLadder};
use std::sync::Arc;

/// Averages gradients while they are computed.
pub(super) struct GradientSync {
    pub ladder: TapLadder,
    pub reducer: Reducer,
    hook: Option<HookSource>,
    world: usize,
    /// How many times as large as in the checkpoint the gradients are that the hook gets, if the
    /// run resumes.
    hook_factor: Option<f64>,
}

impl GradientSync {
    /// With the bucket order and the loss scale of `position`, which gets a loss scale if the run
    /// needs one.
    pub fn new(
        settings: &TrainSettings,
        model: &dyn Model,
        position: &mut Position,
        group: Arc<dyn ProcessGroup>,
    ) -> Result<Self> {
        let sizes: Vec<Option<usize>> =
            model.entries().iter().map(|e| e.trainable().then(|| e.numel())).collect();
        let caps = settings.reducer.bucket_caps();
        let layout = match &position.bucket_order {
            Some(order) => BucketLayout::in_order(&sizes, order, caps),
            None => BucketLayout::new(&sizes, caps),
        };
        let names = model.entries().iter().map(|e| e.name.clone()).collect();
        let (hook, world) = (settings.comm_hook.clone(), group.world_size());
        let learn = position.bucket_order.is_none();
        let reducer = Reducer::new(layout, model.device(), learn, names, group, hook.as_ref())
            .map_err(|e| Error::internal(format!("cannot start the communication thread: {e}")))?;
        let factor = position.continue_scaled(settings.precision == Precision::F16);
        let hook_factor = (position.step > 0 && factor != 1.0).then_some(factor);
        Ok(Self { ladder: TapLadder::new(sizes.len(), model.device()), reducer, hook, world, hook_factor })
    }

    /// Restores the hook's state of all ranks, which only rank 0 has. Returns the reason if it does
    /// not fit this run.
    pub fn restore_hook(&mut self, saved: Option<HookState>) -> Result<Option<String>> {
        let left_out = self.reducer.restore_hook(saved)?;
        if let Some(factor) = self.hook_factor {
            self.reducer.rescale(factor as f32);
        }
        Ok(left_out)
    }

    /// Adds a hint to an error about gradients that are not finite, if the hook may have
    /// overflowed.
    pub fn with_hook_hint(&self, error: Error) -> Error {
        let hook = self.hook.as_ref();
        let Some((hook, largest)) = hook.and_then(|hook| Some((hook, hook.largest(self.world)?))) else {
            return error;
        };
        let (name, world) = (hook.name(), self.world);
        error.hint(format!(
            "`comm_hook = \"{name}\"` overflows for gradients beyond {largest} with {world} ranks; \
             use `\"bf16\"`, `\"none\"` or a lower learning rate"
        ))
    }
}
