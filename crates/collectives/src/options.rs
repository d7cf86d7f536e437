//! What a process needs to join its group.

use crate::gloo::GlooOptions;
use crate::rendezvous::{
    Addresses, Endpoint, KeySource, Meeting, Ports, RdzvEndpoint, RendezvousConfig, Secret, addresses,
};
use crate::{CommError, DistributedConfig, launchers};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// What a process needs to join its group. All but ranks, `bind` and `gloo.interface` must be equal on all ranks.
///
/// [`Options::from_env`] takes it from the launcher; every field may be changed afterwards:
///
/// ```no_run
/// use ddp_run_collectives::{Options, init};
/// use std::time::Duration;
///
/// let mut options = Options::from_env()?;
/// options.timeout = Duration::from_secs(60);
/// let group = init(options)?;
/// # Ok::<(), ddp_run_collectives::CommError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// This process's rank, from 0.
    pub rank: usize,
    /// The number of processes.
    pub world_size: usize,
    /// This process's rank among those of its machine, such as the number of its GPU.
    pub local_rank: usize,
    /// The number of processes on this machine.
    pub local_world_size: usize,
    /// Where the ranks meet. `None`: where the launcher says ([`Options::from_env`]); one rank needs no place.
    pub endpoint: Option<RdzvEndpoint>,
    /// The source of the key by which the ranks authenticate each other; required with several ranks.
    pub key: Option<KeySource>,
    /// Identifies the run, at most 128 bytes; processes of another run are refused.
    pub run_id: String,
    /// How often the run has been restarted; processes left over from an earlier generation are refused.
    pub generation: u64,
    /// The address on which rank 0 listens, if it is not loopback. By default, that of the endpoint's host.
    pub bind: IpAddr,
    /// How long [`init`](crate::init()) waits for all ranks.
    pub init_timeout: Duration,
    /// How long a collective waits for its peers.
    pub timeout: Duration,
    /// Transport and algorithms.
    pub gloo: GlooOptions,
    /// Rank 0's host, and how the ranks agree on its port, where the launcher reserves none.
    pub(crate) agreed: Option<(String, Ports)>,
}

impl Options {
    /// Rank `rank` of `world_size`, all on this machine, with the time limits of `[distributed]`. Several ranks need `endpoint`
    /// and `key`, too.
    pub fn new(rank: usize, world_size: usize) -> Self {
        let limits = DistributedConfig::default();
        Self {
            rank,
            world_size,
            local_rank: rank,
            local_world_size: world_size,
            endpoint: None,
            key: None,
            run_id: String::new(),
            generation: 0,
            bind: Ipv4Addr::LOCALHOST.into(),
            init_timeout: *limits.init_timeout,
            timeout: *limits.timeout,
            gloo: GlooOptions::default(),
            agreed: None,
        }
    }

    /// The options of a process that torchrun, `ddp-run launch`, a Slurm step (`srun`) or a script has started.
    ///
    /// | variable | |
    /// |---|---|
    /// | `RANK`, `WORLD_SIZE` | rank and world size; under Slurm `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS` if they are not set |
    /// | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | rank and number of ranks on this machine |
    /// | `MASTER_ADDR`, `MASTER_PORT` | where rank 0 listens. If torchrun's agent holds that port, rank 0 leaves another one in the agent's store. Under Slurm the first host of the step by default |
    /// | `DDP_RUN_RDZV_ENDPOINT` | instead: `HOST:PORT`, or `file:///PATH` on a file system that all ranks share |
    /// | `DDP_RUN_PORT` | another port of rank 0 |
    /// | `TORCHELASTIC_RUN_ID`, `TORCHELASTIC_RESTART_COUNT` | name and restarts of the run |
    /// | `DDP_RUN_SECRET`, `DDP_RUN_SECRET_FILE` | the key by which ranks authenticate each other, or a file with it; by default `~/.config/ddp-run/secret`, which is created at first use |
    ///
    /// Errors ([`CommErrorKind::Configuration`](crate::CommErrorKind)): variables are missing, invalid or contradict each other.
    pub fn from_env() -> Result<Self, CommError> {
        Self::from_lookup(&|name| std::env::var(name).ok())
    }

