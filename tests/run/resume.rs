//! A run that is killed at any point and resumed ends with the same bits as an uninterrupted one (invariant 1); checkpoints
//! that exist but can't be read are never ignored silently (invariant 3).

use crate::common::*;
use ddp_run::testing::read_weights;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};

/// Three epochs of 32 steps with everything that has state: AdamW, averaged weights, a schedule, dropout, shuffling,
/// clipping; and a checkpoint every 5 steps.
fn spec(world: usize) -> String {
    format!(
        "name = \"resume\"\nseed = 3\nepochs = 3\nbatch_size = {}\nsave_every = \"5 steps\"\n\
         [model]\nname = \"mlp\"\nhidden = [192, 192]\ndropout = 0.2\n\
         [dataset]\nname = \"random\"\nsamples = 640\nfeatures = 16\nval_split = 0.2\n\
         [train]\nclip_norm = 1.0\n\
         [ema]\ndecay = 0.9\nevery = 2\nwarmup_power = 0.75\n\
         [optimizer]\nname = \"adamw\"\nlr = 1e-2\n\
         [scheduler]\nname = \"cosine\"\nunit = \"step\"\nwarmup_steps = 4\n\
         [metrics]\nlog_every = 3\n\
         [checkpoint]\nkeep_last = 2\n\
         [launch]\nnproc_per_node = {world}\nthreads = 1\n",
        16 / world
    )
}

/// Starts a run and waits until `fault` blocks it; returns the run and the blocked rank.
#[cfg(target_os = "linux")]
fn held_by(fault: &str, spec: &Path, out: &Path, flags: &[&str]) -> (Child, u32) {
    let mut command = train_command(spec, out, flags);
    command.env("DDP_RUN_FAULT", fault).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = command.spawn().expect("the binary starts");
    (run, held(out))
}

/// Ten runs with one rank and ten with two: SIGKILL to the supervisor or a worker at a random moment, then a resume to the
/// end.
#[test]
#[cfg(target_os = "linux")]
fn runs_killed_at_20_moments_resume_to_the_same_bits() {
    let _alone = alone();
    for world in [1usize, 2] {
        let dir = tempfile::tempdir().unwrap();
        let spec = write_spec(dir.path(), &spec(world));
        let whole = dir.path().join("whole");
        assert_code(&train(&spec, &whole, &[]), 0);
        let (expected, metrics) = (bits(&whole), results(&whole));
        assert!(expected.len() == 3 && expected[0] != expected[2], "no averaged weights");
        assert_eq!(metrics.iter().filter(|e| e["event"] == "epoch").count(), 3);
        let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ world as u64;
        for round in 0..10 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (step, rank) = ((state >> 33) % 94, (state >> 20) as usize % world);
            let phase = ["data", "forward", "backward", "sync", "update"][(state >> 50) as usize % 5];
            let out = dir.path().join(format!("killed-{round}"));
            // One rank is blocked, so that the kill comes before the end; the others continue until they need it.
            let (run, held) =
                held_by(&format!("stop:rank={rank},phase={phase},step={step}"), &spec, &out, &[]);
            let workers = children(run.id());
            // Every third round kills a worker, the others the supervisor, whose workers must exit too.
            let target = if round % 3 == 2 { held } else { run.id() };
            kill(target, Signal::KILL);
            assert!(!finish(run).status.success(), "world {world}, round {round}");
            wait_for("the workers' end", HUNG, || workers.iter().all(|pid| !alive(*pid)));
            assert_code(&train(&spec, &out, &[]), 0);
            let at = format!("world {world}, round {round}, killed in {phase} of step {step}");
            assert!(bits(&out) == expected, "{at}: model or optimizer differ");
            assert_eq!(results(&out), metrics, "{at}");
        }
    }
}

