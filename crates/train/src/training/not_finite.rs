//! Errors for values that are not finite.

use super::Trainer;
use base::error::{Error, ExitCode};

pub(super) fn gradient(step: u64, norm: f64) -> Error {
    error(format!(
        "the gradient of step {step} is not finite (norm {norm}); no checkpoint contains this step"
    ))
}

impl Trainer<'_> {
    /// Adds a hint if the communication hook may have overflowed.
    pub(super) fn with_hook_hint(&self, error: Error) -> Error {
        let world = self.group.world_size();
        let hook = self.settings.comm_hook.as_ref();
        let Some((hook, largest)) = hook.and_then(|hook| Some((hook, hook.largest(world)?))) else {
            return error;
        };
        let name = hook.name();
        error.hint(format!(
            "`comm_hook = \"{name}\"` overflows for gradients beyond {largest} with {world} ranks; use `\"bf16\"`, `\"none\"` or a lower learning rate"
        ))
    }
}

pub(super) fn loss(step: u64, loss: f64) -> Error {
    error(format!("the loss of step {step} is {loss}; no checkpoint contains this step"))
}

fn error(message: String) -> Error {
    Error::new(ExitCode::NonFinite, message)
        .hint("try a lower learning rate or `train.clip_norm`, and check the data of this step")
}
