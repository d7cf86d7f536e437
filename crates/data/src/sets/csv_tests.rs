use super::*;
use crate::Dataset;
use crate::images::class_facts;
use crate::testing::{configure, sample, serve_file, shared};

const TABLE: &str = "\
size,colour,weight,price
1,red,10,5
2,green,20,6
3,,30,7
,red,40,8
5,blue,50,9
6,red,60,10
7,green,70,11
8,blue,80,12
";

fn write(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    (folder, format!("path = '{}'\ntarget = 'price'\n", path.display()))
}

fn open(text: &str, more: &str) -> Result<Splits> {
    let (_folder, table) = write(text);
    let source = configure(&csv, &(table + more)).unwrap();
    source.prepare(&mut |_| ()).unwrap();
    source.open()
}

fn rows(set: &dyn Dataset) -> Vec<(Vec<f64>, Vec<f64>)> {
    (0..set.len()).map(|i| sample(set, i, 0)).collect()
}

#[test]
fn handles_blanks_as_specified() {
    let plain = "val_split = 0.0\nstandardise = false\nstandardise_target = false\n";
    let error = open(TABLE, plain).err().unwrap().to_string();
    assert!(error.contains("t.csv, line 4, column `colour`: the cell is blank"), "{error}");
    assert!(error.contains("hint: set `[dataset] blanks` to"), "{error}");
    let lines = format!("\r\n{}", TABLE.replace('\n', "\r\n"));
    let error = open(&lines, plain).err().unwrap().to_string();
    assert!(error.contains("t.csv, line 5, column `colour`"), "{error}");
    let drop = open(TABLE, &format!("{plain}blanks = 'drop'")).unwrap().train;
    let places: Vec<String> = (0..6).map(|i| drop.place(i).unwrap()).collect();
    assert!(places[0].ends_with("/t.csv, line 2") && places[2].ends_with("/t.csv, line 6"), "{places:?}");
    let drop = rows(&*drop);
    assert_eq!(drop.len(), 6);
    // size, then blue, green, red, then weight.
    assert_eq!(drop[0], (vec![1., 0., 0., 1., 10.], vec![5.]));
    assert_eq!(drop[1], (vec![2., 0., 1., 0., 20.], vec![6.]));
    let zero = rows(&*open(TABLE, &format!("{plain}blanks = 'zero'")).unwrap().train);
    assert_eq!(zero[2], (vec![3., 0., 0., 0., 30.], vec![7.]));
    assert_eq!(zero[3], (vec![0., 0., 0., 1., 40.], vec![8.]));
    let mean = rows(&*open(TABLE, &format!("{plain}blanks = 'mean'")).unwrap().train);
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close(&mean[2].0, &[3., 2. / 7., 2. / 7., 3. / 7., 30.]), "{:?}", mean[2]);
    assert!(close(&mean[3].0, &[32. / 7., 0., 0., 1., 40.]), "{:?}", mean[3]);
    let error =
        open(&TABLE.replace("30,7", "30,"), &format!("{plain}blanks = 'mean'")).err().unwrap().to_string();
    assert!(error.contains("line 4, column `price`: the target is blank"), "{error}");
}

#[test]
fn targets_know_their_unit() {
    let scale = |more: &str| {
        open(TABLE, &format!("blanks = 'mean'\nval_split = 0.0\n{more}")).unwrap().train.target_scale()
    };
    // Of 5, 6, …, 12.
    assert!((scale("") - 5.25f64.sqrt()).abs() < 1e-12);
    assert_eq!(scale("standardise_target = false"), 1.0);
    assert_eq!(scale("task = 'classification'"), 1.0);
}

