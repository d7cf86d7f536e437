//! The flags that say which processes a run has and where they meet: torchrun's names and meanings, as far as they have
//! one here. Each is also a variable: `DDP_RUN_*` for some, and torchrun's own form, `PET_` and the flag's name, which
//! Kubeflow sets. A flag wins over `DDP_RUN_*`, that over `PET_*`, and that over the spec. Ranks that another launcher
//! has started ignore `PET_*`: they are addressed to that launcher.

use super::vars::{Vars, inconsistent, vars};
use super::{Launcher, Origin, Settings};
use crate::nodes::{NodeRange, RdzvBackend, RdzvConf, RdzvEndpoint, RdzvId};
use crate::{Console, LocalRanks, Nproc, Streams};
use base::error::{Error, Result};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

/// torchrun's default port of a static rendezvous.
const MASTER_PORT: u16 = 29500;

/// As typed, or completed from variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct LaunchFlags {
    /// Worker processes on this machine: a number, `devices` (one per device, else one), `auto` (one per device, else per core), `gpu` or `cpu`
    #[arg(long, value_name = "N")]
    pub nproc_per_node: Option<Nproc>,
    /// Nodes of the run: a number, or MIN:MAX if nodes may join and leave (also DDP_RUN_NNODES)
    #[arg(long, value_name = "N|MIN:MAX")]
    pub nnodes: Option<NodeRange>,
    /// This node's rank; node 0 hosts the rendezvous and writes the checkpoints (also DDP_RUN_NODE_RANK)
    #[arg(long, value_name = "N")]
    pub node_rank: Option<usize>,
    /// Rendezvous of the nodes: HOST:PORT, tcp://HOST:PORT or file:///SHARED/PATH (also DDP_RUN_RDZV_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub rdzv_endpoint: Option<RdzvEndpoint>,
    /// The same as `--rdzv-endpoint HOST:PORT` with `--master-port`
    #[arg(long, value_name = "HOST", conflicts_with = "rdzv_endpoint", value_parser = host)]
    pub master_addr: Option<String>,
    /// See `--master-addr` [default: 29500]
    #[arg(long, value_name = "PORT", conflicts_with = "rdzv_endpoint", value_parser = clap::value_parser!(u16).range(1..))]
    pub master_port: Option<u16>,
    /// Identifies the run: nodes with another id are refused; with it, the same command again continues the run
    #[arg(long, value_name = "ID")]
    pub rdzv_id: Option<RdzvId>,
    /// `static` or `c10d`, which mean the same here
    #[arg(long, value_name = "NAME")]
    pub rdzv_backend: Option<RdzvBackend>,
    /// Times of the rendezvous in seconds: `timeout` or `join_timeout`, `last_call_timeout`
    #[arg(long, value_name = "KEY=SECONDS,…")]
    pub rdzv_conf: Option<RdzvConf>,
    /// A run on this machine alone, whatever the spec and the environment say about nodes
    #[arg(long)]
    pub standalone: bool,
    /// Restarts after failures, without progress in between
    #[arg(long, value_name = "N")]
    pub max_restarts: Option<u32>,
    /// Write the ranks' logs to DIR/NAME, by the name of the spec [default: logs in the run's folder]
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Show output on the terminal, and write it to the logs: 1 (standard output), 2 (standard error) or 3 (both) of all ranks, or
    /// LOCAL_RANK:1|2|3,… [default: rank 0's output is shown, and the others' written]
    #[arg(short = 't', long, value_name = "N|RANK:N,…")]
    pub tee: Option<Streams>,
    /// Write output to the logs only; values are those of `--tee`
    #[arg(short = 'r', long, value_name = "N|RANK:N,…")]
    pub redirects: Option<Streams>,
    /// Show only the output of these local ranks on the terminal
    #[arg(long, value_name = "RANK,…")]
    pub local_ranks_filter: Option<LocalRanks>,
    /// torchrun's flags that change nothing here.
    #[command(flatten)]
    pub without_effect: WithoutEffect,
}

/// torchrun's flags about its own processes. They are taken, so that its command lines can stay, and have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct WithoutEffect {
    #[arg(long, hide = true)]
    role: Option<String>,
    #[arg(long, hide = true)]
    local_addr: Option<String>,
    #[arg(long, hide = true)]
    monitor_interval: Option<String>,
    #[arg(long, hide = true)]
    start_method: Option<String>,
    #[arg(long, hide = true)]
    event_log_handler: Option<String>,
    #[arg(long, hide = true)]
    logs_specs: Option<String>,
    #[arg(long, hide = true)]
    numa_binding: Option<String>,
    #[arg(long, hide = true)]
    signals_to_handle: Option<String>,
}

impl WithoutEffect {
    /// Says that the flags that were typed have no effect.
    pub fn warn(&self) {
        for flag in self.typed() {
            status!("warning: {flag} is about torchrun's own processes and has no effect");
        }
    }

