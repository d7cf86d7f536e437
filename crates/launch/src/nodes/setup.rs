//! Where the supervisors of a run's nodes meet: which one listens, on which address, and how the others reach it.

use super::background::Background;
use super::{Addresses, Meeting, Nodes, RdzvEndpoint, addresses};
use base::error::{Error, ErrorKind, Result};
use collectives::rendezvous::file::{PublishedAddress, publish};
use collectives::rendezvous::{self, Secret, Target};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What a node knows before it connects to the others.
pub(super) struct Setup {
    /// Accepts the other nodes, on node 0 of several.
    pub listener: Option<TcpListener>,
    /// The file that publishes the address; removed when this is dropped.
    pub _published: Option<PublishedAddress>,
    /// Address of node 0's supervisor; `None` on node 0.
    pub target: Option<Target>,
    /// The address at which the other ranks reach rank 0; `None` if it is on the host of node 0, which is not known yet.
    pub host: Option<String>,
    /// The address that rank 0 listens on, on node 0.
    pub ip: IpAddr,
    /// The key of this run on a single node; with several nodes, of all runs at this endpoint.
    pub key: Secret,
    /// Why other nodes may not find node 0.
    pub doubt: Option<String>,
}

/// How long an earlier supervisor may take to release the port.
const PORT_FREE: Duration = Duration::from_secs(10);

impl Setup {
    /// Runs on a thread: a port may be busy for a while, and a name may not resolve at once.
    pub(super) fn start(nodes: &Nodes) -> Result<Background<Self>> {
        let nodes = nodes.clone();
        Background::start("rendezvous", move || Self::prepare(&nodes))
    }

    pub(super) fn prepare(nodes: &Nodes) -> Result<Self> {
        let Some((endpoint, node_rank, key)) = place(nodes)? else {
            return Ok(Self::at(nodes.bind, Some(nodes.bind.to_string()), Secret::generate()?));
        };
        match (endpoint, node_rank) {
            (RdzvEndpoint::Tcp { host, .. }, 1..) => {
                let target = Some(Target::At(endpoint.to_string()));
                Ok(Self { target, ..Self::at(nodes.bind, Some(host.clone()), key) })
            }
            (RdzvEndpoint::File(path), 1..) => {
                let target = Some(Target::File(path.clone()));
                Ok(Self { target, ..Self::at(nodes.bind, None, key) })
            }
            (RdzvEndpoint::Tcp { host, port }, 0) => {
                let (listener, ip, doubt) = listen(host, *port, nodes)?;
                Ok(Self { listener: Some(listener), doubt, ..Self::at(ip, Some(host.clone()), key) })
            }
            (RdzvEndpoint::File(path), 0) => {
                let Addresses { listen, advertised } =
                    addresses(nodes.bind, nodes.interface, nodes.limits.nodes.max)?;
                let cannot = |e: std::io::Error| {
                    let what = format!("node 0 cannot listen on {listen} for the other nodes: {e}");
                    Error::new(ErrorKind::Rendezvous, what)
                };
                let listener = TcpListener::bind((listen, 0)).map_err(cannot)?;
                let address = SocketAddr::new(advertised, listener.local_addr().map_err(cannot)?.port());
                let published = publish(path, &address.to_string()).map_err(|e| {
                    let what = format!("cannot write the address of node 0 to {}: {e}", path.display());
                    Error::new(ErrorKind::Rendezvous, what)
                })?;
                let (listener, _published) = (Some(listener), Some(published));
                Ok(Self { listener, _published, ..Self::at(listen, Some(advertised.to_string()), key) })
            }
        }
    }

    fn at(ip: IpAddr, host: Option<String>, key: Secret) -> Self {
        Self { listener: None, _published: None, target: None, host, ip, key, doubt: None }
    }
}

/// Where the supervisors of several nodes meet, the rank of this node, and their key. `None` for a single node.
pub(super) fn place(nodes: &Nodes) -> Result<Option<(&RdzvEndpoint, usize, Secret)>> {
    if nodes.limits.nodes.max == 1 {
        return Ok(None);
    }
    if let Some(rank) = nodes.node_rank.filter(|rank| *rank >= nodes.limits.nodes.max) {
        let (n, last) = (nodes.limits.nodes.max, nodes.limits.nodes.max - 1);
        return Err(Error::usage(format!("--node-rank is {rank}, but the run has {n} nodes (0 to {last})")));
    }
    let endpoint = nodes.endpoint.as_ref().ok_or_else(|| {
        Error::usage(format!("a run over {} nodes requires a rendezvous endpoint", nodes.limits.nodes))
            .hint("set `--rdzv-endpoint HOST:PORT` to the address of node 0, the same on every node")
    })?;
    let node_rank = nodes.node_rank.ok_or_else(|| {
        Error::usage(format!("a run over {} nodes requires the rank of each node", nodes.limits.nodes))
            .hint(format!("set `--node-rank 0` on the node of {endpoint}, and 1, 2, … on the others"))
    })?;
    let key = nodes.key.as_ref().ok_or_else(|| Error::internal("several nodes without a key"))?;
    Ok(Some((endpoint, node_rank, key.secret(&format!("ddp-run supervisors at {endpoint}"))?)))
}

