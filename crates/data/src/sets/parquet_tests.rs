use super::*;
use crate::images::class_facts;
use crate::sets::columns_proposal::{ColumnsFormat, propose_columns};
use crate::sets::columns_testing::{image_keys, png, read_until, seen, table_keys};
use crate::testing::parquet_file::{IMAGES, ParquetFile, Values, write_images};
use crate::testing::{configure, sample};
use crate::{FieldFacts, FieldKind, Splits, Tokenizer, TokenizerPlan};
use ::parquet::basic::{Compression, ZstdLevel};
use base::error::ErrorKind;
use std::path::Path;

const CLASSES: &str = r#"{"info":{"features":{"image":{"_type":"Image"},
    "label":{"names":["cat","dog","owl"],"_type":"ClassLabel"}}}}"#;

/// Images whose red is their number, with labels 0, 1, 2, 0, …
fn images(numbers: std::ops::Range<u8>) -> Vec<(Vec<u8>, i64)> {
    numbers.map(|i| (png([i, 0, 255]), i64::from(i % 3))).collect()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join("set").join(name)
    }

    fn source(&self, more: &str) -> Arc<dyn DatasetSource> {
        let (set, cache) = (self.at(""), self.0.path().join("cache"));
        let table = format!("path = '{}'\ncache = '{}'\n{more}", set.display(), cache.display());
        configure(&parquet, &table).unwrap_or_else(|e| panic!("{e}"))
    }

    fn images(&self, more: &str) -> Result<Splits> {
        let source = self.source(&image_keys(more));
        source.prepare(&mut |_| ())?;
        source.open()
    }

    fn table(&self, more: &str) -> Result<Splits> {
        let source = self.source(&table_keys(more));
        source.prepare(&mut |_| ())?;
        source.open()
    }

    /// The message without the folder.
    fn error(&self, of: Result<Splits>) -> String {
        let error = of.err().expect("an error");
        assert_eq!(error.kind, ErrorKind::Spec);
        error.to_string().replace(&self.at("").display().to_string(), "SET/")
    }
}

#[test]
fn reads_images_as_hugging_face_stores_them() {
    let folder = Folder::new();
    write_images(&folder.at("data/train-00000-of-00002.parquet"), &images(0..7), Some(CLASSES));
    write_images(&folder.at("data/train-00001-of-00002.parquet"), &images(7..10), Some(CLASSES));
    write_images(&folder.at("data/test-00000-of-00001.parquet"), &images(20..24), Some(CLASSES));
    let splits = folder.images("").unwrap();
    // In the first file, and in the second one.
    for after in [4, 8, 9] {
        let rows = read_until(&parquet_store(&folder.at(""), None), after);
        assert_eq!(rows, (0..=after).collect::<Vec<_>>());
    }
    let expected = |numbers: std::ops::Range<u8>| -> Vec<(u8, usize)> {
        numbers.map(|i| (i, usize::from(i % 3))).collect()
    };
    assert_eq!(seen(&*splits.train), expected(0..10));
    let second = splits.train.place(8).unwrap();
    assert!(second.ends_with("/data/train-00001-of-00002.parquet, row 1 (counted from 0)"), "{second}");
    assert_eq!(splits.train.target(), class_facts(3));
    assert_eq!(splits.train.input(), FieldFacts { shape: vec![3, 8, 8], kind: FieldKind::Float });
    // Without a validation split, it is the test split.
    assert_eq!(seen(&*splits.val.unwrap()), expected(20..24));
    assert_eq!(seen(&*splits.test.unwrap()), expected(20..24));
    let split = folder.images("val_split = 0.3\nchannels = 1\naugment = ['random-resized-crop']").unwrap();
    assert_eq!((split.train.len(), split.val.unwrap().len(), split.test.unwrap().len()), (7, 3, 4));
    assert_eq!(sample(&*split.train, 0, 1).0.len(), 64);
    write_images(&folder.at("data/validation-00000-of-00001.parquet"), &images(30..31), Some(CLASSES));
    assert_eq!(seen(&*folder.images("").unwrap().val.unwrap()), [(30, 0)]);
    let error = folder.error(folder.images("val_split = 0.3"));
    assert!(error.contains("has a validation split, but `val_split` is set too"), "{error}");
}

