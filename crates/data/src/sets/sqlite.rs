//! `sqlite`: databases that Burn's `SqliteDataset` reads, and tables of other SQLite databases.

use super::columns::{RowSet, RowStore, Stored, listed};
use super::columns_source::ColumnsSource;
use super::sqlite_rows::Database;
use crate::DatasetSource;
use crate::store::{Cache, absolute};
use base::display;
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use spec::{Fields, did_you_mean};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of the tables of validation and test samples.
const VAL: [&str; 4] = ["validation", "val", "valid", "dev"];
const TEST: [&str; 1] = ["test"];
const TRAIN: [&str; 1] = ["train"];

/// A database of SQLite: one that Burn's `SqliteDatasetWriter` or its Hugging Face importer wrote, or another. Each split is a table;
/// its rows are in the order of `row_id`, or of SQLite's own row ids. A table with a column `item`, as the writer makes it, has the
/// fields of its items as columns, which are called `0`, `1`, … because the writer stores no names. The database is opened without
/// locks and never written to: it must not change while a run reads it.
#[derive(Clone, Debug, Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("required" = ["path"]))]
struct SqliteKeys {
    /// The database.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    path: PathBuf,
    /// The table of all samples, instead of one for each split; `val_split` makes a validation split of it.
    table: Option<String>,
    /// The table of the training split. Default: `train`, or the only table.
    train: Option<String>,
    /// The table of the validation split. Default: `validation`, `val`, `valid` or `dev`, if there is one.
    val: Option<String>,
    /// The table of the test split. Default: `test`, if there is one.
    test: Option<String>,
    /// Where the tokens of texts are kept. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    cache: Cache,
}

/// Reads the `[dataset]` table.
pub fn sqlite(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let keys: SqliteKeys = fields.config();
    if keys.table.is_some() {
        fields.misplaced(&["train", "val", "test"], "with `table`");
    }
    // Messages show absolute paths.
    let keys = SqliteKeys { path: absolute(&keys.path), ..keys };
    Arc::new(ColumnsSource::read(fields, keys))
}

/// The database at `path`, with the defaults of all other keys.
pub(super) fn sqlite_store(path: &Path, table: Option<&str>) -> impl RowStore + use<> {
    SqliteKeys { path: absolute(path), table: table.map(str::to_owned), ..SqliteKeys::default() }
}

impl RowStore for SqliteKeys {
    fn cache(&self) -> &Cache {
        &self.cache
    }

    fn files(&self) -> Vec<PathBuf> {
        Some(self.path.clone()).filter(|path| path.is_file()).into_iter().collect()
    }

    fn check_files(&self) -> Result<()> {
        if self.path.is_file() { Ok(()) } else { Database::open(&self.path).map(drop) }
    }

    fn open(&self, _say: &mut dyn FnMut(&str)) -> Result<Stored> {
        let database = Arc::new(Database::open(&self.path)?);
        let tables = database.tables()?;
        let open = |name: &str| -> Result<Arc<dyn RowSet>> { database.clone().table(name) };
        let place = self.path.display().to_string();
        if let Some(table) = &self.table {
            let train = open(self.known(table, "table", &tables)?)?;
            return Ok(Stored { place, train, val: None, test: None });
        }
        let find = |given: &Option<String>, key: &str, names: &[&str]| match given {
            Some(name) => self.known(name, key, &tables).map(Some),
            None => {
                let called = |name: &&str| tables.iter().find(|table| table.eq_ignore_ascii_case(name));
                match names.iter().filter_map(called).map(String::as_str).collect::<Vec<_>>()[..] {
                    [] => Ok(None),
                    [only] => Ok(Some(only)),
                    ref several => {
                        let several = listed(several.iter().copied());
                        Err(Error::data(format!(
                            "{place} has several tables for the split `{key}`: {several}"
                        ))
                        .hint(format!("`[dataset] {key}` names the one to use")))
                    }
                }
            }
        };
        let train = match (find(&self.train, "train", &TRAIN)?, &tables[..]) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, _) => return Err(self.no_training(&tables)),
        };
        let others = [find(&self.val, "val", &VAL)?, find(&self.test, "test", &TEST)?];
        // The only table is one split.
        let [val, test] = others.map(|name| name.filter(|name| *name != train).map(open).transpose());
        Ok(Stored { place, train: open(train)?, val: val?, test: test? })
    }
}

impl SqliteKeys {
    /// The table of this name, which `key` of the spec has.
    fn known<'t>(&self, name: &str, key: &str, tables: &'t [String]) -> Result<&'t str> {
        match tables.iter().find(|table| table.eq_ignore_ascii_case(name)) {
            Some(table) => Ok(table),
            None => {
                let near = did_you_mean(name, tables.iter().map(String::as_str));
                let (place, name) = (self.path.display(), display::name(name));
                Err(Error::data(format!(
                    "{place} has no table `{name}`, which `[dataset] {key}` names{near}"
                ))
                .hint(format!("its tables are {}", listed(tables.iter().map(String::as_str)))))
            }
        }
    }

    fn no_training(&self, tables: &[String]) -> Error {
        let place = self.path.display();
        match tables.is_empty() {
            true => Error::data(format!("{place} has no tables")),
            false => Error::data(format!("{place} has no training split: there is no table `train`")).hint(
                format!(
                    "`[dataset] train` names the table, or `table` if it has all samples; the tables are {}",
                    listed(tables.iter().map(String::as_str))
                ),
            ),
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
#[path = "sqlite_tests.rs"]
mod tests;
