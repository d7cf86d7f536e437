//! Data sets of columns (`parquet`, `sqlite`) with the real binary: two processes read them at once, and a run that is killed and
//! resumed ends with the same bits.

use crate::common::parquet_file::{ParquetFile, Values, write_images};
use crate::common::*;
use rusqlite::{Connection, params};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const CLASSES: &str = r#"{"info":{"features":{"image":{"_type":"Image"},
    "label":{"names":["red","blue"],"_type":"ClassLabel"}}}}"#;

/// PNG files of two colours, each with its class.
fn images(n: u8) -> Vec<(Vec<u8>, i64)> {
    let image = |i: u8| {
        let shade = 100 + i;
        let colour = [[shade, i, 9], [9, i, shade]][usize::from(i % 2)];
        let mut bytes = std::io::Cursor::new(Vec::new());
        let image = image::RgbImage::from_pixel(10, 12, image::Rgb(colour));
        image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        (bytes.into_inner(), i64::from(i % 2))
    };
    (0..n).map(image).collect()
}

fn spec(model: &str, dataset: &str) -> String {
    format!(
        "name = \"columns\"\nseed = 1\nepochs = 2\nbatch_size = 4\nsave_every = \"1 steps\"\n[model]\n{model}\n\
         [dataset]\n{dataset}\n[optimizer]\nname = \"adamw\"\nlr = 1e-3\n[launch]\nnproc_per_node = 2\nthreads = 1\n\
         [checkpoint]\nasync = false\nkeep_last = 0\n"
    )
}

/// Trains once to the end, and once with a kill in the third step; returns what the first run told.
fn resumes_exactly(dir: &Path, model: &str, dataset: &str) -> String {
    let spec = write_spec(dir, &spec(model, dataset));
    let (whole, parts) = (dir.join("whole"), dir.join("parts"));
    let first = train(&spec, &whole, &[]);
    assert_code(&first, 0);
    let mut killed = train_command(&spec, &parts, &[]);
    let killed = output_of(killed.env("DDP_RUN_FAULT", "kill:rank=1,phase=forward,step=2"));
    assert!(!killed.status.success());
    let resumed = train(&spec, &parts, &[]);
    assert_code(&resumed, 0);
    assert!(!stderr(&resumed).contains("data set has changed"), "{}", stderr(&resumed));
    assert!(bits(&whole) == bits(&parts), "{dataset}: model or optimizer differ");
    assert_eq!(results(&whole), results(&parts), "{dataset}");
    assert!(events(&parts).iter().any(|event| event["event"] == "resume"), "{dataset}: it began anew");
    stderr(&first)
}

#[test]
fn images_of_a_parquet_data_set() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set/data");
    let all = images(24);
    write_images(&set.join("train-00000-of-00002.parquet"), &all[..9], Some(CLASSES));
    write_images(&set.join("train-00001-of-00002.parquet"), &all[9..], Some(CLASSES));
    write_images(&set.join("test-00000-of-00001.parquet"), &all[..6], Some(CLASSES));
    let cache = dir.path().join("cache");
    let dataset = format!(
        "name = \"parquet\"\npath = '{}'\ncache = '{}'\nimage_size = 8\naugment = [\"flip\"]",
        dir.path().join("set").display(),
        cache.display()
    );
    let told = resumes_exactly(dir.path(), "name = \"mlp\"\nhidden = [8]", &dataset);
    let understood = "24 training images in `image`, 2 classes (`red`, `blue`) in `label`";
    assert_eq!(told.matches(understood).count(), 1, "rank 0 says it, once: {told}");
    assert_eq!(std::fs::read_dir(cache.join("parquet")).unwrap().count(), 3, "one file for each");
    // Other labels are a warning.
    let mut other = images(24);
    other.iter_mut().for_each(|(_, label)| *label = 1 - *label);
    write_images(&set.join("train-00001-of-00002.parquet"), &other[9..], Some(CLASSES));
    let changed = train(&dir.path().join("job.toml"), &dir.path().join("parts"), &["--set", "epochs=3"]);
    assert_code(&changed, 0);
    let warning = "the data set has changed since this checkpoint was made: the same number of samples";
    assert!(stderr(&changed).contains(warning), "{}", stderr(&changed));
}

#[test]
fn a_parquet_table() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.parquet");
    let schema = "required double a; optional binary colour (STRING); required float y;";
    let numbers = |by: f64| (0..40).map(move |i| f64::from(i) * by);
    let colours: Vec<&str> = (0..40).map(|i| ["red", "blue"][i % 2]).collect();
    let columns = [
        Values::Double(numbers(0.5).map(Some).collect()),
        Values::texts(&colours),
        Values::Float(numbers(2.0).map(|x| Some(x as f32)).collect()),
    ];
    ParquetFile { schema, ..ParquetFile::default() }.write(&file, &columns);
    let dataset = format!(
        "name = \"parquet\"\npath = '{}'\ncontent = \"table\"\ntarget = \"y\"\nval_split = 0.2",
        file.display()
    );
    let told = resumes_exactly(dir.path(), "name = \"linear\"", &dataset);
    let understood =
        "t.parquet: 40 rows; numbers: `a`; categories, one-hot: `colour` (2); target: `y`, a number";
    assert_eq!(told.matches(understood).count(), 1, "{told}");
}

