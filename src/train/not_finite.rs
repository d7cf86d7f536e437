//! The errors of numbers that went wrong.

use crate::error::{Error, ExitCode};

pub(super) fn gradient(step: u64, norm: f64) -> Error {
    error(format!("the gradient of step {step} is not finite (norm {norm}); nothing was saved with it"))
}

pub(super) fn loss(step: u64, loss: f64) -> Error {
    error(format!("the loss of step {step} is {loss}; nothing was saved with it"))
}

fn error(message: String) -> Error {
    Error::new(ExitCode::NonFinite, message)
        .hint("a lower learning rate, `train.clip_norm`, or a look at the data of this step usually helps")
}
