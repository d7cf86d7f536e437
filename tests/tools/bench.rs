//! `ddp-run bench` with the real binary: real processes, real files, and the ways in which it must not end.

use crate::common::*;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(flags: &[&str]) -> Command {
    let mut command = ddp_run();
    command.args(["bench", "allreduce", "--timeout", "30"]).args(flags);
    command
}

fn output(flags: &[&str]) -> Output {
    output_of(&mut bench(flags))
}

/// Every element that opens closes, in order, and attributes are quoted: enough for what this program writes.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some((text, tail)) = rest.split_once('<') {
        assert!(!text.contains('>') || open.last() == Some(&"style"), "stray > in {text:?}");
        let (tag, after) = tail.split_once('>').expect("a tag ends");
        assert!(tag.matches('"').count().is_multiple_of(2) && !tag.contains('<'), "<{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = after;
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest:?}");
}

#[test]
fn two_processes_measure_every_combination() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let out = dir.path().join("new/folder");
    let flags =
        ["--sizes", "4,1K:16K:4", "--algorithm", "auto,ring", "--dtype", "f32,bf16", "--budget", "0.01"];
    let output = output_of(bench(&flags).arg("--out").arg(&out));
    assert_code(&output, 0);
    let report = read_json(out.join("allreduce.json"));
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4 * 2 * 2);
    for row in rows {
        let at = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
        assert!(row["check"] == "ok" && at("checks") >= 5.0 && at("iterations") >= 5.0, "{row}");
        assert!(at("min_us") > 0.0 && at("min_us") <= at("p10_us") && at("p10_us") <= at("p90_us"), "{row}");
        // With two ranks the factor 2 (n - 1) / n is one.
        assert!((at("busbw_gbs") - at("bytes") / at("median_us") / 1e3).abs() < 1e-9, "{row}");
    }
    assert_eq!((&rows[0]["algorithm"], &rows[15]["algorithm"]), (&"auto".into(), &"ring".into()));
    assert_eq!((&rows[7]["dtype"], &rows[7]["bytes"]), (&"bf16".into(), &16384.into()));
    let limits = report["limits"]["sizes"].as_array().expect("limits");
    assert_eq!(
        limits.iter().map(|l| l["bytes"].as_u64()).collect::<Vec<_>>(),
        [4, 1024, 4096, 16384].map(Some)
    );
    assert!(
        limits.iter().all(|l| l["memcpy_all_gbs"].as_f64() > Some(0.0) && l["tcp_us"].as_f64() > Some(0.0))
    );
    assert!(report["command_line"].as_array().is_some_and(|c| c.contains(&"--sizes".into())));
    assert_eq!(report["world"], 2);

    assert_well_formed(
        &std::fs::read_to_string(out.join("allreduce.svg")).expect("allreduce.svg is written"),
    );
    let table = stdout(&output);
    assert_eq!(table.lines().filter(|l| l.ends_with("    ok")).count(), rows.len(), "{table}");
    assert!(table.contains("limits of this machine") && table.contains("allreduce.svg"), "{table}");
}

#[test]
fn three_processes_sum_integers_without_writing_files() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let flags = ["--world", "3", "--op", "sum", "--dtype", "u8,i64", "--sizes", "7,4K", "--budget", "0.01"];
    let output = output_of(bench(&flags).current_dir(dir.path()));
    assert_code(&output, 0);
    let table = stdout(&output);
    assert_eq!(table.lines().filter(|l| l.ends_with("    ok")).count(), 4, "{table}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
}

