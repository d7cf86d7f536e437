//! What compiles and loads kernels: the driver, NVRTC and the CUDA headers. CubeCL uses them unchecked: if they do not
//! fit together, it panics in the first steps, or fails with the source of a kernel. They are checked here first.

#![allow(unsafe_code)]

use collectives::nccl;
use cubecl::cuda::install;
use cudarc::driver::sys as driver_sys;
use cudarc::nvrtc::{result::NvrtcError, sys as nvrtc_sys};
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// A version of CUDA. The driver, NVRTC and the headers each have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: i32,
    minor: i32,
}

impl Version {
    /// The version that CUDA writes as a number: `12080` is 12.8.
    const fn from_number(number: i32) -> Self {
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest driver that has `cuEventElapsedTime_v2`. CubeCL's tuner measures kernels with it if `cudarc` was built for
/// CUDA 13 or later, and `cudarc` panics if a function is missing.
const OLDEST_DRIVER: Version = Version::from_number(12_080);

/// Headers that kernels include, each with the parts of CUDA 13 and of CUDA 12 that contain it. Kernels for tensor cores
/// include `mma.h`, which includes `crt/mma.h`; asynchronous copies include headers of CCCL, which include `nv/target`.
const HEADERS: [(&str, &str, &str); 4] = [
    ("cuda_fp16.h", "runtime", "runtime"),
    ("mma.h", "runtime", "runtime"),
    ("crt/mma.h", "crt", "nvcc"),
    ("nv/target", "cccl", "cccl"),
];

/// The driver and NVRTC of this machine, with which the headers have been found.
#[derive(Debug)]
pub(super) struct Toolkit {
    driver: Version,
    nvrtc: Version,
    /// Compute capabilities that NVRTC compiles for; 90 is 9.0.
    capabilities: Vec<i32>,
}

impl Toolkit {
    /// The versions that compiled kernels depend on: NVRTC writes PTX of its own version, and a driver refuses PTX that
    /// is newer than itself.
    pub(super) fn versions(&self) -> String {
        format!("nvrtc {} driver {}", self.nvrtc, self.driver)
    }

    /// Checks that NVRTC compiles for cards of this compute capability.
    pub(super) fn check_capability(&self, capability: i32) -> Result<(), String> {
        let Some(first) = self.capabilities.iter().min() else { return Ok(()) };
        if self.capabilities.contains(&capability) {
            return Ok(());
        }
        let text = |capability: &i32| format!("{}.{}", capability / 10, capability % 10);
        let remedy = if capability < *first {
            format!("an earlier NVRTC (PyPI: {})", package("nvrtc", self.nvrtc.major - 1))
        } else {
            "a later NVRTC, and a driver that is not older than it".to_owned()
        };
        Err(format!(
            "NVRTC {} does not compile for the card's compute capability, {}, only for {}; install {remedy}",
            self.nvrtc,
            text(&capability),
            self.capabilities.iter().map(text).collect::<Vec<_>>().join(", "),
        ))
    }
}

/// The toolkit, or what is missing or does not fit. Must be called before anything else of `cudarc`, which panics if a
/// library is missing, and of CubeCL, which panics if the headers are.
pub(super) fn present() -> Result<&'static Toolkit, String> {
    static FOUND: OnceLock<Result<Toolkit, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map_err(String::clone)
}

fn find() -> Result<Toolkit, String> {
    nccl::driver()?;
    let mut number = 0;
    // SAFETY: the driver is loaded, and the pointer is valid.
    unsafe { driver_sys::cuDriverGetVersion(&mut number) }
        .result()
        .map_err(|e| format!("the CUDA driver does not report its version: {e}"))?;
    let driver = Version::from_number(number);
    check_driver(driver, driver_sys::CUDA_VERSION)?;
    // SAFETY: opens and closes libnvrtc, which runs only its own code to load and unload.
    if !unsafe { nvrtc_sys::is_culib_present() } {
        return Err(no_nvrtc(driver));
    }
    let nvrtc = nvrtc_version().map_err(|e| format!("NVRTC does not report its version: {e}"))?;
    check_nvrtc(nvrtc, driver)?;
    let folder = install::cuda_path().ok_or_else(|| no_headers(nvrtc))?;
    check_headers(&folder.join("include"), nvrtc)?;
    let capabilities = capabilities()
        .map_err(|e| format!("NVRTC {nvrtc} does not report the cards that it compiles for: {e}"))?;
    Ok(Toolkit { driver, nvrtc, capabilities })
}

fn nvrtc_version() -> Result<Version, NvrtcError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVRTC is present, and the pointers are valid.
    unsafe { nvrtc_sys::nvrtcVersion(&mut major, &mut minor) }.result()?;
    Ok(Version { major, minor })
}

