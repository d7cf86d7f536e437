use super::*;
use record::{CheckpointEvent, Event, Provenance, RankTimes, StepEvent, provenance};
use serde_json::json;

fn written(dir: &Path, name: &str, value: &serde_json::Value) -> std::path::PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, value.to_string()).unwrap();
    path
}

#[test]
fn an_all_reduce_has_its_gradients_type_and_the_speed_of_copies() {
    let dir = tempfile::tempdir().unwrap();
    let row = |dtype: &str, bytes: usize, us: f64| json!({"bytes": bytes, "count": 1, "dtype": dtype, "algorithm": "auto", "transport": "shm", "median_us": us});
    let rows =
        json!([row("f32", 4, 1.5), row("bf16", 4, 1.0), row("f32", 1024, 0.0), row("f32", 4096, 1e300)]);
    let limits = json!({"sizes": [
        {"bytes": 4, "memcpy_one_gbs": 1.0}, {"bytes": 1024, "memcpy_one_gbs": 12.0},
    ]});
    let file = written(
        dir.path(),
        "a.json",
        &json!({"world": 2, "rows": rows, "limits": limits, "warnings": ["a debug build"], "machine": {"cores": 3}}),
    );
    let read = Allreduce::read(&file).unwrap();
    assert_eq!((read.world, read.rows.len(), read.copy), (2, 1, Some(12e9)));
    assert_eq!((read.rows[0].bytes, read.rows[0].transport), (4, Transport::Shm));
    assert_eq!(read.warnings, ["a debug build"]);
    assert!(!read.is_by_tcp() && read.cores == Some(3));
    assert!((read.rows[0].seconds() - 1.5e-6).abs() < 1e-15);
    let none = written(dir.path(), "b.json", &json!({"world": 2, "rows": []}));
    assert!(Allreduce::read(&none).unwrap_err().ends_with("b.json has no measured all-reduce"));
    let other = written(dir.path(), "c.json", &json!({"rows": 3}));
    assert!(Allreduce::read(&other).unwrap_err().contains("is not what `ddp-run bench allreduce` writes"));
    assert!(Allreduce::read(&dir.path().join("d.json")).unwrap_err().starts_with("cannot read"));
}

#[test]
fn a_measured_step_divides_as_its_phases() {
    let dir = tempfile::tempdir().unwrap();
    let phases = json!({"data": 0.1, "forward": 0.2, "backward": 0.4, "sync": 0.2, "update": 0.1});
    let row = |world: usize, phases: &serde_json::Value| json!({"world": world, "threads": 1, "global_batch": 32, "step_ms": 100.0, "phases": phases});
    let file = json!({"device": "cpu", "rows": [row(2, &phases)]});
    let steps = Steps::of_bench(&written(dir.path(), "a.json", &file)).unwrap();
    let step = &steps.rows[0];
    assert_eq!((step.world, step.threads, step.samples), (2, 1, 16.0));
    assert!((step.compute() - 0.08).abs() < 1e-12 && (step.backward - 0.04).abs() < 1e-12, "{step:?}");
    assert!(!steps.undivided);
    let device = json!({"device": "cuda:0", "rows": [row(1, &serde_json::Value::Null)]});
    let steps = Steps::of_bench(&written(dir.path(), "b.json", &device)).unwrap();
    assert!(steps.undivided && (steps.rows[0].compute() - 0.1).abs() < 1e-12, "{steps:?}");
    assert!((steps.rows[0].backward / steps.rows[0].forward - 2.0).abs() < 1e-9);
    for (phase, share) in [("forward", -0.2), ("forward", 1e300)] {
        let mut wrong = row(1, &phases);
        wrong["phases"][phase] = share.into();
        wrong["step_ms"] = json!(if share > 1.0 { 1e300 } else { 100.0 });
        let file = written(dir.path(), "d.json", &json!({"device": "cpu", "rows": [wrong]}));
        assert!(Steps::of_bench(&file).unwrap_err().ends_with("has no measured step"), "{share}");
    }
    for (world, p10, spread) in [(1, 80.0, Some(0.25)), (2, 80.0, None), (1, 0.0, None), (1, -1.0, None)] {
        let mut uneven = row(world, &phases);
        (uneven["samples_per_s"], uneven["p10_samples_per_s"]) = (json!(100.0), json!(p10));
        let file = json!({"device": "cpu", "rows": [uneven]});
        let steps = Steps::of_bench(&written(dir.path(), "e.json", &file)).unwrap();
        assert_eq!(steps.rows[0].spread, spread, "{world} {p10}");
    }
    let none = written(dir.path(), "c.json", &json!({"device": "cpu", "rows": []}));
    assert!(Steps::of_bench(&none).unwrap_err().ends_with("has no measured step"));
}

