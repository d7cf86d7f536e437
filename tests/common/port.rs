//! Ports for those who have to be told one before anybody listens there.

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// A port of this machine that is this test's for as long as it is kept. A socket that never listens has it, so that the system gives
/// it to nobody who wants any, and whoever connects is refused. Who asks for this very one gets it: on Linux sockets that say
/// SO_REUSEADDR, as Rust's listeners do, share an address with those that do not listen.
pub struct Port {
    number: u16,
    _kept: OwnedFd,
}

impl Port {
    pub fn new() -> Self {
        let all = [
            (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
            // Where there is no IPv6.
            (AddressFamily::INET, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        ];
        let kept = all.into_iter().find_map(|(family, any)| Self::bound(family, any).ok());
        kept.expect("a port is free")
    }

    fn bound(family: AddressFamily, any: SocketAddr) -> rustix::io::Result<Self> {
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &any)?;
        let number = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok(Self { number, _kept: socket })
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
