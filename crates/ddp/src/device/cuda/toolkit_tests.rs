//! Machines with parts of CUDA that do not fit together: the driver of `tests/fake_cuda` and an NVRTC, which report the
//! versions of the environment, in a child process.

use super::*;
use crate::device::Precision;
use crate::device::nccl_tests::launch::{CUDA, compile};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// An NVRTC that compiles for four compute capabilities.
const NVRTC: &str = r#"
#include <stdlib.h>
int nvrtcVersion(int *major, int *minor) {
    int number = atoi(getenv("FAKE_NVRTC"));
    *major = number / 1000;
    *minor = number % 1000 / 10;
    return 0;
}
int nvrtcGetNumSupportedArchs(int *count) { *count = 4; return 0; }
int nvrtcGetSupportedArchs(int *archs) {
    const int all[] = {75, 80, 90, 120};
    for (int i = 0; i < 4; i++) archs[i] = all[i];
    return 0;
}
"#;

const SAID: &str = "DDP_RUN_TOOLKIT_SAID";

/// A machine with a driver, an NVRTC and headers; versions are in CUDA's numbers.
struct Machine {
    folder: TempDir,
    driver: &'static str,
    nvrtc: &'static str,
    capability: &'static str,
}

impl Machine {
    /// One on which everything fits. If there is no C compiler, prints that and returns None.
    fn complete() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a scratch folder");
        // The names that `cudarc` looks for first.
        let made = compile(folder.path(), "libcuda.so", CUDA, &[])
            .and_then(|()| compile(folder.path(), "libnvrtc.so", NVRTC, &[]));
        if let Err(why) = made {
            eprintln!("skipped: {why}");
            return None;
        }
        write_headers(folder.path(), 13_050);
        Some(Self { folder, driver: "13050", nvrtc: "13050", capability: "90" })
    }

    fn include(&self) -> PathBuf {
        self.folder.path().join("include")
    }

    /// What a process on this machine reports of its device.
    fn says(&self) -> String {
        let said = self.folder.path().join("said");
        let _ = fs::remove_file(&said);
        let (_, here) = module_path!().split_once("::").expect("the crate, then the module");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--ignored", "--exact", &format!("{here}::process"), "--nocapture"]);
        command.env("LD_LIBRARY_PATH", self.folder.path()).env("CUDA_PATH", self.folder.path());
        command.env("FAKE_CUDA_NAME", "Card 0").env("FAKE_CUDA_DRIVER", self.driver);
        command.env("FAKE_CUDA_SM", self.capability).env("FAKE_NVRTC", self.nvrtc).env(SAID, &said);
        let done = command.output().expect("this program starts");
        fs::read_to_string(&said).unwrap_or_else(|_| {
            let output = [done.stdout, done.stderr].concat();
            panic!("{}: {}", done.status, String::from_utf8_lossy(&output))
        })
    }
}

/// Writes empty headers below `folder`, of the version that is `number`.
fn write_headers(folder: &Path, number: i32) {
    let include = folder.join("include");
    for (name, ..) in HEADERS {
        // As in PyPI's packages.
        let path = if name == "nv/target" { include.join("cccl").join(name) } else { include.join(name) };
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder is writable");
        fs::write(path, "").expect("the folder is writable");
    }
    let text = format!("#define CUDART_VERSION  {number}\n");
    fs::write(include.join("cuda_runtime_api.h"), text).expect("the folder is writable");
}

/// The process of [`Machine::says`].
#[test]
#[ignore = "started by the tests beside it"]
fn process() {
    let Some(said) = std::env::var_os(SAID) else { return };
    let found = super::super::names().and_then(|names| {
        let toolkit = present()?;
        let capability = super::super::capability(0)?;
        if toolkit.check_capability(capability).is_err() {
            let refused = super::super::open(0, Precision::F32).expect_err("NVRTC does not compile for it");
            return Err(refused.message);
        }
        Ok(format!("{}: {}", names.join(", "), super::super::card(0)))
    });
    fs::write(said, found.unwrap_or_else(|why| why)).expect("the folder is writable");
}

#[test]
fn kernels_are_kept_by_the_versions_of_nvrtc_and_the_driver() {
    let Some(mut machine) = Machine::complete() else { return };
    assert_eq!(machine.says(), "Card 0: Card 0 sm90 nvrtc 13.5 driver 13.5");
    machine.nvrtc = "12080";
    machine.capability = "120";
    assert_eq!(machine.says(), "Card 0: Card 0 sm120 nvrtc 12.8 driver 13.5");
}

#[test]
fn an_old_driver_is_refused() {
    let Some(mut machine) = Machine::complete() else { return };
    machine.driver = "12040";
    machine.nvrtc = "12040";
    let why = machine.says();
    // `cudarc` built for CUDA 12 does not call what such a driver lacks.
    if driver_sys::CUDA_VERSION >= 13_000 {
        assert!(why.starts_with("the CUDA driver is too old: it supports CUDA 12.4"), "{why}");
    }
}

