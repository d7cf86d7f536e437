//! For [`Registry::task`](crate::Registry::task), [`Registry::loss`](crate::Registry::loss) and
//! [`Registry::metric`](crate::Registry::metric).
//!
//! A task:
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Tensor};
//! use ddp_run::prelude::*;
//! use ddp_run::schemars::JsonSchema;
//! use ddp_run::task::MetricFacts;
//!
//! /// A mean and the logarithm of a variance for each sample. It returns no rows to be compared with the targets: it has no `Net::forward`.
//! #[derive(Module, Debug)]
//! struct Gauss {
//!     mean: Linear,
//!     log_variance: Linear,
//! }
//!
//! impl Net for Gauss {}
//!
//! impl Gauss {
//!     fn predict(&self, x: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
//!         (self.mean.forward(x.clone()), self.log_variance.forward(x))
//!     }
//! }
//!
//! #[derive(serde::Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! struct Features {
//!     inputs: usize,
//! }
//!
//! /// The negative log-likelihood of the targets, up to a constant.
//! #[derive(serde::Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! struct Likelihood {}
//!
//! impl Task for Likelihood {
//!     type Model = Gauss;
//!     type Batch = Batch;
//!
//!     fn metrics(&self) -> Vec<MetricFacts> {
//!         vec![MetricFacts::larger_is_better("within")]
//!     }
//!
//!     fn step(&self, model: &Gauss, batch: Batch, _: &StepContext<'_>) -> Result<StepOutput> {
//!         let (mean, log_variance) = model.predict(batch.input.rows());
//!         let squared = (batch.target.rows() - mean).square() / log_variance.clone().exp();
//!         let samples = squared.dims()[0];
//!         // Targets within one standard deviation, of all.
//!         let within = squared.clone().inner().lower_elem(1.0).float().sum();
//!         let loss = (squared + log_variance).mean() * 0.5;
//!         Ok(StepOutput::new(loss, samples).metric("within", within, samples))
//!     }
//! }
//!
//! // `[model] name = "gauss"`, `inputs = 4` and `[task] name = "likelihood"`
//! let registry = Registry::standard()
//!     .model("gauss", |config: &Features, _, device: &Device| Gauss {
//!         mean: LinearConfig::new(config.inputs, 1).init(device),
//!         log_variance: LinearConfig::new(config.inputs, 1).init(device),
//!     })
//!     .task::<Likelihood>("likelihood");
//! ```
//!
//! A loss:
//!
//! ```
//! use burn::tensor::Tensor;
//! use ddp_run::dataset::{FieldFacts, FieldKind};
//! use ddp_run::prelude::*;
//! use ddp_run::schemars::JsonSchema;
//!
//! /// The mean absolute error, outside of a margin.
//! #[derive(serde::Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! struct Margin {
//!     /// Smaller errors count for nothing.
//!     #[schemars(range(min = 0.0))]
//!     width: f64,
//! }
//!
//! impl Loss for Margin {
//!     fn of(&self, outputs: Tensor<2>, target: Target) -> Tensor<1> {
//!         ((outputs - target.rows()).abs() - self.width).clamp_min(0.0).mean()
//!     }
//!
//!     fn fits(&self, target: &FieldFacts) -> Result<()> {
//!         match target.kind {
//!             FieldKind::Float => Ok(()),
//!             FieldKind::Index(_) => Err(Error::spec("the loss `margin` requires numbers as targets")),
//!         }
//!     }
//! }
//!
//! // `[loss] name = "margin"`, `width = 0.1`
//! let registry = Registry::standard().loss::<Margin>("margin");
//! ```
//!
//! A metric:
//!
//! ```
//! use burn::tensor::Tensor;
//! use ddp_run::prelude::*;
//! use ddp_run::schemars::JsonSchema;
//! use ddp_run::task::Term;
//!
//! /// The share of the targets of a class that are found.
//! #[derive(serde::Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! struct Recall {
//!     class: i64,
//! }
//!
//! impl Metric for Recall {
//!     fn measure(&self, outputs: Tensor<2>, target: Target) -> [Term; 2] {
//!         let rows = outputs.dims()[0];
//!         let there = target.flat_index().equal_elem(self.class).int();
//!         let found = outputs.argmax(1).reshape([rows]).equal_elem(self.class).int() * there.clone();
//!         [found.sum().float().into(), there.sum().float().into()]
//!     }
//! }
//!
//! // `[[metric]] name = "recall"`, `class = 3`: `train.recall` and `val.recall`
//! let registry = Registry::standard().metric::<Recall>("recall");
//! ```

pub use train::tasks::{Batch, Loss, Metric, MetricFacts, StepContext, StepOutput, Task, TaskModel, Term};
#[cfg(feature = "learner")]
pub use train::tasks::{LearnerModel, LearnerOutput};
