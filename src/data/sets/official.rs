//! Sets that everybody has the same files of.

use crate::data::store::Cache;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::path::PathBuf;

/// Where to look for them, and how strictly.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct OfficialFiles {
    /// Folder of the files.
    #[default = "data"]
    #[schemars(extend("x-changes-results" = false))]
    pub root: PathBuf,
    /// Where they are unpacked when `root` is read-only.
    #[schemars(extend("x-changes-results" = false))]
    pub cache: Cache,
    /// Where to download missing files from.
    #[schemars(extend("x-changes-results" = false))]
    pub url: Option<String>,
    /// Only the official files will do: their sizes and digests.
    #[default = true]
    pub verify: bool,
}
