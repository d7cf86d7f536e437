//! What the environment says about this process: whether a launcher other than ddp-run started it as a worker, how
//! many workers a node gets, and how many threads each of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use super::handoff::{Endpoint, Place};
use super::secret::{KeySource, KeyText};
use crate::error::{Error, Result};

/// A worker that torchrun, or anything that sets torchrun's variables, started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnv {
    pub place: Place,
    /// `Solo` for one process, `Listen` for rank 0, `Connect` for the others. The port is MASTER_PORT, or the one
    /// above it when torchrun's own store listens there; `DDP_RUN_PORT` overrides both.
    pub endpoint: Endpoint,
    /// Where the run's secret comes from; see [`WorkerEnv::secret`].
    pub key: KeySource,
    /// `TORCHELASTIC_RUN_ID`, or empty.
    pub run_id: String,
    /// `TORCHELASTIC_RESTART_COUNT` + 1.
    pub attempt: u32,
}

/// Reads variables; a set but empty one counts as not set.
struct Vars<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Vars<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|v| v.trim().to_string()).filter(|v| !v.is_empty())
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(inconsistent(format!("{name} is `{text}`, which is not a number in range"))),
        }
    }
}

fn inconsistent(what: impl Into<String>) -> Error {
    Error::usage(what.into()).hint(
        "a launcher such as torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT together; without \
         them ddp-run starts the processes itself",
    )
}

impl WorkerEnv {
    /// `None` when neither RANK nor WORLD_SIZE is set: this process is no one's worker. `get` is the environment.
    ///
    /// Errors (exit 2): variables that don't fit together, or that can't be read.
    pub fn detect(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let vars = Vars(get);
        let (rank, world_size) = match (vars.number::<usize>("RANK")?, vars.number::<usize>("WORLD_SIZE")?) {
            (None, None) => return Ok(None),
            (Some(rank), Some(world)) => (rank, world),
            (Some(_), None) => return Err(inconsistent("RANK is set, but WORLD_SIZE is not")),
            (None, Some(_)) => return Err(inconsistent("WORLD_SIZE is set, but RANK is not")),
        };
        if rank >= world_size {
            let what =
                format!("RANK is {rank} and WORLD_SIZE is {world_size}; ranks go from 0 to WORLD_SIZE - 1");
            return Err(inconsistent(what));
        }
        Ok(Some(Self {
            place: place(&vars, rank, world_size)?,
            endpoint: endpoint(&vars, rank, world_size)?,
            key: key(&vars)?,
            run_id: vars.text("TORCHELASTIC_RUN_ID").unwrap_or_default(),
            attempt: vars.number::<u32>("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0).saturating_add(1),
        }))
    }

    /// The secret that the ranks prove to each other: HMAC-SHA256 of the endpoint, the run's id and the attempt under the
    /// key in `DDP_RUN_SECRET`, else in the file `DDP_RUN_SECRET_FILE`, else in `~/.config/ddp-run/secret`, which is
    /// made at the first use. Nodes that share no home folder need one of the variables.
    pub fn secret(&self) -> Result<super::Secret> {
        let at = match &self.endpoint {
            Endpoint::Listen { host, port } | Endpoint::Connect { host, port } => format!("{host}:{port}"),
            Endpoint::Inherited { addr, .. } => addr.to_string(),
            Endpoint::Solo => return super::Secret::random(),
        };
        self.key.secret(&format!("ddp-run rendezvous {at} {} {}", self.run_id, self.attempt))
    }
}

/// Without LOCAL_*, the master's address tells the two usual layouts apart: all processes on this machine, or one on
/// each (Kubernetes' PyTorchJob).
fn place(vars: &Vars<'_>, rank: usize, world_size: usize) -> Result<Place> {
    let master = vars.text("MASTER_ADDR");
    let one_machine = world_size == 1 || master.is_some_and(|m| is_loopback(&m));
    let local: (Option<usize>, Option<usize>) =
        (vars.number("LOCAL_RANK")?, vars.number("LOCAL_WORLD_SIZE")?);
    let (local_rank, local_world_size) = match local {
        (Some(rank), Some(world)) => (rank, world),
        (Some(local), None) if one_machine => (local, world_size),
        (Some(_), None) => return Err(inconsistent("LOCAL_RANK is set, but LOCAL_WORLD_SIZE is not")),
        // Ranks fill node after node, as every launcher numbers them.
        (None, Some(world)) => (rank % world.max(1), world),
        (None, None) if one_machine => (rank, world_size),
        (None, None) => (0, 1),
    };
    if local_rank >= local_world_size {
        let what = format!("LOCAL_RANK is {local_rank} and LOCAL_WORLD_SIZE is {local_world_size}");
        return Err(inconsistent(what));
    }
    if local_world_size > world_size || local_rank > rank {
        let what = format!(
            "LOCAL_RANK {local_rank} of {local_world_size} on this node does not fit RANK {rank} of WORLD_SIZE {world_size}"
        );
        return Err(inconsistent(what));
    }
    let node_rank = vars.number("GROUP_RANK")?.unwrap_or(rank / local_world_size);
    let nnodes = vars.number("GROUP_WORLD_SIZE")?.unwrap_or(world_size.div_ceil(local_world_size));
    if node_rank >= nnodes {
        return Err(inconsistent(format!("GROUP_RANK is {node_rank} and GROUP_WORLD_SIZE is {nnodes}")));
    }
    Ok(Place { rank, local_rank, world_size, local_world_size, node_rank, nnodes })
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn endpoint(vars: &Vars<'_>, rank: usize, world_size: usize) -> Result<Endpoint> {
    if world_size == 1 {
        return Ok(Endpoint::Solo);
    }
    let missing = |name: &str| inconsistent(format!("RANK and WORLD_SIZE are set, but {name} is not"));
    let host = vars.text("MASTER_ADDR").ok_or_else(|| missing("MASTER_ADDR"))?;
    let master: u16 = vars.number("MASTER_PORT")?.ok_or_else(|| missing("MASTER_PORT"))?;
    // torchrun's agent keeps its own store on MASTER_PORT and says so.
    let taken = vars.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let default = if taken { master.checked_add(1).unwrap_or(master - 1) } else { master };
    let port = vars.number("DDP_RUN_PORT")?.unwrap_or(default);
    if port == 0 {
        return Err(inconsistent("MASTER_PORT is 0; every rank must know the port in advance"));
    }
    Ok(if rank == 0 { Endpoint::Listen { host, port } } else { Endpoint::Connect { host, port } })
}

impl KeySource {
    /// `DDP_RUN_SECRET`, else `DDP_RUN_SECRET_FILE`, else the key in the home folder.
    pub fn of_environment() -> Result<Self> {
        key(&Vars(&|name| std::env::var(name).ok()))
    }
}

fn key(vars: &Vars<'_>) -> Result<KeySource> {
    if let Some(text) = vars.text("DDP_RUN_SECRET") {
        return Ok(KeySource::Env(KeyText(text)));
    }
    if let Some(path) = vars.text("DDP_RUN_SECRET_FILE") {
        return Ok(KeySource::File(path.into()));
    }
    let config = vars.text("XDG_CONFIG_HOME").map(PathBuf::from);
    match config.or_else(|| Some(PathBuf::from(vars.text("HOME")?).join(".config"))) {
        Some(config) => Ok(KeySource::Home(config.join("ddp-run/secret"))),
        None => Err(Error::usage(
            "the ranks have no secret to prove to each other, and there is no home folder to keep one in",
        )
        .hint(
            "set DDP_RUN_SECRET_FILE to a file with the same 16 or more characters on every node (mode 600)",
        )),
    }
}

/// How many workers a node gets, as torchrun's `--nproc-per-node` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nproc {
    Count(usize),
    /// One per CUDA device; without any, one per core (torchrun's rule).
    Auto,
    /// One per CUDA device.
    Gpu,
    /// One per core.
    Cpu,
}

/// More processes on a node are a typing error.
const MAX_NPROC: usize = 4096;

impl FromStr for Nproc {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Nproc::Auto),
            "gpu" => Ok(Nproc::Gpu),
            "cpu" => Ok(Nproc::Cpu),
            _ => match text.parse() {
                Ok(n) if (1..=MAX_NPROC).contains(&n) => Ok(Nproc::Count(n)),
                _ => Err(format!("expected a number from 1 to {MAX_NPROC}, `auto`, `gpu` or `cpu`")),
            },
        }
    }
}

