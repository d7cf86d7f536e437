//! The part of `[distributed]` that concerns gradients.

use super::BucketCaps;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

/// `[distributed]`: how gradients are averaged.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct ReducerConfig {
    /// Communication hook, which replaces the plain all-reduce; a name above or
    /// [one of your own](extending.md#a-communication-hook). `bf16` and `f16` send half the bytes, with error feedback; each
    /// rank's residual is in the checkpoint. A gradient above 65504 times the number of ranks (rounded up to a power of two)
    /// does not fit `f16`: the run ends with 92, or lowers the loss scale.
    #[default = "none"]
    #[schemars(extend("x-summaries" = {
        "none": "The plain all-reduce.",
        "bf16": "Sends gradients in bf16, with error feedback.",
        "f16": "Sends gradients in f16, with error feedback.",
    }))]
    pub comm_hook: String,
    /// MiB of gradients in a bucket; buckets fill in the order in which gradients become ready.
    #[default = 25.0]
    #[schemars(range(max = 65536.0), extend("exclusiveMinimum" = 0.0))]
    pub bucket_cap_mb: f64,
    /// MiB of gradients in the first bucket; a small one is sent early.
    #[default = 1.0]
    #[schemars(range(max = 65536.0), extend("exclusiveMinimum" = 0.0))]
    pub first_bucket_mb: f64,
}

/// For the description of `[distributed]`: a user-defined hook reads the table.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HookKeys {
    /// Keys of a user-defined hook, which declares them: the table `[distributed.hook]`.
    #[allow(dead_code, reason = "only declared")]
    hook: Option<serde_json::Map<String, serde_json::Value>>,
}

impl ReducerConfig {
    /// The bucket sizes in bytes.
    pub fn bucket_caps(&self) -> BucketCaps {
        let bytes = |mb: f64| (mb * 1024.0 * 1024.0) as usize;
        BucketCaps { first: bytes(self.first_bucket_mb), rest: bytes(self.bucket_cap_mb) }
    }
}
