//! The address at which other machines of a run reach this one.

use crate::CommError;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// The address to listen on, and the one to announce to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// To listen on.
    pub listen: IpAddr,
    /// For others to connect to.
    pub advertised: IpAddr,
}

/// `bind` (`[launch] bind`) if it is not the loopback default, else the address of `interface` (`[distributed]
/// interface`), else loopback if all processes are on this machine, else the address from which this machine reaches
/// others.
///
/// Errors: loopback is the only address.
pub fn addresses(bind: IpAddr, interface: Option<IpAddr>, nnodes: usize) -> Result<Addresses, CommError> {
    let both = |ip| Addresses { listen: ip, advertised: ip };
    if bind.is_unspecified() {
        return Ok(Addresses { listen: bind, advertised: interface.map_or_else(default_address, Ok)? });
    }
    match interface {
        _ if !bind.is_loopback() => Ok(both(bind)),
        Some(ip) => Ok(both(ip)),
        None if nnodes <= 1 => Ok(both(bind)),
        None => default_address().map(both),
    }
}

/// Where others find rank 0, or the supervisor of node 0: at `port` of `host`.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<'a> {
    /// A name or an address.
    pub host: &'a str,
    /// 0 if it does not matter.
    pub port: u16,
    /// `[launch] bind`.
    pub bind: IpAddr,
    /// The address of `[distributed] interface`.
    pub interface: Option<IpAddr>,
    /// The number of machines.
    pub nnodes: usize,
}

impl Meeting<'_> {
    /// The address that this machine binds when others reach it as `host`: the address of that name, or `bind` if that is
    /// not the loopback default. Not loopback if others connect from elsewhere (Debian maps a machine's own name to
    /// loopback). `None` if the name has no address.
    ///
    /// Errors: as [`addresses`].
    pub fn own_address(&self) -> Result<Option<SocketAddr>, CommError> {
        self.own_address_of(|| self.named())
    }

    /// The address at which the other processes of rank 0's machine reach it, if the name, by which others do, is one of loopback
    /// there, and rank 0 listens elsewhere ([`Self::own_address`]). `None` if the name will do, or this is another machine.
    /// `first_node`: it is known to be rank 0's; that a name of a machine is one of loopback shows it, too.
    ///
    /// Errors: as [`addresses`].
    fn address_on_own_machine(&self, first_node: bool) -> Result<Option<SocketAddr>, CommError> {
        self.on_own_machine_of(first_node, || self.named())
    }

    /// The host at which a process reaches rank 0, whose name for others is `host`; an IPv6 address in brackets.
    /// `first_node` as in `address_on_own_machine`.
    ///
    /// Errors: as [`addresses`].
    pub fn host_of_rank_0(&self, first_node: bool) -> Result<String, CommError> {
        let own = self.address_on_own_machine(first_node)?;
        let host = own.map_or_else(|| self.host.to_owned(), |own| own.ip().to_string());
        Ok(bracketed(&host).into_owned())
    }

    /// The first address of the name.
    fn named(&self) -> Option<SocketAddr> {
        (self.host, self.port).to_socket_addrs().ok().and_then(|mut all| all.next())
    }

    fn own_address_of(
        &self,
        named: impl FnOnce() -> Option<SocketAddr>,
    ) -> Result<Option<SocketAddr>, CommError> {
        if !self.bind.is_loopback() {
            return Ok(Some((self.bind, self.port).into()));
        }
        // An explicit loopback address is intended: all ranks are here, or connect through a tunnel.
        let meant = is_any_machines(self.host);
        match named() {
            Some(address) if address.ip().is_loopback() && !meant && self.nnodes > 1 => {
                Ok(Some((addresses(self.bind, self.interface, self.nnodes)?.listen, self.port).into()))
            }
            found => Ok(found),
        }
    }

    fn on_own_machine_of(
        &self,
        first_node: bool,
        named: impl FnOnce() -> Option<SocketAddr>,
    ) -> Result<Option<SocketAddr>, CommError> {
        if !first_node && is_any_machines(self.host) {
            return Ok(None);
        }
        let Some(named) = named().filter(|address| address.ip().is_loopback()) else { return Ok(None) };
        let own = self.own_address_of(|| Some(named))?;
        Ok(own.filter(|address| !address.ip().is_loopback() && !address.ip().is_unspecified()))
    }
}

/// The host of a `HOST:PORT`: an IPv6 address in brackets.
pub(crate) fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

/// Whether it is not a name that one machine has.
fn is_any_machines(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok()
}