#[test]
fn statistics_come_from_the_training_rows_only() {
    let splits = open(TABLE, "blanks = 'mean'\nval_split = 0.5\nfeatures = ['weight']").unwrap();
    let (train, val) = (rows(&*splits.train), rows(&**splits.val.as_ref().unwrap()));
    assert_eq!((train.len(), val.len()), (4, 4));
    for column in [0, 1] {
        let of = |rows: &[(Vec<f64>, Vec<f64>)]| -> Vec<f64> {
            rows.iter().map(|(x, y)| if column == 0 { x[0] } else { y[0] }).collect()
        };
        let values = of(&train);
        let mean = values.iter().sum::<f64>() / 4.0;
        let variance = values.iter().map(|x| x * x).sum::<f64>() / 4.0;
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-5, "{values:?}");
        // Validation uses the mean of training, so its own mean is not 0.
        assert!(of(&val).iter().sum::<f64>().abs() > 1e-3, "validation was not centred by itself");
    }
    assert!(train.iter().chain(&val).all(|(x, y)| (x[0] - y[0]).abs() < 1e-5));
}

#[test]
fn classification_by_text_labels() {
    let text = "a,kind\n1,wolf\n2,cat\n3,wolf\n4,ant\n";
    let (_folder, table) = write(text);
    let source =
        configure(&csv, &(table.replace("price", "kind") + "task = 'classification'\nval_split = 0.0"))
            .unwrap();
    let splits = source.open().unwrap();
    assert_eq!(splits.train.target(), class_facts(3));
    assert_eq!(rows(&*splits.train).iter().map(|r| r.1[0]).collect::<Vec<_>>(), [2., 1., 2., 0.]);
    let (_folder, table) = write(text);
    let ordered =
        "task = 'classification'\nval_split = 0.0\ncategories = { kind = ['wolf', 'cat', 'ant', 'bee'] }";
    let source = configure(&csv, &(table.replace("price", "kind") + ordered)).unwrap();
    assert_eq!(source.facts().target, Some(class_facts(4)));
    assert_eq!(
        rows(&*source.open().unwrap().train).iter().map(|r| r.1[0]).collect::<Vec<_>>(),
        [0., 1., 0., 2.]
    );
    // Numeric labels are sorted as numbers: 10 after 9.
    let numbers = open("a,price\n1,10\n2,9\n3,100\n", "task = 'classification'\nval_split = 0.0").unwrap();
    assert_eq!(rows(&*numbers.train).iter().map(|r| r.1[0]).collect::<Vec<_>>(), [1., 0., 2.]);
}

#[test]
fn a_damaged_row_has_its_line_and_a_number_fits_f32() {
    for (text, found) in [
        ("a,price\r\n1,2\r\n1,2,3\r\n", "t.csv: CSV error: record 2 (line: 3, "),
        ("a,price\n1,2\n-1.7e308,3\n", "t.csv, line 3, column `a`: `-1.7e308` is too large"),
        ("a,price\n1,2\n2,1e39\n", "t.csv, line 3, column `price`: `1e39` is too large"),
    ] {
        let error = open(text, "").err().unwrap().to_string();
        assert!(error.contains(found), "{error}");
    }
    // Latin-1.
    let (folder, table) = write("");
    std::fs::write(folder.path().join("t.csv"), b"a,price\r\n1,2\r\n\xe9,3\r\n").unwrap();
    let source = configure(&csv, &table).unwrap();
    let error = source.prepare(&mut |_| ()).and_then(|()| source.open().map(drop)).unwrap_err().to_string();
    assert!(error.contains("(line 3, "), "{error}");
    let marked = open("a,price\n1,2\n1e39,3\n", "blank_marks = ['1e39']\nblanks = 'zero'\nval_split = 0.0");
    assert_eq!(marked.unwrap().train.len(), 2);
}

