//! How the processes of a run find each other. Rank 0 listens. Every other rank connects to it, proves the run's
//! secret, and reports its identity and the address at which it listens. Rank 0 checks that all belong to the same run
//! and sends each the table of addresses. Then every pair of ranks is connected, for data and for control (messages
//! that must not queue behind data). Once all connections are made, rank 0 releases all ranks. All of this ends by
//! `init_timeout`, on every rank with the same reason.
//!
//! No listener outlives the rendezvous, so a running job has no open port.
//!
//! Programs need [`RdzvEndpoint`] and [`KeySource`], for [`Options`](crate::Options); the rest is for ddp-run's launchers and supervisors.

mod accept;
mod accept_error;
mod address;
mod agent_store;
mod auth;
mod dial;
pub mod file;
mod follower;
mod identity;
mod io;
mod key;
mod leader;
mod mesh;
mod plan_keys;
mod ports;
mod rdzv_endpoint;
mod secret;
mod supervisor;
#[cfg(test)]
mod tests;
mod wire;

use address::bracketed;
pub use address::{Addresses, Meeting, addresses};
pub use agent_store::StoreKey;
pub(crate) use dial::ATTEMPT;
pub use dial::Target;
pub(crate) use io::poll_until;
pub use io::{StreamError, read_by, write_by};
pub use key::KeySource;
pub use mesh::name_ranks;
pub use plan_keys::PlanKeys;
pub use ports::Ports;
pub use rdzv_endpoint::{RdzvEndpoint, is_loopback};
pub use secret::{Secret, SecretText};
pub use supervisor::{SupervisorEvent, SupervisorListener, connect_supervisor};
#[cfg(test)]
pub(super) use tests::messages;
pub(crate) use wire::HostId;
#[cfg(any(test, fuzzing))]
pub use wire::decode_anything;
pub use wire::{MAX_WORLD, truncated};

use super::CommError;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Pause between two attempts to bind an address that another process has.
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// Where the rendezvous takes place. Rank 0 uses one of the first four, the others one of the last three.
#[derive(Debug)]
pub enum Endpoint {
    /// Already bound, for instance by the supervisor, which then knows the port.
    Listener(TcpListener),
    /// Listen at this address.
    Bind(SocketAddr),
    /// Listen on a port of this address that the system chooses. `host`, the other ranks' name for the address, and the
    /// port are written to `file` until the rendezvous is over.
    Publish {
        /// The address to listen at.
        address: IpAddr,
        /// Its name for the other ranks.
        host: String,
        /// The file that they read.
        file: PathBuf,
    },
    /// Listen at this address, on a port that the ranks agree on.
    BindAgreed(IpAddr, Ports),
    /// `host:port` of rank 0; names are resolved again at each attempt.
    Connect(String),
    /// Rank 0 writes its `host:port` to this file, which is read again at each attempt.
    Lookup(PathBuf),
    /// Rank 0's host, and how the ranks agree on its port.
    ConnectAgreed(String, Ports),
}

/// This process's rank, where it connects to the others, and the time limits. All but `rank` and `endpoint` must be equal on
/// all ranks (`timeout` and `init_timeout` should be).
#[derive(Debug)]
pub struct RendezvousConfig {
    /// This process's rank.
    pub rank: usize,
    /// The world size.
    pub world_size: usize,
    /// Where the rendezvous takes place.
    pub endpoint: Endpoint,
    /// The secret that every rank proves to know.
    pub secret: Secret,
    /// Identifies the run, at most 128 bytes. Peers of another run are refused.
    pub run_id: String,
    /// Counts the run's restarts. Peers left over from an earlier generation are refused.
    pub generation: u64,
    /// Digest of what the ranks are about to run, at most 128 bytes; different digests fail the rendezvous.
    pub plan_hash: String,
    /// The keys on which the digest depends, to name those that differ; may be empty.
    pub plan_keys: PlanKeys,
    /// Time limit from the call until all connections are made.
    pub init_timeout: Duration,
    /// Timeout of each later collective.
    pub timeout: Duration,
}

/// Further options of this rank's connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeshOptions {
    pub host: HostId,
    /// Data connections between two ranks; None: the default.
    pub sockets: Option<usize>,
    /// The address at which peers reach this rank; by default the one that reaches rank 0.
    pub address: Option<IpAddr>,
    /// How long a listener at rank 0's address may not respond before the next attempt.
    pub attempt: Duration,
}

/// Data connections between two ranks. A single flow rarely fills a link between hosts; within a host the processor is the limit.
pub(crate) fn lanes(sockets: Option<usize>, same_host: bool) -> usize {
    sockets.unwrap_or(if same_host { 1 } else { 4 }).clamp(1, wire::MAX_LANES)
}

