//! Tables with names of classes, and tables in the encoding of a checkpoint.

use super::*;
use crate::Encoding;

const SPECIES: &str = r#"{"info":{"features":{"species":{"names":["Adelie","Chinstrap","Gentoo"],
    "_type":"ClassLabel"}}}}"#;
/// The same classes in another order.
const OTHER: &str = r#"{"info":{"features":{"species":{"names":["Gentoo","Adelie","Chinstrap"],
    "_type":"ClassLabel"}}}}"#;

/// Numbers with a class each.
fn write(folder: &Folder, metadata: &str, rows: &[(f64, i64)]) {
    let file = ParquetFile {
        schema: "optional double size; optional int64 species;",
        metadata: Some(metadata),
        ..Default::default()
    };
    let sizes = Values::Double(rows.iter().map(|(size, _)| Some(*size)).collect());
    let species = Values::Int64(rows.iter().map(|(_, species)| Some(*species)).collect());
    file.write(&folder.at("train.parquet"), &[sizes, species]);
}

#[test]
fn a_checkpoint_knows_the_names_of_classes_and_finds_them_in_other_files() {
    let (folder, other) = (Folder::new(), Folder::new());
    let keys = "content = 'table'\ntarget = 'species'\ntask = 'classification'\n";
    write(&folder, SPECIES, &[(1.0, 0), (2.0, 1), (3.0, 2)]);
    let trained = folder.source(keys).open().unwrap().train;
    let encoding = trained.encoding().unwrap();
    assert_eq!(encoding.classes().unwrap(), ["Adelie", "Chinstrap", "Gentoo"]);
    let numbers = format!("{keys}categories = {{ species = ['0', '1', '2'] }}");
    let own = folder.source(&numbers).open().unwrap().train.encoding().unwrap();
    assert_eq!(own.classes().unwrap(), ["0", "1", "2"], "the spec's own names");

    // Two Gentoos, and another mean: neither is measured anew.
    write(&other, OTHER, &[(3.0, 0), (3.0, 0)]);
    let held_out = other.source(keys).open_encoded(&encoding).unwrap().train;
    assert_eq!((held_out.target(), held_out.encoding()), (class_facts(3), Some(encoding)));
    for row in 0..2 {
        assert_eq!(sample(&*held_out, row, 0), sample(&*trained, 2, 0));
    }
    let numbered = other.source(keys).open_encoded(&own).unwrap().train;
    assert_eq!(sample(&*numbered, 0, 0).1, [0.0], "a checkpoint without names has numbers");
}

#[test]
fn a_table_that_does_not_fit_a_checkpoint_is_refused() {
    let folder = Folder::new();
    write(&folder, SPECIES, &[(1.0, 0), (2.0, 1), (3.0, 2)]);
    let open = |more: &str| folder.source(&format!("content = 'table'\n{more}"));
    let keys = "target = 'species'\ntask = 'classification'";
    let encoding = open(keys).open().unwrap().train.encoding().unwrap();
    let error = folder.error(open("target = 'species'").open_encoded(&encoding));
    assert!(error.contains("the checkpoint predicts classes"), "{error}");
    let Encoding::Table(mut table) = encoding else { panic!("it is a table") };
    table.columns[0].name = "length".to_owned();
    let error = folder.error(open(keys).open_encoded(&Encoding::Table(table)));
    assert!(error.contains("has no column `length`"), "{error}");
}