/// The second start reads the unpacked images; a changed or damaged file is noticed.
#[test]
fn images_are_unpacked_once() {
    let folder = Folder::new();
    let file = folder.at("train.parquet");
    write_images(&file, &images(0..5), Some(CLASSES));
    let said = || {
        let mut lines = Vec::new();
        folder.source("image_size = 8").prepare(&mut |line| lines.push(line.to_owned())).unwrap();
        lines
    };
    let first = said();
    assert!(first[0].contains("train.parquet: unpacking 5 images to "), "{first:?}");
    assert!(
        first[1].ends_with("5 training images in `image`, 3 classes (`cat`, `dog`, `owl`) in `label`"),
        "{first:?}"
    );
    assert_eq!(said().len(), 1);
    let packs = || -> Vec<PathBuf> {
        let folder = std::fs::read_dir(folder.0.path().join("cache/parquet")).unwrap();
        folder.map(|entry| entry.unwrap().path()).collect()
    };
    let before = packs();
    assert_eq!(before.len(), 1);
    for damage in [10, std::fs::metadata(&before[0]).unwrap().len() - 8] {
        let bytes = std::fs::read(&before[0]).unwrap();
        std::fs::write(&before[0], &bytes[..damage as usize]).unwrap();
        assert_eq!(said().len(), 2);
    }
    assert_eq!(packs(), before);
    assert_eq!(seen(&*folder.images("").unwrap().train).len(), 5);
    write_images(&file, &images(0..6), Some(CLASSES));
    assert_eq!(seen(&*folder.images("").unwrap().train).len(), 6);
    assert_eq!(packs().len(), 2);
}

/// The digest is that of the samples: not of the files, their compression or their parts.
#[test]
fn the_digest_is_that_of_the_samples() {
    let content = |write: &dyn Fn(&Folder)| {
        let folder = Folder::new();
        write(&folder);
        folder.images("").unwrap().train.content().unwrap()
    };
    let one = content(&|folder| write_images(&folder.at("train.parquet"), &images(0..4), Some(CLASSES)));
    let two = content(&|folder| {
        write_images(&folder.at("train-0.parquet"), &images(0..1), Some(CLASSES));
        write_images(&folder.at("train-1.parquet"), &images(1..4), Some(CLASSES));
    });
    assert_eq!(one, two);
    let mut other = images(0..4);
    other[3].1 = 1;
    assert_ne!(one, content(&|folder| write_images(&folder.at("train.parquet"), &other, Some(CLASSES))));
    other = images(0..4);
    other[2].0 = png([2, 1, 255]);
    assert_ne!(one, content(&|folder| write_images(&folder.at("train.parquet"), &other, Some(CLASSES))));
}

#[test]
fn every_compression_is_read() {
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
    ] {
        let folder = Folder::new();
        let file = ParquetFile {
            schema: "required double a; required double y;",
            compression,
            ..Default::default()
        };
        let numbers = |by: f64| Values::Double((0..500).map(|i| Some(f64::from(i) * by)).collect());
        file.write(&folder.at("train.parquet"), &[numbers(1.0), numbers(2.0)]);
        let splits = folder.table("target = 'y'").unwrap();
        assert_eq!(sample(&*splits.train, 499, 0), (vec![499.0], vec![998.0]), "{compression}");
    }
}

#[test]
fn classes_need_no_metadata() {
    let folder = Folder::new();
    let texts =
        ParquetFile { schema: "optional binary img; optional binary class (STRING);", ..Default::default() };
    let bytes = |n: u8| Values::Bytes((0..n).map(|i| Some(png([i, 0, 0]))).collect());
    texts.write(&folder.at("train.parquet"), &[bytes(3), Values::texts(&["owl", "cat", "owl"])]);
    texts.write(&folder.at("test.parquet"), &[bytes(1), Values::texts(&["dog"])]);
    let splits = folder.images("").unwrap();
    assert_eq!(splits.train.target(), class_facts(3));
    assert_eq!(seen(&*splits.train), [(0, 2), (1, 0), (2, 2)]);
    let folder = Folder::new();
    let numbers =
        ParquetFile { schema: "required binary picture; required int32 kind;", ..Default::default() };
    numbers.write(&folder.at("train.parquet"), &[bytes(2), Values::Int32(vec![Some(4), Some(1)])]);
    let error = folder.error(folder.images(""));
    assert!(error.contains("no column is known to be one of classes"), "{error}");
    assert!(error.contains("`[dataset] target` names it; the columns are `picture`, `kind`"), "{error}");
    let splits = folder.images("target = 'kind'").unwrap();
    assert_eq!(splits.train.target(), class_facts(5));
    assert_eq!(seen(&*splits.train), [(0, 4), (1, 1)]);
}