#[test]
fn an_nvrtc_newer_than_the_driver_is_refused() {
    let Some(mut machine) = Machine::complete() else { return };
    machine.driver = "12080";
    let why = machine.says();
    assert!(why.contains("NVRTC 13.5") && why.contains("`nvidia-cuda-nvrtc-cu12==12.8.*`"), "{why}");
}

#[test]
fn missing_headers_are_named_with_their_packages() {
    let Some(machine) = Machine::complete() else { return };
    fs::remove_dir_all(machine.include().join("crt")).expect("the folder is there");
    let why = machine.says();
    let expected = format!(
        "the CUDA headers in {} are incomplete: no crt/mma.h (PyPI: nvidia-cuda-crt); ",
        machine.include().display()
    );
    assert!(why.starts_with(&expected), "{why}");
    fs::remove_dir_all(machine.include()).expect("the folder is there");
    let why = machine.says();
    assert!(HEADERS.iter().all(|(name, ..)| why.contains(name)), "{why}");
}

#[test]
fn a_card_that_nvrtc_does_not_compile_for_is_refused() {
    let Some(mut machine) = Machine::complete() else { return };
    machine.capability = "70";
    let why = machine.says();
    assert!(why.starts_with("device `cuda:0`: NVRTC 13.5 does not compile"), "{why}");
}

#[test]
fn cudas_numbers_are_versions() {
    let text = |number| Version::from_number(number).to_string();
    assert_eq!([text(12_080), text(13_050), text(11_080)], ["12.8", "13.5", "11.8"]);
    assert!(Version::from_number(12_090) < Version::from_number(13_000));
}

#[test]
fn a_driver_must_have_the_functions_of_the_build_and_load_nvrtcs_code() {
    let version = Version::from_number;
    assert!(check_driver(version(12_080), 13_040).is_ok());
    assert!(check_driver(version(12_040), 12_080).is_ok());
    let old = check_driver(version(12_060), 13_040).unwrap_err();
    assert!(old.contains("CUDA 12.6") && old.contains("needs 12.8") && old.contains("570"), "{old}");
    assert!(check_nvrtc(version(12_080), version(13_000)).is_ok());
    assert!(check_nvrtc(version(13_000), version(13_000)).is_ok());
    let newer = check_nvrtc(version(13_050), version(13_000)).unwrap_err();
    assert!(newer.contains("`nvidia-cuda-nvrtc==13.0.*`") && newer.contains("for CUDA 13.5"), "{newer}");
}

#[test]
fn headers_may_be_in_cccl_and_packages_have_the_names_of_their_version() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    write_headers(folder.path(), 12_080);
    let include = folder.path().join("include");
    assert_eq!(missing_headers(&include, 13), [""; 0]);
    // Headers of another version are warned of, not refused.
    assert_eq!(check_headers(&include, Version::from_number(13_050)), Ok(()));
    fs::remove_dir_all(include.join("crt")).expect("the folder is there");
    fs::remove_dir_all(include.join("cccl")).expect("the folder is there");
    assert_eq!(
        missing_headers(&include, 13),
        ["no crt/mma.h (PyPI: nvidia-cuda-crt)", "no nv/target (PyPI: nvidia-cuda-cccl)"]
    );
    assert_eq!(
        missing_headers(&include, 12),
        ["no crt/mma.h (PyPI: nvidia-cuda-nvcc-cu12)", "no nv/target (PyPI: nvidia-cuda-cccl-cu12)"]
    );
}

#[test]
fn the_version_of_headers_is_read() {
    let text = "/** version */\n#define CUDART_VERSION  13050\n#define __CUDART_API_VERSION CUDART_VERSION\n";
    assert_eq!(header_version(text), Some(Version::from_number(13_050)));
    assert_eq!(header_version("#define CUDART_VERSION x\n"), None);
    assert_eq!(header_version(""), None);
}

#[test]
fn a_card_below_or_above_nvrtcs_range_gets_the_matching_advice() {
    let toolkit = |number| Toolkit {
        driver: Version::from_number(13_050),
        nvrtc: Version::from_number(number),
        capabilities: vec![75, 80, 121],
    };
    assert_eq!(toolkit(13_050).check_capability(80), Ok(()));
    let below = toolkit(13_050).check_capability(70).unwrap_err();
    assert!(below.contains("capability, 7.0, only for 7.5, 8.0, 12.1; install an earlier NVRTC"), "{below}");
    assert!(below.ends_with("(PyPI: nvidia-cuda-nvrtc-cu12)"), "{below}");
    let above = toolkit(12_080).check_capability(130).unwrap_err();
    assert!(
        above.contains("NVRTC 12.8") && above.contains("13.0, only") && above.contains("a later"),
        "{above}"
    );
}
