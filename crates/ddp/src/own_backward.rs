//! Steps that run the backward pass themselves: a model's `TrainStep` of Burn's `Learner` does.
//!
//! Its gradients arrive from the taps as in any backward pass. The trainer multiplies a loss before its own backward
//! pass (by the share of a short micro-batch in its step); here gradients are multiplied instead, after it.

use super::tap::GradientSink;
use crate::device::Gradient;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Passes the gradients of such a step on to the reducer's sink. A parameter has one gradient there, as it should: Burn
/// consumes the taps in the first backward pass that reaches them, and panics in another one.
pub struct OwnBackward {
    sink: Arc<dyn GradientSink>,
    factor: f32,
    ran: AtomicBool,
}

impl OwnBackward {
    /// `factor`: each gradient is multiplied by it.
    pub fn new(sink: Arc<dyn GradientSink>, factor: f32) -> Self {
        Self { sink, factor, ran: AtomicBool::new(false) }
    }

    /// Whether a gradient has arrived.
    pub fn ran(&self) -> bool {
        self.ran.load(Relaxed)
    }
}

impl fmt::Debug for OwnBackward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnBackward").field("factor", &self.factor).finish_non_exhaustive()
    }
}

impl GradientSink for OwnBackward {
    fn ready(&self, parameter: usize, gradient: Gradient) {
        self.ran.store(true, Relaxed);
        let gradient = if self.factor == 1.0 { gradient } else { gradient.times(self.factor) };
        self.sink.ready(parameter, gradient);
    }
}
