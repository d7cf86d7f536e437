//! The rendezvous address of a worker, from its handoff and the spec.

use crate::comm::rendezvous::Endpoint as Meeting;
use crate::error::{Error, ExitCode, Result};
use crate::launch::{Endpoint, Handoff};
use crate::nodes::{Reach, own_address, reach};
use crate::plan::Plan;
use std::net::{SocketAddr, TcpListener};

/// `None` for a single worker.
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
        (Endpoint::Listen { host, port }, None) => Meeting::Bind(bound(handoff, plan, host, *port)?),
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
    reach(plan.nodes.bind, interface, handoff.place.nnodes)
}

/// The address that rank 0 binds if others reach it as `host`.
fn bound(handoff: &Handoff, plan: &Plan, host: &str, port: u16) -> Result<SocketAddr> {
    let interface = plan.distributed.gloo().address()?;
    own_address(host, port, plan.nodes.bind, interface, handoff.place.nnodes)?.ok_or_else(|| {
        let what = format!("the address {host}:{port} to listen on is not known");
        Error::new(ExitCode::Rendezvous, what)
            .hint("MASTER_ADDR (or --rdzv-endpoint) must be a name or an address of rank 0's machine")
    })
}
