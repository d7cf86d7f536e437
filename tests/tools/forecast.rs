//! `ddp-run plan --cluster` and `report --prediction` with the real binary, from its own measurements.

use crate::common::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

const SMOKE: &str = "configs/ci/smoke.toml";

fn run(arguments: &[&str]) -> Output {
    output_of(ddp_run().args(arguments))
}

#[track_caller]
fn done(arguments: &[&str]) -> String {
    stdout_of(ddp_run().args(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A cluster with measurements of known times: a step of 100 ms, and all-reduces.
fn cluster(dir: &Path, more: &str) -> PathBuf {
    let row = |bytes: u64| {
        serde_json::json!({"bytes": bytes, "dtype": "f32", "algorithm": "auto", "transport": "auto",
                           "median_us": 10.0 + bytes as f64 / 1e3})
    };
    let rows: Vec<Value> = [64, 4096, 1 << 20].map(row).into();
    let file = serde_json::json!({"world": 2, "rows": rows});
    std::fs::write(dir.join("allreduce.json"), file.to_string()).expect("written");
    let phases =
        serde_json::json!({"data": 0.0, "forward": 0.25, "backward": 0.5, "sync": 0.0, "update": 0.25});
    let row =
        serde_json::json!({"world": 1, "threads": 1, "global_batch": 1, "step_ms": 100.0, "phases": phases});
    let file = serde_json::json!({"device": "cpu", "rows": [row]});
    std::fs::write(dir.join("train.json"), file.to_string()).expect("written");
    let path = dir.join("cluster.toml");
    let text = format!(
        "processes_per_node = 4\ncores_per_node = 2\nprice_per_hour = 1.0\n{more}\n[step]\ntrain = \"train.json\"\n[within]\nmeasured = [\"allreduce.json\"]\n"
    );
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn a_prediction_is_a_table_or_json() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = cluster(dir.path(), "");
    let written = dir.path().join("prediction.json");
    let flags = ["--cluster", text(&file), "--set", "launch.threads=1", "--set", "batch_size=1"];
    let base = [&["plan", SMOKE][..], &flags].concat();
    let table = done(&[&base[..], &["--prediction", text(&written)]].concat());
    assert!(table.contains("efficiency") && table.contains("It assumes:"), "{table}");
    let json = done(&[&base[..], &["--world", "1,2,4", "--format", "json"]].concat());
    let json = parse_json(json);
    assert_eq!(read_json(&written), json, "without --world: powers of two");
    let at =
        |row: usize, key: &str| json["rows"][row][key].as_f64().unwrap_or_else(|| panic!("{key}: {json}"));
    assert!((at(0, "step_s") - 0.1).abs() < 1e-9 && (at(0, "efficiency") - 1.0).abs() < 1e-9, "{json}");
    assert!(at(1, "step_s") > 0.1 && at(2, "step_s") > 0.2, "four processes take turns on two cores: {json}");
    assert!(at(1, "samples_per_s") > at(0, "samples_per_s") && at(2, "cost") > 0.0, "{json}");
}

#[test]
fn what_does_not_fit_is_told() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = cluster(dir.path(), "");
    let said = |arguments: &[&str], code: i32| {
        let output = run(&[&["plan", SMOKE][..], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        stderr(&output)
    };
    let at = text(&file);
    assert!(said(&["--world", "1,2"], 2).contains("--cluster FILE"));
    assert!(said(&["--prediction", "p.json"], 2).contains("--cluster"));
    assert!(said(&["--cluster", at, "--format", "toml"], 2).contains("--format toml"));
    assert!(said(&["--cluster", at, "--world", "5"], 2).contains("1 node of 4 processes"));
    // A time that no program measures does not become a prediction that is not a number.
    let allreduce = dir.path().join("allreduce.json");
    let good = std::fs::read_to_string(&allreduce).expect("a file");
    let row = serde_json::json!({"bytes": 64, "dtype": "f32", "algorithm": "auto", "transport": "auto", "median_us": 1e300});
    std::fs::write(&allreduce, serde_json::json!({"world": 2, "rows": [row]}).to_string()).expect("written");
    let message = said(&["--cluster", at], 78);
    assert!(message.contains("has no measured all-reduce") && message.contains("^^^"), "{message}");
    std::fs::write(&allreduce, good).expect("written");
    let wrong = cluster(dir.path(), "nods = 1");
    let message = said(&["--cluster", text(&wrong)], 78);
    for part in ["cluster.toml", "nods = 1", "^^^^ unknown key; did you mean `nodes`?"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// From the program's own measurements to the report of a run.
#[test]
fn a_report_shows_the_prediction_beside_the_run() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| dir.path().join(name);
    let (bench, folder) = (at("bench"), at("run"));
    let short = ["--set", "launch.threads=1"];
    done(&[
        "bench",
        "allreduce",
        "--world",
        "2",
        "--sizes",
        "64,4K",
        "--budget",
        "0.01",
        "--out",
        text(&bench),
    ]);
    let train =
        ["bench", "train", SMOKE, "--world", "1", "--threads", "1", "--steps", "5", "--out", text(&bench)];
    done(&train);
    done(
        &[
            &[
                "train",
                SMOKE,
                "--nproc-per-node",
                "2",
                "--set",
                "metrics.log_every=1",
                "--out",
                text(&folder),
            ][..],
            &short,
        ]
        .concat(),
    );
    let with = |step: &str| {
        let file = at("cluster.toml");
        let text = format!(
            "processes_per_node = 2\ncores_per_node = 2\n[step]\n{step}\n[within]\nmeasured = [\"bench/allreduce.json\"]\n"
        );
        std::fs::write(&file, text).expect("written");
        let written = at("p.json");
        let flags = ["--cluster", text_of(&file), "--prediction", text_of(&written), "--world", "2"];
        done(&[&["plan", SMOKE][..], &flags, &short].concat());
        written
    };
    // The step of a benchmark, and that of the run itself.
    with("train = \"bench/train.json\"");
    let prediction = with("run = \"run\"");
    done(&["report", text(&folder), "--prediction", text(&prediction)]);
    let page = || std::fs::read_to_string(folder.join("report.html")).expect("a report");
    assert!(page().contains("Prediction and measurement") && page().contains("<th>step, ms</th>"));
    assert!(folder.join("prediction.json").is_file());
    // A damaged copy is told of, and the rest is written.
    let copy = std::fs::read(folder.join("prediction.json")).expect("it is there");
    std::fs::write(folder.join("prediction.json"), "{}").expect("written");
    let output = run(&["report", text(&folder)]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("warning: ") && told.contains("prediction.json is not a prediction"), "{told}");
    std::fs::write(folder.join("prediction.json"), copy).expect("written");
    done(&["report", text(&folder)]);
    assert!(page().contains("Prediction and measurement"), "later reports have it too");
    let output = run(&["report", text(&folder), "--prediction", SMOKE]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is not a prediction"), "{}", stderr(&output));
}

fn text_of(path: &Path) -> &str {
    text(path)
}

/// The examples are whole: they only lack their measurements.
#[test]
fn the_examples_are_good_once_they_are_measured() {
    let dir = tempfile::tempdir().expect("tempdir");
    cluster(dir.path(), "");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/clusters");
    let mut found = 0;
    for entry in std::fs::read_dir(examples).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        found += 1;
        let example = dir.path().join(path.file_name().expect("a name"));
        std::fs::copy(&path, &example).expect("copied");
        for name in ["allreduce-2", "allreduce-4", "allreduce-8", ""] {
            let folder = dir.path().join("bench").join(name);
            std::fs::create_dir_all(&folder).expect("created");
            for file in ["allreduce.json", "train.json"] {
                std::fs::copy(dir.path().join(file), folder.join(file)).expect("copied");
            }
        }
        // The example of devices has their step.
        if text(&example).contains("gpu") {
            let train = dir.path().join("bench/train.json");
            let device = std::fs::read_to_string(&train).expect("a file").replace("\"cpu\"", "\"cuda:0\"");
            std::fs::write(&train, device).expect("written");
        }
        let table = done(&["plan", SMOKE, "--cluster", text(&example)]);
        assert!(table.lines().count() > 5, "{table}");
    }
    assert!(found >= 2, "{found} examples");
}
