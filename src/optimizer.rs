//! For [`Registry::optimizer`](crate::Registry::optimizer).
//!
//! ```
//! use burn::tensor::Tensor;
//! use ddp_run::optimizer::{Optimizer, OptimizerConfig};
//! use ddp_run::prelude::*;
//! use ddp_run::schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// Gradient descent with heavy-ball momentum.
//! #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! #[serde(default)]
//! struct HeavyBall {
//!     /// Base learning rate.
//!     #[schemars(range(min = 0.0))]
//!     lr: f64,
//!     #[schemars(range(min = 0.0, max = 1.0))]
//!     momentum: f64,
//! }
//!
//! impl Default for HeavyBall {
//!     fn default() -> Self {
//!         Self { lr: 0.1, momentum: 0.9 }
//!     }
//! }
//!
//! impl OptimizerConfig for HeavyBall {}
//!
//! impl Optimizer for HeavyBall {
//!     fn slots(&self) -> &'static [&'static str] {
//!         &["velocity"]
//!     }
//!
//!     fn update(
//!         &self,
//!         _step: u64,
//!         lr: f64,
//!         scale: f32,
//!         _shape: &[usize],
//!         param: &mut [f32],
//!         grad: &[f32],
//!         state: &mut [&mut [f32]],
//!     ) {
//!         for ((p, g), v) in param.iter_mut().zip(grad).zip(state[0].iter_mut()) {
//!             *v = self.momentum as f32 * *v + g * scale;
//!             *p -= lr as f32 * *v;
//!         }
//!     }
//!
//!     fn update_on_device(
//!         &self,
//!         _step: u64,
//!         lr: f64,
//!         scale: Tensor<1>,
//!         _shape: &[usize],
//!         param: Tensor<1>,
//!         grad: Tensor<1>,
//!         state: &mut [Tensor<1>],
//!     ) -> Tensor<1> {
//!         state[0] = state[0].clone() * self.momentum + grad * scale;
//!         param - state[0].clone() * lr
//!     }
//! }
//!
//! // `[optimizer] name = "heavy-ball"`, `momentum = 0.95`
//! let registry = Registry::standard().optimizer::<HeavyBall>("heavy-ball");
//! ```

pub use train::optim::{Optimizer, OptimizerConfig};
