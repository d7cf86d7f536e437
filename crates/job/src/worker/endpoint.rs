//! The rendezvous address of a worker, from its handoff and the spec.

use super::handoff::Handoff;
use super::parts::GroupParts;
use base::error::{Error, ErrorKind, Result};
use collectives::rendezvous::{Addresses, Endpoint as RendezvousEndpoint, Meeting, addresses};
use launch::Endpoint;
use std::net::{SocketAddr, TcpListener};

/// `None` for a single worker.
pub(super) fn rendezvous_endpoint(
    handoff: &Handoff,
    parts: &GroupParts<'_>,
    listener: Option<TcpListener>,
) -> Result<Option<RendezvousEndpoint>> {
    let rank_0 = handoff.place.rank == 0;
    Ok(Some(match (&handoff.endpoint, listener) {
        (Endpoint::Solo, _) => return Ok(None),
        (_, Some(listener)) => RendezvousEndpoint::Listener(listener),
        (Endpoint::Inherited { addr, .. }, None) => RendezvousEndpoint::Bind(*addr),
        (Endpoint::Listen { host, port }, None) => {
            RendezvousEndpoint::Bind(bind_address(handoff, parts, host, *port)?)
        }
        (Endpoint::Connect { host, port }, None) => {
            RendezvousEndpoint::Connect(format!("{}:{port}", host_of_rank_0(handoff, parts, host)?))
        }
        (Endpoint::Agreed { host, ports }, None) if rank_0 => {
            let address = bind_address(handoff, parts, host, ports.first)?.ip();
            RendezvousEndpoint::BindAgreed(address, ports.clone())
        }
        (Endpoint::Agreed { host, ports }, None) => {
            RendezvousEndpoint::ConnectAgreed(host_of_rank_0(handoff, parts, host)?, ports.clone())
        }
        (Endpoint::File { path }, None) if rank_0 => {
            let Addresses { listen, advertised } = own_addresses(handoff, parts)?;
            RendezvousEndpoint::Publish { address: listen, host: advertised.to_string(), file: path.clone() }
        }
        (Endpoint::File { path }, None) => RendezvousEndpoint::Lookup(path.clone()),
    }))
}

fn own_addresses(handoff: &Handoff, parts: &GroupParts<'_>) -> Result<Addresses> {
    let interface = parts.gloo.address()?;
    Ok(addresses(parts.bind, interface, handoff.place.nnodes)?)
}

fn meeting<'a>(handoff: &Handoff, parts: &GroupParts<'_>, host: &'a str, port: u16) -> Result<Meeting<'a>> {
    let (bind, interface, nnodes) = (parts.bind, parts.gloo.address()?, handoff.place.nnodes);
    Ok(Meeting { host, port, bind, interface, nnodes })
}

/// The host at which this rank reaches rank 0, whose name for others is `host`.
fn host_of_rank_0(handoff: &Handoff, parts: &GroupParts<'_>, host: &str) -> Result<String> {
    let first_node = handoff.place.node_rank == 0;
    Ok(meeting(handoff, parts, host, 0)?.host_of_rank_0(first_node)?)
}

/// The address that rank 0 binds if others reach it as `host`.
fn bind_address(handoff: &Handoff, parts: &GroupParts<'_>, host: &str, port: u16) -> Result<SocketAddr> {
    meeting(handoff, parts, host, port)?.own_address()?.ok_or_else(|| {
        let what = format!("the address {host}:{port} to listen on is not known");
        Error::new(ErrorKind::Rendezvous, what)
            .hint("MASTER_ADDR (or --rdzv-endpoint) must be a name or an address of rank 0's machine")
    })
}
