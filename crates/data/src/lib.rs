#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod assemble;
#[cfg(feature = "burn")]
mod burn_data;
mod color_jitter;
mod config;
mod decoded;
mod encoding;
mod fingerprint;
mod fn_dataset;
mod image_config;
mod images;
mod loader;
mod own_transform;
mod preview;
mod recoded;
mod resample;
mod resample_float;
mod resized_crop;
pub mod rng;
mod sample;
mod scaling;
mod sets;
mod split;
mod standard;
mod store;
#[doc(hidden)]
pub mod testing;
mod tokenizer;
mod tokenizer_config;
mod tokenizer_train;
mod tokens;
pub mod transforms;

#[cfg(feature = "burn")]
pub use burn_data::{BurnBatch, BurnData, from_burn};
pub use config::LoaderConfig;
pub use decoded::in_units;
pub use encoding::{
    ColumnEncoding, ColumnKind, Encoding, ImageEncoding, NumberEncoding, TableEncoding, TargetEncoding,
    TextEncoding,
};
pub use fingerprint::{Content, Fingerprint};
pub use fn_dataset::from_fn;
pub use loader::{Loader, LoaderOptions};
pub use own_transform::{Sample, SampleRng, Transform, TransformKind, TransformPlan, transformed};
pub use preview::{SampleWords, in_line, input_of, picture_of, words_of};
pub use recoded::recoded;
pub use sample::no_field;
pub use sample::{FieldMut, FieldsMut, SampleMut};
pub use scaling::{Interpolation, Resize};
pub use sets::{
    Blanks, ColumnsFormat, ColumnsProposal, CsvProposal, CsvTables, Holds, ImageSurvey, ImageTableProposal,
    InputRow, OtherTable, UnusableRow, images_below, propose_columns, propose_csv, propose_image_table,
    read_image, read_rows, read_text, survey_images,
};
pub use standard::standard_kinds;
pub use store::Cache;
pub use tokenizer::{Chat, TextStream, Tokenizer};
pub use tokenizer_config::{TokenizerKind, TokenizerPlan};
pub use tokenizer_train::train_tokenizer;

use base::error::Result;
use spec::Fields;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use transforms::{Draws, ImageTransform};

/// Reads the `[dataset]` table. One per name in the registry.
pub trait DatasetKind: Send + Sync {
    /// Reports all problems to `fields`; the value returned after a problem is never used.
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

/// A data set as described in the spec. Nothing is opened before `prepare`.
pub trait DatasetSource: Send + Sync + std::fmt::Debug {
    /// The facts known before any data is read; by default none.
    fn facts(&self) -> DataFacts {
        DataFacts::default()
    }
    /// The same with the tokens of `[tokenizer]`; `None`, the default: there is no text to tokenise.
    fn tokenized(&self, _tokenizer: &TokenizerPlan) -> Option<Arc<dyn DatasetSource>> {
        None
    }
    /// Finds what `prepare` can't mend: a path that is not there and has no address, a download that is not allowed. Quick; called
    /// before any process of a run starts, on each node. By default nothing is checked.
    ///
    /// # Errors
    /// What is missing, and what to do.
    fn check_files(&self) -> Result<()> {
        Ok(())
    }
    /// The key of `[dataset]` that is for documents, if one is set: tokens that are characters have none.
    fn needs_documents(&self) -> Option<&'static str> {
        None
    }
    /// Makes the files available (downloads, verifies, unpacks). Called on rank 0, then on the first rank of each other node, and
    /// by `ddp-run data fetch`. Idempotent: there is nothing to do where nodes share a file system. `say` receives one-line
    /// progress messages. By default there is nothing to do.
    fn prepare(&self, _say: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }
    /// The files and folders that `open` reads, those that exist now; by default none.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Called on every rank, after `prepare`.
    fn open(&self) -> Result<Splits>;
    /// As `open`, for the evaluation of a checkpoint whose samples were encoded as `known`: a data set that measures its encoding
    /// (means, deviations, categories) takes this one. By default as `open`; classes and characters in another order, and images that
    /// are normalised otherwise, are changed to `known` in any case.
    fn open_encoded(&self, known: &Encoding) -> Result<Splits> {
        let _ = known;
        self.open()
    }
}

/// One field of a sample, such as its input or its target: its shape and element type.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FieldFacts {
    /// Shape of one sample, without the batch dimension, e.g. `[3, 32, 32]`.
    pub shape: Vec<usize>,
    /// Its element type.
    pub kind: FieldKind,
}

/// The element type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldKind {
    /// f32 values.
    Float,
    /// i64 indices below this bound: class labels, tokens. The loader checks those of inputs and targets.
    Index(usize),
}

/// Facts for the plan. `None` if they are only known once the data is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct DataFacts {
    /// One sample's input.
    pub input: Option<FieldFacts>,
    /// One sample's target.
    pub target: Option<FieldFacts>,
    /// One sample's further fields, by name ([`Dataset::fields`]); empty if they are not known yet.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, FieldFacts>,
    /// Training samples, after the split.
    pub train: Option<usize>,
    /// Validation samples, after the split.
    pub val: Option<usize>,
    /// Test samples.
    pub test: Option<usize>,
}

/// The splits of an opened data set.
#[derive(Clone)]
pub struct Splits {
    /// For training.
    pub train: Arc<dyn Dataset>,
    /// For the evaluations during training.
    pub val: Option<Arc<dyn Dataset>>,
    /// For `ddp-run eval --split test`.
    pub test: Option<Arc<dyn Dataset>>,
}

