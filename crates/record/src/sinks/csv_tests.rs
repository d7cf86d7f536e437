use super::super::testing::{end, epoch, run, step};
use super::*;

fn tables(folder: &Path) -> [String; 2] {
    ["steps.csv", "epochs.csv"].map(|name| fs::read_to_string(folder.join("metrics").join(name)).unwrap())
}

/// The cells of a table's column.
fn column(table: &str, name: &str) -> Vec<String> {
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let at = rows[0].iter().position(|column| *column == name).unwrap_or_else(|| panic!("{name}: {table}"));
    rows[1..].iter().map(|row| row[at].to_owned()).collect()
}

fn started(folder: &Path, at: u64, epochs: u64) -> Tables {
    let mut sink = Csv::default().observer();
    sink.start(&run(folder, at, epochs)).unwrap();
    sink
}

#[test]
fn a_row_for_each_step_and_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = started(dir.path(), 0, 0);
    for event in [step(1), step(3), epoch(0, true), end(0)] {
        sink.event(&event).unwrap();
    }
    let [steps, epochs] = tables(dir.path());
    assert!(
        steps
            .starts_with("step,epoch,loss,lr,samples_per_s,grad_norm,data_wait,time\n1,0,1.0,0.5,100.0,2.5,")
    );
    assert_eq!(column(&steps, "loss"), ["1.0", "NaN"]);
    let columns =
        "epoch,train.loss,train.accuracy,train.n,val.loss,val.accuracy,val.n,seconds,step,lr,samples_per_s";
    assert!(
        epochs.starts_with(&format!("{columns},data_wait,time\n0,0.25,0.75,40,0.25,0.75,40,1.5,4,")),
        "{epochs}"
    );
    assert_eq!((steps.lines().count(), epochs.lines().count()), (3, 2));
}

#[test]
fn a_new_column_is_added_behind_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = started(dir.path(), 0, 0);
    for event in [epoch(0, false), epoch(1, true), epoch(2, false)] {
        sink.event(&event).unwrap();
    }
    let [_, epochs] = tables(dir.path());
    assert_eq!(column(&epochs, "val.accuracy"), ["", "0.75", ""]);
    assert_eq!(column(&epochs, "train.loss"), ["0.25"; 3]);
    assert!(epochs.lines().next().unwrap().ends_with(",time,val.loss,val.accuracy,val.n"), "{epochs}");
}

#[test]
fn a_resumed_run_removes_what_it_repeats() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = started(dir.path(), 0, 0);
    (1..=6).for_each(|n| sink.event(&step(n)).unwrap());
    (0..2).for_each(|n| sink.event(&epoch(n, true)).unwrap());
    drop(sink);
    let before = tables(dir.path());
    // A kill in the middle of a row.
    let path = dir.path().join("metrics/steps.csv");
    fs::write(&path, before[0].clone() + "7,1,0.1").unwrap();
    // A position behind all of it removes only that.
    drop(started(dir.path(), 9, 2));
    assert_eq!(tables(dir.path()), before);
    let mut sink = started(dir.path(), 4, 1);
    let [steps, epochs] = tables(dir.path());
    assert_eq!(column(&steps, "step"), ["1", "2", "3", "4"]);
    assert_eq!(column(&epochs, "epoch"), ["0"]);
    sink.event(&step(5)).unwrap();
    assert_eq!(column(&tables(dir.path())[0], "step"), ["1", "2", "3", "4", "5"]);
    // From the beginning, the columns stay.
    let mut sink = started(dir.path(), 0, 0);
    sink.event(&step(1)).unwrap();
    assert_eq!(tables(dir.path())[0].lines().count(), 2);
}

#[test]
fn another_table_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.csv");
    for (mine, lacks) in [("name,price\na,1\n", "step"), ("step,epoch,cost\n7,0,1\n", "lr")] {
        fs::write(&path, mine).unwrap();
        let mut sink = Csv { folder: dir.path().to_owned() }.observer();
        let error = sink.start(&run(Path::new("/nowhere"), 0, 0)).unwrap_err();
        let why = format!("steps.csv is another table: it has no column `{lacks}`");
        assert!(error.message.ends_with(&why), "{error}");
        sink.event(&step(1)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), mine);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_rows() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("metrics")).unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path().join("metrics/steps.csv")).unwrap();
    let mut sink = started(dir.path(), 0, 0);
    for n in [1, 2] {
        let error = sink.event(&step(n)).unwrap_err();
        assert!(error.message.contains("steps.csv: No space left"), "{error}");
    }
    sink.event(&epoch(0, true)).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("metrics/epochs.csv")).unwrap().lines().count(), 2);
}
