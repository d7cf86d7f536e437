//! Where the supervisors of a run's nodes meet: who listens, on which address, and how the others get there.

use super::super::local::LocalLaunch;
use super::super::rdzv::RdzvEndpoint;
use super::super::secret::Secret;
use crate::comm::rendezvous;
use crate::error::{Error, ExitCode, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What a node knows before it meets the others.
pub(super) struct Meeting {
    /// Where the others come in, on node 0 of several.
    pub listener: Option<TcpListener>,
    /// Node 0's supervisor; `None` on node 0.
    pub target: Option<String>,
    /// How ranks reach rank 0, and the address that it listens on.
    pub host: String,
    pub ip: IpAddr,
    /// Of the run on one node; of all runs at this endpoint on several.
    pub key: Secret,
}

/// A former supervisor may still be about to release the port.
const PORT_FREE: Duration = Duration::from_secs(10);

impl Meeting {
    pub(super) fn arrange(launch: &LocalLaunch) -> Result<Self> {
        let nodes = &launch.nodes;
        if nodes.range.max == 1 {
            let (ip, key) = (launch.bind, Secret::random()?);
            return Ok(Self { listener: None, target: None, host: ip.to_string(), ip, key });
        }
        if let Some(rank) = nodes.node_rank.filter(|rank| *rank >= nodes.range.max) {
            let (n, last) = (nodes.range.max, nodes.range.max - 1);
            return Err(Error::usage(format!("--node-rank {rank} is not among {n} nodes (0 to {last})")));
        }
        let endpoint = nodes.endpoint.as_ref().ok_or_else(|| {
            Error::usage(format!("a run over {} nodes needs to know where they meet", nodes.range))
                .hint("`--rdzv-endpoint HOST:PORT` with the address of node 0, the same on every node")
        })?;
        let key = nodes.key.as_ref().ok_or_else(|| Error::internal("several nodes without a key"))?;
        let key = key.secret(&format!("ddp-run supervisors at {endpoint}"))?;
        let (host, port) = match endpoint {
            RdzvEndpoint::Tcp { host, port } => (host.clone(), *port),
            RdzvEndpoint::File(_) => {
                return Err(Error::unavailable("supervisors do not meet at a file yet"));
            }
        };
        let listener = match nodes.node_rank {
            Some(0) => Some(listen(&host, port, launch.bind)?),
            Some(_) => None,
            None if is_own(&host, port) => Some(listen(&host, port, launch.bind)?),
            None => None,
        };
        let target = if listener.is_some() { None } else { Some(endpoint.to_string()) };
        let ip = listener.as_ref().and_then(|l| l.local_addr().ok()).map_or(launch.bind, |a| a.ip());
        Ok(Self { listener, target, host, ip, key })
    }
}

/// The addresses of `host`. A pod's own name may not be known yet when it starts.
fn addresses(host: &str, port: u16) -> Vec<SocketAddr> {
    (host, port).to_socket_addrs().map(Vec::from_iter).unwrap_or_default()
}

/// Whether this machine has the address of `host`.
fn is_own(host: &str, port: u16) -> bool {
    addresses(host, port).iter().any(|a| TcpListener::bind((a.ip(), 0)).is_ok())
}

/// Node 0's door. The spec's `launch.bind` decides on the address, unless it is the default (loopback): then the endpoint's
/// own address does. A name that means loopback on the machine itself (Debian's 127.0.1.1) but another address elsewhere
/// can't be told from its addresses: all of the machine's are listened on.
fn listen(host: &str, port: u16, bind: IpAddr) -> Result<TcpListener> {
    let named_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let own =
        addresses(host, port).into_iter().map(|a| a.ip()).find(|ip| TcpListener::bind((*ip, 0)).is_ok());
    let ip = match own {
        _ if !bind.is_loopback() => bind,
        Some(ip) if named_loopback || !ip.is_loopback() => ip,
        _ if named_loopback => bind,
        _ => any,
    };
    let until = Instant::now() + PORT_FREE;
    loop {
        match TcpListener::bind((ip, port)) {
            Ok(listener) => return Ok(listener),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(e) => {
                let what = format!("node 0 cannot listen on {ip}, port {port}, for the other nodes: {e}");
                return Err(Error::new(ExitCode::Rendezvous, what)
                    .hint("--rdzv-endpoint is an address of node 0 with a port that is free there"));
            }
        }
    }
}

/// A call that is going on.
pub(super) struct Calling {
    done: UnixStream,
    answer: Receiver<Result<TcpStream>>,
}

/// Calls node 0 on a thread, so that signals are heard meanwhile.
pub(super) fn call(
    target: String,
    me: String,
    secret: rendezvous::Secret,
    deadline: Instant,
) -> Result<Calling> {
    let cannot = |e| Error::internal(format!("cannot call node 0: {e}"));
    let (done, theirs) = UnixStream::pair().map_err(cannot)?;
    let (sender, answer) = channel();
    std::thread::Builder::new()
        .name("call".into())
        .spawn(move || {
            let stream = rendezvous::call(&target, "node 0", &me, &secret, deadline);
            let _ = sender.send(stream.map_err(Error::from));
            // Its end is readable: the answer is there.
            drop(theirs);
        })
        .map_err(cannot)?;
    Ok(Calling { done, answer })
}

impl Calling {
    /// Readable once there is an answer.
    pub(super) fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    pub(super) fn answer(&self) -> Option<Result<TcpStream>> {
        self.answer.try_recv().ok()
    }
}
