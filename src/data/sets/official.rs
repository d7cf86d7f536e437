//! Keys shared by the data sets with official files.

use crate::data::store::Cache;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::path::PathBuf;

/// Location and verification of the files.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct OfficialFiles {
    /// Folder of the files.
    #[default = "data"]
    #[schemars(extend("x-changes-results" = false))]
    pub root: PathBuf,
    /// Folder for unpacked files if `root` is read-only.
    #[schemars(extend("x-changes-results" = false))]
    pub cache: Cache,
    /// URL from which missing files are downloaded.
    #[schemars(extend("x-changes-results" = false))]
    pub url: Option<String>,
    /// Accept only the official files, by size and digest.
    #[default = true]
    pub verify: bool,
}
