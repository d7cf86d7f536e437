//! For [`Registry::dataset`](crate::Registry::dataset), [`Registry::burn_dataset`](crate::Registry::burn_dataset) and
//! [`Registry::transform`](crate::Registry::transform): data sets, their samples, and transforms of these.
//!
//! A data set:
//!
//! ```
//! use ddp_run::dataset::{FieldFacts, FieldKind, FieldMut, SampleKey, SampleMut, Splits};
//! use ddp_run::prelude::*;
//! use ddp_run::schemars::JsonSchema;
//! use std::sync::Arc;
//!
//! /// The squares of consecutive numbers. Its fields are the keys of `[dataset]`.
//! #[derive(Debug, serde::Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! struct SquaresConfig {
//!     /// Training samples; there are a tenth as many for validation.
//!     #[schemars(range(min = 10))]
//!     samples: usize,
//! }
//!
//! struct Squares {
//!     first: usize,
//!     len: usize,
//! }
//!
//! impl DatasetSource for SquaresConfig {
//!     fn open(&self) -> Result<Splits> {
//!         let part = |first, len| Arc::new(Squares { first, len });
//!         Ok(Splits {
//!             train: part(0, self.samples),
//!             val: Some(part(self.samples, self.samples / 10)),
//!             test: None,
//!         })
//!     }
//! }
//!
//! impl Dataset for Squares {
//!     fn len(&self) -> usize {
//!         self.len
//!     }
//!
//!     fn input(&self) -> FieldFacts {
//!         FieldFacts { shape: vec![1], kind: FieldKind::Float }
//!     }
//!
//!     fn target(&self) -> FieldFacts {
//!         FieldFacts { shape: vec![1], kind: FieldKind::Float }
//!     }
//!
//!     fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()> {
//!         let (FieldMut::Float(input), FieldMut::Float(target)) = (to.input, to.target) else {
//!             return Err(Error::data("inputs and targets are numbers"));
//!         };
//!         let x = (self.first + key.sample as usize) as f32 / 100.0;
//!         (input[0], target[0]) = (x, x * x);
//!         Ok(())
//!     }
//! }
//!
//! // `[dataset] name = "squares"`, `samples = 1000`
//! let registry = Registry::standard().dataset("squares", |config: SquaresConfig| config);
//! ```
//!
//! A transform of its samples:
//!
//! ```
//! use ddp_run::dataset::{FieldMut, Sample};
//! use ddp_run::prelude::*;
//! use ddp_run::schemars::JsonSchema;
//!
//! /// Sets inputs of training samples to zero at random.
//! #[derive(serde::Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! struct Hide {
//!     /// The share of the inputs.
//!     #[schemars(range(min = 0.0, max = 1.0))]
//!     share: f32,
//! }
//!
//! impl Transform for Hide {
//!     fn apply(&self, mut sample: Sample<'_>) -> Result<()> {
//!         let FieldMut::Float(input) = sample.input else {
//!             return Err(Error::data("the transform `hide` requires inputs that are numbers"));
//!         };
//!         if sample.training {
//!             let hidden = |_: &&mut f32| sample.random.between(0.0, 1.0) < self.share;
//!             input.iter_mut().filter(hidden).for_each(|x| *x = 0.0);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! // `[[transform]] name = "hide"`, `share = 0.1`
//! let registry = Registry::standard().transform::<Hide>("hide");
//! ```

pub use data::{
    BurnBatch, BurnData, DataFacts, Dataset, DatasetSource, FieldFacts, FieldKind, FieldMut, FieldsMut,
    POSITIONS, Sample, SampleKey, SampleMut, SampleRng, Splits, Transform, UNTRAINED,
};
