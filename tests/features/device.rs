//! A device with memory of its own, through the real binary: what it computes, and that a run goes on after a kill and on another
//! device. Two kinds: whatever device wgpu finds (CI has Mesa's, in software; skipped where there is none), and CUDA cards of the
//! tests' own driver, which executes kernels on the CPU (`tests/fake_cuda`).

use crate::common::*;
#[cfg(feature = "cuda")]
use crate::emulated_cuda;
use ddp_run::testing::{
    ComputeDevice, Loaded, Precision, cuda_devices, load, supports_precision, wgpu_devices,
};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// A kind of device, with the environment in which the program finds it.
pub struct Machine {
    device: &'static str,
    pub variables: Vec<(&'static str, OsString)>,
    /// Where programs run, and where an emulated card leaves what `races.h` finds.
    folder: Option<&'static Path>,
}

/// Fails if an emulated card has found work that nothing orders.
impl Drop for Machine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.folder.map(assert_no_race);
        }
    }
}

/// The file of what `races.h` finds.
pub const RACES: &str = "races";

/// Fails if a program that started in `folder` has found a race.
#[track_caller]
pub fn assert_no_race(folder: &Path) {
    let found = std::fs::read_to_string(folder.join(RACES)).unwrap_or_default();
    assert!(found.is_empty(), "{found}");
}

impl Machine {
    /// Whatever wgpu finds. If that is nothing, prints so and returns None.
    #[cfg(feature = "wgpu")]
    fn with_wgpu() -> Option<Self> {
        if let Err(why) = wgpu_devices() {
            println!("skipped: {why}");
            return None;
        }
        Some(Self { device: "wgpu", variables: Vec::new(), folder: None })
    }

    /// One emulated CUDA card. If there is no C++ compiler, prints so and returns None.
    #[cfg(feature = "cuda")]
    pub fn with_cuda() -> Option<Self> {
        let (folder, variables) = emulated_cuda::environment()?;
        Some(Self { device: "cuda", variables, folder: Some(folder) })
    }

    pub fn train_command(&self, spec: &Path, out: &Path, flags: &[&str]) -> Command {
        let mut command = train_command(spec, out, flags);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.folder.unwrap_or(Path::new(".")));
        command
    }

    #[track_caller]
    pub fn train(&self, spec: &Path, out: &Path, flags: &[&str]) -> Output {
        output_of(&mut self.train_command(spec, out, flags))
    }

    /// Whether its devices have this precision, as far as is known without opening one.
    fn supports(&self, precision: Precision) -> Result<(), String> {
        match self.device {
            "cuda" => Ok(()),
            _ => supports_precision(precision, ComputeDevice::Wgpu(0)).map_err(|why| why.message),
        }
    }
}

/// 24 steps with everything that has state.
pub fn spec(dir: &Path, world: usize) -> std::path::PathBuf {
    let text = format!(
        "name = \"device\"\nseed = 3\nepochs = 2\nbatch_size = {}\nsave_every = \"5 steps\"\n\
         [model]\nname = \"mlp\"\nhidden = [24]\n\
         [dataset]\nname = \"random\"\nsamples = 240\nfeatures = 16\nval_split = 0.2\n\
         [train]\nclip_norm = 1.0\naccumulate = 2\n\
         [ema]\ndecay = 0.8\n\
         [optimizer]\nname = \"adamw\"\nlr = 1e-2\n\
         [scheduler]\nname = \"cosine\"\nunit = \"step\"\nwarmup_steps = 4\n\
         [metrics]\nlog_every = 1\n\
         [distributed]\nfirst_bucket_mb = 0.001\nbucket_cap_mb = 0.001\n\
         [launch]\nnproc_per_node = {world}\nthreads = 1\nshare_devices = true\n",
        8 / world
    );
    write_spec(dir, &text)
}

pub fn losses(out: &Path) -> Vec<f64> {
    let loss = |e: &serde_json::Value| (e["event"] == "step").then(|| e["loss"].as_f64().unwrap());
    events(out).iter().filter_map(loss).collect()
}

