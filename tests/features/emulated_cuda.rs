//! CUDA cards without a GPU: a driver, an NVRTC and an NCCL of the tests' own (`tests/fake_cuda`), which compile CubeCL's
//! kernels by the system's C++ compiler and execute them on the CPU. The tests here are about CUDA alone; `device` and
//! `golden` use the cards too.

use crate::common::*;
use crate::device::{self, Machine, RACES, assert_no_race, killed_after_a_save, largest_gap, losses};
use burn::tensor::Tensor;
use ddp_run::testing::{ComputeDevice, Precision, Readback, cuda_devices};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_cuda");

/// The headers that are looked for. The tests' NVRTC has its own.
const HEADERS: [&str; 4] = ["cuda_fp16.h", "mma.h", "crt/mma.h", "nv/target"];

/// The folder with the libraries, for the whole test run.
fn made() -> Option<&'static Path> {
    static MADE: OnceLock<Option<TempDir>> = OnceLock::new();
    MADE.get_or_init(|| make().inspect_err(|why| println!("skipped: {why}")).ok()).as_ref().map(TempDir::path)
}

fn make() -> Result<TempDir, String> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let compile = |name: &str, sources: &[&str], options: &[&str]| {
        let mut command = Command::new("cc");
        command.args(["-O1", "-shared", "-fPIC", "-pthread", "-o", name, &format!("-Wl,-soname,{name}")]);
        command.args(sources.iter().map(|source| format!("{SOURCES}/{source}"))).args(options);
        let done = command.current_dir(&folder).output();
        let done = done.map_err(|e| format!("no C compiler to make {name} with: cc: {e}"))?;
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        Ok::<_, String>(())
    };
    Command::new("g++")
        .arg("--version")
        .output()
        .map_err(|e| format!("no C++ compiler for kernels: g++: {e}"))?;
    compile("libcuda.so.1", &["cuda.c"], &[])?;
    compile("libnvrtc.so", &["nvrtc.c", "fibers.c"], &[])?;
    compile("libnccl.so.2", &["nccl.c"], &["-L.", "-l:libcuda.so.1", "-lm"])?;
    for name in ["device.h", "fibers.h"] {
        fs::copy(Path::new(SOURCES).join(name), folder.path().join(name)).expect("a source of the tests");
    }
    write_headers(folder.path());
    // CubeCL reads it in the folder where a program starts. A candidate runs once: which one is fastest says nothing here.
    fs::write(folder.path().join("cubecl.toml"), "[autotune.bench]\nmin_samples = 1\nmax_samples = 1\n")
        .expect("the folder is writable");
    fs::create_dir(folder.path().join("nccl")).expect("the folder is writable");
    Ok(folder)
}

fn write_headers(folder: &Path) {
    for name in HEADERS {
        let path = folder.join("include").join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder is writable");
        fs::write(path, "").expect("the folder is writable");
    }
}

/// The folder where a process has to start that finds one card, without tensor cores, and its environment. If there is no
/// C++ compiler, prints so and returns None.
pub fn environment() -> Option<(&'static Path, Vec<(&'static str, OsString)>)> {
    let folder = made()?;
    // Kernels are compiled once for all runs of the tests, by the hash of their source, of the header and of the compiler.
    let kernels = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake_cuda");
    fs::create_dir_all(&kernels).expect("the folder is writable");
    let variables = vec![
        ("LD_LIBRARY_PATH", folder.into()),
        ("CUDA_PATH", folder.into()),
        ("FAKE_CUDA_SM", "75".into()),
        ("FAKE_CUDA_NAME", "NVIDIA GeForce GTX 1660 of the tests".into()),
        ("FAKE_CUDA_SMS", "1".into()),
        ("FAKE_CUDA_MEMORY", "2147483648".into()),
        ("FAKE_CUDA_DRIVER", "12080".into()),
        ("FAKE_CUDA_CACHE", kernels.into()),
        ("FAKE_NCCL_DIR", folder.join("nccl").into()),
        // Without it, CubeCL first measures what the card can do, at sizes for a card.
        ("CUBECL_AUTOTUNE_LEVEL", "full".into()),
        ("FAKE_CUDA_RACES", folder.join(RACES).into()),
    ];
    Some((folder, variables))
}

/// A machine with two cards, and runs there.
struct Runs {
    dir: TempDir,
    spec: PathBuf,
    on: Machine,
}

impl Runs {
    fn new(ranks: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Self { spec: device::spec(dir.path(), ranks), dir, on: Machine::with_cuda()? };
        runs.set("FAKE_CUDA_DEVICES", "2");
        runs.set("DDP_RUN_KERNEL_CACHE", runs.out("kernels"));
        Some(runs)
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.on.variables.push((name, value.into()));
    }

