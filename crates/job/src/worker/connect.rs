//! The ranks' process group: the rendezvous, and the backend that averages gradients.

use super::endpoint::rendezvous_endpoint;
use super::handoff::Handoff;
use super::parts::GroupParts;
use super::same_devices::check_devices;
use base::error::Result;
use collectives::gloo::GlooGroup;
use collectives::rendezvous::RendezvousConfig;
use collectives::{Backend, MpiConfig, ProcessGroup, SoloGroup, mpi, nccl};
use ddp::device::ComputeDevice;
use std::net::TcpListener;
use std::sync::Arc;

/// Connects the ranks, and calls `met` when they have met. For gradients in CUDA memory the group is NCCL, with the rendezvous group for control.
pub(super) fn connect(
    handoff: &Handoff,
    parts: &GroupParts<'_>,
    device: ComputeDevice,
    listener: Option<TcpListener>,
    met: impl FnOnce(),
) -> Result<Arc<dyn ProcessGroup>> {
    let group = rendezvous(handoff, parts, listener)?;
    met();
    check_devices(device, parts.share_devices, &*group)?;
    let ComputeDevice::Cuda(index) = device else { return Ok(group) };
    if !averages_by_nccl(parts, handoff.place.world_size, device) {
        return Ok(group);
    }
    Ok(nccl::connect(group, index, parts.distributed)?)
}

/// Whether ranks average gradients with NCCL on such devices.
pub(super) fn averages_by_nccl(parts: &GroupParts<'_>, world_size: usize, device: ComputeDevice) -> bool {
    let wanted = match parts.backend {
        Backend::Nccl => true,
        // A single rank has nothing to average, and NCCL does not accept ranks that share a device.
        Backend::Auto => world_size > 1 && !parts.share_devices,
        Backend::Gloo | Backend::Mpi => false,
    };
    wanted && matches!(device, ComputeDevice::Cuda(_))
}

fn rendezvous(
    handoff: &Handoff,
    parts: &GroupParts<'_>,
    listener: Option<TcpListener>,
) -> Result<Arc<dyn ProcessGroup>> {
    let place = &handoff.place;
    if parts.backend == Backend::Mpi {
        return Ok(mpi::connect(&MpiConfig {
            rank: place.rank,
            world_size: place.world_size,
            plan_hash: parts.plan_hash.to_owned(),
            init_timeout: *parts.distributed.init_timeout,
            timeout: *parts.distributed.timeout,
        })?);
    }
    let Some(endpoint) = rendezvous_endpoint(handoff, parts, listener)? else {
        return Ok(Arc::new(SoloGroup::default()));
    };
    let config = RendezvousConfig {
        rank: place.rank,
        world_size: place.world_size,
        endpoint,
        secret: handoff.secret.clone(),
        run_id: handoff.run_id.clone(),
        // The rendezvous counts generations from 0.
        generation: handoff.generation.saturating_sub(1),
        plan_hash: parts.plan_hash.to_owned(),
        plan_keys: parts.plan_keys.clone(),
        init_timeout: *parts.distributed.init_timeout,
        timeout: *parts.distributed.timeout,
    };
    Ok(Arc::new(GlooGroup::connect(config, parts.gloo.clone())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::JobHandoff;
    use base::error::ErrorKind;
    use collectives::DistributedConfig;
    use collectives::gloo::GlooOptions;
    use collectives::rendezvous::Secret;
    use launch::{Endpoint, RankPosition};
    use std::net::Ipv4Addr;

    /// The loss of a rank that leaves right after the rendezvous is noticed by the others, who have to know that they do.
    #[test]
    fn a_rank_has_met_the_others_before_its_first_call_fails() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let secret = Secret::generate().unwrap();
        let handoff = |rank| {
            let endpoint = Endpoint::Connect { host: "127.0.0.1".to_owned(), port };
            Handoff::new(RankPosition::on_one_node(rank, 2), endpoint, secret.clone(), JobHandoff::default())
        };
        let parts = GroupParts {
            plan_hash: "same",
            plan_keys: &Default::default(),
            backend: Backend::Gloo,
            distributed: &DistributedConfig::default(),
            gloo: &GlooOptions::default(),
            rdzv_endpoint: None,
            bind: Ipv4Addr::LOCALHOST.into(),
            share_devices: false,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| drop(rendezvous(&handoff(1), &parts, None).unwrap()));
            let mut have_met = false;
            let met = || have_met = true;
            let connected = connect(&handoff(0), &parts, ComputeDevice::Cpu, Some(listener), met);
            let error = connected.err().expect("rank 1 has left");
            assert_eq!((error.kind, have_met), (ErrorKind::Collective, true), "{error}");
        });
    }
}