#[test]
fn a_bad_command_line_is_exit_2_and_says_what_would_be_right() {
    let _alone = alone();
    for (flags, part) in [
        (&["--world", "0"][..], "--world 0: must be from 2 to 64 processes"),
        (&["--world", "1"], "--world 1"),
        (&["--world", "two"], "two"),
        (&["--sizes", "12Q"], "`12Q` is not a size"),
        (&["--sizes", "8:4"], "starts above its end"),
        (&["--sizes", "1000G"], "of memory in 2 processes"),
        (&["--algorithm", "rings"], "invalid value 'rings' for '--algorithm <LIST>'"),
        (&["--transport", "udp"], "[possible values: auto, shm, tcp]"),
        (&["--dtype", "f8"], "invalid value 'f8'"),
        (&["--dtype", "i32"], "a mean requires a float type"),
        (&["--op", "avg"], "[possible values: sum, mean, max, min]"),
        (&["--budget", "0"], "--budget 0"),
        (&["--budget", "nan"], "--budget NaN"),
    ] {
        let output = output(flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{flags:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{flags:?}: nothing is measured");
    }
}

#[test]
fn a_folder_that_cannot_be_created_fails_before_the_measurement() {
    let _alone = alone();
    let output = output(&["--out", "/dev/null/x"]);
    assert_code(&output, 74);
    assert!(stderr(&output).contains("cannot create /dev/null/x") && output.stdout.is_empty());
}

#[test]
fn a_worker_command_typed_by_hand_is_rejected() {
    let _alone = alone();
    for worker in ["worker", "bench-worker"] {
        let output = output_of(ddp_run().arg(worker));
        assert_code(&output, 2);
        assert!(
            stderr(&output).contains(&format!("`ddp-run {worker}` is started by")),
            "{}",
            stderr(&output)
        );
    }
}

/// Starts a long measurement, waits until rank 1 has connections, sends it `signal`, and gives the end and the ids of the workers.
#[cfg(target_os = "linux")]
fn struck(signal: rustix::process::Signal, timeout: &str) -> (Output, Vec<u32>) {
    let flags = ["--sizes", "4,1K", "--budget", "600"];
    let mut command = ddp_run();
    command.args(["bench", "allreduce", "--timeout", timeout]).args(flags);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    // The limits are measured before the workers start, so they are not there at once.
    let come = || children(child.id()).get(1).is_some_and(|id| meets_its_peers(*id));
    wait_for("the workers", HUNG, come);
    let workers = children(child.id());
    kill(workers[1], signal);
    (finish(child), workers)
}

/// Whether the process is a worker (not the copy of its parent that it is until `exec`, which a signal must not meet:
/// the parent waits for it) and holds connections, so that it is in the rendezvous or beyond.
#[cfg(target_os = "linux")]
fn meets_its_peers(worker: u32) -> bool {
    let command = std::fs::read(format!("/proc/{worker}/cmdline")).unwrap_or_default();
    if !String::from_utf8_lossy(&command).contains("bench-worker") {
        return false;
    }
    let fds = std::fs::read_dir(format!("/proc/{worker}/fd")).map(|d| d.flatten().collect::<Vec<_>>());
    let socket = |f: &std::fs::DirEntry| {
        std::fs::read_link(f.path()).is_ok_and(|l| l.to_string_lossy().starts_with("socket:"))
    };
    fds.is_ok_and(|fds| fds.iter().filter(|f| socket(f)).count() >= 2)
}

#[test]
#[cfg(target_os = "linux")]
fn a_worker_that_is_killed_is_named_and_takes_the_others_with_it() {
    let _alone = alone();
    let (output, workers) = struck(rustix::process::Signal::KILL, "600");
    assert_code(&output, 90);
    assert!(stderr(&output).contains("rank 1 was killed by signal 9 (SIGKILL;"), "{}", stderr(&output));
    assert!(!workers.iter().any(|id| alive(*id)), "{workers:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_stopped_worker_is_named_at_the_timeout() {
    let _alone = alone();
    let (output, workers) = struck(rustix::process::Signal::STOP, "12");
    let code = output.status.code();
    assert!(code == Some(91) || code == Some(93), "{code:?} {}", stderr(&output));
    assert!(stderr(&output).contains("rank 1"), "{}", stderr(&output));
    assert!(!workers.iter().any(|id| alive(*id)), "{workers:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn no_worker_outlives_its_parent() {
    let _alone = alone();
    let mut command = bench(&["--sizes", "4", "--budget", "600"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
    wait_for("the workers", HUNG, || children(child.id()).len() >= 2);
    let workers = children(child.id());
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    wait_for("the workers' end", HUNG, || !workers.iter().any(|id| alive(*id)));
}

/// `bench train` of a generated data set. Temporary files go to `dir/tmp`.
fn bench_train(dir: &Path, flags: &[&str]) -> Command {
    let spec = write_spec(
        dir,
        "name = \"toy\"\nbatch_size = 4\n[model]\nname = \"linear\"\n[dataset]\nname = \"random\"\nsamples = 20\n\
         features = 3\noutputs = 1\nworkers = 0\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n",
    );
    std::fs::create_dir_all(dir.join("tmp")).expect("create tmp");
    let mut command = ddp_run();
    command.args(["bench", "train"]).arg(spec).args(flags).current_dir(dir);
    command.env("TMPDIR", dir.join("tmp"));
    command
}

#[test]
fn training_steps_are_measured_by_processes_and_threads() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let flags = ["--world", "1,2", "--threads", "1,2", "--steps", "7", "--out", "out"];
    let mut command = bench_train(dir.path(), &flags);
    // As in a pod of Kubeflow, and in a rank of a launcher: they say nothing of the measured runs.
    let of_a_launcher =
        [("PET_NPROC_PER_NODE", "3"), ("PET_NNODES", "2"), ("RANK", "0"), ("WORLD_SIZE", "1")];
    let output = output_of(command.envs(of_a_launcher).env("DDP_RUN_NNODES", "2"));
    assert_code(&output, 0);
    let report = read_json(dir.path().join("out/train.json"));
    let rows = report["rows"].as_array().expect("rows");
    let key =
        |row: &Value| ["world", "threads", "global_batch", "steps"].map(|key| row[key].as_u64().unwrap());
    let expected = [[1, 1, 4, 7], [1, 2, 4, 7], [2, 1, 8, 7], [2, 2, 8, 7]];
    assert_eq!(rows.iter().map(key).collect::<Vec<_>>(), expected);
    for row in rows {
        let at =
            |path: &str| row.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {row}"));
        assert!(at("/p10_samples_per_s") <= at("/samples_per_s"), "{row}");
        assert!(at("/samples_per_s") <= at("/p90_samples_per_s") && at("/step_ms") > 0.0, "{row}");
        let shares = ["data", "forward", "backward", "sync", "update"].map(|p| at(&format!("/phases/{p}")));
        assert!(shares.iter().all(|s| *s > 0.0) && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{row}");
        assert!(at("/peak_memory_mib") > 1.0 && at("/page_faults") >= 0.0, "{row}");
    }
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.contains(" % ")).count(), 4, "{text}");
    assert!(text.ends_with("\nwrote out/train.json\n"), "{text}");
    // The runs leave nothing behind: neither here nor where temporary files go.
    let names = |dir: &Path| -> Vec<_> {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).expect("read").map(|e| e.expect("entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(dir.path()), ["job.toml", "out", "tmp"]);
    assert_eq!(names(&dir.path().join("tmp")), [""; 0]);
}

#[test]
fn a_run_that_fails_is_shown_and_ends_the_measurement_with_its_code() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("tempdir");
    let mut command = bench_train(dir.path(), &["--world", "2", "--threads", "1"]);
    let output = output_of(command.env("DDP_RUN_FAULT", "kill:rank=1,phase=forward,step=3"));
    assert_code(&output, 90);
    assert!(stderr(&output).contains("rank 1 of 2 (local rank 1, pid "), "{}", stderr(&output));
    assert!(stderr(&output).contains("the run with --world 2 --threads 1 failed"), "{}", stderr(&output));
    // The report names files of the run's folder.
    let kept =
        std::fs::read_dir(dir.path().join("tmp")).expect("read").next().expect("a folder").expect("entry");
    assert!(stderr(&output).contains(&format!("its folder is kept: {}", kept.path().display())));
    assert!(kept.path().join("run/logs/rank-1.log").is_file());
    // The spec itself is checked first, at its place.
    let output = output_of(&mut bench_train(dir.path(), &["--set", "batch_size=0"]));
    assert_code(&output, 78);
    assert!(stderr(&output).contains("--set batch_size=0"), "{}", stderr(&output));
    let output = output_of(&mut bench_train(dir.path(), &["--threads", "0"]));
    assert_code(&output, 2);
}