impl Nproc {
    /// The number of workers on a node with `cores` usable cores and `cuda_devices` usable CUDA devices.
    ///
    /// Errors: `gpu` without a device (exit 69).
    pub fn resolve(self, cores: usize, cuda_devices: usize) -> Result<usize> {
        match self {
            Nproc::Count(n) => Ok(n),
            Nproc::Cpu => Ok(cores.max(1)),
            Nproc::Auto => Ok(if cuda_devices > 0 { cuda_devices } else { cores.max(1) }),
            Nproc::Gpu if cuda_devices > 0 => Ok(cuda_devices),
            Nproc::Gpu => {
                Err(Error::unavailable("`gpu` processes were asked for, and this machine has no CUDA device")
                    .hint("`--nproc-per-node cpu` starts one process per core"))
            }
        }
    }
}

/// Cores that this process may use: its affinity mask (`sched_getaffinity`, so `taskset` and Slurm's binding count), or
/// the cgroup's CPU quota where that is less.
pub fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Threads for each of `workers` processes that share `cores`.
pub fn threads_per_worker(cores: usize, workers: usize) -> usize {
    (cores / workers.max(1)).max(1)
}

/// Variables that keep the usual thread pools to `threads`; those that the user has set (`get`) stay.
pub fn thread_variables(
    threads: usize,
    get: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<&'static str, String> {
    let names = ["RAYON_NUM_THREADS", "OMP_NUM_THREADS"];
    names.into_iter().filter(|name| get(name).is_none()).map(|name| (name, threads.to_string())).collect()
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;
