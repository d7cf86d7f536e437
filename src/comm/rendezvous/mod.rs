//! How the processes of a run find each other. Rank 0 listens; every other rank connects to it, proves the run's
//! secret, says who it is and where it listens itself; rank 0 checks that they all mean the same run and sends each
//! the table of addresses; then every pair of ranks is joined by two connections, one for data and one for control
//! (news that must not queue behind data). When all stand, rank 0 lets everyone go. All of this ends by
//! `init_timeout`, on every rank with the same reason.
//!
//! No listener outlives the rendezvous, so a running job has no open door.

mod accept;
mod auth;
mod dial;
mod door;
pub(crate) mod file;
mod guest;
mod host;
mod identity;
mod io;
mod mesh;
mod outlook;
mod secret;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use dial::ATTEMPT;
pub(crate) use door::{Door, Knock, Whereabouts, call};
pub(crate) use io::{Trouble, poll_until, read_by, write_by};
pub(crate) use mesh::name_ranks;
pub use secret::{Secret, SecretText};
#[cfg(any(test, fuzzing))]
pub(crate) use wire::decode_anything;
pub(crate) use wire::{HostId, MAX_WORLD, cut};

use super::{CommError, CommErrorKind};
use dial::Target;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two attempts to listen at an address that another process has.
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// Where the rendezvous takes place. Rank 0 gives one of the first three, the others one of the last two.
#[derive(Debug)]
pub enum Endpoint {
    /// Already bound, for instance by the supervisor, which then knows its port.
    Listener(TcpListener),
    /// At this address.
    Bind(SocketAddr),
    /// On a port of this address that the system picks; `host`, as the others call the address, and the port are
    /// written to `file` until the rendezvous is over.
    Publish {
        /// Where to listen.
        address: IpAddr,
        /// Its name to the others.
        host: String,
        /// Where they read it.
        file: PathBuf,
    },
    /// `host:port` of rank 0; names are resolved anew at each attempt.
    Connect(String),
    /// Rank 0 writes its `host:port` to this file, which is read anew at each attempt.
    Lookup(PathBuf),
}

/// Who this process is, where it meets the others and how long it may take. All but `rank` and `endpoint` must be
/// equal on all ranks (`timeout` and `init_timeout` should be).
#[derive(Debug)]
pub struct RendezvousConfig {
    /// This process's number.
    pub rank: usize,
    /// The number of processes.
    pub world_size: usize,
    /// Where they meet.
    pub endpoint: Endpoint,
    /// What each proves to know.
    pub secret: Secret,
    /// Names the run, at most 128 bytes. Peers of another run are turned away.
    pub run_id: String,
    /// Counts the run's restarts. Peers left over from an earlier one are turned away.
    pub generation: u64,
    /// Digest of what the ranks are about to do, at most 128 bytes; different ones fail the rendezvous.
    pub plan_hash: String,
    /// From the call until all connections stand.
    pub init_timeout: Duration,
    /// Of each collective later on.
    pub timeout: Duration,
}

/// What more there is to know about this rank's connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeshOptions {
    pub host: HostId,
    /// Data connections between two ranks, if it is not left to the default.
    pub sockets: Option<usize>,
    /// The address at which peers shall reach this rank; by default the one that reaches rank 0.
    pub address: Option<IpAddr>,
    /// How long what listens at rank 0's address may be silent before it is called again.
    pub attempt: Duration,
}

impl MeshOptions {
    fn lanes(&self, same_host: bool) -> usize {
        lanes(self.sockets, same_host)
    }
}

/// Data connections between two ranks. A single flow rarely fills a link between hosts; within a host it is the processor that limits.
pub(crate) fn lanes(sockets: Option<usize>, same_host: bool) -> usize {
    sockets.unwrap_or(if same_host { 1 } else { 4 }).clamp(1, wire::MAX_LANES)
}

/// The connections to a peer, all nonblocking and without Nagle's delay.
pub(crate) struct PeerSockets {
    pub data: Vec<TcpStream>,
    pub control: TcpStream,
}

/// By rank; this rank's own sockets are None.
pub(crate) struct Mesh {
    pub sockets: Vec<Option<PeerSockets>>,
    pub hosts: Vec<HostId>,
}

/// When `init_timeout` is over. The year-long ones that people write to mean "never" must not overflow the clock.
pub(crate) fn deadline_of(config: &RendezvousConfig) -> Instant {
    Instant::now() + config.init_timeout.min(Duration::from_secs(365 * 24 * 3600))
}

/// Meets the other ranks and connects to each of them.
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
        Endpoint::Listener(listener) => host::run(config, options, listener, deadline),
        Endpoint::Bind(address) => host::run(config, options, bind(rank, address, deadline)?, deadline),
        Endpoint::Publish { address, host, file } => {
            let listener = bind(rank, (address, 0).into(), deadline)?;
            let port = listener.local_addr().map_err(|e| failed(e.to_string()))?.port();
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let published = file::publish(&file, &format!("{host}:{port}"));
            let _published = published.map_err(|e| {
                failed(format!("rank {rank} cannot write its address to {}: {e}", file.display()))
            })?;
            host::run(config, options, listener, deadline)
        }
        Endpoint::Connect(address) => guest::run(config, options, Target::At(&address), deadline),
        Endpoint::Lookup(path) => guest::run(config, options, Target::File(&path), deadline),
    }
}

/// Listens at `address`. A process of an earlier start may still have it for a while.
fn bind(rank: usize, address: SocketAddr, deadline: Instant) -> Result<TcpListener, CommError> {
    let mut waits = false;
    loop {
        let error = match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(e) => e,
        };
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        if !taken || Instant::now() >= deadline {
            return Err(failed(format!("rank {rank} cannot listen on {address}: {error}")));
        }
        if !waits {
            tracing::warn!(
                "rendezvous: another process listens on {address}; rank {rank} waits until it ends"
            );
            waits = true;
        }
        let _ = poll_until(&mut [], Some((Instant::now() + BIND_PAUSE).min(deadline)));
    }
}

fn check(config: &RendezvousConfig) -> Result<(), CommError> {
    let RendezvousConfig { rank, world_size, .. } = config;
    if *world_size == 0 || *world_size > MAX_WORLD {
        return Err(failed(format!("a world of {world_size} ranks is not possible (1 to {MAX_WORLD})")));
    }
    if rank >= world_size {
        return Err(failed(format!(
            "rank {rank} is not in a world of {world_size} (0 to {})",
            world_size - 1
        )));
    }
    for (what, text) in [("run id", &config.run_id), ("plan hash", &config.plan_hash)] {
        if text.len() > wire::MAX_NAME {
            return Err(failed(format!("the {what} has {} bytes, over {}", text.len(), wire::MAX_NAME)));
        }
    }
    let listens = !matches!(config.endpoint, Endpoint::Connect(_) | Endpoint::Lookup(_));
    if *world_size > 1 && listens != (*rank == 0) {
        return Err(failed(format!(
            "rank 0 listens and the others connect; rank {rank} was told the opposite"
        )));
    }
    Ok(())
}

fn failed(message: impl Into<String>) -> CommError {
    CommError::new(CommErrorKind::Rendezvous, None, message)
}