/// Their numbers would mean other classes.
#[test]
fn lists_of_classes_that_contradict_each_other_are_refused() {
    let files = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "test.parquet"];
    for other in &files[1..] {
        let (folder, classes) = (Folder::new(), CLASSES.replace("\"dog\",", ""));
        for file in &files {
            let classes = if file == other { &classes } else { CLASSES };
            write_images(&folder.at(file), &images(0..2), Some(classes));
        }
        let error = folder.error(folder.images(""));
        assert!(error.contains("has other classes than in"), "{error}");
        assert!(error.contains("1 is `owl`, and not `dog`"), "{error}");
    }
}

/// Test splits of competitions: -1, or no value.
#[test]
fn a_test_split_without_labels_is_left_out() {
    for hidden in [Some(-1), None] {
        let folder = Folder::new();
        write_images(&folder.at("train.parquet"), &images(0..3), Some(CLASSES));
        let file = ParquetFile { schema: IMAGES, metadata: Some(CLASSES), ..Default::default() };
        let test = |label: Option<i64>| {
            [Values::Bytes(vec![Some(png([1, 2, 3]))]), Values::Bytes(vec![None]), Values::Int64(vec![label])]
        };
        file.write(&folder.at("test.parquet"), &test(hidden));
        let splits = folder.images("").unwrap();
        assert!(splits.test.is_none() && splits.val.is_none());
        // Training without a label is an error.
        file.write(&folder.at("train.parquet"), &test(hidden));
        let error = folder.error(folder.images(""));
        assert!(
            error.contains("SET/train.parquet, row 0 (counted from 0): the row has no label in `label`"),
            "{error}"
        );
        let table = ParquetFile {
            schema: "optional double a; optional int64 label;",
            metadata: Some(CLASSES),
            ..Default::default()
        };
        let rows = |n: i64, label: fn(i64) -> i64| {
            let numbers = Values::Double((0..n).map(|i| Some(i as f64)).collect());
            [numbers, Values::Int64((0..n).map(|i| Some(label(i))).collect())]
        };
        table.write(&folder.at("train.parquet"), &rows(6, |i| i % 2));
        table.write(&folder.at("test.parquet"), &rows(2, |_| -1));
        let splits = folder.table("target = 'label'\ntask = 'classification'").unwrap();
        assert!(splits.test.is_none() && splits.val.is_none());
        // The class `owl` has no rows.
        assert_eq!(splits.train.target(), class_facts(3));
    }
}