fn step(n: u64, seconds: f64) -> Event {
    let times = RankTimes {
        data: vec![0.0; 2],
        forward: vec![seconds, 3.0 * seconds],
        backward: vec![seconds; 2],
        comm: vec![9.0; 2],
        optimizer: vec![seconds; 2],
        checkpoint: vec![9.0; 2],
        other: vec![9.0; 2],
    };
    Event::Step(StepEvent {
        step: n,
        epoch: 0,
        loss: 1.0,
        lr: 0.1,
        samples_per_s: 1.0,
        tokens_per_s: None,
        flops_per_s: None,
        mfu: None,
        grad_norm: None,
        data_wait: 0.0,
        times: Some(times),
        overlap: None,
    })
}

#[test]
fn a_run_has_the_means_of_its_ranks_and_its_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let save = CheckpointEvent {
        step: 2,
        epoch: 0,
        path: "c".into(),
        bytes: 1000,
        seconds: 0.5,
        held_up_s: Some(0.25),
    };
    // The first window is not like the others.
    let events = [step(1, 70.0), step(2, 0.1), Event::Checkpoint(save), step(3, 0.3)];
    let lines: String = events.iter().map(|e| serde_json::to_string(e).unwrap() + "\n").collect();
    std::fs::write(folder.join("metrics.jsonl"), lines).unwrap();
    let start = Provenance { world: 2, devices: vec!["cpu".into(); 2], ..provenance::sample(folder) };
    provenance::write(&folder.join("run.json"), start).unwrap();
    let spec = "batch_size = 4\n[train]\naccumulate = 3\n[launch]\nthreads = 5\n";
    std::fs::write(folder.join("job.toml"), spec).unwrap();
    let steps = Steps::of_run(folder).unwrap();
    let row = &steps.rows[0];
    assert_eq!((row.world, row.threads, row.samples), (2, 5, 12.0));
    assert!((row.forward - 0.4).abs() < 1e-9 && (row.backward - 0.2).abs() < 1e-9, "{row:?}");
    assert_eq!(steps.saves, Some(Saves { write: 2000.0, copy: Some(4000.0) }));
    assert_eq!((steps.device.as_str(), steps.undivided), ("cpu", false));

    assert_eq!(Saves::of_run(folder).ok(), steps.saves);
    assert!(steps.of_run);

    // The host of a device waits for both together, wherever it does.
    let start = Provenance { world: 2, devices: vec!["cuda:0".into(); 2], ..provenance::sample(folder) };
    provenance::write(&folder.join("run.json"), start).unwrap();
    assert!(Steps::of_run(folder).unwrap_err().contains("do not tell computation from communication"));
    let times = RankTimes {
        data: vec![0.1],
        forward: vec![0.1],
        backward: vec![0.1],
        comm: vec![0.5],
        optimizer: vec![0.1],
        checkpoint: vec![9.0],
        other: vec![9.0],
    };
    let Event::Step(of_two) = step(1, 1.0) else { unreachable!() };
    let alone = Event::Step(StepEvent { times: Some(times), ..of_two });
    std::fs::write(folder.join("metrics.jsonl"), serde_json::to_string(&alone).unwrap() + "\n").unwrap();
    let start = Provenance { world: 1, devices: vec!["cuda:0".into()], ..provenance::sample(folder) };
    provenance::write(&folder.join("run.json"), start).unwrap();
    let steps = Steps::of_run(folder).unwrap();
    assert!(steps.undivided && (steps.rows[0].compute() - 0.9).abs() < 1e-9, "{steps:?}");
    assert!((steps.rows[0].forward - 0.3).abs() < 1e-9, "{steps:?}");

    std::fs::write(folder.join("metrics.jsonl"), "").unwrap();
    assert!(Saves::of_run(folder).unwrap_err().contains("has no checkpoint"));
    let start = Provenance { world: 2, devices: vec!["cpu".into(); 2], ..provenance::sample(folder) };
    provenance::write(&folder.join("run.json"), start).unwrap();
    assert!(Steps::of_run(folder).unwrap_err().contains("has no step with `times`"));
}
