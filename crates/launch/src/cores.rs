//! The number of workers per node and of threads per worker.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base::error::{Error, Result};
use spec::{Syntax, syntax};

/// The number of workers on a node, in the syntax of torchrun's `--nproc-per-node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nproc {
    /// This many, at least 1.
    Count(usize),
    /// One per device, or a single one without a device: the default.
    Devices,
    /// One per device, or one per core without a device (torchrun's rule).
    Auto,
    /// One per device.
    Gpu,
    /// One per core.
    Cpu,
}

/// A larger number is taken for a typing error.
const MAX_NPROC: usize = 4096;

impl FromStr for Nproc {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "devices" => Ok(Nproc::Devices),
            "auto" => Ok(Nproc::Auto),
            "gpu" => Ok(Nproc::Gpu),
            "cpu" => Ok(Nproc::Cpu),
            _ => match text.parse() {
                Ok(n) if (1..=MAX_NPROC).contains(&n) => Ok(Nproc::Count(n)),
                _ => {
                    Err(format!("expected a number from 1 to {MAX_NPROC}, `devices`, `auto`, `gpu` or `cpu`"))
                }
            },
        }
    }
}

impl Syntax for Nproc {
    const EXPECTED: &'static str = "a number from 1 to 4096, \"devices\", \"auto\", \"gpu\" or \"cpu\"";
    const TYPES: &'static [&'static str] = &["integer", "string"];
    const WORDS: &'static [&'static str] = &["devices", "auto", "gpu", "cpu"];
    const LEAST: Option<u32> = Some(1);

    fn read(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::Integer(i) => i.to_string().parse().ok(),
            toml::Value::String(s) if !s.starts_with(|c: char| c.is_ascii_digit()) => s.parse().ok(),
            _ => None,
        }
    }

    fn write(&self) -> toml::Value {
        let word = match self {
            Nproc::Count(n) => return toml::Value::Integer(*n as i64),
            Nproc::Devices => "devices",
            Nproc::Auto => "auto",
            Nproc::Gpu => "gpu",
            Nproc::Cpu => "cpu",
        };
        word.into()
    }
}

syntax!(Nproc);

/// The form that `[launch] nproc_per_node` accepts.
impl fmt::Display for Nproc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write().fmt(f)
    }
}

impl Nproc {
    /// The number of workers on a node with `cores` usable cores. `devices` counts the devices; it is called only
    /// where the number matters.
    ///
    /// Errors: `gpu` without a device (exit 69).
    pub fn resolve(self, cores: usize, devices: impl FnOnce() -> usize) -> Result<usize> {
        let devices = if matches!(self, Nproc::Count(_) | Nproc::Cpu) { 0 } else { devices() };
        match self {
            Nproc::Count(n) => Ok(n),
            Nproc::Cpu => Ok(cores.max(1)),
            Nproc::Devices => Ok(devices.max(1)),
            Nproc::Auto => Ok(if devices > 0 { devices } else { cores.max(1) }),
            Nproc::Gpu if devices > 0 => Ok(devices),
            Nproc::Gpu => {
                Err(Error::unavailable("`gpu` starts one process per device, but this machine has no device")
                    .hint("`--nproc-per-node cpu` starts one process per core"))
            }
        }
    }
}

/// The number of cores that this process may use: those of its affinity mask (`sched_getaffinity`, which includes
/// `taskset` and Slurm's binding), or the cgroup's CPU quota if that is lower.
pub fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Threads for each of `workers` processes that share `cores`.
pub fn threads_per_worker(cores: usize, workers: usize) -> usize {
    (cores / workers.max(1)).max(1)
}

/// Environment variables that limit the common thread pools to `threads`; variables that the user has set (`get`) are
/// left alone.
pub(crate) fn thread_variables(
    threads: usize,
    get: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<&'static str, String> {
    let names = ["RAYON_NUM_THREADS", "OMP_NUM_THREADS"];
    names.into_iter().filter(|name| get(name).is_none()).map(|name| (name, threads.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    #[test]
    fn nproc_is_read_and_resolved() {
        assert_eq!("4".parse(), Ok(Nproc::Count(4)));
        assert_eq!("auto".parse(), Ok(Nproc::Auto));
        for wrong in ["0", "-1", "4097", "many", ""] {
            assert!(wrong.parse::<Nproc>().is_err(), "{wrong}");
        }
        assert_eq!(Nproc::Auto.resolve(8, || 2).expect("fine"), 2);
        assert_eq!(Nproc::Auto.resolve(8, || 0).expect("fine"), 8);
        assert_eq!(Nproc::Cpu.resolve(8, || 2).expect("fine"), 8);
        assert_eq!(Nproc::Count(3).resolve(8, || 2).expect("fine"), 3);
        assert_eq!(Nproc::Gpu.resolve(8, || 0).expect_err("none").kind, ErrorKind::Unavailable);
    }

    #[test]
    fn threads_are_divided_and_user_variables_are_kept() {
        assert_eq!(threads_per_worker(8, 3), 2);
        assert_eq!(threads_per_worker(2, 4), 1);
        let set = thread_variables(3, &|name| (name == "OMP_NUM_THREADS").then(|| "7".into()));
        assert_eq!(set, BTreeMap::from([("RAYON_NUM_THREADS", "3".to_string())]));
        assert!(usable_cores() >= 1);
    }
}
