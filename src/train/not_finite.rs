//! Errors for values that are not finite.

use crate::ddp::HookSource;
use crate::error::{Error, ExitCode};

pub(super) fn gradient(step: u64, norm: f64) -> Error {
    error(format!("the gradient of step {step} is not finite (norm {norm}); nothing was saved with it"))
}

/// Adds a hint if the communication hook may have overflowed.
pub(super) fn behind(error: Error, hook: Option<&HookSource>, world: usize) -> Error {
    let Some((hook, largest)) = hook.and_then(|hook| Some((hook, hook.largest(world)?))) else {
        return error;
    };
    let name = hook.name();
    error.hint(format!(
        "`comm_hook = \"{name}\"` carries no gradient beyond {largest} between {world} ranks; `\"bf16\"` and `\"none\"` do, and a lower learning rate may help"
    ))
}

pub(super) fn loss(step: u64, loss: f64) -> Error {
    error(format!("the loss of step {step} is {loss}; nothing was saved with it"))
}

fn error(message: String) -> Error {
    Error::new(ExitCode::NonFinite, message)
        .hint("a lower learning rate, `train.clip_norm`, or a look at the data of this step usually helps")
}
