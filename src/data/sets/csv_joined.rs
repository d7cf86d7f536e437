//! The tables of several splits as one: columns are found by name.

use super::columns::listed;
use super::csv_table::RawTable;
use super::table::{Sections, TableKeys};
use super::table_known::known_columns;
use crate::data::TableEncoding;
use crate::error::{Error, Result};
use csv::{Position, StringRecord};

/// The tables besides that of training.
#[derive(Default)]
pub(super) struct Others {
    pub val: Option<RawTable>,
    pub test: Option<RawTable>,
}

impl Others {
    pub fn is_empty(&self) -> bool {
        self.val.is_none() && self.test.is_none()
    }
}

/// Whether any row has a target: a test table may be without.
pub(super) fn is_labelled(table: &RawTable, target: &str) -> bool {
    let at = table.header.iter().position(|name| name == target);
    at.is_some_and(|at| table.rows.is_empty() || (0..table.rows.len()).any(|row| !table.is_blank(row, at)))
}

/// The rows of all tables in the columns of training.
///
/// # Errors
/// A table lacks a column that is used, or has another where all are (78).
pub(super) fn joined(
    train: RawTable,
    others: Others,
    keys: &TableKeys,
    target: &str,
    known: Option<&TableEncoding>,
) -> Result<(RawTable, Sections)> {
    let len = |table: &Option<RawTable>| table.as_ref().map(|table| table.rows.len());
    let sections = Sections { train: train.rows.len(), val: len(&others.val), test: len(&others.test) };
    let target = train.column(target, "target")?;
    let mut used = match known {
        Some(known) => known_columns(&train.path, &train.header, known)?,
        None => keys.columns(&train, target)?,
    };
    used.push(target);
    let all = known.is_none() && keys.features.is_none();
    let tables: Vec<RawTable> = [others.val, others.test].into_iter().flatten().collect();
    for table in &tables {
        same_columns(&train, table, &used, all)?;
        if table.rows.is_empty() {
            return Err(Error::data(format!("{} has no rows", table.path)));
        }
    }

    let header = train.header.clone();
    let table = concatenated([train].into_iter().chain(tables).collect(), header)?;
    Ok((table, sections))
}

/// The rows of all tables in the columns `header`, each of which the first table has. Another that lacks one has empty cells there.
pub(super) fn concatenated(tables: Vec<RawTable>, header: Vec<String>) -> Result<RawTable> {
    let (blanks, delimiter) = (tables[0].blank_marks().to_vec(), tables[0].delimiter);
    let paths: Vec<&str> = tables.iter().map(|table| table.path.as_str()).collect();
    let mut table = RawTable::of_rows(paths.join(", "), header, blanks, Box::new(places(&tables)))?;
    table.delimiter = delimiter;
    for own in tables {
        let at = |name: &String| own.header.iter().position(|other| other == name);
        let columns: Vec<Option<usize>> = table.header.iter().map(at).collect();
        let cells = |row: &StringRecord| columns.iter().map(|at| at.map_or("", |at| &row[at])).collect();
        own.rows.iter().map(cells).for_each(|row: StringRecord| table.push(row));
    }
    Ok(table)
}

fn same_columns(train: &RawTable, other: &RawTable, used: &[usize], all: bool) -> Result<()> {
    let lacks = |of: &RawTable, name: &str| !of.header.iter().any(|known| known == name);
    let names = used.iter().map(|at| train.header[*at].as_str());
    let missing: Vec<&str> = names.filter(|name| lacks(other, name)).collect();
    let names = other.header.iter().map(String::as_str);
    let more: Vec<&str> = names.filter(|name| all && lacks(train, name)).collect();
    let parts = [("it lacks ", missing), ("only it has ", more)]
        .map(|(what, names)| (!names.is_empty()).then(|| format!("{what}{}", listed(names.into_iter()))));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return Ok(());
    }
    Err(Error::data(format!("{} has other columns than {}: {}", other.path, train.path, parts.join("; ")))
        .hint("columns are found by their names in the first line; `[dataset] features` lists those to use"))
}