pub fn largest_gap(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!((a.len(), b.len()), (24, 24));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Trains two ranks until the save of step 5 is there, then kills them.
pub fn killed_after_a_save(on: &Machine, spec: &Path, out: &Path, flags: &[&str]) {
    // Held in step 8: a save may take longer than all the steps that are left.
    let mut run = on
        .train_command(spec, out, flags)
        .env("DDP_RUN_FAULT", "stop:rank=1,phase=forward,step=8")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let saved = out.join("checkpoints/step-00000005");
    // Kernels are compiled and tuned in the first steps, in software.
    wait_for("the first save", RUN_HUNG, || saved.exists() || run.try_wait().unwrap().is_some());
    kill(run.id(), Signal::KILL);
    finish(run);
    #[cfg(target_os = "linux")]
    wait_for("the workers' end", HUNG, || processes(out).is_empty());
    assert!(losses(out).len() <= 8, "{}: it was not held", out.display());
}

/// The saved position's, of the rank that saved.
fn saved_on(out: &Path) -> String {
    let saved = load(&newest_checkpoint(out)).unwrap();
    saved.state.extra["device"].as_str().unwrap().to_owned()
}

fn losses_and_metrics_are_those_of_the_cpu_with_one_process_and_with_two(on: &Machine) {
    let dir = tempfile::tempdir().unwrap();
    for world in [1, 2] {
        let spec = spec(dir.path(), world);
        let out = |device: &str| dir.path().join(format!("{device}-{world}"));
        for device in ["cpu", on.device] {
            assert_code(&on.train(&spec, &out(device), &["--device", device]), 0);
        }
        let gap = largest_gap(&losses(&out("cpu")), &losses(&out(on.device)));
        println!("world {world}: largest loss gap to the CPU {gap:.2e}");
        assert!(gap < 1e-4, "world {world}: {gap:e}");
        assert_eq!(saved_on(&out(on.device)), format!("{}:0", on.device));
        let last = |device| events(&out(device)).into_iter().rfind(|e| e["event"] == "epoch").unwrap();
        for metric in ["loss", "mae", "r2"] {
            let of = |device| last(device)["val"][metric].as_f64().unwrap();
            let (cpu, device) = (of("cpu"), of(on.device));
            assert!((cpu - device).abs() < 1e-4 * cpu.abs().max(1.0), "val {metric}: {cpu} and {device}");
        }
    }
}

fn a_killed_run_goes_on_on_its_device_and_on_another(on: &Machine) {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), 2);
    let whole = dir.path().join("whole");
    assert_code(&on.train(&spec, &whole, &["--device", on.device]), 0);
    let expected = losses(&whole);
    for (first, second) in [(on.device, on.device), (on.device, "cpu"), ("cpu", on.device)] {
        let out = dir.path().join(format!("{first}-{second}"));
        killed_after_a_save(on, &spec, &out, &["--device", first]);
        let mut flags = vec!["--device", second, "--accept-changes"];
        let kind = on.device;
        let to = |index| format!("checkpoint.map_location={{ cpu = \"{kind}:{index}\" }}");
        let [here, elsewhere] = [to(0), to(1)];
        if first == "cpu" {
            let refused = on.train(&spec, &out, &[&flags[..], &["--set", &elsewhere]].concat());
            assert_code(&refused, 69);
            let said = format!("sends tensors of `cpu` to `{kind}:1`, and rank 0 computes on `{kind}:0`");
            assert!(stderr(&refused).contains(&said), "{}", stderr(&refused));
            flags.extend(["--set", &here]);
        }
        assert_code(&on.train(&spec, &out, &flags), 0);
        assert_eq!(saved_on(&out), if second == "cpu" { "cpu".to_owned() } else { format!("{kind}:0") });
        assert!(events(&out).iter().any(|e| e["event"] == "resume"), "{first}, {second}: it started over");
        // Which kernels CubeCL's tuner chose, and so the last bits, depends on what was kept.
        let gap = largest_gap(&losses(&out), &expected);
        println!("killed on {first}, resumed on {second}: largest loss gap {gap:.2e}");
        assert!(gap < 1e-5, "{first}, {second}: {gap:e}");
    }
}

/// Digests have the steps that they are of, although the device is a step behind, and the replicas agree.
fn a_device_has_digests_and_equal_replicas(on: &Machine) {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), 2);
    let digested = |device: &str| {
        let out = dir.path().join(device);
        let flags = ["metrics.digests=\"4 steps\"", "distributed.check_replicas=\"3 steps\""];
        let flags = ["--device", device, "--set", flags[0], "--set", flags[1]];
        assert_code(&on.train(&spec, &out, &flags), 0);
        let text = std::fs::read_to_string(out.join("digests.jsonl")).unwrap();
        (losses(&out), text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    };
    let (cpu, cpu_lines): (_, Vec<serde_json::Value>) = digested("cpu");
    let (device, lines): (_, Vec<serde_json::Value>) = digested(on.device);
    assert!(largest_gap(&cpu, &device) < 1e-4);
    let steps: Vec<_> = lines.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [4, 8, 12, 16, 20, 24]);
    for (line, of_cpu) in lines.iter().zip(&cpu_lines) {
        assert_eq!(line["input"], of_cpu["input"], "{line}");
        for group in ["gradient", "optimizer", "parameter", "average"] {
            let names = |line: &serde_json::Value| -> Vec<String> {
                line[group].as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(names(line), names(of_cpu), "{group}");
            assert!(!names(line).is_empty(), "{group}");
        }
    }
}