    fn out(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    fn train(&self, name: &str, flags: &[&str]) -> Output {
        self.on.train(&self.spec, &self.out(name), flags)
    }

    fn losses(&self, name: &str) -> Vec<f64> {
        losses(&self.out(name))
    }

    /// The calls of the driver and of NVRTC in a run.
    #[track_caller]
    fn calls(&self, name: &str, flags: &[&str]) -> String {
        let log = self.out(&format!("{name}-calls"));
        let mut command = self.on.train_command(&self.spec, &self.out(name), flags);
        assert_code(&output_of(command.env("FAKE_CUDA_LOG", &log)), 0);
        fs::read_to_string(&log).unwrap()
    }

    /// Kills a run and resumes it, and compares it with one that goes on. All kernels have been chosen by a run before.
    #[track_caller]
    fn resumes_in_the_same_bits(&self, flags: &[&str]) {
        killed_after_a_save(&self.on, &self.spec, &self.out("killed"), flags);
        for name in ["killed", "whole"] {
            assert_code(&self.train(name, flags), 0);
        }
        assert!(events(&self.out("killed")).iter().any(|e| e["event"] == "resume"), "it started over");
        assert_eq!(self.losses("killed"), self.losses("whole"));
        let model = |name| fs::read(newest_checkpoint(&self.out(name)).join("model.safetensors")).unwrap();
        assert!(model("killed") == model("whole"), "the parameters differ");
    }
}

#[test]
fn nccl_averages_the_gradients_of_two_cards_and_a_killed_run_goes_on() {
    let _alone = alone();
    let Some(runs) = Runs::new(2) else { return };
    let nccl = ["--device", "cuda", "--set", "backend=nccl"];
    assert_code(&runs.train("cpu", &["--device", "cpu"]), 0);
    assert_code(&runs.train("cuda", &nccl), 0);
    let gap = largest_gap(&runs.losses("cpu"), &runs.losses("cuda"));
    println!("two cards by NCCL: largest loss gap to the CPU {gap:.2e}");
    assert!(gap < 1e-5, "{gap:e}");

    runs.resumes_in_the_same_bits(&nccl);
}

/// What `tests/fake_cuda/races.h` finds where streams do not wait for events: in the tests above it finds nothing.
#[test]
fn work_that_nothing_orders_is_found() {
    let _alone = alone();
    let Some(mut runs) = Runs::new(2) else { return };
    let races = runs.out("races");
    runs.set("FAKE_CUDA_RACES", &races);
    runs.set("FAKE_CUDA_UNORDERED", "1");
    let failed = runs.train("unordered", &["--device", "cuda", "--set", "backend=nccl"]);
    assert_ne!(failed.status.code(), Some(0));
    let found = fs::read_to_string(&races).unwrap_or_default();
    assert!(found.contains("race at ") && found.contains("an all-reduce"), "{found}{}", stderr(&failed));
}

/// Runs an ignored test of this program, `name`, as a process that finds an emulated card.
#[track_caller]
pub fn on_a_card(name: &str, variables: &[(&str, OsString)]) {
    let Some((folder, card)) = environment() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", name, "--nocapture"]).current_dir(folder);
    let output = command.envs(card).envs(variables.iter().cloned()).env("ON_A_CARD", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
    assert_no_race(folder);
}

#[test]
#[ignore = "started by the test below"]
fn reads_a_sum_that_grows_in_place() {
    if std::env::var_os("ON_A_CARD").is_none() {
        return;
    }
    let device = ComputeDevice::Cuda(0).open(Precision::F32).unwrap();
    let ones = || Tensor::<1>::from_floats([1.0; 64], &device);
    let mut sum = ones() + ones();
    device.sync().unwrap();
    for i in 0..3_u8 {
        // A value of its own, which is read after all that has been queued.
        assert_eq!(Readback::start(ones() * 5.0).unwrap().wait().unwrap(), [5.0; 64]);
        sum = sum + 1.0;
        assert_eq!(Readback::start(sum.clone()).unwrap().wait().unwrap(), [f32::from(i) + 3.0; 64]);
    }
}

/// CubeCL makes a stream wait for another one by when a buffer was allocated there, not by when it was last written: a
/// gradient that is added to in place, as with `accumulate`, could be read on a stream of its own before it was complete.
#[test]
fn what_changes_in_place_is_read_after_the_change() {
    let _alone = alone();
    on_a_card("emulated_cuda::reads_a_sum_that_grows_in_place", &[]);
}

/// 24 steps on images.
fn spec_of_images(dir: &Path, ranks: usize, model: &str) -> PathBuf {
    let batch = 8 / ranks;
    let text = format!(
        "name = \"images\"\nseed = 3\nepochs = 2\nbatch_size = {batch}\nsave_every = \"5 steps\"\n\
         [model]\n{model}\n\
         [dataset]\nname = \"shapes\"\ntrain = 96\nval = 8\nsize = 16\n\
         [optimizer]\nname = \"sgd\"\nlr = 0.05\nmomentum = 0.9\n\
         [metrics]\nlog_every = 1\n\
         [launch]\nnproc_per_node = {ranks}\nthreads = 1\nshare_devices = true\n"
    );
    write_spec(dir, &text)
}

/// What is computed of a process's first batch has the bits of any other.
#[test]
fn a_killed_run_on_images_ends_in_the_bits_of_one_that_went_on() {
    let _alone = alone();
    let Some(mut runs) = Runs::new(2) else { return };
    runs.spec = spec_of_images(runs.dir.path(), 2, "name = \"mlp\"\nhidden = [16]");
    let cuda = ["--device", "cuda"];
    assert_code(&runs.train("first", &cuda), 0);
    runs.resumes_in_the_same_bits(&cuda);
}

#[test]
fn a_cnn_computes_what_it_does_on_the_cpu() {
    let _alone = alone();
    let Some(mut runs) = Runs::new(1) else { return };
    runs.spec = spec_of_images(runs.dir.path(), 1, "name = \"cnn\"\nchannels = [4, 8]\nhidden = 16");
    for device in ["cpu", "cuda"] {
        assert_code(&runs.train(device, &["--device", device]), 0);
    }
    let gap = largest_gap(&runs.losses("cpu"), &runs.losses("cuda"));
    println!("cnn: largest loss gap to the CPU {gap:.2e}");
    assert!(gap < 1e-5, "{gap:e}");
}

/// What rounding leaves out of a gradient is kept on the card, and in checkpoints.
#[test]
fn communication_hooks_compute_what_they_do_on_the_cpu_and_resume_exactly() {
    let _alone = alone();
    for (backend, hook) in [("nccl", "bf16"), ("gloo", "f16")] {
        let Some(runs) = Runs::new(2) else { return };
        let [hook_flag, backend_flag] =
            [format!("distributed.comm_hook={hook}"), format!("backend={backend}")];
        let cuda = ["--device", "cuda", "--set", &hook_flag, "--set", &backend_flag];
        assert_code(&runs.train("cpu", &["--device", "cpu", "--set", &hook_flag]), 0);
        assert_code(&runs.train("plain", &["--device", "cpu"]), 0);
        assert_code(&runs.train("cuda", &cuda), 0);
        let gap = largest_gap(&runs.losses("cpu"), &runs.losses("cuda"));
        println!("{hook} by {backend}: largest loss gap to the CPU {gap:.2e}");
        assert!(gap < 1e-4, "{hook} by {backend}: {gap:e}");
        assert_ne!(runs.losses("cpu"), runs.losses("plain"), "{hook} did nothing");
        runs.resumes_in_the_same_bits(&cuda);
    }
}

/// A card whose tuner finds those kernels the fastest.
#[test]
fn kernels_for_tensor_cores_compute_what_the_cpu_does() {
    let _alone = alone();
    let Some(mut runs) = Runs::new(1) else { return };
    runs.set("FAKE_CUDA_SM", "80");
    runs.set("FAKE_CUDA_NAME", "NVIDIA A100 of the tests");
    runs.set("FAKE_CUDA_FAVOUR", "mma_sync");
    assert_code(&runs.train("cpu", &["--device", "cpu"]), 0);
    for (precision, allowed) in [("tf32", 0.01), ("bf16", 0.1)] {
        let precision_flag = format!("precision={precision}");
        let flags = ["--device", "cuda", "--set", &precision_flag];
        // The tuner's choice is kept.
        assert_code(&runs.train(&format!("{precision}-chooses"), &flags), 0);
        let calls = runs.calls(precision, &flags);
        let products: Vec<&str> = calls.lines().filter(|line| line.contains("matmul")).collect();
        let others = products.iter().filter(|line| line.ends_with(" slow")).count();
        let gap = largest_gap(&runs.losses("cpu"), &runs.losses(precision));
        println!(
            "{precision}: {} of {} products by tensor cores, largest loss gap to the CPU {gap:.2e}",
            products.len() - others,
            products.len()
        );
        assert!(gap < allowed, "{precision}: {gap:e}");
        assert!(others * 2 < products.len(), "{precision}: {others} of {}", products.len());
    }
}

/// Which kernels a run needs may depend on timing, such as whether a buffer is free to be written in place.
#[test]
fn a_second_start_compiles_no_kernel_again() {
    let _alone = alone();
    let Some(runs) = Runs::new(1) else { return };
    let compiled = |name: &str| {
        let calls = runs.calls(name, &["--device", "cuda"]);
        let sources = calls.lines().filter_map(|line| line.strip_prefix("nvrtcCompileProgram "));
        sources.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let (first, second) = (compiled("first"), compiled("second"));
    println!("compiled kernels: {}, then {}", first.len(), second.len());
    assert!(first.len() > 20, "{first:?}");
    assert_eq!(first.intersection(&second).count(), 0, "{second:?}");
}

#[test]
fn an_incomplete_toolkit_is_refused_and_auto_warns_of_it() {
    let _alone = alone();
    let Some(mut runs) = Runs::new(2) else { return };
    let toolkit = runs.out("toolkit");
    write_headers(&toolkit);
    fs::remove_file(toolkit.join("include/mma.h")).unwrap();
    runs.set("CUDA_PATH", &toolkit);
    let missing = "are incomplete: no mma.h (PyPI: nvidia-cuda-runtime-cu12)";
    let refused = runs.train("cuda", &["--device", "cuda"]);
    assert_code(&refused, 69);
    assert!(stderr(&refused).contains(missing), "{}", stderr(&refused));
    let warned = runs.train("auto", &["--device", "auto"]);
    assert_code(&warned, 0);
    let said = "warning: `device = \"auto\"` is the CPU here: the CUDA headers in ";
    let stderr = stderr(&warned);
    assert!(stderr.contains(said) && stderr.contains(missing), "{stderr}");
}

#[test]
fn a_machine_without_a_driver_is_refused_and_auto_is_the_cpu_without_a_word() {
    let _alone = alone();
    if cuda_devices().is_ok() {
        return println!("skipped: this machine has a CUDA device");
    }
    let dir = tempfile::tempdir().unwrap();
    let spec = device::spec(dir.path(), 2);
    let refused = train(&spec, &dir.path().join("cuda"), &["--device", "cuda"]);
    assert_code(&refused, 69);
    assert!(stderr(&refused).contains("device `cuda`: "), "{}", stderr(&refused));
    let auto = train(&spec, &dir.path().join("auto"), &["--device", "auto"]);
    assert_code(&auto, 0);
    assert!(!stderr(&auto).contains("warning"), "{}", stderr(&auto));
}

/// At whatever launch it fails, the message is one line, and nothing of CubeCL's own warnings is on the terminal.
#[test]
fn a_card_that_fails_ends_the_run_with_its_error() {
    let _alone = alone();
    let Some(mut runs) = Runs::new(2) else { return };
    for backend in ["backend=gloo", "backend=nccl"] {
        let flags = ["--device", "cuda", "--set", backend];
        // Then all kernels have been chosen, and a number names the same launch of a step in each run.
        assert_code(&runs.train(&format!("{backend}-whole"), &flags), 0);
        for launch in [50, 300, 317, 334] {
            let name = format!("{backend}-{launch}");
            runs.set("FAKE_CUDA_LOSE", format!("launch:{launch}"));
            let failed = runs.train(&name, &flags);
            runs.on.variables.pop();
            assert_code(&failed, 69);
            let said = stderr(&failed);
            let error = said.lines().find(|line| line.starts_with("error: rank ")).unwrap_or(&said);
            assert!(error.contains("719") || error.contains("LAUNCH_FAILED"), "{name}: {said}");
            assert!(!said.contains("WARN") && !said.contains("Caused by"), "{name}: {said}");
            assert!(step_events(&runs.out(&name)).len() < 24, "{name}");
        }
    }
}

#[test]
fn a_card_whose_memory_is_full_ends_the_run_with_advice() {
    let _alone = alone();
    let Some(mut runs) = Runs::new(2) else { return };
    runs.set("FAKE_CUDA_MEMORY", "1000000");
    let failed = runs.train("full", &["--device", "cuda"]);
    assert_code(&failed, 69);
    let said = stderr(&failed);
    assert!(said.contains("the device failed: out of device memory allocating "), "{said}");
    assert!(said.contains("`batch_size`") && !said.contains("WARN"), "{said}");
}

/// NCCL itself waits for ever for a rank that has stopped.
#[test]
fn a_stopped_rank_ends_a_run_by_nccl_at_the_deadline() {
    let _alone = alone();
    let Some(runs) = Runs::new(2) else { return };
    let nccl = ["--device", "cuda", "--set", "backend=nccl"];
    // Kernels are compiled and chosen before a deadline counts.
    assert_code(&runs.train("whole", &nccl), 0);
    let flags = [&nccl[..], &["--set", "distributed.timeout=30"]].concat();
    let mut command = runs.on.train_command(&runs.spec, &runs.out("stopped"), &flags);
    let failed = output_of(command.env("DDP_RUN_FAULT", "stop:rank=1,phase=all_reduce,step=3"));
    assert_code(&failed, 91);
    assert!(stderr(&failed).contains("error: rank 1 of 2 "), "{}", stderr(&failed));
    #[cfg(target_os = "linux")]
    assert!(processes(&runs.out("stopped")).is_empty(), "a worker is left");
}