/// The address at which the ranks of node 0 reach rank 0, which listens on `ip`.
pub(super) fn advertised_address(nodes: &Nodes, ip: IpAddr) -> Result<IpAddr> {
    match ip.is_unspecified() {
        true => Ok(addresses(ip, nodes.interface, nodes.limits.nodes.max)?.advertised),
        false => Ok(ip),
    }
}

/// Node 0's listener for supervisors, its address, and why other nodes may not find it.
fn listen(host: &str, port: u16, nodes: &Nodes) -> Result<(TcpListener, IpAddr, Option<String>)> {
    let (bind, interface, nnodes) = (nodes.bind, nodes.interface, nodes.limits.nodes.max);
    let (ip, doubt) = match (Meeting { host, port, bind, interface, nnodes }).own_address()? {
        Some(address) => (address.ip(), None),
        // A pod's own name may not resolve yet when it starts.
        None => {
            let doubt = format!(
                "`{host}` of the endpoint has no address on this machine, and may have none elsewhere"
            );
            (addresses(bind, interface, nnodes)?.listen, Some(doubt))
        }
    };
    let until = Instant::now() + PORT_FREE;
    let mut reported = false;
    loop {
        match TcpListener::bind((ip, port)) {
            Ok(listener) => return Ok((listener, ip, doubt)),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => {
                if !std::mem::replace(&mut reported, true) {
                    let wait = PORT_FREE.as_secs();
                    status!("port {port} of {ip} is in use; node 0 waits up to {wait} s for it");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(e) => {
                let what = format!("node 0 cannot listen on {ip}, port {port}, for the other nodes: {e}");
                return Err(Error::new(ErrorKind::Rendezvous, what)
                    .hint("--rdzv-endpoint must be an address of node 0 with a free port"));
            }
        }
    }
}

/// A socket that reserves a free port until it is dropped, and does not listen: whoever connects early is refused. Once it is
/// dropped, another process may take the port. To make that unlikely, it is not a port that the system gives to
/// connections by itself, if there is room below those.
pub(super) fn reserve_port() -> io::Result<TcpListener> {
    const FIRST: u32 = 16_384;
    const CANDIDATES: u32 = 64;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let room = u32::checked_sub(end, FIRST).filter(|room| *room > CANDIDATES);
    let start = getrandom::u32().map_err(|e| io::Error::other(e.to_string()))?;
    let below =
        room.into_iter().flat_map(|room| (0..CANDIDATES).map(move |i| FIRST + start.wrapping_add(i) % room));
    for port in below.filter_map(|port| u16::try_from(port).ok()) {
        match bound(port) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            done => return done,
        }
    }
    bound(0)
}

/// A socket that is bound to `port` of all addresses.
fn bound(port: u16) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    let bound = |family, ip: IpAddr| -> io::Result<TcpListener> {
        let socket = socket(family, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        bind(&socket, &SocketAddr::new(ip, port))?;
        Ok(socket.into())
    };
    match bound(AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()) {
        Err(e) if [Some(libc::EAFNOSUPPORT), Some(libc::EADDRNOTAVAIL)].contains(&e.raw_os_error()) => {
            bound(AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into())
        }
        done => done,
    }
}

/// Connects to node 0, retrying until it answers.
pub(super) fn connect(
    target: Target,
    me: String,
    secret: Secret,
    deadline: Instant,
) -> Result<Background<TcpStream>> {
    Background::start("connect", move || {
        Ok(rendezvous::connect_supervisor(&target, "node 0", &me, &secret, deadline)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_refuses_connections_and_is_free_once_released() {
        let reserved = reserve_port().expect("a port is free");
        let port = reserved.local_addr().expect("bound").port();
        assert_ne!(reserve_port().expect("another").local_addr().expect("bound").port(), port);
        let address = (Ipv4Addr::LOCALHOST, port);
        assert_eq!(
            TcpStream::connect(address).expect_err("no listener").kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert!(TcpListener::bind(address).is_err(), "it is reserved");
        drop(reserved);
        TcpListener::bind(address).expect("it is free");
    }
}
