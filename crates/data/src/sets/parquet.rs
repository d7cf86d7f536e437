//! `parquet`: Hugging Face data sets in Parquet on disk, and other Parquet files.

use super::columns::{RowSet, RowStore, Stored};
use super::columns_source::ColumnsSource;
use super::parquet_files::{FileRequest, ParquetFiles, find};
use super::parquet_rows;
use crate::DatasetSource;
use crate::store::{Cache, absolute};
use base::error::Result;
use schemars::JsonSchema;
use serde::Deserialize;
use spec::Fields;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Parquet files: a data set of Hugging Face as `git clone` or `hf download` leaves it (files like
/// `train-00000-of-00002.parquet` in `data` or in the folder of a configuration, `CONFIG/train/0000.parquet`), or other
/// files. The parts of a split are read in the order of their names; what stands before their numbers names it,
/// so that `validation_matched` and `validation_mismatched` are two splits, of which a key chooses one. Classes and images are taken from the metadata that
/// Hugging Face writes; without it, `target` and `image` may be needed. Images are unpacked to `cache` once, still encoded.
#[derive(Clone, Debug, Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("required" = ["path"]))]
struct ParquetKeys {
    /// The folder of the data set, or a file.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    path: PathBuf,
    /// The configuration, if the data set has several: the folder of its files in `path`.
    config: Option<String>,
    /// Files of the training split in `path`, with `*` for any part of a name. Default: those with `train` in their name or in that
    /// of their folder, or all files if no name implies a split.
    train: Option<String>,
    /// Files of the validation split in `path`. Default: those with `validation`, `valid`, `val` or `dev` in their name.
    val: Option<String>,
    /// Files of the test split in `path`. Default: those with `test`, `testing`, `eval` or `evaluation` in their name.
    test: Option<String>,
    /// Where images are unpacked, and the tokens of texts kept. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    cache: Cache,
}

/// Reads the `[dataset]` table.
pub fn parquet(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let keys: ParquetKeys = fields.config();
    // Messages show absolute paths.
    let keys = ParquetKeys { path: absolute(&keys.path), ..keys };
    Arc::new(ColumnsSource::read(fields, keys))
}

/// The files at `path`, with the defaults of all other keys.
pub(super) fn parquet_store(path: &Path, config: Option<&str>) -> impl RowStore + use<> {
    ParquetKeys { path: absolute(path), config: config.map(str::to_owned), ..ParquetKeys::default() }
}

impl ParquetKeys {
    fn find(&self) -> Result<ParquetFiles> {
        let by_key = [&self.train, &self.val, &self.test].map(Option::as_deref);
        find(FileRequest { path: &self.path, config: self.config.as_deref(), by_key })
    }
}

impl RowStore for ParquetKeys {
    fn cache(&self) -> &Cache {
        &self.cache
    }

    fn files(&self) -> Vec<PathBuf> {
        self.find().map(|found| found.splits.concat()).unwrap_or_default()
    }

    fn check_files(&self) -> Result<()> {
        self.find().map(drop)
    }

    fn open(&self, say: &mut dyn FnMut(&str)) -> Result<Stored> {
        let ParquetFiles { splits, ignored } = self.find()?;
        if let Some(first) = ignored.first() {
            let (n, place, first) = (ignored.len(), self.path.display(), first.display());
            say(&match n {
                1 => format!("{place}: a Parquet file of no split is ignored: {first}"),
                _ => format!("{place}: {n} Parquet files of no split are ignored, such as {first}"),
            });
        }
        let [train, val, test] = splits;
        let open = |files: Vec<PathBuf>| -> Result<Option<Arc<dyn RowSet>>> {
            if files.is_empty() { Ok(None) } else { parquet_rows::open(&files, &self.cache).map(Some) }
        };
        let (train, val, test) = (parquet_rows::open(&train, &self.cache)?, open(val)?, open(test)?);
        Ok(Stored { place: self.path.display().to_string(), train, val, test })
    }
}

#[cfg(all(test, feature = "parquet"))]
#[path = "parquet_tests.rs"]
mod tests;
