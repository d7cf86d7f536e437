//! Messages about data sets, and data sets that differ between ranks or from that of the checkpoint.

use crate::common::*;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

const SPEC: &str = "name = \"rows\"\nbatch_size = 4\nsave_every = \"1 steps\"\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nval_split = 0.0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.01\n[launch]\nnproc_per_node = 2\n[checkpoint]\nkeep_last = 0\nbest = \"train.loss\"\n";

/// A folder with this many rows in `t.csv`.
fn rows(folder: &Path, rows: usize) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let text: String = (0..rows).map(|i| format!("{i},{},{}\n", i % 7, 2 * i)).collect();
    std::fs::write(folder.join("t.csv"), format!("a,b,y\n{text}")).unwrap();
    folder.to_owned()
}

/// A relative `dataset.path` starts in the working directory.
#[test]
fn reports_ranks_with_different_data() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), SPEC);
    let meet = format!("file://{}/meet", dir.path().display());
    let ranks = [("0", 40), ("1", 48)].map(|(rank, n)| {
        let mut command = train_command(&spec, &dir.path().join("out"), &["--rdzv-endpoint", &meet]);
        command.current_dir(rows(&dir.path().join(rank), n));
        command.env("RANK", rank).env("LOCAL_RANK", rank).env("WORLD_SIZE", "2").env("LOCAL_WORLD_SIZE", "2");
        command.env("DDP_RUN_SECRET", "a secret of these two processes");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for rank in ranks {
        let output = finish_within(RUN_HUNG, rank);
        assert_code(&output, 78);
        let told = stderr(&output);
        let expected = "the ranks have different data sets: rank 1 has 48 training samples instead of 40";
        assert!(told.contains(expected), "{told}");
    }
}

/// What a table holds is only known once it is read.
#[test]
fn only_images_are_mixed() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..40).map(|i| format!("{i},{},{}\n", i % 7, ["low", "high"][i / 20])).collect();
    std::fs::write(dir.path().join("t.csv"), format!("a,b,y\n{text}")).unwrap();
    let spec = write_spec(dir.path(), SPEC);
    let out = dir.path().join("out");
    let flags = ["--set", "train.mixup=0.2", "--set", "dataset.task=\"classification\""];
    let run = output_of(train_command(&spec, &out, &flags).current_dir(dir.path()));
    assert_code(&run, 78);
    let why = "mixup mixes images, but the data set's inputs have the shape [2]";
    assert!(stderr(&run).contains(why), "{}", stderr(&run));
}

#[test]
fn runs_and_checkpoints_record_the_data_set() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let folder = rows(dir.path(), 40);
    let spec = write_spec(dir.path(), SPEC);
    let out = dir.path().join("out");
    let run = |out: &Path, flags: &[&str]| -> Output {
        output_of(train_command(&spec, out, flags).current_dir(&folder))
    };
    let first = run(&out, &[]);
    assert_code(&first, 0);
    let told = stderr(&first);
    let understood = "t.csv: 40 rows; numbers: `a`, `b`; target: `y`, a number";
    assert_eq!(told.matches(understood).count(), 1, "rank 0 says it, once: {told}");

    // More rows are a warning, at the end of an epoch and within it.
    rows(&folder, 90);
    let more = run(&out, &["--set", "epochs=2"]);
    assert_code(&more, 0);
    let warning = "the data set has changed since this checkpoint was made: 40 training samples, now 90";
    assert!(stderr(&more).contains(&format!("warning: {warning}")), "{}", stderr(&more));
    let best = "the best epoch so far, by train.loss, was measured on the data as it was before";
    assert!(stderr(&more).contains(best), "{}", stderr(&more));
    // After four steps of eight samples, fewer than 32 rows are an error.
    rows(&folder, 20);
    let midst = out.join("checkpoints/step-00000004");
    let fewer = run(&dir.path().join("other"), &["--resume", midst.to_str().unwrap()]);
    assert_code(&fewer, 78);
    let why = "the checkpoint was saved after 32 of an epoch's 40 samples, but the data set now has 20";
    assert!(stderr(&fewer).contains(why), "{}", stderr(&fewer));
    rows(&folder, 40);
    let same = run(&dir.path().join("same"), &["--resume", midst.to_str().unwrap()]);
    assert_code(&same, 0);
    assert!(!stderr(&same).contains("data set has changed"), "{}", stderr(&same));

    let eval = |split: &str, sets: &[&str]| {
        let mut command = ddp_run();
        command.arg("eval").arg(&spec).arg("--checkpoint").arg(&midst).args(["--split", split]).args(sets);
        output_of(command.current_dir(&folder).env("TMPDIR", dir.path()))
    };
    assert_code(&eval("train", &[]), 0);
    let empty = eval("val", &["--set", "dataset.val_split=0.001"]);
    assert_code(&empty, 78);
    let why = "split `val` of data set `csv` has no samples\n\nhint: a larger `[dataset] val_split`";
    assert!(stderr(&empty).contains(why), "{}", stderr(&empty));
    // The same file by its absolute path, and other keys, do not hide that it has other rows.
    rows(&folder, 50);
    let path = format!("dataset.path={:?}", folder.join("t.csv"));
    for set in [&path, "dataset.shuffle=false"] {
        let changed = eval("train", &["--set", set]);
        let why = "the data set has changed since this checkpoint was made: 40 training samples, now 50";
        assert!(stderr(&changed).contains(why), "{set}: {}", stderr(&changed));
    }
    let none = eval("test", &[]);
    assert_code(&none, 78);
    assert!(
        stderr(&none).contains("data set `csv` has no split `test`\n\nhint: it has `train`\n"),
        "{}",
        stderr(&none)
    );

    // A report that can't be written is not an internal error.
    let page = out.join("report.html");
    std::fs::remove_file(&page).unwrap();
    std::fs::create_dir(&page).unwrap();
    let report = output_of(ddp_run().arg("report").arg(&out));
    assert_code(&report, 74);
    assert!(stderr(&report).contains("report.html"), "{}", stderr(&report));
}
