//! torchrun, `ddp-run launch`, and other programs that set RANK and WORLD_SIZE for each rank.

use super::{Launched, is_loopback};
use crate::CommError;
use crate::rendezvous::Ports;
use base::variables::Variables;

/// `None` if neither RANK nor WORLD_SIZE is set.
pub(super) fn rank(vars: &Variables<'_, CommError>) -> Result<Option<Launched>, CommError> {
    let Some((rank, world_size)) = vars.pair("RANK", "WORLD_SIZE")? else { return Ok(None) };
    Ok(Some(Launched {
        rank,
        world_size,
        local: local(vars, rank, world_size)?,
        run_id: vars.text("TORCHELASTIC_RUN_ID").unwrap_or_default(),
        restarts: vars.number("TORCHELASTIC_RESTART_COUNT")?,
    }))
}

/// Rank and number of ranks on this machine. Without LOCAL_*, the master's address distinguishes the two common
/// layouts: all processes on this machine, or one per machine (Kubernetes' PyTorchJob).
///
/// # Errors
/// One of them is missing.
pub fn local<E>(vars: &Variables<'_, E>, rank: usize, world: usize) -> Result<Option<(usize, usize)>, E> {
    let one_machine = world == 1 || vars.text("MASTER_ADDR").is_some_and(|host| is_loopback(&host));
    match (vars.number("LOCAL_RANK")?, vars.number("LOCAL_WORLD_SIZE")?) {
        (Some(local), Some(size)) => Ok(Some((local, size))),
        (Some(local), None) if one_machine => Ok(Some((local, world))),
        (Some(_), None) => Err(vars.inconsistent("LOCAL_RANK is set, but LOCAL_WORLD_SIZE is not")),
        // All launchers assign ranks machine by machine.
        (None, Some(size)) => Ok(Some((rank % size.max(1), size))),
        (None, None) if one_machine => Ok(Some((rank, world))),
        (None, None) => Ok(None),
    }
}

/// How the ranks agree on a port, under torchrun: MASTER_PORT is that of its agent's store, or was free when it looked.
pub(super) fn ports(
    vars: &Variables<'_, CommError>,
    host: &str,
    port: u16,
    run_id: &str,
    restarts: u64,
) -> Option<Ports> {
    let has_store = has_agent_store(vars);
    let of_torchrun = has_store || vars.text("TORCHELASTIC_RUN_ID").is_some();
    of_torchrun.then(|| Ports::of_torchrun(host, port, has_store, run_id, restarts.saturating_add(1)))
}

/// Whether MASTER_PORT is that of the store of torchrun's agent.
pub fn has_agent_store<E>(vars: &Variables<'_, E>) -> bool {
    vars.text("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}