/// The place of each row of the joined table: its file and line.
fn places(tables: &[RawTable]) -> impl Fn(u64) -> String + use<> {
    let line = |row: &StringRecord| row.position().map_or(0, Position::line);
    let of_table = |table: &RawTable| (table.path.clone(), table.rows.iter().map(line).collect());
    let files: Vec<(String, Vec<u64>)> = tables.iter().map(of_table).collect();
    move |row| {
        let mut row = row as usize;
        for (path, lines) in &files {
            match lines.get(row) {
                Some(line) => return format!("{path}, line {line}"),
                None => row -= lines.len(),
            }
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use crate::data::sets::csv;
    use crate::data::testing::{configure, sample};
    use crate::data::{Dataset, Encoding, Splits, TargetEncoding};
    use crate::error::{ExitCode, Result};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            files.iter().for_each(|(name, text)| folder.write(name, text));
            folder
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.path().join(name), text).unwrap();
        }

        /// The splits and the lines that `prepare` prints.
        fn open(&self, file: &str, more: &str) -> Result<(Splits, Vec<String>)> {
            let path = self.0.path().join(file);
            let source = configure(&csv, &format!("path = '{}'\ntarget = 'y'\n{more}", path.display()));
            let (source, mut said) = (source.unwrap(), Vec::new());
            source.prepare(&mut |line| said.push(line.to_owned()))?;
            Ok((source.open()?, said))
        }

        fn refused(&self, more: &str) -> String {
            let error = self.open("train.csv", more).err().unwrap();
            assert_eq!(error.code, ExitCode::Spec);
            error.to_string().replace(&format!("{}/", self.0.path().display()), "")
        }
    }

    fn rows(set: &dyn Dataset) -> Vec<(Vec<f64>, Vec<f64>)> {
        (0..set.len()).map(|row| sample(set, row, 0)).collect()
    }

    const TRAIN: &str = "size,kind,y\n1,a,10\n3,b,30\n";
    /// In another order, with a category that training lacks.
    const VAL: &str = "kind,y,size\nc,50,5\na,20,2\n";
    const TEST: &str = "y,size,kind\n70,7,b\n";

    /// As pandas: `(val[columns] - train[columns].mean()) / train[columns].std(ddof=0)`, one-hot over all categories.
    #[test]
    fn statistics_are_those_of_the_training_table() {
        let folder = Folder::new(&[("train.csv", TRAIN), ("val.csv", VAL), ("test.csv", TEST)]);
        let both = "val = 'val.csv'\ntest = 'test.csv'";
        for (path, more) in [("train.csv", both.to_owned()), ("", format!("train = 'train.csv'\n{both}"))] {
            let (splits, said) = folder.open(path, &more).unwrap();
            assert_eq!(said, [""; 0]);
            // size: mean 2, deviation 1; y: mean 20, deviation 10; then a, b, c.
            let train = [(vec![-1., 1., 0., 0.], vec![-1.]), (vec![1., 0., 1., 0.], vec![1.])];
            assert_eq!(rows(&*splits.train), train);
            let val = [(vec![3., 0., 0., 1.], vec![3.]), (vec![0., 1., 0., 0.], vec![0.])];
            assert_eq!(rows(&*splits.val.unwrap()), val);
            assert_eq!(rows(&*splits.test.unwrap()), [(vec![5., 0., 1., 0.], vec![5.])]);
            let Some(Encoding::Table(encoding)) = splits.train.encoding() else { panic!("it is a table") };
            let TargetEncoding::Number { mean, std, .. } = encoding.target else { panic!("a number") };
            assert_eq!((mean, std, encoding.delimiter), (20.0, 10.0, ','));
        }
    }

    #[test]
    fn a_test_table_alone_leaves_the_validation_split_as_it_is() {
        let rows: String = (0..20).map(|i| format!("{i},a,{i}\n")).collect();
        let folder = Folder::new(&[("train.csv", &format!("size,kind,y\n{rows}")), ("test.csv", TEST)]);
        let sizes = |more: &str| {
            let (splits, _) = folder.open("train.csv", &format!("test = 'test.csv'\n{more}")).unwrap();
            (splits.train.len(), splits.val.map(|val| val.len()), splits.test.map(|test| test.len()))
        };
        assert_eq!(sizes(""), (18, Some(2), Some(1)));
        assert_eq!(sizes("val_split = 0.0"), (20, Some(1), Some(1)), "validation uses the test table");
        assert_eq!(sizes("max_train = 3"), (3, Some(2), Some(1)));
        let error = configure(&csv, "path = 'a'\ntarget = 'y'\nval = 'b'\nval_split = 0.1").err().unwrap();
        assert!(error.contains("has no effect with `val`") && error.contains("1 problem"), "{error}");
        let error = configure(&csv, "path = 'a'\ntarget = 'y'\nval = '/b'\ntest = '../c'").err().unwrap();
        assert!(error.contains("2 problems") && error.contains("a file in the folder in `path`"), "{error}");
    }

    #[test]
    fn a_test_table_without_targets_is_left_out() {
        let folder = Folder::new(&[("train.csv", TRAIN), ("val.csv", VAL)]);
        for test in ["size,kind\n7,b\n", "size,kind,y\n7,b,\n8,b,NA\n"] {
            folder.write("test.csv", test);
            let (splits, said) = folder.open("train.csv", "val = 'val.csv'\ntest = 'test.csv'").unwrap();
            assert!(splits.test.is_none() && splits.val.is_some());
            assert!(said[0].contains("test.csv: left out, because no row has a value in the target `y`"));
        }
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let folder = Folder::new(&[("train.csv", TRAIN), ("val.csv", "size,colour,y\n1,a,2\n")]);
        let what = "val.csv has other columns than train.csv: it lacks `kind`; only it has `colour`";
        assert!(folder.refused("val = 'val.csv'").starts_with(what), "{}", folder.refused("val = 'val.csv'"));
        let some = "val = 'val.csv'\nfeatures = ['size']";
        assert_eq!(folder.open("train.csv", some).unwrap().0.val.unwrap().len(), 1, "both have what is used");
        for (val, why) in [
            ("size,kind,y\n", "val.csv has no rows"),
            ("size,kind\n1,a\n", "val.csv has other columns than train.csv: it lacks `y`"),
            // Of two lines, the place is that of the file.
            ("kind,y,size\n\na,1,\n", "val.csv, line 3, column `size`: the cell is blank"),
            ("size,kind,y\n1,a,much\n", "val.csv, line 2, column `y`"),
        ] {
            folder.write("val.csv", val);
            let error = folder.refused("val = 'val.csv'");
            assert!(error.contains(why), "{error}");
        }
        let missing = folder.refused("val = 'none.csv'");
        assert!(missing.starts_with("none.csv is missing, which `[dataset] val` names"), "{missing}");
        let error = folder.refused("train = 'train.csv'");
        assert!(error.starts_with("train.csv is a file, but `train` is set too"), "{error}");
        let error = folder.open("", "").err().unwrap();
        assert!(error.message.ends_with(" is a folder"), "{error}");
        assert!(error.hint.unwrap().starts_with("`[dataset] train` names the training table"));
    }
}
