//! Separate tables of the splits.

use crate::sets::csv;
use crate::testing::{configure, sample};
use crate::{Dataset, Encoding, Splits, TargetEncoding};
use base::error::{ErrorKind, Result};

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
        assert_eq!(error.kind, ErrorKind::Spec);
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

/// Of columns, a category that training lacks has an input without training; a class would have an output.
#[test]
fn categories_and_classes_that_training_lacks_are_told() {
    let folder = Folder::new(&[("train.csv", TRAIN), ("val.csv", VAL), ("test.csv", TEST)]);
    let more = "val = 'val.csv'\ntest = 'test.csv'";
    let remarks = folder.open("train.csv", more).unwrap().0.train.remarks();
    assert!(remarks[1].ends_with("column `kind`: `c` is in no training row (1 cell)"), "{remarks:?}");
    folder.write("val.csv", "size,kind,y\n5,c,50\n5,c,50\n6,d,60\n");
    let remarks = folder.open("train.csv", more).unwrap().0.train.remarks();
    let expected = "column `kind`: 2 categories are in no training row, such as `c` (2 cells)";
    assert!(remarks.len() == 2 && remarks[1].ends_with(expected), "{remarks:?}");
    folder.write("val.csv", "size,kind,y\n5,a,30\n2,b,20\n");
    let classes = "val = 'val.csv'\ntask = 'classification'";
    let error = folder.refused(classes);
    assert!(
        error.starts_with("val.csv, line 3, column `y`: the class `20` is missing from training"),
        "{error}"
    );
    let listed = format!("{classes}\ncategories = {{ y = ['10', '20', '30'] }}");
    assert_eq!(folder.open("train.csv", &listed).unwrap().0.val.unwrap().len(), 2);
}

#[test]
fn tables_may_be_in_sibling_folders() {
    let folder = Folder::new(&[]);
    for (split, text) in [("train", TRAIN), ("val", VAL), ("test", TEST)] {
        std::fs::create_dir(folder.0.path().join(split)).unwrap();
        folder.write(&format!("{split}/data.csv"), text);
    }
    let keys = "train = 'train/data.csv'\nval = 'val/data.csv'\ntest = 'test/data.csv'";
    let (splits, _) = folder.open("", keys).unwrap();
    assert_eq!((splits.train.len(), splits.val.unwrap().len(), splits.test.unwrap().len()), (2, 2, 1));
    let error = folder.open("", "train = 'train/data.csv'\nval = 'data.csv'").err().unwrap();
    let missing = format!("{}/data.csv is missing", folder.0.path().display());
    assert!(error.message.starts_with(&missing), "{error}");
    assert!(error.hint.unwrap().ends_with("a path from `[dataset] path`"));
}

#[test]
fn the_split_without_usable_rows_is_named() {
    let folder = Folder::new(&[("train.csv", TRAIN), ("val.csv", "size,kind,y\n,a,50\n")]);
    let error = folder.refused("val = 'val.csv'\nblanks = 'drop'");
    assert!(error.contains("val.csv has no usable rows for the split `val`"), "{error}");
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
        let why =
            if test.contains(",y") { "no row has a value in the target `y`" } else { "it has no column `y`" };
        assert!(said[0].contains(&format!("test.csv: left out, because {why}")), "{said:?}");
    }
    folder.write("test.csv", "size,kind,Y\n7,b,70\n");
    let (_, said) = folder.open("train.csv", "test = 'test.csv'").unwrap();
    assert!(said[0].contains("because it has no column `y`; did you mean `Y`?"), "{said:?}");
}

/// It is no table without targets.
#[test]
fn a_table_with_another_separator_is_refused() {
    let folder = Folder::new(&[("train.csv", TRAIN), ("other.csv", "y;size;kind\n70;7;b\n")]);
    for split in ["val", "test"] {
        let mut said = Vec::new();
        let path = folder.0.path().join("train.csv");
        let keys = format!("path = '{}'\ntarget = 'y'\n{split} = 'other.csv'", path.display());
        let source = configure(&csv, &keys).unwrap();
        source.prepare(&mut |line| said.push(line.to_owned())).unwrap();
        assert_eq!(said, [""; 0]);
        let error = source.open().err().unwrap();
        assert!(error.message.contains("other.csv has other columns than "), "{error}");
        assert_eq!(
            error.hint.unwrap(),
            "the file has a single column, `y;size;kind`; all tables must have the separator of the training table, `,`"
        );
    }
    folder.write("val.csv", ",size,kind,y\n0,5,a,50\n");
    let error = folder.refused("val = 'val.csv'");
    assert!(error.contains("train.csv: only it has a column without a name"), "{error}");
}

#[test]
fn texts_of_another_table_do_not_make_numbers_categories() {
    let folder =
        Folder::new(&[("train.csv", TRAIN), ("other.csv", "size,kind,y\n5,a,50\nlow,b,60\nhi,b,60\n")]);
    for split in ["val", "test"] {
        let error = folder.refused(&format!("{split} = 'other.csv'"));
        let what = "other.csv, line 3, column `size`: `low` is not a number, but all cells of this column in train.csv are";
        assert!(error.starts_with(what) && error.contains("blank_marks"), "{error}");
    }
    let listed = "val = 'other.csv'\ncategories = { size = ['1', '3', '5', 'low', 'hi'] }";
    assert_eq!(folder.open("train.csv", listed).unwrap().0.val.unwrap().len(), 3);
    let other = "val = 'other.csv'\nfeatures = ['kind']";
    assert_eq!(folder.open("train.csv", other).unwrap().0.val.unwrap().len(), 3);
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