    pub(super) fn typed(&self) -> Vec<&'static str> {
        let all = [
            ("--role", &self.role),
            ("--local-addr", &self.local_addr),
            ("--monitor-interval", &self.monitor_interval),
            ("--start-method", &self.start_method),
            ("--event-log-handler", &self.event_log_handler),
            ("--logs-specs", &self.logs_specs),
            ("--numa-binding", &self.numa_binding),
            ("--signals-to-handle", &self.signals_to_handle),
        ];
        all.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect()
    }
}

/// A name or an address, without a port.
fn host(typed: &str) -> std::result::Result<String, String> {
    let host = typed.trim_start_matches('[').trim_end_matches(']');
    let name = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    match name || host.parse::<std::net::Ipv6Addr>().is_ok() {
        true => Ok(host.to_owned()),
        false => Err("expected a host; the port is `--master-port`".to_owned()),
    }
}

/// A flag, and the variables that replace it, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As it is typed.
    pub name: &'static str,
    /// Variables of the environment, in order of precedence.
    pub variables: &'static [&'static str],
}

/// Workers of a node.
pub const NPROC_PER_NODE: Flag = Flag { name: "--nproc-per-node", variables: &["PET_NPROC_PER_NODE"] };
/// Nodes of a run.
pub const NNODES: Flag = Flag { name: "--nnodes", variables: &["DDP_RUN_NNODES", "PET_NNODES"] };
/// Where nodes or ranks meet.
pub const RDZV_ENDPOINT: Flag = Flag {
    name: "--rdzv-endpoint",
    variables: &["DDP_RUN_RDZV_ENDPOINT", "PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "PET_MASTER_PORT"],
};
/// torchrun's settings of a rendezvous.
pub const RDZV_CONF: Flag = Flag { name: "--rdzv-conf", variables: &["PET_RDZV_CONF"] };
/// Restarts without progress in between.
pub const MAX_RESTARTS: Flag = Flag { name: "--max-restarts", variables: &["PET_MAX_RESTARTS"] };

impl Flag {
    /// What a value comes from: the flag if it was `typed`, else the first variable that is set.
    pub fn source(self, typed: bool, get: &dyn Fn(&str) -> Option<String>) -> &'static str {
        let set = |name: &&&str| vars(get).text(name).is_some();
        let variable = self.variables.iter().find(set).copied();
        variable.filter(|_| !typed).unwrap_or(self.name)
    }
}

impl LaunchFlags {
    /// What determines the role of this process: flags, and the variables `DDP_RUN_NNODES`, `DDP_RUN_NODE_RANK` and
    /// `DDP_RUN_RDZV_ENDPOINT`.
    ///
    /// # Errors
    /// A variable can't be read, or a flag contradicts `--standalone` (exit 2).
    pub fn settings(&self, get: &dyn Fn(&str) -> Option<String>, starter: u32) -> Result<Settings> {
        if self.standalone {
            self.check_standalone()?;
            return Ok(Settings {
                nnodes: Some(NodeRange::ONE),
                standalone: true,
                starter,
                ..Settings::default()
            });
        }
        let vars = vars(get);
        let master = || self.master().map(|(host, port)| RdzvEndpoint::Tcp { host, port });
        Ok(Settings {
            node_rank: self.node_rank.or(vars.number("DDP_RUN_NODE_RANK")?),
            nnodes: self.nnodes.or(parsed(&vars, "DDP_RUN_NNODES")?),
            nproc_per_node: self.nproc_per_node,
            rdzv_endpoint: match self.rdzv_endpoint.clone().or_else(master) {
                Some(given) => Some(given),
                None => parsed(&vars, "DDP_RUN_RDZV_ENDPOINT")?,
            },
            standalone: false,
            starter,
        })
    }

    fn check_standalone(&self) -> Result<()> {
        let nodes = self.nnodes.filter(|n| n.max > 1).map(|n| format!("--nnodes {n}"));
        let endpoint = || self.rdzv_endpoint.as_ref().map(|at| format!("--rdzv-endpoint {at}"));
        let rank = || self.node_rank.filter(|rank| *rank > 0).map(|rank| format!("--node-rank {rank}"));
        match nodes.or_else(endpoint).or_else(rank) {
            None => Ok(()),
            Some(flag) => {
                Err(Error::usage(format!("--standalone is a run on this machine alone, and {flag} is not"))
                    .hint("omit one of the two"))
            }
        }
    }

    /// `--master-addr` and `--master-port`, with torchrun's defaults; `None` without either.
    fn master(&self) -> Option<(String, u16)> {
        if self.master_addr.is_none() && self.master_port.is_none() {
            return None;
        }
        let host = self.master_addr.as_deref().unwrap_or("127.0.0.1");
        Some((host.to_owned(), self.master_port.unwrap_or(MASTER_PORT)))
    }