    /// As [`Options::from_env`], with `get` in place of the process's environment.
    pub(crate) fn from_lookup(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, CommError> {
        launchers::options(get)
    }

    /// What the rendezvous needs.
    pub(crate) fn rendezvous(&self) -> Result<RendezvousConfig, CommError> {
        Ok(RendezvousConfig {
            rank: self.rank,
            world_size: self.world_size,
            endpoint: self.rendezvous_endpoint()?,
            secret: self.secret()?,
            run_id: self.run_id.clone(),
            generation: self.generation,
            plan_hash: String::new(),
            plan_keys: Default::default(),
            init_timeout: self.init_timeout,
            timeout: self.timeout,
        })
    }

    fn no_endpoint(&self) -> CommError {
        CommError::configuration(format!("rank {} of {} has no endpoint", self.rank, self.world_size))
            .hint("set `Options::endpoint` to where the ranks meet, or take it from the launcher by `Options::from_env`")
    }

    /// All attempts have the same secret: a process of an earlier one is recognised by its generation, and not as unauthenticated.
    fn secret(&self) -> Result<Secret, CommError> {
        let at = match (&self.endpoint, &self.agreed) {
            (Some(RdzvEndpoint::Tcp { host, port }), _) => format!("{host}:{port}"),
            (Some(RdzvEndpoint::File(path)), _) => path.display().to_string(),
            (None, Some((host, ports))) => format!("{host}:{}", ports.first),
            (None, None) => return Err(self.no_endpoint()),
        };
        let key = self.key.as_ref().ok_or_else(KeySource::missing)?;
        key.secret(&format!("ddp-run rendezvous {at} {}", self.run_id))
    }

    fn rendezvous_endpoint(&self) -> Result<Endpoint, CommError> {
        let is_rank_0 = self.rank == 0;
        Ok(match (&self.endpoint, &self.agreed) {
            (Some(RdzvEndpoint::Tcp { host, port }), _) if is_rank_0 => {
                Endpoint::Bind((self.bind_address(host)?, *port).into())
            }
            (Some(RdzvEndpoint::Tcp { host, port }), _) => {
                Endpoint::Connect(format!("{}:{port}", self.host_of_rank_0(host)?))
            }
            (Some(RdzvEndpoint::File(file)), _) if is_rank_0 => {
                let Addresses { listen: address, advertised } =
                    addresses(self.bind, self.gloo.address()?, self.nodes())?;
                Endpoint::Publish { address, host: advertised.to_string(), file: file.clone() }
            }
            (Some(RdzvEndpoint::File(file)), _) => Endpoint::Lookup(file.clone()),
            (None, Some((host, ports))) if is_rank_0 => {
                Endpoint::BindAgreed(self.bind_address(host)?, ports.clone())
            }
            (None, Some((host, ports))) => Endpoint::ConnectAgreed(self.host_of_rank_0(host)?, ports.clone()),
            (None, None) => return Err(self.no_endpoint()),
        })
    }

    /// More than one if not all ranks are on this machine.
    fn nodes(&self) -> usize {
        self.world_size.div_ceil(self.local_world_size.max(1))
    }

    fn meeting<'a>(&self, host: &'a str) -> Result<Meeting<'a>, CommError> {
        let (bind, interface, nnodes) = (self.bind, self.gloo.address()?, self.nodes());
        Ok(Meeting { host, port: 0, bind, interface, nnodes })
    }

    /// The address that rank 0 binds if others reach it as `host`.
    fn bind_address(&self, host: &str) -> Result<IpAddr, CommError> {
        let own = self.meeting(host)?.own_address()?.ok_or_else(|| {
            CommError::rendezvous(format!("the name {host}, at which rank 0 is to listen, has no address"))
                .hint("MASTER_ADDR (or the endpoint) must be a name or an address of rank 0's machine")
        })?;
        Ok(own.ip())
    }

    /// The host at which this rank reaches rank 0, whose name for others is `host`.
    fn host_of_rank_0(&self, host: &str) -> Result<String, CommError> {
        let first_node = self.rank == self.local_rank;
        self.meeting(host)?.host_of_rank_0(first_node)
    }
}
