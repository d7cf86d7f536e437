//! Runs that resume with another number of processes or another batch size: every sample of the epoch is used once, and the
//! global batch is kept or its change reported.

use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// Two epochs of 16 steps of 24 samples, without dropout and batch norm, so that the division of a step changes only
/// rounding.
const SPEC: &str = "name = \"resize\"\nseed = 3\nepochs = 2\nbatch_size = 2\nsave_every = \"2 steps\"\n\
    [model]\nname = \"mlp\"\nhidden = [32]\n\
    [dataset]\nname = \"random\"\nsamples = 480\nfeatures = 8\nval_split = 0.2\n\
    [train]\naccumulate = 3\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\nmomentum = 0.9\n\
    [scheduler]\nname = \"cosine\"\nunit = \"step\"\n\
    [metrics]\nlog_every = 1\n\
    [checkpoint]\nasync = false\n\
    [launch]\nthreads = 1\n";

/// The batches of one rank: epoch and data-set indices of each.
type Batches = Vec<(u64, Vec<u64>)>;

/// One part of a run: the number of processes, and the fault that ends it.
struct Part<'a> {
    world: usize,
    fault: Option<&'a str>,
    flags: &'a [&'a str],
}

/// Trains with every batch in the logs, which are moved to `logs-N` afterwards.
fn part(spec: &Path, out: &Path, Part { world, fault, flags }: Part<'_>) -> (Output, Vec<Batches>) {
    let mut command = ddp_run();
    command.env("DDP_RUN_LOG", "info,ddp_run_train::training=trace");
    if let Some(fault) = fault {
        command.env("DDP_RUN_FAULT", fault);
    }
    command.arg("train").arg(spec).arg("--out").arg(out).args(["--progress", "none"]);
    command.arg("--nproc-per-node").arg(world.to_string()).args(flags);
    let output = output_of(&mut command);
    let batches = (0..world).map(|rank| batches(&out.join(format!("logs/rank-{rank}.log")))).collect();
    std::fs::remove_dir_all(out.join("logs")).unwrap();
    (output, batches)
}

fn batches(log: &Path) -> Batches {
    let text = std::fs::read_to_string(log).unwrap();
    let parse = |line: &str| {
        let epoch = line.split_once("batch epoch=")?.1.split_whitespace().next()?.parse().ok()?;
        let list = line.split_once("indices=[")?.1.split_once(']')?.0;
        Some((epoch, list.split(", ").map(|i| i.parse().unwrap()).collect()))
    };
    text.lines().filter_map(parse).collect()
}

/// The indices of `epoch` in each rank's first `count` batches, sorted.
fn indices(ranks: &[Batches], epoch: u64, count: usize) -> Vec<u64> {
    let first = ranks.iter().flat_map(|rank| rank.iter().take(count));
    let mut all: Vec<u64> = first.filter(|(e, _)| *e == epoch).flat_map(|(_, i)| i.clone()).collect();
    all.sort_unstable();
    all
}

/// Learning rate and loss of each step.
fn steps(out: &Path) -> Vec<(u64, f64, f64)> {
    let number = |e: &Value, key: &str| e[key].as_f64().unwrap();
    let steps = step_events(out).into_iter();
    steps.map(|e| (e["step"].as_u64().unwrap(), number(&e, "lr"), number(&e, "loss"))).collect()
}

fn epochs(out: &Path) -> Vec<Value> {
    events(out).into_iter().filter(|e| e["event"] == "epoch").collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * b.abs()
}

fn dir_with_spec() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), SPEC);
    (dir, spec)
}

/// Four processes, then two, one and three, all within the first epoch.
#[test]
fn changes_of_world_size_keep_losses_and_use_each_sample_once() {
    let _alone = alone();
    let (dir, spec) = dir_with_spec();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("resized"));
    let (output, all) = part(&spec, &whole, Part { world: 4, fault: None, flags: &[] });
    assert_code(&output, 0);
    let every: Vec<u64> = indices(&all, 0, usize::MAX);
    assert!(every.len() == 384 && every.windows(2).all(|w| w[0] < w[1]), "the log misses batches: {every:?}");

    let mut seen = Vec::new();
    // After five steps, four of them saved in a checkpoint, and so on.
    let parts = [(4, Some(5), 3), (2, Some(9), 6), (1, Some(13), 12), (3, None, 4)];
    for (i, (world, until, accumulate)) in parts.into_iter().enumerate() {
        let fault = until.map(|step| format!("kill:rank=0,phase=forward,step={step}"));
        let (output, ranks) = part(&spec, &out, Part { world, fault: fault.as_deref(), flags: &[] });
        assert_code(&output, if until.is_some() { 90 } else { 0 });
        let told = stderr(&output);
        if i > 0 {
            let (micro, before) =
                (format!("{accumulate} micro-batches of 2 samples per process and step"), parts[i - 1].0);
            assert!(told.contains(&format!("instead of {before}, {micro}")), "{told}");
            assert!(told.contains("the global batch stays 24"), "{told}");
        }
        seen.extend(indices(&ranks, 0, 4 * accumulate));
        if until.is_none() {
            assert_eq!(indices(&ranks, 1, usize::MAX), every, "the epoch after the change");
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, every, "a sample was left out or seen twice");

    let resumed: Vec<_> = events(&out).into_iter().filter(|e| e["event"] == "resume").collect();
    let numbers =
        |e: &Value| ["step", "world", "accumulate", "global_batch"].map(|key| e[key].as_u64().unwrap());
    let resumed: Vec<_> = resumed.iter().map(numbers).collect();
    assert_eq!(resumed, [[4, 2, 6, 24], [8, 1, 12, 24], [12, 3, 4, 24]]);
    let (got, expected) = (steps(&out), steps(&whole));
    assert_eq!((got.len(), expected.len()), (32, 32));
    for (a, b) in got.iter().zip(&expected) {
        assert!(a.0 == b.0 && a.1 == b.1 && near(a.2, b.2), "{a:?} against {b:?}");
    }
    for (a, b) in epochs(&out).iter().zip(&epochs(&whole)) {
        for (split, key) in [("train", "loss"), ("val", "loss"), ("val", "n")] {
            let of = |e: &Value| e[split][key].as_f64().unwrap();
            assert!(near(of(a), of(b)), "{split}.{key}: {a} against {b}");
        }
    }
}

