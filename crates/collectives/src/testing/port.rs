//! Ports for those who have to be told one before anybody listens there. Used by the tests of the real binary, too (`tests/common`).

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// A port of this machine that is this test's for as long as it is kept. A socket that never listens has it, so that the system gives
/// it to nobody who wants any, and whoever connects is refused. Who asks for this very one gets it: on Linux sockets that say
/// SO_REUSEADDR, as Rust's listeners do, share an address with those that do not listen.
pub struct Port {
    pub address: SocketAddr,
    _kept: OwnedFd,
}

impl Port {
    /// Of all addresses of this machine.
    #[allow(clippy::new_without_default, reason = "it takes a port of the machine")]
    pub fn new() -> Self {
        // There may be no IPv6.
        let all = [(Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::UNSPECIFIED, 0).into()];
        all.into_iter().find_map(|any| Self::hold(any).ok()).expect("a port is free")
    }

    /// `at` is an address with port 0.
    pub fn hold(at: SocketAddr) -> std::io::Result<Self> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &at)?;
        Ok(Self { address: getsockname(&socket)?.try_into()?, _kept: socket })
    }

    pub fn on_loopback() -> Self {
        Self::hold((Ipv4Addr::LOCALHOST, 0).into()).expect("a port is free")
    }

    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}
