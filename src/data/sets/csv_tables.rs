//! The tables of a folder by their names, and how a model may learn from them, for `ddp-run init csv`.

use super::columns::listed;
use super::csv_columns::Column;
use super::csv_guessed::read_table;
use super::csv_joined::concatenated;
use super::csv_proposal::{Beside, CsvProposal, propose};
use super::csv_table::RawTable;
use super::image_files::{is_hidden, sorted};
use super::image_splits::take;
use super::parquet_names::split_of_name;
use crate::data::store::absolute;
use crate::error::{Error, Result};
use crate::show;
use std::path::{Path, PathBuf};

/// The tables of the splits.
#[derive(Debug)]
pub struct CsvTables {
    pub train: PathBuf,
    pub val: Option<OtherTable>,
    pub test: Option<OtherTable>,
    /// Tables beside that of training that are of no split, by name.
    pub unused: Vec<String>,
}

/// A table beside that of training.
#[derive(Debug)]
pub struct OtherTable {
    /// In the folder of the training table.
    pub name: String,
    pub rows: usize,
    /// It has the target.
    pub labelled: bool,
}

/// Reads the table at `path`, or the tables in that folder, and examines their columns. Beside `train.csv`, `val.csv` and `test.csv` are
/// tables of the same data.
///
/// # Errors
/// Exit 78: a file can't be read, is not a table with a header line and some rows, or has no column that can be a target or a feature; a
/// folder has no training table.
pub fn propose_csv(path: &Path) -> Result<(CsvTables, CsvProposal)> {
    let Files { train, val, test, unused } = Files::of(path)?;
    let (table, marks) = read_table(&train)?;
    let read = |path: Option<PathBuf>| {
        let read = |path: PathBuf| RawTable::read(&path, table.delimiter, table.blank_marks().to_vec());
        path.map(read).transpose()
    };
    let (val, test) = (read(val)?, read(test)?);
    let lacks = |other: &RawTable| -> Vec<String> {
        table.header.iter().filter(|name| !other.header.contains(name)).cloned().collect()
    };
    // A test table may lack the target, but then no other table does.
    let of_val = val.as_ref().map(&lacks).unwrap_or_default();
    let mut of_test = test.as_ref().map(&lacks).unwrap_or_default();
    of_test.retain(|name| !of_val.contains(name));
    let labelled = test.is_some() && of_test.is_empty();
    let header: Vec<String> = table.header.iter().filter(|name| !of_val.contains(name)).cloned().collect();
    let beside = Beside {
        useless: match (&val, labelled) {
            (None, false) => Vec::new(),
            // A column that numbers the rows of each table numbers not those of all.
            _ => (0..table.header.len())
                .map(|c| Column::of(&table, c))
                .filter_map(|c| Some((c.name, c.useless?)))
                .collect(),
        },
        lacking: of_test,
        lacks: test.as_ref().map_or_else(String::new, name_of),
    };
    let other =
        |table: &RawTable, labelled| OtherTable { name: name_of(table), rows: table.rows.len(), labelled };
    let tables = CsvTables {
        train,
        val: val.as_ref().map(|table| other(table, true)),
        test: test.as_ref().map(|table| other(table, labelled)),
        unused,
    };
    let left_out: Vec<(String, String)> = of_val
        .into_iter()
        .map(|name| (name, format!("{} lacks it", val.as_ref().map_or_else(String::new, name_of))))
        .collect();
    let all: Vec<RawTable> = [Some(table), val, test.filter(|_| labelled)].into_iter().flatten().collect();
    let mut found = match &all[..] {
        [only] => propose(only, marks, &beside)?,
        _ => propose(&concatenated(all, header)?, marks, &beside)?,
    };
    found.left_out.extend(left_out);
    Ok((tables, found))
}