#[test]
fn tables_are_read_as_csv_reads_them() {
    let folder = Folder::new();
    let schema = "optional double size; optional binary colour (STRING); optional boolean new; \
                  optional int32 count (INTEGER(8,false)); required float price;";
    let file = ParquetFile { schema, rows_per_group: 2, ..Default::default() };
    let colours =
        |all: &[Option<&str>]| Values::Bytes(all.iter().map(|c| c.map(|c| c.as_bytes().to_vec())).collect());
    file.write(
        &folder.at("train.parquet"),
        &[
            Values::Double(vec![Some(1.5), None, Some(3.0)]),
            colours(&[Some("red"), Some("blue"), None]),
            Values::Bool(vec![Some(true), Some(false), Some(true)]),
            Values::Int32(vec![Some(7), Some(250), Some(9)]),
            Values::Float(vec![Some(0.1), Some(2.0), Some(3.0)]),
        ],
    );
    file.write(
        &folder.at("test.parquet"),
        &[
            Values::Double(vec![Some(9.0)]),
            colours(&[Some("green")]),
            Values::Bool(vec![Some(false)]),
            Values::Int32(vec![Some(1)]),
            Values::Float(vec![Some(5.0)]),
        ],
    );
    let error = folder.error(folder.table("target = 'price'"));
    assert!(
        error.starts_with("SET/train.parquet, row 1 (counted from 0), column `size`: the cell is blank"),
        "{error}"
    );
    let splits = folder.table("target = 'price'\nblanks = 'zero'").unwrap();
    // size; blue, green, red; new; count.
    assert_eq!(sample(&*splits.train, 0, 0), (vec![1.5, 0., 0., 1., 1., 7.], vec![f64::from(0.1f32)]));
    assert_eq!(sample(&*splits.train, 1, 0), (vec![0., 1., 0., 0., 0., 250.], vec![2.]));
    let test = splits.test.unwrap();
    assert_eq!(sample(&*test, 0, 0), (vec![9., 0., 1., 0., 0., 1.], vec![5.]));
    assert_eq!(splits.val.unwrap().len(), 1);
    let place = |name: &str| Some(format!("{}, row 0 (counted from 0)", folder.at(name).display()));
    assert_eq!((splits.train.place(0), test.place(0)), (place("train.parquet"), place("test.parquet")));
    let dropped = folder.table("target = 'price'\nblanks = 'drop'").unwrap();
    assert_eq!(dropped.test.as_ref().unwrap().place(0), place("test.parquet"));
    assert_eq!((dropped.train.len(), dropped.test.unwrap().len()), (1, 1));
    let said = dropped.train.remarks();
    assert!(
        said[0].contains(
            "2 of 4 rows, the others have empty cells in `size` (1), `colour` (1); numbers: `size`, `new`, `count`; categories"
        ),
        "{said:?}"
    );
    let some = folder.table("target = 'price'\nfeatures = ['count', 'new']").unwrap().train;
    assert_eq!(sample(&*some, 1, 0).0, [250., 0.]);
}

#[test]
fn texts_are_joined() {
    let folder = Folder::new();
    let file =
        ParquetFile { schema: "optional binary text (STRING); optional int64 id;", ..Default::default() };
    let write = |name: &str, texts: &[&str]| {
        let ids = Values::Int64(texts.iter().map(|_| Some(0)).collect());
        file.write(&folder.at(name), &[Values::texts(texts), ids]);
    };
    write("train-0.parquet", &["ab", "ba"]);
    write("train-1.parquet", &["ab"]);
    write("validation.parquet", &["aabb"]);
    let open = |more: &str| folder.source(&format!("content = 'text'\nblock_size = 3\n{more}")).open();
    let splits = open("").unwrap();
    // A line end is 0, `a` 1 and `b` 2: "ab\nba\nab" has 8 characters.
    assert_eq!(splits.train.len(), 5);
    assert_eq!(sample(&*splits.train, 1, 0), (vec![2., 0., 2.], vec![0., 2., 1.]));
    let val = splits.val.unwrap();
    assert_eq!((val.len(), sample(&*val, 0, 0)), (1, (vec![1., 1., 2.], vec![1., 2., 2.])));
    std::fs::remove_file(folder.at("validation.parquet")).unwrap();
    let cut = open("val_split = 0.5").unwrap();
    assert_eq!((cut.train.len(), cut.val.unwrap().len()), (1, 1));
    assert!(folder.error(open("text = 'id'")).contains("`id` holds the number 0 instead of a text"));
}

/// A list as `pyarrow` and the format have it.
const LIST: &str = "optional group input_ids (LIST) { repeated group list { optional int64 element; } }";

/// The targets of all samples of the training split, of the tokens of [`Tokenizer::of_bytes`].
fn targets(folder: &Folder, more: &str) -> Result<Vec<i64>> {
    let source = folder.source(&format!("content = 'tokens'\nblock_size = 1\n{more}"));
    let source = source.tokenized(&TokenizerPlan::Known(Tokenizer::of_bytes())).unwrap();
    source.check_files()?;
    source.prepare(&mut |_| ())?;
    let train = source.open()?.train;
    Ok((0..train.len()).map(|i| sample(&*train, i, 0).1[0] as i64).collect())
}

