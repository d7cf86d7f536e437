use super::*;
use crate::Splits;
use crate::images::class_facts;
use crate::sets::columns_testing::{self, image_keys, read_until, seen, table_keys};
use crate::testing::{configure, sample};
use base::error::ErrorKind;
use rusqlite::{Connection, params};
use serde::Serialize;

/// A PNG of one colour.
fn png(red: u8) -> Vec<u8> {
    columns_testing::png([red, 0, 255])
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("set.db")
    }

    fn write(&self, sql: &str) -> Connection {
        let connection = Connection::open(self.file()).unwrap();
        connection.execute_batch(sql).unwrap();
        connection
    }

    fn open(&self, table: &str) -> Result<Splits> {
        let source = configure(&sqlite, &format!("path = '{}'\n{table}", self.file().display()));
        let source = source.unwrap_or_else(|e| panic!("{e}"));
        source.prepare(&mut |_| ())?;
        source.open()
    }

    fn images(&self, more: &str) -> Result<Splits> {
        self.open(&image_keys(more))
    }

    fn table(&self, more: &str) -> Result<Splits> {
        self.open(&table_keys(more))
    }

    /// The message without the folder.
    fn error(&self, of: Result<Splits>) -> String {
        let error = of.err().expect("an error");
        assert_eq!(error.kind, ErrorKind::Spec);
        error.to_string().replace(&self.0.path().display().to_string(), "DIR")
    }

    /// The names of all files.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// As Burn's importer of Hugging Face data sets writes them.
#[test]
fn reads_images_as_burns_importer_stores_them() {
    let folder = Folder::new();
    let table = |name: &str| {
        format!(
            "create table {name} (image_bytes BLOB, image_path TEXT, label BIGINT, row_id INTEGER NOT NULL, PRIMARY KEY (row_id));"
        )
    };
    let connection = folder.write(&(table("train") + &table("test")));
    let add = |table: &str, id: i64, red: u8, label: i64| {
        let sql =
            format!("insert into {table} (row_id, image_bytes, image_path, label) values (?, ?, 'x.png', ?)");
        connection.execute(&sql, params![id, png(red), label]).unwrap();
    };
    // In another order than that of the row ids, which have a gap.
    for (id, red, label) in [(5, 50, 2), (1, 10, 1), (2, 20, 0)] {
        add("train", id, red, label);
    }
    add("test", 1, 99, 1);
    drop(connection);
    let splits = folder.images("").unwrap();
    assert_eq!(seen(&*splits.train), [(10, 1), (20, 0), (50, 2)]);
    assert_eq!(splits.train.target(), class_facts(3));
    assert_eq!((seen(&*splits.val.unwrap()), seen(&*splits.test.unwrap())), (vec![(99, 1)], vec![(99, 1)]));
    let alone = folder.images("table = 'train'\nval_split = 0.4").unwrap();
    assert_eq!((alone.train.len(), alone.val.unwrap().len(), alone.test.is_none()), (2, 1, true));
}

#[derive(Serialize)]
struct Item {
    picture: Vec<u8>,
    name: &'static str,
    weight: f32,
    label: u8,
}

/// As Burn's `SqliteDatasetWriter` does.
fn write_items(folder: &Folder, items: &[Item]) {
    let connection = folder
        .write("create table train (row_id integer primary key autoincrement not null, item blob not null)");
    for item in items {
        let bytes = rmp_serde::to_vec(item).unwrap();
        connection.execute("insert into train (item) values (?)", [bytes]).unwrap();
    }
}

