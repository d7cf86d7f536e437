//! Keys shared by the data sets with official files.

use crate::images::class_facts;
use crate::split::SplitOptions;
use crate::store::{Cache, Refusal, Url, in_git_work_tree, is_writable, megabytes};
use crate::transforms::ImageShape;
use crate::{DataFacts, FieldFacts, FieldKind};
use base::error::{Error, Result};
use base::files::folder;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::choice;
use std::path::{Path, PathBuf};

/// Classes of each of these data sets.
pub(super) const CLASSES: usize = 10;
/// The classes of `cifar10`, by label.
pub(super) const CIFAR10: [&str; CLASSES] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
/// Images of each official test set.
const TEST_IMAGES: usize = 10_000;

choice! {
    /// Where archives are unpacked.
    Unpack:
    /// To `root`.
    Root = "root",
    /// To the cache.
    Cache = "cache",
}

/// Images of ten classes from the official files. `cifar10` reads the folder `cifar-10-batches-bin`,
/// `cifar-10-binary.tar.gz`, `cifar-10-batches-py` or `cifar-10-python.tar.gz` in `root`. The MNIST sets read the four IDX files, gzipped or not, in `root`, `root/mnist` or
/// `root/MNIST/raw` (Fashion-MNIST: `root/fashion-mnist`, `root/FashionMNIST/raw`). Missing files are downloaded: to `root` if it is set or exists, and is writable; otherwise to `cache`, which
/// all runs share.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-summaries" = {
    "cifar10": "60,000 colour images of 32 x 32 in ten classes.",
    "mnist": "70,000 grey images of 28 x 28: handwritten digits.",
    "fashion-mnist": "70,000 grey images of 28 x 28: ten kinds of clothing.",
}))]
pub(super) struct OfficialFiles {
    /// Folder of the files. Default: `data`.
    // No default of the plan: only a folder that is set is created.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    root: Option<PathBuf>,
    /// Where files are downloaded when `root` is missing or read-only, and unpacked (`unpack`). Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    pub cache: Cache,
    /// Where archives are unpacked that are not unpacked yet, in `root` or in the cache: `root`, beside the archive, or `cache`.
    /// Default: `root`, unless it is read-only or in a work tree of git.
    #[schemars(extend("x-changes-results" = false))]
    unpack: Option<Unpack>,
    /// Download missing files.
    #[default = true]
    #[schemars(extend("x-changes-results" = false))]
    download: bool,
    /// Where to download missing files from, instead of the official address and its mirrors: for `cifar10` the archive, for
    /// the others the folder of the files. A downloaded file gets its name after it was read and checked.
    #[schemars(extend("x-changes-results" = false))]
    pub url: Option<Url>,
    /// Accept the official files only (size and digest).
    #[default = true]
    pub verify: bool,
}

impl OfficialFiles {
    /// Folder of the files.
    pub fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("data"))
    }

    /// Creates `folder`, which is `root` or in it, for a download; if that fails or is not wanted, the download goes to the cache.
    pub fn make(&self, folder: &Path) {
        if self.root.is_some() || self.root().is_dir() {
            let _ = std::fs::create_dir_all(folder);
        }
    }

    /// # Errors
    /// Downloads are not allowed: `missing`, with the ways to get the file from `url` to `target`.
    pub fn may_download(&self, missing: impl FnOnce() -> Error, url: &str, target: &Path) -> Result<()> {
        Refusal::new(self.download).map_or(Ok(()), |refusal| Err(refusal.explain(missing(), url, target)))
    }

    /// Where a file or folder is created: as `name` in `folder`, or in the cache if the folder is missing or read-only.
    pub fn place(
        &self,
        folder: &Path,
        name: &str,
        cached: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<PathBuf> {
        if is_writable(folder) { Ok(folder.join(name)) } else { cached() }
    }

    /// Where an archive is unpacked: to `beside` or to the cache. `shared` archives are in the cache themselves.
    pub fn unpacked_place(
        &self,
        beside: PathBuf,
        shared: bool,
        cached: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<PathBuf> {
        let folder = folder(&beside);
        let fits = || !shared && is_writable(folder) && !in_git_work_tree(folder);
        match self.unpack {
            Some(Unpack::Root) => Ok(beside),
            None if fits() => Ok(beside),
            Some(Unpack::Cache) | None => cached(),
        }
    }

    /// The line about an archive that is unpacked to `size` bytes, if it is the official one.
    pub fn unpacking(&self, archive: &Path, to: &Path, size: u64) -> String {
        let packed = std::fs::metadata(archive).ok().filter(|meta| meta.is_file());
        let packed = packed.map_or(String::new(), |meta| format!(" ({})", megabytes(meta.len())));
        let size = if self.verify { format!(" ({})", megabytes(size)) } else { String::new() };
        format!("unpacking {}{packed} to {}{size}", archive.display(), to.display())
    }

    /// The facts of a data set with `train` training images. The sizes of files that are not verified are unknown.
    pub fn facts(&self, shape: ImageShape, train: usize, split: &SplitOptions) -> DataFacts {
        let sizes = self.verify.then(|| split.sizes(train, Some(TEST_IMAGES)));
        DataFacts {
            input: Some(FieldFacts { shape: shape.to_vec(), kind: FieldKind::Float }),
            target: Some(class_facts(CLASSES)),
            train: sizes.map(|s| s.0),
            val: sizes.and_then(|s| s.1),
            test: sizes.map(|_| TEST_IMAGES),
            ..DataFacts::default()
        }
    }
}
