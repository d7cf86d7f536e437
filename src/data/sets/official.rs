//! Keys shared by the data sets with official files.

use crate::data::store::Cache;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::path::PathBuf;

/// `cifar10` reads the folder `cifar-10-batches-bin`, `cifar-10-binary.tar.gz`, `cifar-10-batches-py` or
/// `cifar-10-python.tar.gz` in `root`. The MNIST sets read the four IDX files, gzipped or not, in `root`, `root/mnist` or
/// `root/MNIST/raw` (Fashion-MNIST: `root/fashion-mnist`, `root/FashionMNIST/raw`).
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct OfficialFiles {
    /// Folder of the files.
    #[default = "data"]
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    pub root: PathBuf,
    /// Where files are unpacked when `root` is read-only. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    pub cache: Cache,
    /// Where to download missing files from. A downloaded file gets its name after it was read and checked.
    #[schemars(extend("x-changes-results" = false))]
    pub url: Option<String>,
    /// Accept the official files only (size and digest).
    #[default = true]
    pub verify: bool,
}