#[test]
fn messages_about_wrong_tables() {
    let typo: String = format!("a,price\n{}x,5\n", "1,2\n".repeat(9));
    let units = typo.replace('x', "1 kg");
    let many: String = (0..=1001).map(|i| format!("t{i},5\n")).collect();
    let mut messages = String::new();
    for (text, more) in [
        (TABLE, ""),
        (TABLE, "features = ['sise']"),
        (TABLE, "categories = { color = ['x'] }"),
        (TABLE, "blanks = 'mean'\ncategories = { colour = ['red', 'blue'] }"),
        (&typo, ""),
        (&units, ""),
        (&format!("a,price\n{many}"), ""),
        ("a,price\n1,cheap\n", ""),
        ("a,price\n1,\n", "blanks = 'mean'"),
        ("a,price\n1,2\n1,2,3\n", ""),
        ("a,a\n1,2\n", ""),
        ("a,price\n", ""),
        ("a,price\n,1\n", "blanks = 'drop'"),
        (&TABLE.replace(',', ";"), ""),
        (&TABLE.replace(',', "\t"), ""),
        (&TABLE.replace(',', "|"), ""),
        ("a price\n1 2\n", ""),
        ("a;price\n1,5;2\n", ""),
        ("price\n1,5\n", ""),
    ] {
        let error = open(text, more).err().unwrap().to_string();
        let path = error.find('/').unwrap()..error.find("t.csv").unwrap();
        messages += &format!("{}\n\n", error.replace(&error[path], ""));
    }
    messages += &configure(&csv, "features = ['y']\ntarget = 'y'\ntask = 'ranking'").err().unwrap();
    let source = configure(&csv, "path = '/nowhere/t.csv'\ntarget = 'y'").unwrap();
    messages += &format!("\n\n{}", source.prepare(&mut |_| ()).unwrap_err());
    insta::assert_snapshot!(messages);
}

#[test]
fn remarks_describe_every_column() {
    let plain = "blanks = 'drop'\nval_split = 0.0\n";
    let said = |text: &str, more: &str| -> Vec<String> {
        let lines = open(text, &format!("{plain}{more}")).unwrap().train.remarks();
        lines
            .iter()
            .map(|line| line.replace(&line[line.find('/').unwrap()..line.find("t.csv").unwrap()], ""))
            .collect()
    };
    assert_eq!(
        said(TABLE, ""),
        [
            "t.csv: 6 of 8 rows, the others have empty cells in `size` (1), `colour` (1); numbers: `size`, `weight`; categories, one-hot: \
             `colour` (3); target: `price`, a number"
        ]
    );
    let prices = "id,paid,price\na,\"1,234\",1\nb,\"2,345\",2\nc,7,3\n";
    assert_eq!(
        said(prices, ""),
        [
            "t.csv: 3 rows; categories, one-hot: `id` (3), `paid` (3); target: `price`, a number",
            "warning: t.csv, column `paid` is read as text with 3 values, such as `1,234`: write numbers without \
             separators and units, as in 1234.5",
        ]
    );
    let names: String = (0..101).map(|i| format!("n{i},{},{i}\n", i % 2)).collect();
    let names = format!("id,bit,price\n{names}");
    let lines = said(&names, "");
    assert_eq!(
        lines[1..],
        [
            "warning: t.csv, column `id` is read as text with 101 values, such as `n0`: every row has a different value; \
          to leave it out, list the other columns in `[dataset] features`"
        ]
    );
    assert_eq!(said(&names.replace("n100,", "n99,"), "").len(), 1, "a hundred are no reason to warn");
    assert_eq!(said(&names, "features = ['bit']").len(), 1);
    let wide = format!("{},price\n{},1\n", vec_of(|i| format!("c{i}")), vec_of(|i| i.to_string()));
    assert!(said(&wide, "")[0].contains("`c19`, 280 more; target"), "{:?}", said(&wide, ""));
}

