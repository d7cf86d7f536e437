//! For [`Registry::schedule`](crate::Registry::schedule).
//!
//! ```
//! use ddp_run::prelude::*;
//! use ddp_run::schedule::{Curve, ScheduleConfig};
//! use ddp_run::schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// The base rate, then a smaller one.
//! #[derive(Debug, Serialize, Deserialize, JsonSchema)]
//! #[schemars(crate = "ddp_run::schemars")]
//! #[serde(default)]
//! struct Drop {
//!     /// The part of the schedule after which the rate is smaller.
//!     #[schemars(range(min = 0.0, max = 1.0))]
//!     after: f64,
//!     #[schemars(range(min = 0.0, max = 1.0))]
//!     factor: f64,
//! }
//!
//! impl Default for Drop {
//!     fn default() -> Self {
//!         Self { after: 0.8, factor: 0.1 }
//!     }
//! }
//!
//! impl Curve for Drop {
//!     fn lr(&self, base: f64, t: u64, span: u64) -> f64 {
//!         if (t as f64) < self.after * span as f64 { base } else { base * self.factor }
//!     }
//! }
//!
//! impl ScheduleConfig for Drop {}
//!
//! // `[scheduler] name = "drop"`, `after = 0.5`
//! let registry = Registry::standard().schedule::<Drop>("drop");
//! ```

pub use train::optim::schedule::{Curve, ScheduleConfig, Unit};
