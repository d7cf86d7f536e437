//! Where a worker meets the others, as its handoff and the spec say it.

use crate::comm::rendezvous::Endpoint as Meeting;
use crate::error::{Error, ExitCode, Result};
use crate::launch::{Endpoint, Handoff, Reach, reach};
use crate::plan::Plan;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};

/// `None` for a worker that is alone.
pub(super) fn meeting(
    handoff: &Handoff,
    plan: &Plan,
    listener: Option<TcpListener>,
) -> Result<Option<Meeting>> {
    let rank_0 = handoff.place.rank == 0;
    Ok(Some(match (&handoff.endpoint, listener) {
        (Endpoint::Solo, _) => return Ok(None),
        (_, Some(listener)) => Meeting::Listener(listener),
        (Endpoint::Inherited { addr, .. }, None) => Meeting::Bind(*addr),
        (Endpoint::Listen { host, port }, None) => Meeting::Bind(own_address(handoff, plan, host, *port)?),
        (Endpoint::Connect { host, port }, None) => Meeting::Connect(match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }),
        (Endpoint::File { path }, None) if rank_0 => {
            let Reach { listen, told } = reached(handoff, plan)?;
            Meeting::Publish { address: listen, host: told.to_string(), file: path.clone() }
        }
        (Endpoint::File { path }, None) => Meeting::Lookup(path.clone()),
    }))
}

fn reached(handoff: &Handoff, plan: &Plan) -> Result<Reach> {
    let interface = plan.distributed.gloo().address()?;
    reach(plan.launch.bind, interface, handoff.place.nnodes)
}

/// What rank 0 binds when the others reach it as `host`: the address of that name, but `[launch] bind` where that is
/// set, and no loopback where others come from elsewhere (Debian gives a machine's own name one).
fn own_address(handoff: &Handoff, plan: &Plan, host: &str, port: u16) -> Result<SocketAddr> {
    if !plan.launch.bind.is_loopback() {
        return Ok((plan.launch.bind, port).into());
    }
    // Who says loopback means it: all ranks are here, or come by a tunnel.
    let meant = host == "localhost" || host.parse::<IpAddr>().is_ok();
    let named = (host, port).to_socket_addrs().ok().and_then(|mut a| a.next());
    match named {
        Some(address) if address.ip().is_loopback() && !meant && handoff.place.nnodes > 1 => {
            Ok((reached(handoff, plan)?.listen, port).into())
        }
        Some(address) => Ok(address),
        None => {
            let what = format!("the address {host}:{port} to listen on is not known");
            Err(Error::new(ExitCode::Rendezvous, what)
                .hint("MASTER_ADDR (or --rdzv-endpoint) must be a name or an address of rank 0's machine"))
        }
    }
}
