//! From a plan, data and a model to a trained model: the loop, the losses, the sums behind every metric, evaluation.
//! Events go out through [`Observer`]; nothing calls back in.

mod batching;
mod buffers;
mod evaluate;
mod flags;
mod loss;
mod observer;
mod position;
mod sums;
mod trainer;
mod update;

pub use batching::Batching;
pub use evaluate::{EvalOptions, evaluate};
pub use loss::Loss;
pub use observer::Observer;
pub use position::Position;
pub use sums::Sums;
pub use trainer::{Ended, StepReport, Trainer};
pub use update::{Updated, Updater};