#[test]
fn reads_items_as_burns_writer_stores_them() {
    let folder = Folder::new();
    let item = |i: u8| Item {
        picture: png(i),
        name: ["a", "b"][usize::from(i % 2)],
        weight: f32::from(i),
        label: i % 2,
    };
    write_items(&folder, &[item(4), item(5), item(6)]);
    // `0` is the only field of bytes.
    let splits = folder.images("target = '3'").unwrap();
    assert_eq!(seen(&*splits.train), [(4, 0), (5, 1), (6, 0)]);
    assert_eq!(seen(&*folder.images("image = '0'\ntarget = '1'").unwrap().train), [(4, 0), (5, 1), (6, 0)]);
    let table = folder.table("target = '2'\nfeatures = ['1', '3']").unwrap().train;
    assert_eq!(sample(&*table, 1, 0), (vec![0., 1., 1.], vec![5.]));
    let error = folder.error(folder.images(""));
    assert!(error.contains("`[dataset] target` names it; the columns are `0`, `1`, `2`, `3`"), "{error}");
    folder.write("insert into train (item) values (x'c1')");
    let error = folder.error(folder.images("target = '3'"));
    assert!(
        error.starts_with("DIR/set.db, table `train`, row 4: `item` is not an item in MessagePack"),
        "{error}"
    );
}

#[test]
fn reads_tables_of_any_database() {
    let folder = Folder::new();
    folder.write(
        "create table houses (id integer primary key, rooms int, heating text, area real, price numeric);
         insert into houses values (3, 4, 'gas', 50.5, 100), (1, 2, 'oil', null, 70), (2, 3, 'gas', 40, 80);",
    );
    // The only table, in the order of its row ids; `id` only counts.
    let error = folder.error(folder.table("target = 'price'"));
    assert!(
        error.starts_with("DIR/set.db, table `houses`, row 1, column `area`: the cell is blank"),
        "{error}"
    );
    let splits = folder.table("target = 'price'\nblanks = 'mean'").unwrap();
    assert_eq!(read_until(&sqlite_store(&folder.file(), None), 1), [0, 1]);
    assert_eq!(sample(&*splits.train, 0, 0), (vec![2., 0., 1., 45.25], vec![70.]));
    assert_eq!(sample(&*splits.train, 2, 0), (vec![4., 1., 0., 50.5], vec![100.]));
    let dropped = folder.table("target = 'price'\nblanks = 'drop'").unwrap().train.place(0).unwrap();
    assert!(dropped.ends_with("/set.db, table `houses`, row 2"), "{dropped}");
    folder.write(
        "create view cheap as select * from houses where price < 90 order by id;
         create table \"odd \"\" name\" (a int, y int); insert into \"odd \"\" name\" values (1, 2);",
    );
    assert_eq!(folder.table("target = 'price'\nblanks = 'zero'\ntrain = 'cheap'").unwrap().train.len(), 2);
    let odd = folder.table("target = 'y'\ntable = 'odd \" name'").unwrap().train;
    assert_eq!(sample(&*odd, 0, 0), (vec![1.], vec![2.]));
    let error = folder.error(folder.table("target = 'price'"));
    assert!(
        error.contains("there is no table `train`") && error.contains("`cheap`, `houses`, `odd \" name`"),
        "{error}"
    );
    let error = folder.error(folder.table("target = 'price'\ntrain = 'house'"));
    assert!(
        error.contains("no table `house`, which `[dataset] train` names; did you mean `houses`?"),
        "{error}"
    );
}

/// Whole numbers and reals that f32 would make equal.
#[test]
fn columns_are_scaled_before_they_are_rounded() {
    let folder = Folder::new();
    folder.write(
        "create table t (time int, real real, y int); insert into t values
         (1700000000000, 1e9 + 0.25, 1700000001), (1700000001000, 1e9 + 0.75, 1700000003);",
    );
    let keys = format!("path = '{}'\ncontent = 'table'\ntarget = 'y'", folder.file().display());
    let splits = configure(&sqlite, &keys).unwrap().open().unwrap();
    assert_eq!(sample(&*splits.train, 0, 0), (vec![-1., -1.], vec![-1.]));
    assert_eq!(sample(&*splits.train, 1, 0), (vec![1., 1.], vec![1.]));
    assert_eq!(splits.train.target_scale(), 1.0);
    assert_eq!(splits.train.remarks().len(), 1);
}

