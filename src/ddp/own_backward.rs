//! Steps that run the backward pass themselves: a model's `TrainStep` of Burn's `Learner` does.
//!
//! Its gradients arrive from the taps as in any backward pass. The trainer multiplies a loss before its own backward
//! pass (by the share of a short micro-batch in its step); here gradients are multiplied instead, after it.

use super::tap::GradientSink;
use crate::comm::lock;
use crate::device::Gradient;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Passes the gradients of one backward pass on to the reducer's sink.
pub struct OwnBackward {
    sink: Arc<dyn GradientSink>,
    factor: f32,
    state: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    parameters: Vec<usize>,
    again: bool,
}

/// How often a step ran a backward pass through the model's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardPasses {
    None,
    One,
    Several,
}

impl OwnBackward {
    /// `factor`: each gradient is multiplied by it.
    pub fn new(sink: Arc<dyn GradientSink>, factor: f32) -> Self {
        Self { sink, factor, state: Mutex::default() }
    }

    /// After the step.
    pub fn passes(&self) -> BackwardPasses {
        let state = lock(&self.state);
        match (state.parameters.is_empty(), state.again) {
            (true, _) => BackwardPasses::None,
            (_, false) => BackwardPasses::One,
            (_, true) => BackwardPasses::Several,
        }
    }
}

impl fmt::Debug for OwnBackward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnBackward").field("factor", &self.factor).finish_non_exhaustive()
    }
}

impl GradientSink for OwnBackward {
    fn ready(&self, parameter: usize, gradient: Gradient) {
        {
            let mut state = lock(&self.state);
            if state.parameters.contains(&parameter) {
                // The sum of the first pass may be with the other ranks already.
                state.again = true;
                return;
            }
            state.parameters.push(parameter);
        }
        let gradient = if self.factor == 1.0 { gradient } else { gradient.times(self.factor) };
        self.sink.ready(parameter, gradient);
    }
}
