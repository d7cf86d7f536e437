//! Errors for values that are not finite.

use base::error::{Error, ErrorKind};

pub(super) fn gradient(step: u64, norm: f64) -> Error {
    error(format!(
        "the gradient of step {step} is not finite (norm {norm}); no checkpoint contains this step"
    ))
}

pub(super) fn loss(step: u64, loss: f64) -> Error {
    error(format!("the loss of step {step} is {loss}; no checkpoint contains this step"))
}

fn error(message: String) -> Error {
    Error::new(ErrorKind::NonFinite, message)
        .hint("try a lower learning rate or `train.clip_norm`, and check the data of this step")
}