#[test]
fn validation_has_its_own_table() {
    let folder = Folder::new();
    let sql: String = [("train", 6), ("validation", 2), ("test", 3)]
        .map(|(name, rows)| {
            let values: Vec<String> = (0..rows).map(|i| format!("({i}, {})", i % 2)).collect();
            format!(
                "create table {name} (a real, label int); insert into {name} values {};",
                values.join(", ")
            )
        })
        .concat();
    folder.write(&sql);
    let splits = folder.table("target = 'label'\ntask = 'classification'").unwrap();
    assert_eq!((splits.train.len(), splits.val.unwrap().len(), splits.test.unwrap().len()), (6, 2, 3));
    let error = folder.error(folder.table("target = 'label'\nval_split = 0.5"));
    assert!(error.contains("has a validation split, but `val_split` is set too"), "{error}");
    let splits = folder.table("target = 'label'\nval = 'test'\ntest = 'validation'").unwrap();
    assert_eq!((splits.val.unwrap().len(), splits.test.unwrap().len()), (3, 2));
    // Test rows without targets.
    folder.write("update test set label = null");
    assert!(folder.table("target = 'label'").unwrap().test.is_none());
}

#[test]
fn one_of_several_tables_for_a_split_is_named() {
    let folder = Folder::new();
    for name in ["train", "val", "validation"] {
        let values = if name == "val" { "(1, 0)" } else { "(1, 0), (2, 1)" };
        folder.write(&format!("create table {name} (a real, y int); insert into {name} values {values};"));
    }
    assert_eq!(
        folder.error(folder.table("target = 'y'")),
        "DIR/set.db has several tables for the split `val`: `validation`, `val`\n\nhint: `[dataset] val` names the one to use"
    );
    assert_eq!(folder.table("target = 'y'\nval = 'val'").unwrap().val.unwrap().len(), 1);
}

/// In a read-only folder, with a database in WAL mode, which SQLite would open with files beside it.
#[test]
fn nothing_is_written_beside_a_database() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("pragma journal_mode = wal; create table train (a real, y real); insert into train values (1, 2), (3, 4);");
    assert_eq!(folder.names(), ["set.db"]);
    let mode = |mode| std::fs::set_permissions(folder.0.path(), PermissionsExt::from_mode(mode)).unwrap();
    mode(0o555);
    let before = std::fs::read(folder.file()).unwrap();
    let splits = folder.table("target = 'y'").unwrap();
    // Threads have connections of their own.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(sample(&*splits.train, 1, 0), (vec![3.], vec![4.])));
        }
    });
    assert_eq!(folder.names(), ["set.db"]);
    assert_eq!(std::fs::read(folder.file()).unwrap(), before);
    mode(0o755);
}

/// Threads read images at once, each with a connection of its own.
#[test]
fn threads_read_images_at_once() {
    let folder = Folder::new();
    let connection = folder.write("create table train (image blob, label int)");
    for i in 0..40u8 {
        connection.execute("insert into train values (?, ?)", params![png(i), i]).unwrap();
    }
    drop(connection);
    let train = folder.images("").unwrap().train;
    let expected: Vec<(u8, usize)> = (0..40).map(|i| (i, usize::from(i))).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(seen(&*train), expected));
        }
    });
}

#[test]
fn changes_that_are_not_in_the_file_are_an_error() {
    let folder = Folder::new();
    let writer = folder.write("pragma journal_mode = wal; create table train (a real, y real);");
    writer.execute("insert into train values (1, 2)", []).unwrap();
    let error = folder.error(folder.table("target = 'y'"));
    assert!(error.contains("DIR/set.db-wal has changes"), "{error}");
    assert!(error.contains("pragma wal_checkpoint(truncate)"), "{error}");
    // The same through a link.
    let (place, store) = (folder.0.path().join("set.db"), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(&place, store.path().join("link.db")).unwrap();
    let linked = Database::open(&store.path().join("link.db")).err().unwrap();
    assert!(linked.message.contains("set.db-wal has changes"), "{linked}");
    drop(writer);
    assert_eq!(folder.table("target = 'y'").unwrap().train.len(), 1);
    // A transaction that has to be taken back: the first bytes of its journal.
    std::fs::write(folder.0.path().join("set.db-journal"), b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7more").unwrap();
    let error = folder.error(folder.table("target = 'y'"));
    assert!(error.contains("DIR/set.db-journal takes it back"), "{error}");
}

#[path = "sqlite_error_tests.rs"]
mod errors;
