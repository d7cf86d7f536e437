//! What a run tells of tables that are probably not what the user takes them for.

use super::*;

/// The lines of a run, without the folder, but for the first.
fn told(text: &str, more: &str) -> Vec<String> {
    let lines = open(text, &format!("val_split = 0.0\n{more}")).unwrap().train.remarks();
    lines[1..].iter().map(|line| line[line.find("t.csv").unwrap()..].to_owned()).collect()
}

fn table(header: &str, row: impl Fn(usize) -> String) -> String {
    (0..20).fold(format!("{header}\n"), |text, i| text + &row(i) + "\n")
}

#[test]
fn columns_of_numbers_with_other_marks_are_not_one_hot_without_a_word() {
    for mark in ["NULL", "None", "n/a", "not measured"] {
        let text =
            table("a,price", |i| format!("{},{i}", if i % 5 == 0 { i.to_string() } else { mark.into() }));
        assert_eq!(
            told(&text, ""),
            [format!(
                "t.csv, column `a` is read as text with 5 values, such as `{mark}`, although the others are numbers: if `{mark}`, in 16 \
                 cells, stands for a missing value, add it to `[dataset] blank_marks`"
            )]
        );
        assert!(told(&text, &format!("blank_marks = ['{mark}']\nblanks = 'mean'")).is_empty());
    }
    let minus = table("a,price", |i| format!("\u{2212}{i}.5,{i}"));
    let lines = told(&minus, "");
    assert!(
        lines.len() == 1
            && lines[0]
                .ends_with("write minus signs as `-` (U+002D), not `\u{2212}` (U+2212), as in -1234.5"),
        "{lines:?}"
    );
    let plain = table("a,price", |i| format!("{},{i}", ["red", "unknown", "blue"][i % 3]));
    assert!(told(&plain, "").is_empty(), "a text of its own");
}

#[test]
fn a_target_that_is_no_number_has_its_hint() {
    for (cell, hint) in [
        ("NULL", "add it to `blank_marks`"),
        ("\u{2212}5", "write minus signs as `-`"),
        ("cheap", "set `[dataset] task = \"classification\"`"),
    ] {
        let error = open(&format!("a,price\n1,2\n2,{cell}\n"), "").err().unwrap().to_string();
        assert!(
            error.contains(&format!("the target `{cell}` is not a number")) && error.contains(hint),
            "{error}"
        );
    }
}

#[test]
fn a_class_that_is_lost_with_blank_cells_is_named() {
    let text = table("a,price", |i| format!("{i},{}", ["NA", "EU", "US"][i % 3]));
    let classes = "task = 'classification'\n";
    let error = open(&text, classes).err().unwrap().to_string();
    assert!(error.contains("line 2, column `price`: the cell `NA` counts as empty"), "{error}");
    assert!(error.contains("if it is a class, leave it out of `[dataset] blank_marks`"), "{error}");
    let drop = format!("{classes}blanks = 'drop'\nval_split = 0.0");
    let lines = open(&text, &drop).unwrap().train.remarks();
    assert!(
        lines[0].contains("t.csv: 13 of 20 rows, the others have empty cells in `price` (7); "),
        "{lines:?}"
    );
    assert_eq!(
        told(&text, &format!("{classes}blanks = 'drop'")),
        [
            "t.csv, class `NA` of the target `price` is lost with its 7 rows: it counts as an empty cell; if it is a class, leave it out of \
             `[dataset] blank_marks`"
        ]
    );
    assert!(told(&text, &format!("{classes}blank_marks = ['']")).is_empty());
    let lost = table("a,price", |i| match i % 4 {
        0 => ",c".to_owned(),
        k => format!("{i},{}", ["a", "b", "a"][k - 1]),
    });
    let lines = told(&lost, &format!("{classes}blanks = 'drop'"));
    assert_eq!(
        lines,
        [
            "t.csv, class `c` of the target `price` is lost with its 5 rows, which have empty cells; `blanks = \"mean\"` or \"zero\" keeps them"
        ]
    );
}

#[test]
fn an_index_among_the_features_is_named() {
    let index = |header: &str| told(&table(header, |i| format!("{i},{},{i}", i % 7)), "");
    assert_eq!(
        index(",b,price"),
        [
            "t.csv, column 1 has no name and numbers the rows, as `to_csv()` of pandas writes it: to leave it out, list the other columns in \
             `[dataset] features`"
        ]
    );
    for name in ["Unnamed: 0", "id", "Row ID"] {
        let lines = index(&format!("{name},b,price"));
        assert!(
            lines.len() == 1 && lines[0].contains(&format!("column `{name}` has another whole number")),
            "{lines:?}"
        );
    }
    assert!(index("a,b,price").is_empty());
    assert!(told(&table(",b,price", |i| format!("{i},{},{i}", i % 7)), "features = ['b']").is_empty());
}

#[test]
fn a_target_of_one_value_is_named() {
    for (task, what) in [("classification", "class"), ("regression", "number")] {
        let lines = told(&table("a,price", |i| format!("{}.5,5", i % 7)), &format!("task = '{task}'"));
        let expected = format!(
            "t.csv, the target `price` has one {what} in all training rows, `5`: there is nothing to learn"
        );
        assert!(lines.len() == 1 && lines[0].starts_with(&expected), "{lines:?}");
    }
}

#[test]
fn features_are_columns_each_listed_once() {
    let wrong = |features: &str| {
        configure(&csv, &format!("path = 't.csv'\ntarget = 'y'\nfeatures = {features}")).err().unwrap()
    };
    assert!(wrong("['a', 'b', 'a']").contains("`a` is listed twice"));
}