fn capabilities() -> Result<Vec<i32>, NvrtcError> {
    let mut count = 0;
    // SAFETY: NVRTC is present, and the pointer is valid.
    unsafe { nvrtc_sys::nvrtcGetNumSupportedArchs(&mut count) }.result()?;
    let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: NVRTC writes as many as it has just counted.
    unsafe { nvrtc_sys::nvrtcGetSupportedArchs(all.as_mut_ptr()) }.result()?;
    Ok(all)
}

/// Checks that the driver has the functions that are called in a program built for CUDA `built_for`.
fn check_driver(driver: Version, built_for: u32) -> Result<(), String> {
    if built_for < 13_000 || driver >= OLDEST_DRIVER {
        return Ok(());
    }
    Err(format!(
        "the CUDA driver is too old: it supports CUDA {driver}, and this program needs {OLDEST_DRIVER}; \
         install NVIDIA's driver 570 or later"
    ))
}

/// Checks that the driver can load what NVRTC writes. Since 12.8, each version of CUDA has a version of PTX of its own,
/// and a driver loads none that is newer than itself.
fn check_nvrtc(nvrtc: Version, driver: Version) -> Result<(), String> {
    if nvrtc <= driver {
        return Ok(());
    }
    Err(format!(
        "the CUDA driver cannot load kernels that NVRTC {nvrtc} compiles: it supports CUDA {driver}; install \
         NVRTC {driver} (PyPI: `{}=={driver}.*`), or a driver for CUDA {nvrtc}",
        package("nvrtc", driver.major)
    ))
}

/// Checks that the folder `include` has the headers that kernels include, and warns if they are of another major
/// version. Such headers may do: NVRTC 13.5 compiles with those of 12.8, but NVRTC 12.8 not with all of 13.5.
fn check_headers(include: &Path, nvrtc: Version) -> Result<(), String> {
    let missing = missing_headers(include, nvrtc.major);
    if !missing.is_empty() {
        return Err(format!(
            "the CUDA headers in {} are incomplete: {}; install what is missing for CUDA {nvrtc}, or set \
             CUDA_PATH to a folder whose `include` has it",
            include.display(),
            missing.join(", ")
        ));
    }
    let text = fs::read(include.join("cuda_runtime_api.h")).unwrap_or_default();
    if let Some(headers) = header_version(&String::from_utf8_lossy(&text))
        && headers.major != nvrtc.major
    {
        tracing::warn!(
            "the CUDA headers in {} are of CUDA {headers}, but NVRTC is {nvrtc}; if kernels do not compile, \
             install the headers of CUDA {nvrtc}",
            include.display()
        );
    }
    Ok(())
}

/// The headers that are missing, each with the package that contains it. CubeCL adds `include/cccl` to the search path.
fn missing_headers(include: &Path, major: i32) -> Vec<String> {
    let is_missing = |name: &str| !include.join(name).exists() && !include.join("cccl").join(name).exists();
    HEADERS
        .iter()
        .filter(|(name, ..)| is_missing(name))
        .map(|(name, of_13, of_12)| {
            let part = if major >= 13 { of_13 } else { of_12 };
            format!("no {name} (PyPI: {})", package(part, major))
        })
        .collect()
}

/// The version in the text of `cuda_runtime_api.h`.
fn header_version(text: &str) -> Option<Version> {
    let number = text.lines().find_map(|line| line.trim().strip_prefix("#define CUDART_VERSION"))?;
    number.trim().parse().ok().map(Version::from_number)
}

fn no_nvrtc(driver: Version) -> String {
    format!(
        "the CUDA runtime compiler was not found (no libnvrtc.so); install it for CUDA {driver} or earlier, \
         with the CUDA toolkit or from PyPI (`{}=={driver}.*`), and add its folder to LD_LIBRARY_PATH",
        package("nvrtc", driver.major)
    )
}

fn no_headers(nvrtc: Version) -> String {
    let packages: Vec<String> = ["runtime", if nvrtc.major >= 13 { "crt" } else { "nvcc" }, "cccl"]
        .iter()
        .map(|part| package(part, nvrtc.major))
        .collect();
    format!(
        "the CUDA headers were not found (no /usr/local/cuda); set CUDA_PATH to the folder that contains \
         `include`, or install {} of PyPI for CUDA {nvrtc} and set it to theirs",
        packages.join(", ")
    )
}

/// PyPI's name for a part of CUDA. Those for CUDA 12 and earlier have a suffix.
fn package(part: &str, major: i32) -> String {
    if major >= 13 { format!("nvidia-cuda-{part}") } else { format!("nvidia-cuda-{part}-cu{major}") }
}

#[cfg(test)]
#[path = "toolkit_tests.rs"]
mod tests;
