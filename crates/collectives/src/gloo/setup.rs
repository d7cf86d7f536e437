//! From the rendezvous to a working group: connections, then the memory of each host, on which all ranks must agree.

use super::engine::Engine;
use super::header::{Algorithm, CallOperation, Header};
use super::lanes::Lanes;
use super::link::PeerLink;
use super::options::{GlooOptions, Transport};
use super::shared::{ControlSocket, GlooShared};
use super::shm;
use super::topology::{Topology, host_id};
use super::wire::Wire;
use crate::execute::Engine as _;
use crate::rendezvous::{self, MeshOptions, RendezvousConfig};
use crate::{CommError, CommErrorKind, ReduceOp};
use sha2::{Digest, Sha256};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connects to the other ranks within `init_timeout`; the engine is then ready for its first call.
pub(super) fn set_up(
    config: &mut RendezvousConfig,
    options: &GlooOptions,
) -> Result<(Engine, Topology), CommError> {
    let mesh_options = MeshOptions {
        host: host_id(options.host.as_deref()),
        sockets: options.sockets,
        address: options.address()?,
        attempt: rendezvous::ATTEMPT,
    };
    // Ranks with different numbers would wait for each other's connections in vain.
    if let Some(sockets) = options.sockets {
        config.plan_hash.push_str(&format!(", {sockets} sockets"));
    }
    let mesh = rendezvous::form_mesh(config, &mesh_options, rendezvous::deadline_of(config))?;
    // Ranks that came late have connected late.
    let deadline = rendezvous::deadline_of(config);
    let (rank, world) = (config.rank, config.world_size);
    let (mut links, mut control) = (Vec::new(), Vec::new());
    for sockets in mesh.sockets {
        if let Some(s) = &sockets {
            keep_alive(&s.control)
                .map_err(|e| CommError::rendezvous(format!("cannot set up the connections: {e}")))?;
        }
        let (data, c) = sockets.map(|s| (s.data, s.control)).unzip();
        links.push(data.map(|streams| PeerLink::new(Wire::Tcp(Lanes::new(streams)))));
        control.push(c.map(ControlSocket::new));
    }
    let run = Sha256::digest(config.run_id.as_bytes()).first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let base = Header::base(Algorithm::Direct, run, config.generation);
    let shared = GlooShared::new(rank, control);
    let shared =
        Arc::new(shared.map_err(|e| CommError::rendezvous(format!("cannot set up the connections: {e}")))?);
    let mut engine = Engine::new(rank, links, shared, base);
    let together = Topology::from_hosts(&mesh.hosts);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    engine.processor_per_rank = together.host_of(rank).len() <= processors;
    let topology = match options.transport {
        Transport::Tcp => Topology::scattered(world),
        Transport::Shm if together.hosts.len() > 1 => {
            return Err(CommError::rendezvous(format!(
                "transport = \"shm\" requires all ranks on one host, but they are on {} hosts; use \"auto\"",
                together.hosts.len()
            )));
        }
        Transport::Auto | Transport::Shm if together.shares() => {
            share_memory(&mut engine, together, options.transport, deadline)?
        }
        Transport::Auto | Transport::Shm => together,
    };
    Ok((engine, topology))
}

/// Sets up the memory of every host. If one host has none, no host uses it, because all ranks must choose the same algorithms.
fn share_memory(
    engine: &mut Engine,
    topology: Topology,
    transport: Transport,
    deadline: Instant,
) -> Result<Topology, CommError> {
    let host = topology.host_of(engine.me);
    let arena = match host.len() {
        1 => None,
        _ => {
            let socket = |rank: &usize| engine.links[*rank].as_ref().and_then(|l| l.wire.streams().first());
            let sockets: Vec<Option<&TcpStream>> = host.iter().map(socket).collect();
            Some(shm::share(engine.me, host, &sockets, deadline))
        }
    };
    let mut all_have_it = [u8::from(!matches!(arena, Some(Err(_))))];
    agree(engine, &mut all_have_it, deadline)?;
    let why = match arena {
        Some(Ok(arena)) if all_have_it == [1] => {
            engine.move_into(arena);
            return Ok(topology);
        }
        _ if all_have_it == [1] => return Ok(topology),
        Some(Err(why)) => why,
        _ => "another host does not have it".into(),
    };
    if transport == Transport::Shm {
        return Err(CommError::rendezvous(format!(
            "transport = \"shm\", but shared memory is not available: {why}; use \"auto\""
        )));
    }
    tracing::warn!("shared memory is not available ({why}); ranks of the same host use TCP");
    Ok(Topology::scattered(engine.world))
}

/// The minimum of all ranks' values, before the first call of the group itself.
fn agree(engine: &mut Engine, value: &mut [u8], deadline: Instant) -> Result<(), CommError> {
    let header = Header {
        operation: CallOperation::AllReduce,
        reduce_op: ReduceOp::Min,
        algorithm: Algorithm::Doubling,
        count: value.len() as u64,
        ..engine.header
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let all: Vec<usize> = (0..engine.world).collect();
    let agreed = engine.begin(header, Some(left)).and_then(|()| engine.all_reduce_doubling(&all, value));
    engine.shared.calls.clear();
    match agreed.map_err(CommError::at_the_start) {
        Err(e) if e.kind == CommErrorKind::Rendezvous => Err(e),
        // All ranks are connected: the group exists, and its first call fails with this error.
        Err(_) | Ok(()) => Ok(()),
    }
}

/// A host that fails does not even close its connections: without this, a barrier without a deadline would wait for it forever.
fn keep_alive(control: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(control, true)?;
    sockopt::set_tcp_keepidle(control, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(control, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(control, 4)
}