/// The address of the default route, else that of any interface. Nothing is sent.
fn default_address() -> Result<IpAddr, CommError> {
    let routed = |any: &str, far: &str| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(far).ok()?;
        socket.local_addr().ok().map(|a| a.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
    };
    let first = || {
        let all = if_addrs::get_if_addrs().ok()?;
        let all = all.iter().filter(|i| !i.is_loopback() && !i.is_link_local()).map(if_addrs::Interface::ip);
        all.min_by_key(|ip| !ip.is_ipv4())
    };
    // Addresses reserved for documentation: the route to them is the default route.
    routed("0.0.0.0:0", "203.0.113.1:9")
        .or_else(|| routed("[::]:0", "[2001:db8::1]:9"))
        .or_else(first)
        .ok_or_else(|| {
            CommError::rendezvous("this machine has no network address that other machines can reach").hint(
                "set `interface` in `[distributed]` to an interface, or `bind` in `[launch]` to an address",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_name_that_resolves_to_loopback_is_not_bound_for_several_nodes() {
        let loopback = ip("127.0.0.1");
        let own = |host: &str, bind, nnodes| {
            Meeting { host, port: 7, bind, interface: Some(ip("10.0.0.7")), nnodes }
                .own_address()
                .expect("known")
        };
        assert_eq!(own("127.0.0.1", loopback, 2), Some("127.0.0.1:7".parse().expect("address")));
        assert_eq!(own("localhost", loopback, 2).map(|a| a.ip().is_loopback()), Some(true));
        assert!(own("localhost.", loopback, 2).is_none_or(|a| a.ip() == ip("10.0.0.7")));
        assert_eq!(own("10.1.2.3", ip("10.0.0.9"), 2), Some("10.0.0.9:7".parse().expect("address")));
        assert_eq!(own("no.such.host.invalid", loopback, 2), None);
    }

    #[test]
    fn a_name_of_loopback_is_not_where_the_ranks_of_its_machine_find_rank_0() {
        let (loopback, own, all) = (ip("127.0.0.1"), ip("10.0.0.9"), ip("0.0.0.0"));
        let at = |first_node, (host, named): (&str, &str), bind| {
            let named = || Some((ip(named), 7).into());
            let meeting = Meeting { host, port: 7, bind, interface: Some(own), nnodes: 2 };
            meeting.on_own_machine_of(first_node, named).expect("known").map(|address| address.ip())
        };
        // As the name of a Debian machine is 127.0.1.1: no other machine's is one of loopback here.
        let name = ("node-0", "127.0.1.1");
        for first_node in [true, false] {
            assert_eq!(
                [loopback, own, all].map(|bind| at(first_node, name, bind)),
                [Some(own), Some(own), None]
            );
            assert_eq!(
                at(first_node, ("node-0", "10.1.2.3"), loopback),
                None,
                "others reach it by the same address"
            );
        }
        // A tunnel, perhaps, unless it is known to be here.
        for meant in [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")] {
            assert_eq!([true, false].map(|first_node| at(first_node, meant, own)), [Some(own), None]);
            assert_eq!([true, false].map(|first_node| at(first_node, meant, loopback)), [None, None]);
        }
        let nowhere =
            Meeting { host: "no.such.host.invalid", port: 7, bind: own, interface: None, nnodes: 2 };
        assert_eq!(nowhere.address_on_own_machine(true).expect("known"), None);
    }

    #[test]
    fn the_spec_overrides_and_loopback_is_for_one_machine() {
        let (loopback, eth, any) = (ip("127.0.0.1"), ip("10.0.0.7"), ip("0.0.0.0"));
        let both = |ip| Addresses { listen: ip, advertised: ip };
        assert_eq!(addresses(loopback, None, 1).expect("loopback"), both(loopback));
        assert_eq!(addresses(loopback, Some(eth), 1).expect("interface"), both(eth));
        assert_eq!(addresses(loopback, Some(eth), 2).expect("interface"), both(eth));
        assert_eq!(addresses(eth, None, 2).expect("bind"), both(eth));
        assert_eq!(addresses(any, Some(eth), 2).expect("all"), Addresses { listen: any, advertised: eth });
        match addresses(loopback, None, 2) {
            Ok(found) => {
                assert!(!found.advertised.is_loopback() && found.listen == found.advertised, "{found:?}")
            }
            Err(e) => assert_eq!(e.kind, crate::CommErrorKind::Rendezvous),
        }
    }
}
