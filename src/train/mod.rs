//! The training loop: settings, data and a model in, a trained model out; losses, the sums behind every metric,
//! evaluation. Events go out through [`Observer`]; nothing calls back in.

mod algebra;
mod batching;
mod buffers;
mod clock;
mod config;
mod device_sums;
mod early_stop;
mod ema;
mod evaluate;
mod feed;
mod flags;
mod in_flight;
mod loss_scale;
mod mixing;
mod not_finite;
mod observer;
mod optimizer_state;
mod passes;
mod plateau;
mod position;
mod saves;
mod spans;
mod sums;
mod trainer;
mod update;
mod weight_average;

pub use algebra::BatchAlgebra;
pub use batching::{Batching, OnResize};
pub use buffers::BufferSync;
pub use clock::Clock;
pub use config::{Settings, TrainConfig};
pub use early_stop::EarlyStop;
pub use ema::Ema;
pub use evaluate::evaluate;
pub use loss_scale::LossScale;
pub use mixing::Mixing;
pub use observer::{Observer, RunTensors};
pub use position::Position;
pub use sums::Sums;
pub use trainer::{Ended, Parts, StepReport, Trainer};
pub use update::Updater;
pub use weight_average::WeightAverage;
