//! The machine of a measurement, and reasons for unreliable results.

use base::display::count;
use base::error::{Error, Result};
use record::{Host, memory_of, rfc3339};
use serde::Serialize;
use std::time::SystemTime;

/// From this load on, other programs are running.
const BUSY: f64 = 0.5;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    pub ddp_run: &'static str,
    /// RFC 3339, UTC.
    pub started: String,
    #[serde(flatten)]
    pub host: Host,
    /// Load of the last minute at the start of the measurement; `None` if unknown.
    pub load_average: Option<f64>,
    pub optimized: bool,
}

impl Machine {
    pub fn here() -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        Self {
            ddp_run: env!("CARGO_PKG_VERSION"),
            started: rfc3339(SystemTime::now()),
            host: Host::here(),
            load_average: load.and_then(|l| l.split(' ').next()?.parse().ok()),
            optimized: job::versions::OPTIMIZED,
        }
    }

    /// CPU, cores, load and system in one line.
    pub fn facts(&self) -> String {
        let load = self.load_average.map(|l| format!(" · load {l:.2}")).unwrap_or_default();
        let cores = count(self.host.cores, "core");
        format!("{} · {cores}{load} · {} {}", self.host.cpu, self.host.kernel, self.host.arch)
    }

    /// Why the results of a measurement with `count` busy `threads` ("processes", "compute threads") may be unreliable.
    pub fn warnings(&self, count: usize, threads: &str) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(load) = self.load_average.filter(|l| *l >= BUSY) {
            out.push(format!("the load average is {load:.2}: other processes affect the measurement"));
        }
        if count > self.host.cores {
            let cores = self.host.cores;
            out.push(format!(
                "{count} {threads} share {cores} cores: ranks wait for the scheduler, and times vary"
            ));
        }
        if !self.optimized {
            out.push("this is a debug build: measure with `cargo build --release`".into());
        }
        out
    }
}

/// Rejects a measurement that would exceed the memory: `each` bytes, and the same for work, in `world` processes.
pub fn check_memory(world: usize, each: usize) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    enough_memory(&text, world, each)
}

fn enough_memory(meminfo: &str, world: usize, each: usize) -> Result<()> {
    let Some(free) = memory_of(meminfo, "MemAvailable") else { return Ok(()) };
    let need = world as u64 * each as u64 * 2;
    if need <= free {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let what = format!(
        "--sizes: the largest needs {:.1} GiB of memory in {world} processes; {:.1} GiB are available",
        gib(need),
        gib(free)
    );
    Err(Error::usage(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_a_busy_machine_and_too_few_cores() {
        let here = Machine::here();
        assert!(here.host.cores >= 1 && here.facts().contains(&here.host.cpu));
        let with = |load_average, cores| {
            let host = Host { cores, ..here.host.clone() };
            Machine { load_average, host, optimized: true, ..here.clone() }.warnings(2, "processes")
        };
        assert_eq!(with(Some(0.1), 2), [""; 0]);
        assert_eq!(with(None, 2), [""; 0]);
        assert!(with(Some(1.7), 2)[0].contains("1.70"));
        assert!(with(Some(0.1), 1)[0].contains("2 processes share 1 cores"));
        assert!(
            Machine { optimized: false, ..here }
                .warnings(1, "processes")
                .last()
                .unwrap()
                .contains("debug build")
        );
    }

    #[test]
    fn rejects_sizes_above_the_available_memory() {
        let text = "MemTotal:       9999 kB\nMemAvailable:    4096 kB\n";
        assert!(enough_memory(text, 2, 1 << 20).is_ok());
        let error = enough_memory(text, 3, 1 << 20).unwrap_err();
        assert!(error.message.contains("3 processes"), "{error}");
        assert!(enough_memory("", 64, 1 << 40).is_ok());
    }
}
