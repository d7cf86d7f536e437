use super::*;
use crate::sets::csv_guessed::read_table;
use base::error::ErrorKind;
use std::path::Path;

fn propose_csv(path: &Path) -> Result<CsvProposal> {
    let (table, marks) = read_table(path)?;
    super::propose(&table, marks, &Beside::default())
}

fn propose(text: &str) -> Result<CsvProposal> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    propose_csv(file.path())
}

/// A header and `rows` lines, each made from its number.
fn table(header: &str, rows: usize, row: impl Fn(usize) -> String) -> String {
    let lines = (0..rows).map(|r| row(r) + "\n");
    std::iter::once(format!("{header}\n")).chain(lines).collect()
}

fn names(columns: &[(String, String)]) -> Vec<&str> {
    columns.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_column_that_is_called_so_is_the_target_and_else_the_last() {
    let target = |header: &str| {
        let found = propose(&table(header, 40, |r| format!("{}.5,{},{}.5", r * r, r % 7, r * 3))).unwrap();
        (found.target, found.target_reason)
    };
    for (header, expected) in [
        ("a,b,c", ("c", "the last column")),
        ("Label,b,c", ("Label", "by its name")),
        ("house_price,b,c", ("house_price", "by its name")),
        ("a,class,y", ("class", "by its name")),
        ("priceless,b,c", ("c", "the last column")),
    ] {
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        assert_eq!(target(header), expected, "{header}");
    }
}

#[test]
fn a_target_with_marks_for_missing_values_is_proposed_with_them() {
    let cell = |r: usize| ["?", "None", "0", "1", "0", "1", "1", "0", "1", "0"][r % 10];
    let found =
        propose(&table("a,b,label", 100, |r| format!("{}.5,{}.25,{}", r * r, r * 3, cell(r)))).unwrap();
    assert_eq!((found.target.as_str(), found.classes, found.rows), ("label", Some(2), 80));
    assert_eq!(found.marks, ["?", "None"]);
    let marks = found.blank_marks().expect("more than the usual ones");
    assert!(["", "NA", "?", "None"].iter().all(|mark| marks.contains(&(*mark).to_owned())), "{marks:?}");
    assert_eq!(found.blanks.map(|(treatment, _)| treatment), Some("drop"));
    assert!(found.passed_over.is_empty());
    // A text that is no mark.
    let other = |r: usize| if r == 3 { "maybe" } else { cell(r + 2) };
    let found =
        propose(&table("a,b,label", 100, |r| format!("{}.5,{}.25,{}", r * r, r * 3, other(r)))).unwrap();
    assert_eq!((found.target.as_str(), found.marks.len(), found.blank_marks()), ("b", 0, None));
    assert_eq!(names(&found.passed_over), ["label"]);
}

#[test]
fn a_column_that_looks_like_the_target_but_cannot_be_it_is_told() {
    let found =
        propose(&table("a,price,b", 40, |r| format!("{}.5,\"$1,{r:03}\",{}.25", r * r, r * 3))).unwrap();
    assert_eq!((found.target.as_str(), found.marks.len()), ("b", 0));
    let expected = ("price".to_owned(), "numbers with separators or units, such as `$1,000`".to_owned());
    assert_eq!(found.passed_over, [expected]);
    // One that can be it is found by its name, too.
    let found = propose(&table("class,price,y", 40, |r| format!("1,\"$1,{r:03}\",{}.25", r * 3 + r % 2)));
    let error = found.unwrap_err();
    assert!(error.message.contains("no column can be a feature"), "{error}");
    assert!(error.hint.is_some_and(|hint| hint.contains("1234.5")));
}

#[test]
fn texts_and_few_whole_numbers_are_classes() {
    let classes = |rows: usize, cell: &dyn Fn(usize) -> String| {
        propose(&table("a,y", rows, |r| format!("{}.5,{}", r * r, cell(r)))).unwrap().classes
    };
    assert_eq!(classes(40, &|r| ["x", "y z", "w"][r % 3].to_owned()), Some(3));
    assert_eq!(classes(40, &|r| (r % 4).to_string()), Some(4));
    assert_eq!(classes(40, &|r| format!("{}.0", r % 2)), Some(2));
    // Two rows a class, fractions, many values.
    assert_eq!(classes(40, &|r| (r % 20).to_string()), None);
    assert_eq!(classes(40, &|r| format!("{}.5", r % 3)), None);
    assert_eq!(classes(400, &|r| (r % 21).to_string()), None);
}

/// As training counts them.
#[test]
fn classes_are_the_labels_of_the_rows_that_are_used() {
    let spelt = |r: usize| if r == 3 { "1.0".to_owned() } else { (r % 2).to_string() };
    let found = propose(&table("a,y", 40, |r| format!("{}.5,{}", r * r, spelt(r)))).unwrap();
    assert_eq!(found.classes, Some(3));
    assert!(found.task_reason.contains("2 different ones (3 labels"), "{}", found.task_reason);
    // The rows of `z` lack `a`, and a row lacks the target.
    let cells = |r: usize| match r {
        0 => "1.5,".to_owned(),
        1..3 => ",z".to_owned(),
        _ => format!("{}.5,{}", r * r, ["x", "w"][r % 2]),
    };
    let found = propose(&table("a,y", 40, cells)).unwrap();
    assert_eq!((found.rows, found.classes, found.blanks.map(|b| b.0)), (37, Some(2), Some("drop")));
    let one = |r: usize| {
        if r > 30 { ",z".to_owned() } else { format!("{}.5,{}", r * r, if r == 0 { "" } else { "x" }) }
    };
    let error = propose(&table("a,y", 40, one)).unwrap_err();
    assert!(error.message.contains("the target `y` has one class only"), "{error}");
}

#[test]
fn numbers_that_training_cannot_hold_are_left_out() {
    let found = propose(&table("a,b,y", 40, |r| format!("{}e40,{}.5,{}", r + 1, r * r, r % 2))).unwrap();
    assert_eq!(names(&found.left_out), ["a"]);
    assert_eq!(found.left_out[0].1, "the number 1e40 does not fit 32 bits");
}

#[test]
fn columns_without_use_are_left_out_with_the_reason() {
    let header = "id,note,constant,mostly,mixed,money,kind,x,y";
    let found = propose(&table(header, 60, |r| {
        let mixed = if r == 3 { "?".to_owned() } else { r.to_string() };
        let mostly = if r < 20 { "1" } else { "" };
        format!("{r},text {r},7,{mostly},{mixed},\"$1,{r:03}\",{},{}.25,{}.5", ["p", "q"][r % 2], r * r, r)
    }))
    .unwrap();
    assert_eq!(names(&found.features), ["kind", "x"]);
    assert_eq!(found.features[0].1, "2 texts, one-hot");
    let reasons: Vec<String> = found.left_out.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let expected = [
        "id: it numbers the rows",
        "note: every row has another text",
        "constant: all cells are equal",
        "mostly: 40 of 60 cells are empty",
        "mixed: most cells are numbers, but not `?`; if it stands for an empty cell, add it to `blank_marks`",
        "money: numbers with separators or units, such as `$1,000`",
    ];
    assert_eq!(reasons, expected);
    assert!(found.blanks.is_none());
}

#[test]
fn empty_cells_are_filled_unless_the_target_has_some() {
    let of = |feature: usize, target: usize| {
        let cell = |r: usize, of: usize| if r < of { String::new() } else { format!("{}.5", r * r) };
        propose(&table("a,b,y", 40, |r| format!("{r}.1,{},{}", cell(r, feature), cell(39 - r, target))))
    };
    let blanks = |feature, target| {
        let found = of(feature, target).unwrap();
        (found.blanks.map(|(value, _)| value), found.rows)
    };
    assert_eq!(blanks(0, 0), (None, 40));
    assert_eq!(blanks(3, 0), (Some("mean"), 40));
    assert_eq!(blanks(3, 2), (Some("drop"), 35));
    let error = of(16, 16).unwrap_err();
    assert!(
        error.message.contains("the target `y` is empty in 16 rows, and 8 rows have no empty cell"),
        "{error}"
    );
}

#[test]
fn the_separator_is_the_one_that_makes_columns() {
    for (header, mark) in [("a;b,c;y", ';'), ("a\tb\ty", '\t'), ("a|b|y", '|')] {
        let found = propose(&table(header, 20, |r| format!("{r}.5{mark}{}{mark}{}", r * r, r % 2))).unwrap();
        assert_eq!((found.delimiter, found.target.as_str(), found.features.len()), (mark, "y", 2));
    }
}

#[test]
fn files_that_are_no_tables_are_refused() {
    let nothing = |r: usize| format!("1,{r}");
    for (text, why) in [
        (table("a", 20, |r| r.to_string()), "has a single column"),
        (table("5.1,3.5", 20, |r| format!("{r},{r}")), "the first line has numbers, such as `5.1`"),
        (table("a,y", 9, |r| format!("{r},{r}")), "has 9 rows"),
        (
            table("a,b", 20, nothing),
            "no column can be a target\n  `a`: all cells are equal\n  `b`: it numbers",
        ),
        (table("a,y", 20, |r| format!("1,{}", r * r)), "besides the target `y`, no column can be a feature"),
    ] {
        let error = propose(&text).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Spec);
        assert!(error.message.contains(why), "{error}");
    }
    for (text, why, hint) in [
        ("".to_owned(), "is empty", "first line"),
        ("\n\n".to_owned(), "is empty", "first line"),
        (
            table("a,y", 20, |r| if r == 5 { "1,2,3".to_owned() } else { format!("{r}.5,{r}") }),
            "line: 7",
            "double quotes",
        ),
        (table("a,y", 20, |r| format!("{r}%,\"{r},5\"")), "no column can be a target", "1234.5"),
    ] {
        let error = propose(&text).unwrap_err();
        assert!(error.message.contains(why), "{error}");
        assert!(error.hint.as_ref().is_some_and(|found| found.contains(hint)), "{error}");
    }
    let latin = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(latin.path(), b"a,y\n1,caf\xe9\n".repeat(20)).unwrap();
    let error = propose_csv(latin.path()).unwrap_err();
    assert!(error.hint.as_ref().is_some_and(|hint| hint.contains("iconv")), "{error}");
    // The words of a hint's error may stand in a file.
    let error = propose("fields,fields\n1,2\n").unwrap_err();
    assert!(error.message.contains("of an earlier column") && error.hint.is_none(), "{error}");
    let missing = propose_csv(Path::new("no/such.csv")).unwrap_err();
    assert_eq!(missing.kind, ErrorKind::Spec);
    assert!(missing.message.starts_with("cannot read /"), "{missing}");
}
