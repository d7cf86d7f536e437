//! What `[distributed]` says of gradients.

use super::BucketCaps;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

/// `[distributed]`: how gradients are averaged.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct ReducerConfig {
    /// What averages gradients in place of a plain all-reduce.
    #[default = "none"]
    pub comm_hook: String,
    /// MiB of gradients in a bucket.
    #[default = 25.0]
    #[schemars(range(max = 65536.0), extend("exclusiveMinimum" = 0.0))]
    pub bucket_cap_mb: f64,
    /// MiB of gradients in the first bucket, which should fill early.
    #[default = 1.0]
    #[schemars(range(max = 65536.0), extend("exclusiveMinimum" = 0.0))]
    pub first_bucket_mb: f64,
}

impl ReducerConfig {
    /// The bucket sizes in bytes.
    pub fn bucket_caps(&self) -> BucketCaps {
        let bytes = |mb: f64| (mb * 1024.0 * 1024.0) as usize;
        BucketCaps { first: bytes(self.first_bucket_mb), rest: bytes(self.bucket_cap_mb) }
    }
}