/// Residuals of a communication hook are state too: several buckets, a hook, runs that are killed or stopped.
#[test]
#[cfg(target_os = "linux")]
fn runs_with_a_communication_hook_resume_to_the_same_bits() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let distributed = "[distributed]\ncomm_hook = \"bf16\"\nfirst_bucket_mb = 0.01\nbucket_cap_mb = 0.1\n";
    let spec = write_spec(dir.path(), &format!("{}{distributed}", spec(2)));
    let whole = dir.path().join("whole");
    assert_code(&train(&spec, &whole, &[]), 0);
    let residuals = |out: &Path| {
        std::fs::read(newest_checkpoint(out).join("comm_hook.safetensors")).expect("the hook has state")
    };
    let plain = dir.path().join("plain");
    assert_code(&train(&spec, &plain, &["--set", "distributed.comm_hook=\"none\""]), 0);
    assert!(bits(&whole) != bits(&plain), "the hook had no effect");
    assert!(!newest_checkpoint(&plain).join("comm_hook.safetensors").exists());
    for (moment, signal) in [(7, Signal::KILL), (40, Signal::TERM), (60, Signal::KILL)] {
        let out = dir.path().join(format!("at-{moment}"));
        let (run, held) = held_by(&format!("stop:rank=1,phase=forward,step={moment}"), &spec, &out, &[]);
        let workers = children(run.id());
        kill(run.id(), signal);
        if signal == Signal::TERM {
            release_when_asked_to_stop(held);
        }
        let expected = if signal == Signal::TERM { Some(75) } else { None };
        assert_eq!(finish(run).status.code(), expected, "step {moment}");
        wait_for("the workers' end", HUNG, || workers.iter().all(|pid| !alive(*pid)));
        assert_code(&train(&spec, &out, &[]), 0);
        assert!(bits(&out) == bits(&whole), "step {moment}: model or optimizer differ");
        assert!(residuals(&out) == residuals(&whole), "step {moment}: residuals differ");
    }
}

/// Kills a run in mid-epoch `step` and resumes it. Returns what the same run has measured that was not killed.
#[cfg(target_os = "linux")]
fn measured_alike_after_a_kill(text: &str, step: u64) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), text);
    let (whole, out) = (dir.path().join("whole"), dir.path().join("killed"));
    assert_code(&train(&spec, &whole, &[]), 0);
    let (run, _) = held_by(&format!("stop:rank=1,phase=forward,step={step}"), &spec, &out, &[]);
    let workers = children(run.id());
    kill(run.id(), Signal::KILL);
    finish(run);
    wait_for("the workers' end", HUNG, || workers.iter().all(|pid| !alive(*pid)));
    assert_code(&train(&spec, &out, &[]), 0);
    assert!(bits(&out) == bits(&whole), "model or optimizer differ");
    assert_eq!(results(&out), results(&whole));
    results(&whole)
}

/// What a schedule has seen of its metric is state too: one that is killed after the rate fell.
#[test]
#[cfg(target_os = "linux")]
fn a_run_whose_rate_waits_for_a_metric_resumes_to_the_same_bits() {
    let _alone = alone();
    let cosine = "name = \"cosine\"\nunit = \"step\"\n";
    assert!(spec(2).contains(cosine));
    let plateau = "name = \"reduce-on-plateau\"\nfactor = 0.5\npatience = 0\nthreshold = 100.0\nthreshold_mode = \"abs\"\n";
    let results = measured_alike_after_a_kill(&spec(2).replace(cosine, plateau), 72);
    let rates: Vec<f64> = results.iter().filter_map(|e| e["lr"].as_f64()).collect();
    assert!(rates.contains(&0.01) && rates.contains(&0.005), "{rates:?}");
}

/// So is the wait for an improvement: of five epochs only three are trained, and it is killed in the third.
#[test]
#[cfg(target_os = "linux")]
fn a_run_that_ends_early_resumes_to_the_same_end() {
    let _alone = alone();
    let early = "[early_stop]\npatience = 2\nmin_delta = 100.0\n";
    let results =
        measured_alike_after_a_kill(&format!("{}{early}", spec(2).replace("epochs = 3", "epochs = 5")), 72);
    assert_eq!(results.iter().filter(|e| e["event"] == "epoch").count(), 3);
}

/// Published weights, frozen layers and groups, two ranks: killed before the first save, in the middle and near the end.
#[test]
#[cfg(target_os = "linux")]
fn fine_tuning_with_frozen_layers_resumes_to_the_same_bits() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    assert_code(&train(&write_spec(dir.path(), &spec(1)), &base, &["--set", "epochs=1"]), 0);
    let weights = newest_checkpoint(&base).join("model.safetensors");
    let groups = "[[optimizer.group]]\nmatch = \"0.*\"\nfrozen = true\n\
                  [[optimizer.group]]\nmatch = [\"2.weight\", \"2.bias\"]\nlr = 1e-3\nweight_decay = 0.1\n";
    let pretrained = format!("[model]\npretrained = {weights:?}\n");
    let text = format!("{}{groups}", spec(2).replacen("[model]\n", &pretrained, 1));
    let spec = write_spec(dir.path(), &text);
    let whole = dir.path().join("whole");
    assert_code(&train(&spec, &whole, &["--set", "epochs=2"]), 0);
    let tensor = |from: &Path, name: &str| {
        let weights = read_weights(from).unwrap();
        weights.get(name).expect("a tensor of the model").bytes.clone()
    };
    let tuned = newest_checkpoint(&whole).join("model.safetensors");
    for (name, frozen) in [("0.weight", true), ("0.bias", true), ("2.weight", false), ("4.bias", false)] {
        assert_eq!(tensor(&weights, name) == tensor(&tuned, name), frozen, "{name}");
    }
    let state = read_weights(&newest_checkpoint(&whole).join("optimizer.safetensors")).unwrap();
    assert!(state.get("exp_avg.0.weight").is_none() && state.get("exp_avg.2.weight").is_some());
    for moment in [3, 30, 61] {
        let out = dir.path().join(format!("at-{moment}"));
        let (run, _) = held_by(
            &format!("stop:rank=1,phase=backward,step={moment}"),
            &spec,
            &out,
            &["--set", "epochs=2"],
        );
        let workers = children(run.id());
        kill(run.id(), Signal::KILL);
        assert!(!finish(run).status.success(), "step {moment}");
        wait_for("the workers' end", HUNG, || workers.iter().all(|pid| !alive(*pid)));
        assert_code(&train(&spec, &out, &["--set", "epochs=2"]), 0);
        assert!(bits(&out) == bits(&whole), "step {moment}: model or optimizer differ");
        assert_eq!(results(&out), results(&whole), "step {moment}");
    }
}