#[test]
fn lists_of_tokens_are_documents() {
    let folder = Folder::new();
    let train = folder.at("train.parquet");
    // The first token is no target.
    let rows: [&[i64]; 5] = [&[9, 1, 2], &[3], &[], &[4, 256], &[5, 6]];
    let ended = [1, 2, 256, 3, 256, 256, 4, 256, 5, 6, 256];
    for (schema, elements) in [
        (LIST, "list"),
        ("required group input_ids (LIST) { repeated group list { required int32 element; } }", "required"),
        ("required group input_ids (LIST) { repeated int32 array; }", "as older writers have it"),
        ("repeated int64 input_ids;", "without a group"),
        (
            "optional group input_ids (LIST) { repeated group list { optional int32 element (INTEGER(32,false)); } }",
            "unsigned",
        ),
    ] {
        // Rows of a list are in one group or in several.
        for rows_per_group in [2, 1000] {
            let file = ParquetFile { schema, rows_per_group, ..Default::default() };
            file.write(&train, &[Values::lists(&rows)]);
            assert_eq!(targets(&folder, "").unwrap(), ended, "{elements}");
        }
    }
    let as_they_are = targets(&folder, "add_end_token = false").unwrap();
    assert_eq!(as_they_are, [1, 2, 3, 4, 256, 5, 6]);

    // More rows than are decoded at once, and lists of several pages.
    let many: Vec<Vec<i64>> =
        (0..300).map(|row| (0..row * row % 331).map(|i| (row + i) % 256).collect()).collect();
    let lists: Vec<&[i64]> = many.iter().map(Vec::as_slice).collect();
    let file = ParquetFile { schema: LIST, ..Default::default() };
    file.write(&train, &[Values::lists(&lists)]);
    assert_eq!(targets(&folder, "add_end_token = false").unwrap(), many.concat()[1..]);
}

#[test]
fn padding_is_no_document_and_wrong_lists_are_named() {
    let folder = Folder::new();
    let mask = LIST.replace("input_ids", "attention_mask");
    let write = |ids: Values, mask_values: Values| {
        let schema = format!("{LIST} {mask} optional binary text (STRING);");
        let file = ParquetFile { schema: &schema, ..Default::default() };
        file.write(&folder.at("train.parquet"), &[ids, mask_values, Values::texts(&["a", "b"])]);
    };
    write(Values::lists(&[&[7, 1, 0], &[0, 2, 3]]), Values::lists(&[&[1, 1, 0], &[0, 1, 1]]));
    assert_eq!(targets(&folder, "").unwrap(), [1, 256, 2, 3, 256]);
    let only = folder.at("only/train.parquet");
    ParquetFile { schema: LIST, ..Default::default() }.write(&only, &[Values::lists(&[&[1]])]);
    let proposal = propose_columns(&only, ColumnsFormat::Parquet(None)).err().unwrap();
    assert!(proposal.message.ends_with(" has lists of whole numbers only"), "{proposal}");
    std::fs::remove_file(only).unwrap();
    let mut messages = String::new();
    let mut note = |more: &str| {
        let error = targets(&folder, more).unwrap_err().to_string();
        messages += &format!("{}\n\n", error.replace(&folder.at("").display().to_string(), "SET/"));
    };
    note("tokens = 'input_idx'");
    note("tokens = 'text'");
    let ones = || Values::lists(&[&[1, 1, 1], &[1]]);
    write(Values::lists(&[&[7, 1, 0], &[0, 2]]), ones());
    note("");
    write(Values::lists(&[&[7, 257, 0], &[0]]), ones());
    note("");
    write(Values::lists(&[&[7, 1, -100], &[0]]), ones());
    note("");
    write(Values::Lists(vec![Some(vec![Some(1), None, Some(2)]), Some(vec![Some(1)])]), ones());
    note("");
    write(Values::Lists(vec![Some(vec![Some(1); 3]), None]), ones());
    note("");
    // No column is one of a table or of texts.
    let other = |more: &str| folder.source(more).open().err().unwrap().to_string();
    let of_others =
        [other("content = 'text'\ntext = 'input_ids'"), other("content = 'table'\ntarget = 'input_ids'")];
    messages +=
        &of_others.map(|error| error.replace(&folder.at("").display().to_string(), "SET/")).join("\n\n");
    let source = folder.source("content = 'tokens'");
    let error = source.check_files().unwrap_err().to_string();
    messages += &format!("\n\n{}", error.replace(&folder.at("").display().to_string(), "SET/"));
    insta::assert_snapshot!(messages);
}

#[path = "parquet_error_tests.rs"]
mod errors;
#[path = "parquet_known_tests.rs"]
mod known;