/// The connections to a peer, all nonblocking and without Nagle's delay.
pub(crate) struct PeerSockets {
    pub data: Vec<TcpStream>,
    pub control: TcpStream,
}

/// Indexed by rank; this rank's own sockets are None.
pub(crate) struct Mesh {
    pub sockets: Vec<Option<PeerSockets>>,
    pub hosts: Vec<HostId>,
}

/// When `init_timeout` ends. Values of years, which users write to mean "never", must not overflow the clock.
pub(crate) fn deadline_of(config: &RendezvousConfig) -> Instant {
    Instant::now() + config.init_timeout.min(Duration::from_secs(365 * 24 * 3600))
}

/// Connects to all other ranks.
pub(crate) fn form_mesh(
    config: &mut RendezvousConfig,
    options: &MeshOptions,
    deadline: Instant,
) -> Result<Mesh, CommError> {
    check(config)?;
    if config.world_size == 1 {
        return Ok(Mesh { sockets: vec![None], hosts: vec![options.host] });
    }
    let rank = config.rank;
    match std::mem::replace(&mut config.endpoint, Endpoint::Connect(String::new())) {
        Endpoint::Listener(listener) => leader::run(config, options, listener, deadline),
        Endpoint::Bind(address) => {
            let listener = bind(rank, address, deadline, || warn_of_retries(rank, address))?;
            leader::run(config, options, listener, deadline)
        }
        Endpoint::Publish { address, host, file } => {
            let address = (address, 0).into();
            let listener = bind(rank, address, deadline, || warn_of_retries(rank, address))?;
            let port = listener.local_addr().map_err(|e| CommError::rendezvous(e.to_string()))?.port();
            let published = file::publish(&file, &format!("{}:{port}", bracketed(&host)));
            let _published = published.map_err(|e| {
                CommError::rendezvous(format!(
                    "rank {rank} cannot write its address to {}: {e}",
                    file.display()
                ))
            })?;
            leader::run(config, options, listener, deadline)
        }
        Endpoint::BindAgreed(address, ports) => {
            let (listener, _published) = ports.listen(rank, address, deadline)?;
            leader::run(config, options, listener, deadline)
        }
        Endpoint::Connect(address) => follower::run(config, options, &Target::At(address), deadline),
        Endpoint::Lookup(path) => follower::run(config, options, &Target::File(path), deadline),
        Endpoint::ConnectAgreed(host, ports) => {
            follower::run(config, options, &Target::Agreed(host, ports), deadline)
        }
    }
}

fn warn_of_retries(rank: usize, address: SocketAddr) {
    tracing::warn!(
        "rendezvous: {address} is in use by another process; rank {rank} retries until init_timeout"
    );
}

/// Listens at `address`. A process of an earlier start may still hold it for a while; `in_use` is called once if one does.
fn bind(
    rank: usize,
    address: SocketAddr,
    deadline: Instant,
    in_use: impl FnOnce(),
) -> Result<TcpListener, CommError> {
    let mut in_use = Some(in_use);
    loop {
        let error = match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(e) => e,
        };
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        if !taken || Instant::now() >= deadline {
            let error = CommError::rendezvous(format!("rank {rank} cannot listen on {address}: {error}"));
            return Err(if taken { error.hint(ports::OTHER_PORT) } else { error });
        }
        in_use.take().into_iter().for_each(|tell| tell());
        let _ = poll_until(&mut [], Some((Instant::now() + BIND_PAUSE).min(deadline)));
    }
}

fn check(config: &RendezvousConfig) -> Result<(), CommError> {
    let RendezvousConfig { rank, world_size, .. } = config;
    if *world_size == 0 || *world_size > MAX_WORLD {
        return Err(CommError::rendezvous(format!(
            "world size {world_size} is out of range (1 to {MAX_WORLD})"
        )));
    }
    if rank >= world_size {
        return Err(CommError::rendezvous(format!(
            "rank {rank} is out of range for world size {world_size} (0 to {})",
            world_size - 1
        )));
    }
    for (what, text) in [("run id", &config.run_id), ("plan hash", &config.plan_hash)] {
        if text.len() > wire::MAX_NAME {
            return Err(CommError::rendezvous(format!(
                "the {what} has {} bytes; the maximum is {}",
                text.len(),
                wire::MAX_NAME
            )));
        }
    }
    let listens =
        !matches!(config.endpoint, Endpoint::Connect(_) | Endpoint::Lookup(_) | Endpoint::ConnectAgreed(..));
    if *world_size > 1 && listens != (*rank == 0) {
        return Err(CommError::rendezvous(format!(
            "rank 0 must listen and the other ranks must connect; rank {rank} is configured otherwise"
        )));
    }
    Ok(())
}