#[test]
fn an_sqlite_database_in_a_read_only_folder() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let set = new(dir.path(), "set");
    let file = set.join("set.db");
    let connection = Connection::open(&file).unwrap();
    connection
        .execute_batch(
            "pragma journal_mode = wal; create table train (image_bytes blob, label int, weight real);
             create table test (image_bytes blob, label int, weight real);",
        )
        .unwrap();
    for (i, (image, label)) in images(24).into_iter().enumerate() {
        let sql = format!("insert into {} values (?, ?, ?)", if i < 20 { "train" } else { "test" });
        connection.execute(&sql, params![image, label, i as f64]).unwrap();
    }
    drop(connection);
    std::fs::set_permissions(&set, PermissionsExt::from_mode(0o555)).unwrap();
    let images = format!("name = \"sqlite\"\npath = '{}'\nimage_size = 8\nworkers = 2", file.display());
    resumes_exactly(&new(dir.path(), "images"), "name = \"mlp\"\nhidden = [8]", &images);
    let table = format!(
        "name = \"sqlite\"\npath = '{}'\ncontent = \"table\"\ntarget = \"weight\"\nfeatures = [\"label\"]",
        file.display()
    );
    resumes_exactly(&new(dir.path(), "table"), "name = \"linear\"", &table);
    let names: Vec<_> = std::fs::read_dir(&set).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["set.db"]);
    std::fs::set_permissions(&set, PermissionsExt::from_mode(0o755)).unwrap();
}

/// `ddp-run init` with these words in `folder`, then `check` of what it wrote.
fn proposed(folder: &Path, words: &[&str]) -> String {
    assert_code(&output_of(ddp_run().arg("init").args(words).current_dir(folder)), 0);
    let spec = words.last().unwrap();
    assert_code(&output_of(ddp_run().args(["check", spec]).current_dir(folder)), 0);
    std::fs::read_to_string(folder.join(spec)).unwrap()
}

fn assert_has(spec: &str, lines: &[&str]) {
    lines.iter().for_each(|line| assert!(spec.contains(line), "{line}: {spec}"));
}

#[test]
fn init_proposes_specs_for_columns() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_images(&folder.join("pets/data/train-00000-of-00001.parquet"), &images(20), Some(CLASSES));
    write_images(&folder.join("pets/data/test-00000-of-00001.parquet"), &images(4), Some(CLASSES));
    let spec = proposed(folder, &["parquet", "pets", "pets.toml"]);
    assert_has(
        &spec,
        &[
            "#   red: 10\n#   blue: 10\n",
            "name = \"parquet\"\npath = \"pets\"",
            "image = \"image\" ",
            "target = \"label\" ",
            "image_size = 16 ",
            "# Validation: the 4 rows of the test split",
        ],
    );
    let out = folder.join("run");
    let sets = ["--set", "epochs=1", "--set", "dataset.cache=cache"];
    let run = output_of(train_command(Path::new("pets.toml"), &out, &sets).current_dir(folder));
    assert_code(&run, 0);

    let texts: Vec<String> = (0..20).map(|i| format!("text {i}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let file = ParquetFile { schema: "required binary text (STRING);", ..ParquetFile::default() };
    file.write(&folder.join("lines.parquet"), &[Values::texts(&texts)]);
    let spec = proposed(folder, &["parquet", "lines.parquet", "lines.toml"]);
    assert_has(&spec, &["content = \"text\"", "text = \"text\" ", "val_split = 0.1 "]);

    let connection = Connection::open(folder.join("houses.db")).unwrap();
    let sql = "create table sales (id integer primary key, rooms int, kind text, plan blob, price real);
         create table other (a int)";
    connection.execute_batch(sql).unwrap();
    for i in 0..40 {
        let values = params![(i % 7) as i64, ["flat", "house"][i % 2], [1u8, 2], i as f64 * 1.5];
        connection
            .execute("insert into sales (rooms, kind, plan, price) values (?, ?, ?, ?)", values)
            .unwrap();
    }
    drop(connection);
    let several = output_of(ddp_run().args(["init", "sqlite", "houses.db", "no.toml"]).current_dir(folder));
    assert_code(&several, 78);
    assert!(stderr(&several).contains("the tables are `other`, `sales`"), "{}", stderr(&several));
    let spec = proposed(folder, &["sqlite", "houses.db", "--table", "sales", "houses.toml"]);
    assert_has(
        &spec,
        &[
            "name = \"sqlite\"\npath = \"houses.db\"",
            "table = \"sales\"",
            "content = \"table\"",
            "target = \"price\" ",
            "#   \"id\": it numbers the rows",
            "#   \"plan\": it holds bytes",
            "val_split = 0.2 ",
        ],
    );
    let run = output_of(
        train_command(Path::new("houses.toml"), &folder.join("run-houses"), &sets[..2]).current_dir(folder),
    );
    assert_code(&run, 0);
}

/// A new folder in `dir`.
fn new(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(name);
    std::fs::create_dir(&folder).unwrap();
    folder
}