#[test]
fn reports_a_changed_global_batch_and_the_schedule_ends_with_the_run() {
    let _alone = alone();
    let (dir, spec) = dir_with_spec();
    let keep_local: &[&str] = &["--set", "train.on_resize=keep-local-batch"];
    let edited: &[&str] = &["--set", "train.accumulate=1", "--accept-changes"];
    let cases = [
        ("local", keep_local, 1, "the global batch changes from 12 to 6"),
        (
            "edited",
            edited,
            2,
            "2 processes, 1 micro-batch of 2 samples per process and step: the global batch changes from 12 to 4",
        ),
        (
            "uneven",
            &[],
            5,
            "1 micro-batch of 2 samples per process and step: the global batch changes from 12 to 10",
        ),
    ];
    for (name, flags, world, words) in cases {
        let out = dir.path().join(name);
        let killed = Part { world: 2, fault: Some("kill:rank=1,phase=sync,step=19"), flags: &[] };
        let (output, before) = part(&spec, &out, killed);
        assert_code(&output, 90);
        let (output, after) = part(&spec, &out, Part { world, fault: None, flags });
        assert_code(&output, 0);
        assert!(stderr(&output).contains(words), "{name}: {}", stderr(&output));
        // Eighteen of an epoch's 32 steps of 12 samples, then the rest; the end is padded so that ranks have equal numbers.
        let mut seen = indices(&before, 0, 18 * 3);
        seen.extend(indices(&after, 0, usize::MAX));
        let padding = if world == 5 { 2 } else { 0 };
        assert_eq!(seen.len(), 384 + padding, "{name}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 384, "{name}");
        assert_eq!(epochs(&out).len(), 2);
        assert!(near(1.0 + epochs(&out)[1]["lr"].as_f64().unwrap(), 1.0), "{name}: the schedule did not end");
        let rates: Vec<f64> = steps(&out).iter().map(|s| s.1).collect();
        assert!(rates.windows(2).all(|w| w[1] <= w[0]), "{name}: the rate jumped: {rates:?}");
    }
}

/// A stop saves the last step of an epoch before its evaluation; samples left out by `drop_last` stay left out with another
/// world size.
#[test]
#[cfg(target_os = "linux")]
fn an_epoch_whose_last_step_is_saved_is_only_evaluated() {
    let _alone = alone();
    let (dir, spec) = dir_with_spec();
    let out = dir.path().join("run");
    let drop: &[&str] = &["--set", "dataset.drop_last=true", "--set", "dataset.max_train=382"];
    // Blocked in its last step until the stop request.
    let mut command = train_command(&spec, &out, &[drop, &["--nproc-per-node", "4"]].concat());
    command.env("DDP_RUN_FAULT", "stop:rank=2,phase=forward,step=15");
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let held = held(&out);
    kill(run.id(), Signal::TERM);
    release_when_asked_to_stop(held);
    assert_code(&finish(run), 75);
    let (output, ranks) = part(&spec, &out, Part { world: 1, fault: None, flags: drop });
    assert_code(&output, 0);
    assert!(stderr(&output).contains("resumes at step 16 (epoch 1/2)"), "{}", stderr(&output));
    assert_eq!(indices(&ranks, 0, usize::MAX), [] as [u64; 0]);
    // Full micro-batches of eight on the four processes.
    assert_eq!(indices(&ranks, 1, usize::MAX).len(), 376);
    let steps_of_epochs: Vec<_> = epochs(&out).iter().map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps_of_epochs, [16, 32]);
    assert!(epochs(&out).iter().all(|e| e["val"]["n"] == 96), "{:?}", epochs(&out));
}