fn a_gradient_that_is_not_finite_ends_the_run_and_is_not_saved(on: &Machine) {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), 1);
    let out = dir.path().join("out");
    let flags = ["--device", on.device, "--set", "optimizer.lr=1e30", "--set", "train.clip_norm=1e30"];
    let output = on.train(&spec, &out, &flags);
    assert_code(&output, 92);
    assert!(stderr(&output).contains("is not finite") || stderr(&output).contains("the loss of step"));
    assert!(!out.join("checkpoints/step-00000005").exists());
}

/// The checkpoint of `step`.
fn saved_after(out: &Path, step: usize) -> Loaded {
    load(&out.join(format!("checkpoints/step-{step:08}"))).unwrap()
}

fn weights(saved: &Loaded) -> Vec<f32> {
    saved.model.iter().flat_map(|tensor| tensor.as_f32().into_owned()).collect()
}

/// The first scale is too large for these gradients, so the first step overflows, and some later one may.
fn f16_trains_under_a_loss_scale_and_leaves_out_what_overflows(on: &Machine) {
    if let Err(why) = on.supports(Precision::F16) {
        return println!("skipped: {why}");
    }
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), 2);
    let run = |name: &str, flags: &[&str]| {
        let out = dir.path().join(name);
        let all = ["--set", "save_every=1 step", "--set", "checkpoint.keep_last=24"];
        assert_code(&on.train(&spec, &out, &[flags, &all].concat()), 0);
        let steps = step_events(&out);
        assert_eq!(steps.len(), 24, "{name}");
        (out, steps)
    };
    let (out, steps) = run("f16", &["--device", on.device, "--set", "precision=f16"]);
    // The same batches in f32, by a rate that leaves the parameters as they are drawn.
    let still = ["--device", "cpu", "--set", "optimizer.lr=1e-30", "--set", "optimizer.weight_decay=0"];
    let (drawn, exact) = run("f32", &still);

    let mut before = (weights(&saved_after(&drawn, 1)), 65536.0, 0);
    let mut first = None;
    for (i, step) in steps.iter().enumerate() {
        let saved = saved_after(&out, i + 1);
        let scale = &saved.state.extra["position"]["loss_scale"];
        let now = (weights(&saved), scale["scale"].as_f64().unwrap(), scale["skipped"].as_u64().unwrap());
        let moved = now.0.iter().zip(&before.0).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        if step["grad_norm"].is_null() {
            assert!(moved < 1e-20, "step {}: an overflow moved a parameter by {moved}", i + 1);
            assert_eq!((now.1, now.2), (before.1 / 2.0, before.2 + 1), "step {}", i + 1);
        } else {
            assert!(moved > 1e-6, "step {} did nothing", i + 1);
            assert_eq!((now.1, now.2), (before.1, before.2), "step {}", i + 1);
            first.get_or_insert(i);
        }
        before = now;
    }
    let (first, skipped) = (first.expect("not all overflow"), before.2);
    println!("f16: {skipped} of 24 steps left out, the first that counts is number {}", first + 1);
    assert!(first > 0 && skipped < 12, "{first} {skipped}");
    // Up to there the parameters are those that were drawn: the scale is out of what it reports.
    for what in ["loss", "grad_norm"] {
        let of = |steps: &[serde_json::Value]| steps[first][what].as_f64().unwrap();
        let (half, whole) = (of(&steps), of(&exact));
        assert!((half / whole - 1.0).abs() < 0.01, "{what}: {half} in f16, {whole} in f32");
    }
    let mean = |steps: &[serde_json::Value]| {
        let losses: Vec<f64> = steps.iter().filter_map(|e| e["loss"].as_f64()).collect();
        losses.iter().sum::<f64>() / losses.len() as f64
    };
    assert!(mean(&steps[12..]) < 0.9 * mean(&exact[12..]), "{} {}", mean(&steps[12..]), mean(&exact[12..]));
}

fn devices_that_are_not_there_or_too_few_are_refused(on: &Machine) {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), 2);
    let refused = |flags: &[&str], code: i32, words: &str| {
        let output = on.train(&spec, &dir.path().join("out"), flags);
        assert_code(&output, code);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    if on.device != "cuda" && cuda_devices().is_err() {
        refused(&["--device", "cuda"], 69, "device `cuda`");
    }
    for other in ["cuda:77", "wgpu:77"] {
        refused(&["--device", other], 69, &format!("device `{other}`"));
    }
    if on.device == "cuda" || wgpu_devices().is_ok_and(|names| names.len() == 1) {
        refused(&["--device", on.device, "--set", "launch.share_devices=false"], 2, "share_devices");
    }
    if on.supports(Precision::Bf16).is_err() {
        let flags = ["--device", on.device, "--set", "precision=bf16"];
        refused(&flags, 69, "device `wgpu:0` does not support bf16");
    }
}