    /// Completes the flags that do not determine the role of this process from `PET_*`; not for a rank of another
    /// launcher.
    ///
    /// # Errors
    /// A variable can't be read, or a flag about processes was given to a rank (exit 2).
    pub fn completed(&self, origin: &Origin, get: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        if let Origin::Worker(worker) = origin {
            let given = [
                ("--tee", self.tee.is_some()),
                ("--redirects", self.redirects.is_some()),
                ("--local-ranks-filter", self.local_ranks_filter.is_some()),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                None => Ok(self.clone()),
                Some((flag, _)) => Err(Error::usage(format!(
                    "{flag} is for processes that ddp-run starts, but {} has started this rank",
                    worker.launcher.name()
                ))
                .hint(match worker.launcher {
                    Launcher::Environment => {
                        "its output is that of this process: redirect it where the rank is started"
                    }
                    _ => "use the launcher's own flags",
                })),
            };
        }
        let vars = vars(get);
        Ok(Self {
            nproc_per_node: self.nproc_per_node.or(parsed(&vars, "PET_NPROC_PER_NODE")?),
            rdzv_id: or(&self.rdzv_id, &vars, "PET_RDZV_ID")?,
            rdzv_backend: self.rdzv_backend.or(parsed(&vars, "PET_RDZV_BACKEND")?),
            rdzv_conf: self.rdzv_conf.or(parsed(&vars, "PET_RDZV_CONF")?),
            max_restarts: self.max_restarts.or(vars.number("PET_MAX_RESTARTS")?),
            log_dir: self.log_dir.clone().or_else(|| vars.text("PET_LOG_DIR").map(PathBuf::from)),
            tee: or(&self.tee, &vars, "PET_TEE")?,
            redirects: or(&self.redirects, &vars, "PET_REDIRECTS")?,
            local_ranks_filter: or(&self.local_ranks_filter, &vars, "PET_LOCAL_RANKS_FILTER")?,
            ..self.clone()
        })
    }

    /// Which output of the workers appears on the terminal.
    pub fn console(&self) -> Console {
        Console {
            tee: self.tee.clone(),
            redirects: self.redirects.clone(),
            filter: self.local_ranks_filter.clone(),
        }
    }
}

/// The settings of a supervisor: those not given are taken from `PET_*`.
///
/// # Errors
/// A variable can't be read (exit 2).
pub fn completed(get: &dyn Fn(&str) -> Option<String>, settings: &Settings) -> Result<Settings> {
    let (vars, mut settings) = (vars(get), settings.clone());
    if settings.standalone {
        return Ok(settings);
    }
    if vars.switch("PET_STANDALONE")?
        && settings.nnodes.is_none()
        && settings.rdzv_endpoint.is_none()
        && settings.node_rank.is_none()
    {
        return Ok(Settings { nnodes: Some(NodeRange::ONE), standalone: true, ..settings });
    }
    settings.nnodes = settings.nnodes.or(parsed(&vars, "PET_NNODES")?);
    if settings.rdzv_endpoint.is_none() {
        settings.rdzv_endpoint = match (parsed(&vars, "PET_RDZV_ENDPOINT")?, vars.text("PET_MASTER_ADDR")) {
            (None, Some(host)) => Some(RdzvEndpoint::Tcp { host, port: port(&vars, "PET_MASTER_PORT")? }),
            // Kubeflow's PyTorchJob.
            (None, None) if vars.text("PET_NODE_RANK").is_some() => match vars.text("MASTER_ADDR") {
                Some(host) => Some(RdzvEndpoint::Tcp { host, port: port(&vars, "MASTER_PORT")? }),
                None => None,
            },
            (endpoint, _) => endpoint,
        };
    }
    settings.rdzv_endpoint = endpoint_of(settings.rdzv_endpoint, settings.nnodes)?;
    Ok(settings)
}

/// torchrun takes port 0 where there is a single node: any free port, which this program needs none of.
///
/// # Errors
/// Port 0, and several nodes (exit 2).
fn endpoint_of(endpoint: Option<RdzvEndpoint>, nnodes: Option<NodeRange>) -> Result<Option<RdzvEndpoint>> {
    match endpoint {
        Some(RdzvEndpoint::Tcp { host, port: 0 }) => match nnodes.unwrap_or(NodeRange::ONE) {
            NodeRange::ONE => Ok(None),
            nodes => {
                Err(Error::usage(format!("the endpoint {host}:0 has no port, and the run has {nodes} nodes"))
                    .hint("every node must know the port in advance: `--rdzv-endpoint HOST:29400`"))
            }
        },
        endpoint => Ok(endpoint),
    }
}

fn port(vars: &Vars<'_>, name: &str) -> Result<u16> {
    match vars.number(name)? {
        Some(0) => Err(inconsistent(format!("{name} is 0; every node must know the port in advance"))),
        port => Ok(port.unwrap_or(MASTER_PORT)),
    }
}

fn or<T: FromStr<Err: Display> + Clone>(typed: &Option<T>, vars: &Vars<'_>, name: &str) -> Result<Option<T>> {
    match typed {
        Some(value) => Ok(Some(value.clone())),
        None => parsed(vars, name),
    }
}

fn parsed<T: FromStr<Err: Display>>(vars: &Vars<'_>, name: &str) -> Result<Option<T>> {
    let Some(text) = vars.text(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|why| inconsistent(format!("{name} is `{text}`: {why}")))
}
