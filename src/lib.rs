//! ddp-run: distributed data-parallel training on [Burn](https://burn.dev), from a TOML job spec.
//!
//! The program is `Registry::standard().run()`. A user's crate adds models, data sets and other components
//! to the [`Registry`], and is then the whole program with their names known:
//!
//! ```no_run
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Tensor, activation::tanh};
//! use ddp_run::prelude::*;
//! use ddp_run::schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! /// The keys of `[model]` besides `name`.
//! #[derive(Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! struct MyNetConfig {
//!     /// Width of the hidden layer.
//!     hidden: usize,
//! }
//!
//! #[derive(Module, Debug)]
//! struct MyNet {
//!     inner: Linear,
//!     outer: Linear,
//! }
//!
//! impl Net for MyNet {
//!     fn forward(&self, input: Input) -> Tensor<2> {
//!         self.outer.forward(tanh(self.inner.forward(input.rows())))
//!     }
//! }
//!
//! /// Keeps freed memory for the next step; faster than the system's allocator.
//! #[global_allocator]
//! static ALLOCATOR: Allocator = Allocator;
//!
//! fn main() {
//!     Registry::standard()
//!         .model("mynet", |c: &MyNetConfig, _: &DataFacts, device: &Device| MyNet {
//!             inner: LinearConfig::new(2, c.hidden).init(device),
//!             outer: LinearConfig::new(c.hidden, 2).init(device),
//!         })
//!         .run()
//! }
//! ```
//!
//! [`prelude`] has what most such crates import; each of the other modules has what one kind of component needs.
//! docs/extending.md has an example of each, and ARCHITECTURE.md describes the program itself.

#![warn(missing_docs)]
#![deny(unsafe_code)]

#[macro_use]
extern crate base;

mod allocator;
mod cli;
pub mod dataset;
pub mod optimizer;
pub mod schedule;
pub mod task;

pub use base::error::{Error, ErrorKind, Result};
pub use cli::Program;
pub use job::Registry;
pub use launch::ExitCode;
/// For the configurations of users' components: `#[derive(JsonSchema)] #[schemars(crate = "ddp_run::schemars")]`.
pub use schemars;
/// For [`observer::EventObserver`].
pub use serde_json;

/// What most crates with their own components import: models, data sets and tasks. The other components are in the
/// module of their name.
pub mod prelude {
    /// The allocator of `ddp-run`, to be named with `#[global_allocator]`.
    pub use crate::allocator::Allocator;
    pub use crate::cli::Program;
    pub use base::error::{Error, Result};
    pub use data::{BurnBatch, BurnData, DataFacts, Dataset, DatasetSource, Transform};
    pub use job::registry::Registry;
    pub use train::models::{AnyNet, Input, Net, Target};
    pub use train::tasks::{Batch, Loss, Metric, StepContext, StepOutput, Task};
}

/// For [`Registry::model`]: what a model implements and gets.
pub mod model {
    pub use train::models::{AnyNet, Documents, Forward, Input, Net, Target, TrainedRows};
}

/// For [`dataset::Dataset::encoding`]: how inputs become samples, which `ddp-run predict` reads from a checkpoint.
pub mod encoding {
    pub use data::{
        Blanks, ColumnEncoding, ColumnKind, Encoding, ImageEncoding, Interpolation, NumberEncoding, Resize,
        TableEncoding, TargetEncoding, TextEncoding,
    };
}

/// For [`Registry::comm_hook`]: the hook, and the process group that it communicates through.
pub mod hook {
    pub use collectives::{
        CommError, CommErrorKind, Element, ProcessGroup, ReduceOp, SliceMut, SliceRef, Wait,
    };
    pub use ddp::CommHook;
}

/// For [`Registry::observer`].
pub mod observer {
    pub use record::{EventObserver, ObservedRun};
}

/// What the tests and benchmarks of this repository use. Not covered by semantic versioning.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod testing {
    pub use checkpoint::{Loaded, TensorData, TensorMap, load, read_weights, tensor_file};
    pub use collectives::rendezvous::KeySource;
    pub use collectives::{SoloGroup, gloo, mpi, rendezvous};
    pub use data::{FieldData, HostField};
    pub use ddp::device::{
        Compute, ComputeDevice, Precision, Readback, cuda_devices, supports_precision, wgpu_devices,
    };
    pub use ddp::{BucketCaps, BucketLayout, HookState, Reducer, TapLadder};
    pub use job::plan::{BatchAlgebra, Plan, WorldRequest, one_line};
    pub use job::reference::{Component, Key, Reference, Table, description, json_schema, keys, section};
    pub use job::worker::{Handoff, JobHandoff, RankJob, Received, RecorderOptions};
    pub use job::worker::{Resume, load_pretrained, received, train};
    pub use launch::nodes::{Limits, NodeRange, Nodes};
    pub use launch::{
        Endpoint, Failure, FailureCause, LocalLaunch, OnSecondSignal, RankPosition, StopFlag, logs,
    };
    pub use record::history::{FolderLock, Start};
    pub use record::{ProgressMode, Provenance, RunId, provenance};
    pub use spec::{Declaration, JobTree, Origin, Override, range, schema};
    pub use train::models::{ALL, Model};
    pub use train::tasks::StandardLoss;
    pub use train::training::{
        Observer, Position, RunTensors, StepReport, Sums, Trainer, TrainerParts, TrainingEnd, Updater,
    };
}
