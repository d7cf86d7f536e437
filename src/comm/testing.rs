//! Groups whose ranks are threads of this process, and ports of one's own, for the tests of every room that talks to others.

use super::gloo::{GlooGroup, GlooOptions};
use super::rendezvous::{Endpoint, RendezvousConfig, Secret};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// What takes longer hangs, however busy the machine is. Tests say nothing about speed.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// A port at which nobody listens, and which the system gives to nobody while this lives; who asks for it by number can listen there.
pub(crate) struct Port {
    pub address: SocketAddr,
    _held: OwnedFd,
}

impl Port {
    /// `at` is an address with port 0.
    pub(crate) fn hold(at: SocketAddr) -> std::io::Result<Self> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let held = socket(family, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&held, true)?;
        bind(&held, &at)?;
        Ok(Self { address: getsockname(&held)?.try_into()?, _held: held })
    }

    pub(crate) fn on_loopback() -> Self {
        Self::hold(([127, 0, 0, 1], 0).into()).unwrap()
    }
}

/// A group of `world` ranks, by rank, with options by rank.
pub(crate) fn form(
    world: usize,
    timeout: Duration,
    options: impl Fn(usize) -> GlooOptions,
) -> Vec<GlooGroup> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let secret = Secret::generate().unwrap();
    let mut endpoint = Some(Endpoint::Listener(listener));
    let ranks: Vec<_> = (0..world)
        .map(|rank| {
            let config = RendezvousConfig {
                rank,
                world_size: world,
                endpoint: endpoint.take().unwrap_or_else(|| Endpoint::Connect(address.clone())),
                secret: secret.clone(),
                run_id: "test".into(),
                generation: 0,
                plan_hash: "same".into(),
                init_timeout: HANG,
                timeout,
            };
            let options = options(rank);
            thread::spawn(move || GlooGroup::connect(config, options).unwrap())
        })
        .collect();
    ranks.into_iter().map(|t| t.join().unwrap()).collect()
}