fn name_of(table: &RawTable) -> String {
    Path::new(&table.path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The files of the tables.
pub(super) struct Files {
    pub train: PathBuf,
    pub val: Option<PathBuf>,
    pub test: Option<PathBuf>,
    pub unused: Vec<String>,
}

impl Files {
    /// The table at `path` with those beside it, if it is the training table of its folder; or those of the folder `path`.
    pub fn of(path: &Path) -> Result<Self> {
        let alone = || Self { train: path.to_owned(), val: None, test: None, unused: Vec::new() };
        if path.is_dir() {
            return Self::find(path);
        }
        let beside = Self::find(crate::files::folder(path)).ok();
        let same = |files: &Self| absolute(&files.train) == absolute(path);
        Ok(beside.filter(same).unwrap_or_else(alone))
    }

    fn find(folder: &Path) -> Result<Self> {
        let is_table = |path: &PathBuf| {
            path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
                && !is_hidden(path)
                && path.is_file()
        };
        let mut files = sorted(folder).map_err(Error::of_data)?;
        files.retain(is_table);
        let names: Vec<String> = files.iter().map(|path| stem(path)).collect();
        if let [only] = &files[..] {
            return Ok(Self { train: only.clone(), val: None, test: None, unused: Vec::new() });
        }
        let mut take = |split: usize| {
            let stands_for = |_: &Path, name: &str| split_of_name(name) == Some(split);
            take((folder, "tables"), &mut files, split, stem, &stands_for)
        };
        let (train, val, test) = (take(0)?, take(1)?, take(2)?);
        let train = train.ok_or_else(|| {
            let place = show::piece(&folder.display().to_string());
            match names.is_empty() {
                true => Error::data(format!("{place} has no CSV files")),
                false => Error::data(format!("{place} has no table with `train` in its name"))
                    .hint(format!("name one of its tables: {}", listed(names.iter().map(String::as_str)))),
            }
        })?;
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { train, val, test, unused: files.iter().map(name).collect() })
    }
}

/// The name of a file without its extension, in lower case.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    /// A header, and rows that begin with a number and another one.
    fn rows(header: &str, rest: &str) -> String {
        let row = |i: usize| {
            format!(
                "{i}.5,{}.25{}\n",
                i * i,
                rest.replace('#', ["0", "1"][i % 2]).replace('%', &i.to_string())
            )
        };
        format!("{header}\n{}", (0..20).map(row).collect::<String>())
    }

    /// As in Kaggle's competitions: the test table has no targets.
    #[test]
    fn the_column_that_the_test_table_lacks_is_the_target() {
        let train = rows("a,b,survived,port,count", ",#,x#,7");
        let folder = folder(&[
            ("train.csv", &train),
            ("test.csv", &rows("a,b,port", ",x#")),
            ("sample_submission.csv", "a,survived\n1,0\n"),
        ]);
        for path in [folder.path().to_owned(), folder.path().join("train.csv")] {
            let (tables, found) = propose_csv(&path).unwrap();
            assert!(tables.train.ends_with("train.csv") && tables.val.is_none());
            let test = tables.test.unwrap();
            assert_eq!((test.name.as_str(), test.rows, test.labelled), ("test.csv", 20, false));
            assert_eq!(tables.unused, ["sample_submission.csv"]);
            assert_eq!((found.target.as_str(), found.classes, found.rows), ("survived", Some(2), 20));
            assert_eq!(found.target_reason, "because test.csv lacks it");
            let names: Vec<&str> = found.features.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["a", "b", "port"]);
        }
        // Another table is what it was, alone.
        let (tables, _) = propose_csv(&folder.path().join("test.csv")).unwrap();
        assert!(tables.test.is_none() && tables.train.ends_with("test.csv"));
    }

    #[test]
    fn tables_of_splits_are_found_by_the_words_of_their_names() {
        let folder = folder(&[
            ("my_train.csv", &rows("a,b,c,row,y", ",3.5,%,#")),
            ("my_valid.csv", "y,b,a,row\n1,2,,1\n"),
            ("my_test.csv", "a,b,c,row,y\n1,2,3,7,1\n"),
        ]);
        let (tables, found) = propose_csv(folder.path()).unwrap();
        assert_eq!(tables.val.map(|val| (val.name, val.rows)), Some(("my_valid.csv".to_owned(), 1)));
        assert!(tables.test.unwrap().labelled && tables.unused.is_empty());
        assert_eq!((found.target.as_str(), found.rows), ("y", 22));
        let left_out: Vec<String> =
            found.left_out.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        assert_eq!(left_out, ["row: it numbers the rows", "c: my_valid.csv lacks it"]);
        assert_eq!(found.blanks.unwrap().0, "mean", "validation has an empty cell");
        std::fs::copy(folder.path().join("my_test.csv"), folder.path().join("other_test.csv")).unwrap();
        let error = propose_csv(folder.path()).unwrap_err().message;
        assert!(
            error.ends_with("has several tables for the split `test`: `my_test`, `other_test`"),
            "{error}"
        );
        // The table that is named is proposed in any case.
        let (tables, _) = propose_csv(&folder.path().join("my_train.csv")).unwrap();
        assert!(tables.val.is_none() && tables.test.is_none());
    }

    #[test]
    fn a_folder_without_a_training_table_is_refused() {
        let folder = folder(&[("notes.txt", "")]);
        let error = propose_csv(folder.path()).unwrap_err();
        assert!(error.message.ends_with("has no CSV files"), "{error}");
        std::fs::write(folder.path().join("a.csv"), rows("a,b,y", ",#")).unwrap();
        assert!(propose_csv(folder.path()).unwrap().0.train.ends_with("a.csv"), "the only one");
        std::fs::write(folder.path().join("b.csv"), "").unwrap();
        let error = propose_csv(folder.path()).unwrap_err();
        assert!(error.message.ends_with("has no table with `train` in its name"), "{error}");
        assert_eq!(error.hint.unwrap(), "name one of its tables: `a`, `b`");
    }
}