#[test]
fn hook_state_of_another_world_size_is_discarded_with_a_warning() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), &format!("{}[distributed]\ncomm_hook = \"f16\"\n", spec(2)));
    let out = dir.path().join("run");
    assert_code(&train(&spec, &out, &["--set", "epochs=1"]), 0);
    let output = train(&spec, &out, &["--nproc-per-node", "1", "--set", "batch_size=16", "--accept-changes"]);
    assert_code(&output, 0);
    let told = stderr(&output);
    assert!(told.contains("state of the communication hook `f16` is ignored"), "{told}");
    assert!(told.contains("it was saved by 2 processes, this run has 1"), "{told}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_stop_signal_saves_and_the_same_command_resumes() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), &spec(2));
    let whole = dir.path().join("whole");
    assert_code(&train(&spec, &whole, &[]), 0);
    let out = dir.path().join("stopped");
    let flags = ["--set", "epochs=3", "--set", "save_every=\"never\""];
    let (run, held) = held_by("stop:rank=1,phase=forward,step=3", &spec, &out, &flags);
    kill(run.id(), Signal::TERM);
    release_when_asked_to_stop(held);
    assert_code(&finish(run), 75);
    assert_code(&train(&spec, &out, &[]), 0);
    assert!(bits(&out) == bits(&whole), "model or optimizer differ");
    assert_eq!(results(&out), results(&whole));
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_previous_one_is_used() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), &spec(1));
    let whole = dir.path().join("whole");
    assert_code(&train(&spec, &whole, &[]), 0);
    for damage in ["truncate", "flip", "tear"] {
        let out = dir.path().join(damage);
        assert_code(&train(&spec, &out, &[]), 0);
        let newest = newest_checkpoint(&out);
        let model = newest.join("model.safetensors");
        let mut bytes = std::fs::read(&model).unwrap();
        match damage {
            "truncate" => bytes.truncate(bytes.len() / 2),
            "flip" => *bytes.last_mut().unwrap() ^= 1,
            _ => std::fs::remove_file(newest.join("state.json")).unwrap(),
        }
        std::fs::write(&model, bytes).unwrap();
        let output = train(&spec, &out, &[]);
        assert_code(&output, 0);
        let name = newest.file_name().unwrap().to_string_lossy().into_owned();
        let told = stderr(&output);
        assert!(told.contains(&name) && told.contains("skipped checkpoint"), "{damage}: {told}");
        assert!(bits(&out) == bits(&whole), "{damage}: model or optimizer differ");
    }
}

#[test]
fn does_not_start_over_if_no_checkpoint_can_be_read() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), &spec(1));
    let out = dir.path().join("run");
    assert_code(&train(&spec, &out, &["--set", "epochs=1"]), 0);
    for entry in std::fs::read_dir(out.join("checkpoints")).unwrap() {
        let state = entry.unwrap().path().join("state.json");
        if state.exists() {
            std::fs::write(state, "{}").unwrap();
        }
    }
    let output = train(&spec, &out, &[]);
    assert_code(&output, 74);
    assert!(stderr(&output).contains("none can be read"), "{}", stderr(&output));
    // Starting over explicitly keeps the old files.
    assert_code(&train(&spec, &out, &["--resume", "never", "--set", "epochs=1"]), 0);
    assert!(dir.path().join("run.1/checkpoints").is_dir());
}

#[test]
fn a_checkpoint_loads_on_another_number_of_ranks() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), &spec(1));
    let out = dir.path().join("run");
    assert_code(&train(&spec, &out, &["--set", "epochs=1"]), 0);
    let more = ["--nproc-per-node", "2", "--set", "batch_size=8", "--accept-changes"];
    assert_code(&train(&spec, &out, &more), 0);
    let epochs: Vec<_> = results(&out).into_iter().filter(|e| e["event"] == "epoch").collect();
    assert_eq!(epochs.len(), 3);
    assert!(epochs.iter().all(|e| e["val"]["n"] == 128), "{epochs:?}");
}