/// The target is probably an ID or a measured number.
#[test]
fn warns_about_a_target_with_nearly_unique_labels() {
    let warned = |text: &str, more: &str| -> Option<String> {
        let set = open(text, &format!("task = 'classification'\nval_split = 0.0\n{more}")).unwrap().train;
        let mut lines = set.remarks().into_iter().filter(|line| line.starts_with("warning: "));
        lines.next().map(|line| line[line.find("t.csv").unwrap()..].to_owned())
    };
    let table = |label: fn(usize) -> String| {
        let rows: String = (0..20).map(|i| format!("{i},{}\n", label(i))).collect();
        format!("a,price\n{rows}")
    };
    assert_eq!(warned(&table(|i| format!("l{}", i / 2)), ""), None);
    let ids = table(|i| format!("id{}", i - i / 19));
    assert_eq!(
        warned(&ids, "").unwrap(),
        "t.csv, the target `price` has 19 classes in 20 rows, such as `id0`: set `[dataset] target` to the column with the labels"
    );
    let numbers = table(|i| format!("{}.5", i / 2 + i % 2 * 10));
    assert_eq!(
        warned(&numbers, "").unwrap(),
        "t.csv, the target `price` has 20 classes in 20 rows, such as `0.5`: for a numeric target, set `[dataset] task = \"regression\"`"
    );
    // The spec lists these as classes.
    let said: Vec<String> = (0..19).map(|i| format!("'id{i}'")).collect();
    assert_eq!(warned(&ids, &format!("categories = {{ price = [{}] }}", said.join(", "))), None);
}

/// 300 cells.
fn vec_of(cell: impl Fn(usize) -> String) -> String {
    (0..300).map(cell).collect::<Vec<_>>().join(",")
}

/// Work quadratic in the number of columns or labels would not finish.
#[test]
fn reads_wide_tables_and_many_labels() {
    let names: Vec<String> = (0..200_000).map(|i| format!("c{i}")).collect();
    let row = vec!["1.5"; 200_000].join(",");
    let text = format!("{},price\n{row},1\n{row},2\n", names.join(","));
    let all = format!("standardise = false\nval_split = 0.0\nfeatures = [\"{}\"]", names.join("\", \""));
    let splits = open(&text, &all).unwrap();
    assert_eq!((splits.train.len(), splits.train.input().shape), (2, vec![200_000]));
    let labels: String = (0..100_000).map(|i| format!("1,l{i}\n")).collect();
    let splits = open(&format!("a,price\n{labels}"), "task = 'classification'\nval_split = 0.0").unwrap();
    assert_eq!(splits.train.target(), class_facts(100_000));
    // After l0, l1 and the 1111 labels that start with l10.
    assert_eq!(sample(&*splits.train, 11, 0).1, [1113.0]);
}

/// Without `sha256`, only parsing shows that a download is the wrong file.
#[test]
fn removes_a_download_that_is_not_a_valid_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let source = |body: &str| {
        let url = serve_file(body.as_bytes());
        let table = format!("path = '{}'\ntarget = 'price'\nblanks = 'drop'\nurl = '{url}'", path.display());
        configure(&csv, &table).unwrap()
    };
    let error = source("<html>\nnot found\n").prepare(&mut |_| ()).unwrap_err();
    assert!(error.message.contains("t.csv has no column `price`"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    source(TABLE).prepare(&mut |_| ()).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), TABLE);
}

#[test]
fn reads_the_real_tables() {
    let Some(root) = shared("data") else { return };
    let table = |name: &str| format!("path = '{}'\n", root.join(name).display());
    let housing = table("california_housing.csv") + "target = 'median_house_value'\nblanks = 'mean'";
    let splits = configure(&csv, &housing).unwrap().open().unwrap();
    // Eight numbers, and five categories of `ocean_proximity`.
    assert_eq!(splits.train.input().shape, [13]);
    assert_eq!((splits.train.len(), splits.val.as_ref().unwrap().len()), (18_576, 2_064));
    assert!((0..500).all(|i| sample(&*splits.train, i, 0).0.iter().all(|x| x.is_finite())));
    let penguins = table("penguins.csv") + "target = 'species'\ntask = 'classification'\nblanks = 'drop'";
    let splits = configure(&csv, &penguins).unwrap().open().unwrap();
    assert_eq!(splits.train.target(), class_facts(3));
    assert_eq!(splits.train.len() + splits.val.unwrap().len(), 333);
}

#[path = "csv_warnings_tests.rs"]
mod warnings;
