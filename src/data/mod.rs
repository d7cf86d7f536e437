//! From a `[dataset]` table to batches.
//!
//! A [`DatasetKind`] is what a registry holds under a name: it reads its own table of the spec (touching nothing else)
//! and gives a [`DatasetSource`]. At run time rank 0 calls `prepare` (download, verify, unpack), then every rank
//! calls `open` and gets [`Splits`]. The [`Loader`] turns a split, a sampler and transforms into host batches, ahead
//! of the training step, on threads of its own.

mod burn_data;
mod config;
mod device_transform;
mod fingerprint;
mod fn_dataset;
mod image_config;
mod images;
mod loader;
pub mod mt19937;
pub mod rng;
mod sampler;
mod sets;
mod split;
mod standard;
mod store;
#[cfg(test)]
mod testing;
pub mod transforms;
mod work;

pub use burn_data::{BurnBatch, BurnData, BurnSource};
pub use config::LoaderConfig;
pub use device_transform::{DeviceBytes, DeviceTransform};
pub use fingerprint::{Content, Fingerprint};
pub use fn_dataset::from_fn;
pub use images::ImageSource;
pub use loader::{Loader, LoaderOptions};
pub use sampler::{DistributedSampler, EvalShard, Order, Prefix};
pub use standard::standard_kinds;
pub use store::Cache;

use crate::error::Result;
use crate::spec::Fields;
use std::sync::Arc;
use transforms::{Draws, ImageTransform};

/// Reads a `[dataset]` table. One per name in the registry.
pub trait DatasetKind: Send + Sync {
    /// Problems go into `fields`, all of them; the value returned after a problem is never run.
    fn configure(&self, fields: &mut Fields<'_>) -> Arc<dyn DatasetSource>;
}

impl<F> DatasetKind for F
where
    F: Fn(&mut Fields<'_>) -> Arc<dyn DatasetSource> + Send + Sync,
{
    fn configure(&self, fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
        self(fields)
    }
}

/// A data set as the spec describes it. Nothing is opened before `prepare`.
pub trait DatasetSource: Send + Sync + std::fmt::Debug {
    /// What is known before any data is read.
    fn facts(&self) -> DataFacts;
    /// Rank 0 only: makes the files ready (download where a URL is given, verify, unpack). Idempotent; a second run
    /// finds the work done. `say` receives one-line progress messages.
    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()>;
    /// Every rank, after `prepare` on rank 0.
    fn open(&self) -> Result<Splits>;
}

/// One sample's input or target: its shape and element type.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FieldFacts {
    /// Shape of one sample, without the batch dimension, e.g. `[3, 32, 32]`.
    pub shape: Vec<usize>,
    /// Its element type.
    pub kind: FieldKind,
}

/// The element type of an input or a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldKind {
    /// f32 values.
    Float,
    /// i64 indices below this bound: class labels, tokens.
    Index(usize),
}

/// Facts that the plan uses. `None` where only the data can tell.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DataFacts {
    /// Of one sample's input.
    pub input: Option<FieldFacts>,
    /// Of one sample's target.
    pub target: Option<FieldFacts>,
    /// Training samples, after the split.
    pub train: Option<usize>,
    /// Validation samples, after the split.
    pub val: Option<usize>,
    /// Test samples.
    pub test: Option<usize>,
}

/// The splits of an opened data set. `val` is what the epoch's validation uses; `test` is for `ddp-run eval`.
#[derive(Clone)]
pub struct Splits {
    /// What the model is trained on.
    pub train: Arc<dyn Dataset>,
    /// What it is evaluated on during training.
    pub val: Option<Arc<dyn Dataset>>,
    /// What `ddp-run eval --split test` reads.
    pub test: Option<Arc<dyn Dataset>>,
}

/// Names a random draw: every augmentation is a pure function of this, whatever thread or rank makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleKey {
    /// The run's.
    pub seed: u64,
    /// Counted from 0.
    pub epoch: u64,
    /// Index in the data set.
    pub sample: u64,
}

/// Samples by index. Implementations write into the caller's buffers, which are reused from batch to batch.
pub trait Dataset: Send + Sync {
    /// Samples.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Of one sample's input.
    fn input(&self) -> FieldFacts;
    /// Of one sample's target.
    fn target(&self) -> FieldFacts;
    /// Writes sample `key.sample`, transformed as the split asks (augmented in training, only normalised otherwise),
    /// to `input` and `target`, each exactly one sample long.
    fn write(&self, key: SampleKey, input: FieldMut<'_>, target: FieldMut<'_>) -> Result<()>;
    /// A digest of what the samples are made of, the same wherever they are; ranks compare theirs, and a resumed run its
    /// checkpoint's. Cheap: of what `open` reads anyway, or of names and sizes. `None` where only the number of samples is to count.
    fn content(&self) -> Option<Content> {
        None
    }
    /// How the data was understood, a line each, where that was guessed; rank 0 says it. A line may begin with `warning: `.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
    /// The images behind `write`, where samples are such: a device with memory of its own transforms them itself.
    fn stored(&self) -> Option<&dyn StoredImages> {
        None
    }
}

/// A data set's images as they are stored. `transform` makes of `write_stored` what [`Dataset::write`] gives.
pub trait StoredImages: Send + Sync {
    fn transform(&self) -> &ImageTransform;
    /// Writes image `sample` of the data set to `pixels` (planes of bytes: channel, row, column) and its target to `target`.
    fn write_stored(&self, sample: u64, pixels: &mut [u8], target: FieldMut<'_>) -> Result<()>;
}

/// Room for one sample's input or target.
#[derive(Debug)]
pub enum FieldMut<'a> {
    /// Of [`FieldKind::Float`].
    Float(&'a mut [f32]),
    /// Of [`FieldKind::Index`].
    Index(&'a mut [i64]),
}

/// One field of a batch on the host: `data` holds `batch` samples of `shape` each, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct HostField {
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// Its values.
    pub data: FieldData,
}

/// The values of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldData {
    /// Of [`FieldKind::Float`].
    Float(Vec<f32>),
    /// Of [`FieldKind::Index`].
    Index(Vec<i64>),
    /// Images as they are stored, for a device to transform.
    Bytes(Vec<u8>),
}

/// A batch on the host, as the loader hands it over and takes it back for reuse.
#[derive(Clone, Debug, PartialEq)]
pub struct HostBatch {
    /// Number of samples.
    pub len: usize,
    pub input: HostField,
    pub target: HostField,
    /// Data-set index of each sample.
    pub indices: Vec<u64>,
    /// Each sample's draws where `input` holds bytes; else empty: the transform is done.
    pub draws: Vec<Draws>,
}
