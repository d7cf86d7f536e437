//! NaN and infinity: all ranks exit with code 92 before the update, and no file contains such a value.

use crate::common::*;
use ddp_run::testing::{TensorData, TensorMap, load, tensor_file::write_tensors};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Loads every checkpoint of the run, checks that it is finite, and returns their steps.
#[track_caller]
fn finite_checkpoints(out: &Path) -> Vec<u64> {
    let Ok(dir) = std::fs::read_dir(out.join("checkpoints")) else { return Vec::new() };
    let paths = dir.map(|e| e.unwrap().path());
    let mut steps = Vec::new();
    for path in paths.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("step-")) {
        let loaded = load(&path).unwrap();
        for tensor in loaded.model.iter().chain(&loaded.optimizer).chain(&loaded.comm_hook) {
            tensor.for_each_f64(|v| assert!(v.is_finite(), "{}: {v}", tensor.name));
        }
        steps.push(loaded.state.global_step);
    }
    steps.sort_unstable();
    steps
}

/// Regression over two features by two ranks of batches of 4, in order; row 25, which is rank 1's in the fourth step (or the second, where two
/// batches make one), holds `x` and `y`. The weights start at zero.
fn spec(dir: &Path, x: &str, y: &str) -> PathBuf {
    let mut rows = String::from("a,b,target\n");
    for i in 0..64 {
        let (x, y) = if i == 25 { (x, y) } else { ("0.5", "1.5") };
        writeln!(rows, "{x},{}.25,{y}", i % 3).unwrap();
    }
    std::fs::write(dir.join("rows.csv"), rows).unwrap();
    let zeros = |name: &str, shape: Vec<usize>| {
        let n = shape.iter().product();
        TensorData::from_f32(name, shape, &vec![0.0; n]).unwrap()
    };
    let weights = TensorMap::from_tensors([zeros("weight", vec![1, 2]), zeros("bias", vec![1])]);
    write_tensors(&weights.unwrap(), &mut std::fs::File::create(dir.join("zeros.safetensors")).unwrap())
        .unwrap();
    let text = format!(
        "name = \"bad-row\"\nbatch_size = 4\nsave_every = \"1 steps\"\n\
         [model]\nname = \"linear\"\npretrained = {:?}\n\
         [dataset]\nname = \"csv\"\npath = {:?}\ntarget = \"target\"\nval_split = 0.0\nshuffle = false\n\
         standardise = false\nstandardise_target = false\n\
         [optimizer]\nname = \"sgd\"\nlr = 0.0\n[metrics]\nlog_every = 1\n\
         [checkpoint]\nkeep_last = 0\n[launch]\nnproc_per_node = 2\nthreads = 1\nshutdown_timeout = 60\n",
        dir.join("zeros.safetensors"),
        dir.join("rows.csv")
    );
    write_spec(dir, &text)
}

#[test]
fn a_non_finite_loss_or_gradient_of_one_rank_ends_all_ranks_before_the_update() {
    let _alone = alone();
    let ways: [&[&str]; 6] = [
        &[],
        &["train.accumulate=2"],
        &["train.clip_norm=1.0"],
        &["distributed.comm_hook=bf16"],
        &["distributed.comm_hook=f16"],
        &["checkpoint.async=false", "train.accumulate=2"],
    ];
    // The square of 1e30 overflows f32; that of 1e19 does not, but multiplied by 1e20 it does.
    for (x, y, what) in [("0.5", "1e30", "the loss of step"), ("1e20", "1e19", "the gradient of step")] {
        for sets in ways {
            let dir = tempfile::tempdir().unwrap();
            let (spec, out) = (spec(dir.path(), x, y), dir.path().join("run"));
            let flags: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
            let output = train(&spec, &out, &flags);
            assert_code(&output, 92);
            let good = if sets.contains(&"train.accumulate=2") { 1 } else { 3 };
            let told = stderr(&output);
            assert!(told.contains(&format!("{what} {}", good + 1)), "{sets:?}: {told}");
            assert_eq!(finite_checkpoints(&out), (1..=good).collect::<Vec<_>>(), "{sets:?}");
        }
    }
}

/// Loss and gradient are finite; the update itself overflows. No later step detects it, because this one is the last.
#[test]
fn parameters_that_overflow_in_the_update_are_not_saved() {
    let _alone = alone();
    for asynchronous in ["true", "false"] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let mode = format!("checkpoint.async={asynchronous}");
        let base = [
            "--accept-changes",
            "--set",
            &mode,
            "--set",
            "optimizer.name=sgd",
            "--unset",
            "scheduler",
            "--set",
        ];
        let run = |rest: &[&str]| train(Path::new("configs/ci/smoke.toml"), &out, &[&base, rest].concat());
        assert_code(&run(&["epochs=1"]), 0);
        let good = finite_checkpoints(&out);
        assert_eq!(good, [5, 8]);
        let output = run(&["train.max_steps=9", "--set", "optimizer.lr=1e300"]);
        assert_code(&output, 92);
        let told = stderr(&output);
        assert!(told.contains("after step 9, model tensor `") && told.contains("not finite"), "{told}");
        assert_eq!(finite_checkpoints(&out), good);
        let last = events(&out).pop().unwrap();
        assert_eq!((last["event"].as_str(), last["exit_code"].as_u64()), (Some("end"), Some(92)));
        // The run can resume from the last finite checkpoint.
        assert_code(&run(&["epochs=2"]), 0);
    }
}

/// Half of 2 x 1.5 x 1e6 / 4 overflows f16; it is neither clipped nor averaged with a clipped value.
#[test]
fn reports_a_gradient_that_overflows_in_the_hook() {
    let _alone = alone();
    for (hook, code) in [("none", 0), ("bf16", 0), ("f16", 92)] {
        let dir = tempfile::tempdir().unwrap();
        let (spec, out) = (spec(dir.path(), "1e6", "1.5"), dir.path().join("run"));
        let output = train(&spec, &out, &["--set", &format!("distributed.comm_hook={hook}")]);
        assert_code(&output, code);
        if code == 92 {
            let told = stderr(&output);
            assert!(told.contains("the gradient of step 4 is not finite"), "{told}");
            assert!(
                told.contains("`comm_hook = \"f16\"` overflows for gradients beyond 131008 with 2 ranks"),
                "{told}"
            );
            assert_eq!(finite_checkpoints(&out), [1, 2, 3]);
        }
    }
}
