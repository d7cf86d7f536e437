use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    folder
}

/// A header, and rows that begin with a number and another one.
fn rows(header: &str, rest: &str) -> String {
    let row = |i: usize| {
        format!("{i}.5,{}.25{}\n", i * i, rest.replace('#', ["0", "1"][i % 2]).replace('%', &i.to_string()))
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
    let left_out: Vec<String> = found.left_out.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    assert_eq!(left_out, ["row: it numbers the rows", "c: my_valid.csv lacks it"]);
    assert_eq!(found.blanks.unwrap().0, "mean", "validation has an empty cell");
    std::fs::copy(folder.path().join("my_test.csv"), folder.path().join("other_test.csv")).unwrap();
    let error = propose_csv(folder.path()).unwrap_err().message;
    assert!(error.ends_with("has several tables for the split `test`: `my_test`, `other_test`"), "{error}");
    // The table that is named is proposed in any case.
    let (tables, _) = propose_csv(&folder.path().join("my_train.csv")).unwrap();
    assert!(tables.val.is_none() && tables.test.is_none());
}

/// The table that is named is proposed as without them, and the others are listed with the reason.
#[test]
fn tables_that_cannot_be_used_are_named() {
    let train = rows("a,b,y,c", ",#,%.5");
    for (other, text, why) in [
        ("val.csv", rows("a,b,c", ",%.5"), "it lacks `y`, the target"),
        ("val.csv", "a;b;y;c\n1;2;3;4\n".to_owned(), "the file has a single column, `a;b;y;c`"),
        ("test.csv", String::new(), "it is empty"),
        ("test.csv", "a,b,y,c\n".to_owned(), "it has no rows"),
        ("test.csv", rows("d,e", ""), "it has no column of train.csv"),
        ("test.csv", "caf\u{e9},a\n1,2,3\n".to_owned(), "each line has as many cells as the first"),
    ] {
        let folder = folder(&[("train.csv", &train), (other, &text)]);
        let (tables, found) = propose_csv(&folder.path().join("train.csv")).unwrap();
        assert!(tables.val.is_none() && tables.test.is_none());
        assert!(tables.unused.len() == 1 && tables.unused[0].starts_with(other), "{:?}", tables.unused);
        assert!(tables.unused[0].contains(why), "{:?}", tables.unused);
        assert_eq!((found.target.as_str(), found.target_reason.as_str()), ("y", "by its name"));
        assert_eq!((found.rows, found.features.len()), (20, 3));
    }
    let folder = folder(&[("train.csv", &train)]);
    std::fs::write(folder.path().join("test.csv"), b"a,b,y,c\n1,2,3,caf\xe9\n").unwrap();
    let (tables, _) = propose_csv(folder.path()).unwrap();
    assert!(tables.unused[0].contains("`iconv -f LATIN1 -t UTF-8`"), "{:?}", tables.unused);
}

#[test]
fn columns_of_numbers_with_texts_in_another_table_are_left_out() {
    let folder =
        folder(&[("train.csv", &rows("a,b,y,c", ",#,%.5")), ("val.csv", "a,b,y,c\n1,2,0,low\n1,2,0,hi\n")]);
    let (_, found) = propose_csv(folder.path()).unwrap();
    let expected = ("c".to_owned(), "numbers in train.csv, but not `low` in val.csv".to_owned());
    assert_eq!(found.left_out, [expected]);
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