/// What a folder keeps kernels in.
fn databases(folder: &Path) -> BTreeSet<String> {
    let files =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    files.filter(|name| name.ends_with(".db")).collect()
}

/// A second start tunes nothing, so it has the first one's bits; the first chose its kernels on the way, so it may differ from both in
/// the last bits.
fn kernels_are_kept_and_starts_that_use_them_have_the_same_bits(on: &Machine) {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), 2);
    let kept = dir.path().join("kernels");
    let run = |name: &str, cache: &Path| {
        let out = dir.path().join(name);
        let mut command = on.train_command(&spec, &out, &["--device", on.device]);
        let begun = Instant::now();
        assert_code(&output_of(command.env("DDP_RUN_KERNEL_CACHE", cache)), 0);
        println!("24 steps by two ranks, {name}: {:.1} s", begun.elapsed().as_secs_f64());
        let log = std::fs::read_to_string(out.join("logs/rank-1.log")).unwrap();
        let said = log.lines().find(|line| line.contains("kernels are")).unwrap().to_owned();
        let model = std::fs::read(newest_checkpoint(&out).join("model.safetensors")).unwrap();
        (model, losses(&out), said, log.matches(" Tuning ").count())
    };
    let [cold, warm, again] = ["cold", "warm", "again"].map(|name| run(name, &kept));
    assert!(cold.3 > 0 && (warm.3, again.3) == (0, 0), "{} {} {}", cold.3, warm.3, again.3);
    assert!(warm.0 == again.0 && warm.1 == again.1, "two warm starts differ");
    assert!(largest_gap(&cold.1, &warm.1) < 1e-5);
    let kept = databases(&kept);
    let card =
        kept.first().and_then(|name| name.strip_suffix("-f32-0.db")).expect("rank 0 has one").to_owned();
    assert_eq!(kept, BTreeSet::from([format!("{card}-f32-0.db"), format!("{card}-f32-1.db")]));
    assert!(warm.2.ends_with(&format!("/{card}-f32-1.db")), "{}", warm.2);
    match on.device {
        "cuda" => assert_eq!(card, "nvidia-geforce-gtx-1660-of-the-tests-sm75-nvrtc-12-8-driver-12-8"),
        _ => {
            let named = wgpu_devices().unwrap()[0].to_ascii_lowercase();
            let word = named.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap();
            assert!(card.starts_with("wgpu-") && card.contains(word), "`{card}` is not of `{named}`");
        }
    }
    let off = run("off", Path::new("off"));
    assert!(off.2.ends_with("kernels are not cached") && off.3 > 0, "{} {}", off.2, off.3);
    assert!(largest_gap(&off.1, &warm.1) < 1e-5);
}

/// A rank that something else started tells a device's name before it trains.
fn a_rank_under_a_launcher_keeps_its_kernels_too(on: &Machine) {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), 1);
    let kept = dir.path().join("kernels");
    let mut command = on.train_command(&spec, &dir.path().join("run"), &["--device", on.device]);
    for (name, value) in [("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")] {
        command.env(name, value);
    }
    assert_code(&output_of(command.env("DDP_RUN_KERNEL_CACHE", &kept)), 0);
    let log = std::fs::read_to_string(dir.path().join("run/logs/rank-0.log")).unwrap();
    let one = databases(&kept).len() == 1;
    assert!(log.contains("kernels are cached in") && one, "{log}");
}

/// The tests above, on each kind of device.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        #[cfg(feature = "wgpu")]
        mod on_wgpu {
            $(#[test]
            fn $name() {
                let _alone = super::alone();
                let Some(on) = super::Machine::with_wgpu() else { return };
                super::$name(&on);
            })*
        }
        #[cfg(feature = "cuda")]
        mod on_cuda {
            $(#[test]
            fn $name() {
                let _alone = super::alone();
                let Some(on) = super::Machine::with_cuda() else { return };
                super::$name(&on);
            })*
        }
    };
}

tests!(
    losses_and_metrics_are_those_of_the_cpu_with_one_process_and_with_two,
    a_killed_run_goes_on_on_its_device_and_on_another,
    a_device_has_digests_and_equal_replicas,
    a_gradient_that_is_not_finite_ends_the_run_and_is_not_saved,
    devices_that_are_not_there_or_too_few_are_refused,
    f16_trains_under_a_loss_scale_and_leaves_out_what_overflows,
    kernels_are_kept_and_starts_that_use_them_have_the_same_bits,
    a_rank_under_a_launcher_keeps_its_kernels_too,
);