/// `max_steps` ends a run in mid-epoch. That epoch is evaluated, and the save of the last step waits for the evaluation.
#[test]
fn a_run_killed_in_its_last_evaluation_completes_its_last_epoch() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), &spec(1));
    let flags = ["--set", "train.max_steps=40", "--set", "checkpoint.async=false"];
    let (whole, out) = (dir.path().join("whole"), dir.path().join("killed"));
    assert_code(&train(&spec, &whole, &flags), 0);
    let mut killed = ddp_run();
    killed.arg("train").arg(&spec).arg("--out").arg(&out).args(flags);
    let killed = output_of(killed.env("DDP_RUN_FAULT", "kill:rank=0,phase=evaluate,step=40"));
    assert_code(&killed, 90);
    assert!(newest_checkpoint(&out).ends_with("step-00000035"));
    assert_code(&train(&spec, &out, &flags), 0);
    assert_eq!(results(&out), results(&whole));
    assert!(bits(&out) == bits(&whole));
    // A complete run is not repeated.
    assert_code(&train(&spec, &out, &flags), 0);
    assert_eq!(results(&out), results(&whole));
}

/// Images that are cropped, recoloured and mixed by random numbers, in accumulated micro-batches of which the last is short.
#[test]
fn runs_with_augmentation_and_mixing_resume_to_the_same_bits() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(
        dir.path(),
        "name = \"mixed\"\nseed = 3\nepochs = 2\nbatch_size = 8\nsave_every = \"2 steps\"\n\
         [model]\nname = \"mlp\"\nhidden = [16]\n\
         [dataset]\nname = \"shapes\"\ntrain = 150\nval = 20\nsize = 16\nchannels = 3\n\
         augment = [\"random-resized-crop\", \"color-jitter\", \"flip\"]\nbrightness = 0.4\nhue = 0.1\n\
         [train]\naccumulate = 2\nlabel_smoothing = 0.1\nmixup = 0.8\ncutmix = 1.0\n\
         [optimizer]\nname = \"adamw\"\nlr = 1e-2\n\
         [metrics]\nlog_every = 1\n\
         [launch]\nnproc_per_node = 2\nthreads = 1\n",
    );
    let whole = dir.path().join("whole");
    assert_code(&train(&spec, &whole, &[]), 0);
    for key in ["mixup", "cutmix"] {
        let other = dir.path().join(key);
        assert_code(&train(&spec, &other, &["--unset", &format!("train.{key}")]), 0);
        assert!(bits(&other) != bits(&whole), "{key} had no effect");
    }
    for step in [3, 7] {
        let out = dir.path().join(format!("killed-{step}"));
        let mut killed = train_command(&spec, &out, &[]);
        let killed =
            output_of(killed.env("DDP_RUN_FAULT", format!("kill:rank=1,phase=backward,step={step}")));
        assert!(!killed.status.success(), "step {step}");
        assert_code(&train(&spec, &out, &[]), 0);
        assert!(bits(&out) == bits(&whole), "step {step}: model or optimizer differ");
        assert_eq!(results(&out), results(&whole), "step {step}");
    }
}

/// Saves of 28 MB in every step, so that one is in progress whenever the next is due and when the run ends.
#[test]
fn saves_wait_for_the_previous_one_and_the_exit_for_the_last() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let spec = write_spec(dir.path(), &spec(2));
    let out = dir.path().join("run");
    let sets =
        ["model.hidden=[1500, 1500]", "save_every=1 steps", "checkpoint.keep_last=0", "train.max_steps=3"];
    let flags: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    assert_code(&train(&spec, &out, &flags), 0);
    let mut names: Vec<_> = std::fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".lock")
        .collect();
    names.sort();
    assert_eq!(names, ["step-00000001", "step-00000002", "step-00000003"]);
    for name in &names {
        ddp_run::testing::load(&out.join("checkpoints").join(name)).unwrap();
    }
    let saved: Vec<_> = events(&out).into_iter().filter(|e| e["event"] == "checkpoint").collect();
    let steps: Vec<_> =
        saved.iter().map(|e| (e["step"].as_u64().unwrap(), e["epoch"].as_u64().unwrap())).collect();
    assert_eq!(steps, [(1, 0), (2, 0), (3, 0)]);
    assert!(
        saved.iter().all(|e| e["bytes"].as_u64() > Some(27_000_000) && e["held_up_s"].as_f64() > Some(0.0))
    );
}
