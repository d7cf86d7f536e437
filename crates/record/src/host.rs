//! The machine of this process.

use serde::{Deserialize, Serialize};
use std::fs::read_to_string;

/// The machine that a process runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The host name.
    pub name: String,
    /// As `os-release` names it.
    pub os: String,
    /// The kernel's name and release.
    pub kernel: String,
    /// The processor architecture, such as `x86_64`.
    pub arch: String,
    /// The processor's model.
    pub cpu: String,
    /// Cores available to this process.
    pub cores: usize,
}

impl Host {
    /// This machine.
    pub fn here() -> Self {
        let system = rustix::system::uname();
        Self {
            name: host_name(),
            os: os_name(),
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            arch: system.machine().to_string_lossy().into_owned(),
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn os_name() -> String {
    let text = read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    pretty.map_or_else(|| std::env::consts::OS.to_owned(), |name| name.trim_matches('"').to_owned())
}

fn cpu_model() -> String {
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Bytes of the line `key: 123 kB` in the text of `/proc/meminfo` or `/proc/self/status`.
pub fn memory_of(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