/// Key of a random draw: every augmentation is a pure function of it, independent of thread and rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleKey {
    /// The run's seed.
    pub seed: u64,
    /// Counted from 0.
    pub epoch: u64,
    /// Index in the data set.
    pub sample: u64,
}

/// A target that is not trained, nor measured: PyTorch's `ignore_index`. The loss of a step is then the sum over its trained targets divided
/// by their number, over all ranks and micro-batches. See [`Dataset::has_untrained`].
pub const UNTRAINED: i64 = -100;

/// The further field of sequences that consist of several documents: of each token of the input its place in its document, from 0. The
/// built-in language models give tokens these positions, and let none see another document's.
pub const POSITIONS: &str = "positions";

/// Samples by index. Implementations write into the caller's buffers, which are reused for every batch.
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;
    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// One sample's input.
    fn input(&self) -> FieldFacts;
    /// One sample's target.
    fn target(&self) -> FieldFacts;
    /// One sample's further fields, by name: masks, boxes, a second image. Tasks read them (`Batch::field`);
    /// what is standard ignores them, except [`POSITIONS`]. All splits of a data set have the same.
    fn fields(&self) -> BTreeMap<String, FieldFacts> {
        BTreeMap::new()
    }
    /// Writes sample `key.sample` to the buffers of `to`, all of them: they still hold another sample. Training splits augment
    /// it, others only normalise it.
    fn write(&self, key: SampleKey, to: SampleMut<'_>) -> Result<()>;
    /// A digest of the samples, independent of their location. Ranks compare it with each other, and a resumed run with its
    /// checkpoint. It must be cheap: computed from what `open` reads anyway, or from names and sizes. With `None`, only the
    /// numbers of samples are compared.
    fn content(&self) -> Option<Content> {
        None
    }
    /// How many samples of each class there are, if samples have one class each and this is known without reading them; by default
    /// it is not. A run says which classes its training or its evaluation lacks.
    fn class_counts(&self) -> Option<Vec<usize>> {
        None
    }
    /// Where sample `index` is stored, for people: `PATH`, or `PATH, line 7`. A report names samples by it. By default it is not known.
    fn place(&self, index: u64) -> Option<String> {
        let _ = index;
        None
    }
    /// How the data was interpreted, if that was inferred. Rank 0 prints each line; a line may begin with `warning: `.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
    /// How many units of the data one unit of its numeric targets is, if they are scaled: metrics of errors (`mae`, `mse`) are in
    /// the data's own units.
    fn target_scale(&self) -> f64 {
        1.0
    }
    /// Whether targets, as far as they are indices, may be [`UNTRAINED`]. By default none is, and the loader refuses them.
    fn has_untrained(&self) -> bool {
        false
    }
    /// The mean number of bytes of text that a trained target stands for, if targets are tokens of text: `bits_per_byte` is by it. It may
    /// read all samples. By default it is not known.
    fn bytes_per_target(&self) -> Result<Option<f64>> {
        Ok(None)
    }
    /// How inputs become samples, and what outputs are of: checkpoints carry it, and `ddp-run predict` needs it. By default it
    /// is not known.
    fn encoding(&self) -> Option<Encoding> {
        None
    }
    /// The stored images of an image data set, for transforms on a device with its own memory. A data set with further fields
    /// is transformed on the host, by `write`, for every device.
    fn stored(&self) -> Option<&dyn StoredImages> {
        None
    }
}

/// The images of a data set as stored bytes. `transform` applied to `write_stored` equals [`Dataset::write`].
pub trait StoredImages: Send + Sync {
    /// Converts the stored bytes of this split to the network's input.
    fn transform(&self) -> &ImageTransform;
    /// Writes image `key.sample` to `pixels` (planes of bytes: channel, row, column) and its target to `target`. Transforms
    /// that work on bytes (random-resized-crop, color-jitter) are applied here, so that a device gets the same bytes.
    fn write_stored(&self, key: SampleKey, pixels: &mut [u8], target: FieldMut<'_>) -> Result<()>;
}

/// One field of a batch on the host: consecutive samples of shape `shape`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct HostField {
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// The values of all samples.
    pub data: FieldData,
}

/// The values of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldData {
    /// For [`FieldKind::Float`].
    Float(Vec<f32>),
    /// For [`FieldKind::Index`].
    Index(Vec<i64>),
    /// Stored images, to be transformed on a device.
    Bytes(Vec<u8>),
}

/// A batch on the host, returned by the loader and given back to it for reuse.
#[derive(Clone, Debug, PartialEq)]
pub struct HostBatch {
    /// Number of samples.
    pub len: usize,
    /// Inputs of the network, or the stored images they are made from.
    pub input: HostField,
    /// Targets: labels, tokens or numbers.
    pub target: HostField,
    /// The further fields, by name.
    pub fields: BTreeMap<String, HostField>,
    /// [`Dataset::target_scale`].
    pub target_scale: f64,
    /// [`Dataset::has_untrained`].
    pub has_untrained: bool,
    /// Data-set index of each sample.
    pub indices: Vec<u64>,
    /// Each sample's draws if `input` holds bytes; otherwise empty, because the transform has been applied.
    pub draws: Vec<Draws>,
}
