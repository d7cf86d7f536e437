//! The ranks' process group: the rendezvous, and the backend that averages gradients.

use super::endpoint::rendezvous_endpoint;
use super::same_devices::check_devices;
use crate::comm::gloo::GlooGroup;
use crate::comm::rendezvous::RendezvousConfig;
use crate::comm::{Backend, MpiConfig, ProcessGroup, SoloGroup, mpi, nccl};
use crate::device::ComputeDevice;
use crate::error::Result;
use crate::launch::Handoff;
use crate::plan::Plan;
use std::net::TcpListener;
use std::sync::Arc;

/// Connects the ranks. For gradients in CUDA memory the group is NCCL, with the rendezvous group for control.
pub(super) fn connect(
    handoff: &Handoff,
    plan: &Plan,
    device: ComputeDevice,
    listener: Option<TcpListener>,
) -> Result<Arc<dyn ProcessGroup>> {
    let group = rendezvous(handoff, plan, listener)?;
    check_devices(device, plan.launch.share_devices, &*group)?;
    let ComputeDevice::Cuda(index) = device else { return Ok(group) };
    if !averages_by_nccl(plan, device) {
        return Ok(group);
    }
    nccl::connect(group, index, &plan.distributed)
}

/// Whether this plan averages gradients with NCCL on such devices.
pub(super) fn averages_by_nccl(plan: &Plan, device: ComputeDevice) -> bool {
    let wanted = match plan.backend {
        Backend::Nccl => true,
        // A single rank has nothing to average, and NCCL does not accept ranks that share a device.
        Backend::Auto => plan.world.world_size > 1 && !plan.launch.share_devices,
        Backend::Gloo | Backend::Mpi => false,
    };
    wanted && matches!(device, ComputeDevice::Cuda(_))
}

fn rendezvous(
    handoff: &Handoff,
    plan: &Plan,
    listener: Option<TcpListener>,
) -> Result<Arc<dyn ProcessGroup>> {
    let place = &handoff.place;
    if plan.backend == Backend::Mpi {
        return mpi::connect(&MpiConfig {
            rank: place.rank,
            world_size: place.world_size,
            plan_hash: plan.hash.clone(),
            init_timeout: *plan.distributed.init_timeout,
            timeout: *plan.distributed.timeout,
        });
    }
    let Some(endpoint) = rendezvous_endpoint(handoff, plan, listener)? else {
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
        plan_hash: plan.hash.clone(),
        init_timeout: *plan.distributed.init_timeout,
        timeout: *plan.distributed.timeout,
    };
    Ok(Arc::new(GlooGroup::connect(config, plan.gloo.clone())?))
}
