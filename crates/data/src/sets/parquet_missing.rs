//! A build without the cargo feature `parquet`.

use super::columns::RowSet;
use crate::store::Cache;
use base::error::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) fn open(_files: &[PathBuf], _cache: &Cache) -> Result<Arc<dyn RowSet>> {
    Err(Error::unavailable("this build cannot read Parquet files (cargo feature `parquet`)")
        .hint("build with `--features parquet`"))
}
