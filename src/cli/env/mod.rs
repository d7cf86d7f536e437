//! `ddp-run env`: what this build and this machine provide, what started this process, and why something is missing.

mod backends;
mod programs;

use backends::Status;
use base::error::{Error, Result};
use job::plan::show_bytes;
use job::registry::{Registry, by_name};
use launch::clusters::{self, Launcher, Origin};
use launch::cores::usable_cores;
use launch::memory;
use programs::Program;
use record::Host;
use record::provenance::Versions;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct EnvReport {
    versions: Versions,
    host: Host,
    /// Number of compute threads of a single process.
    threads: usize,
    memory: Memory,
    launcher: Seen,
    devices: BTreeMap<&'static str, Status>,
    backends: BTreeMap<&'static str, Status>,
    programs: Vec<Program>,
    names: Vec<(&'static str, Vec<String>)>,
}

/// In bytes.
#[derive(Serialize)]
struct Memory {
    total: Option<u64>,
    /// The limit of this process's control group.
    limit: Option<u64>,
}

/// What started this process.
#[derive(Serialize)]
struct Seen {
    /// A description; if the variables are inconsistent, the reason.
    what: String,
    consistent: bool,
    /// The launchers' variables that are set.
    variables: BTreeMap<&'static str, String>,
}

pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let report = EnvReport::gather(registry);
    let text = match args.json {
        true => serde_json::to_string_pretty(&report)
            .map_err(|e| Error::internal(format!("cannot write this as JSON: {e}")))?,
        false => report.text(),
    };
    super::print(&format!("{}\n", text.trim_end()))
}

impl EnvReport {
    fn gather(registry: &Registry) -> Self {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Self {
            versions: job::versions::here(),
            host: Host::here(),
            threads: usable_cores(),
            memory: Memory { total: memory::total(), limit: memory::limit() },
            launcher: seen(&|name| std::env::var(name).ok()),
            devices: backends::devices().into(),
            backends: backends::backends().into(),
            programs: programs::programs(),
            names: vec![
                ("models", owned(registry.model_kinds().map(|(name, _)| name).collect())),
                ("datasets", owned(registry.dataset_kinds().map(|(name, _)| name).collect())),
                ("optimizers", owned(by_name(&registry.optimizers).map(|(name, _)| name).collect())),
                ("schedulers", owned(by_name(&registry.schedules).map(|(name, _)| name).collect())),
                ("comm_hooks", owned(registry.comm_hook_names().collect())),
            ],
        }
    }

    fn text(&self) -> String {
        let mut out = format!("ddp-run {}\n", self.versions.ddp_run);
        let mut section = |title: &str, rows: Vec<(&str, String)>| {
            let _ = writeln!(out, "\n{title}");
            let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, value) in rows {
                let _ = writeln!(out, "  {name:width$}  {value}");
            }
        };
        let rustc = self.versions.rustc.clone().unwrap_or_else(|| "not recorded by this build".to_owned());
        section("Versions", vec![("burn", self.versions.burn.clone()), ("rustc", rustc)]);
        let host = &self.host;
        let bytes = |b: Option<u64>| b.map_or_else(|| "unknown".to_owned(), show_bytes);
        let memory = match self.memory.limit {
            Some(limit) => format!("{}, limited to {}", bytes(self.memory.total), show_bytes(limit)),
            None => bytes(self.memory.total),
        };
        section(
            "Machine",
            vec![
                ("host", host.name.clone()),
                ("system", format!("{}, {} {}", host.os, host.kernel, host.arch)),
                ("cpu", host.cpu.clone()),
                ("cores", format!("{} usable ({} threads for a single process)", host.cores, self.threads)),
                ("memory", memory),
            ],
        );
        let status = |s: &Status| format!("{}: {}", if s.available { "yes" } else { "no" }, s.detail);
        section("Devices", self.devices.iter().map(|(name, s)| (*name, status(s))).collect());
        section("Backends", self.backends.iter().map(|(name, s)| (*name, status(s))).collect());
        let mut rows = vec![("started by", self.launcher.what.clone())];
        rows.extend(self.launcher.variables.iter().map(|(name, value)| (*name, value.clone())));
        section("Launcher", rows);
        let program = |p: &Program| match (&p.path, &p.version) {
            (None, _) => "not on PATH".to_owned(),
            (Some(path), None) => path.display().to_string(),
            (Some(path), Some(version)) => format!("{version}, {}", path.display()),
        };
        section("Programs", self.programs.iter().map(|p| (p.name, program(p))).collect());
        section("Names", self.names.iter().map(|(kind, names)| (*kind, names.join(", "))).collect());
        out
    }
}

fn seen(get: &dyn Fn(&str) -> Option<String>) -> Seen {
    let settings = clusters::LaunchFlags::default().settings(get, clusters::starter_pid());
    let found = settings.and_then(|settings| clusters::detect(get, &settings));
    let what = match &found {
        Ok(Origin::Own) => "no launcher: ddp-run starts its own workers".to_owned(),
        Ok(Origin::Worker(worker)) => worker.to_string(),
        Ok(Origin::Node(node)) => {
            format!("{}: ddp-run supervises node {}", node.launcher.name(), node.node_rank)
        }
        Err(e) => format!("inconsistent: {}", e.message),
    };
    let names = Launcher::ALL.into_iter().flat_map(Launcher::variables);
    let variables = names.filter_map(|name| Some((*name, get(name)?))).collect();
    Seen { what, consistent: found.is_ok(), variables }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_launcher_and_its_variables() {
        let seen_in = |vars: &[(&str, &str)]| {
            let vars: BTreeMap<String, String> =
                vars.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            seen(&|name| vars.get(name).cloned())
        };
        let none = seen_in(&[("HOME", "/h")]);
        assert!(none.what.starts_with("no launcher") && none.variables.is_empty(), "{}", none.what);
        let slurm = seen_in(&[
            ("SLURM_STEP_ID", "3"),
            ("SLURM_JOB_ID", "12"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NODELIST", "n[1-2]"),
            ("HOME", "/h"),
        ]);
        assert_eq!(slurm.what, "Slurm: job 12.3, task 1 of 2");
        assert_eq!(slurm.variables.get("SLURM_PROCID").map(String::as_str), Some("1"));
        let wrong = seen_in(&[("RANK", "1")]);
        assert!(!wrong.consistent && wrong.what.contains("WORLD_SIZE is not"), "{}", wrong.what);
    }

    #[test]
    fn text_and_json_have_every_section() {
        let report = EnvReport::gather(&Registry::standard());
        let text = report.text();
        for title in ["Versions", "Machine", "Devices", "Backends", "Launcher", "Programs", "Names"] {
            assert!(text.contains(&format!("\n{title}\n")), "{title}:\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["backends"]["gloo"]["available"], true);
        assert_eq!(json["devices"]["cuda"]["available"], false);
        assert!(json["memory"]["total"].as_u64().is_some_and(|b| b > 1 << 20));
        assert!(json["backends"]["mpi"]["detail"].as_str().is_some_and(|why| !why.is_empty()));
    }
}
