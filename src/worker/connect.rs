//! The ranks' process group: by what they meet, and by what they average gradients.

use super::agree::agree;
use super::meet::meeting;
use crate::comm::gloo::GlooGroup;
use crate::comm::mpi::{self, MpiConfig};
use crate::comm::nccl::{self, NcclConfig};
use crate::comm::rendezvous::RendezvousConfig;
use crate::comm::{ProcessGroup, SoloGroup};
use crate::device::ComputeDevice;
use crate::error::Result;
use crate::launch::Handoff;
use crate::plan::{Backend, Plan};
use std::net::TcpListener;
use std::sync::Arc;

/// The ranks' group: for gradients in CUDA's memory NCCL over the one that they meet by.
pub(super) fn connect(
    handoff: &Handoff,
    plan: &Plan,
    device: ComputeDevice,
    listener: Option<TcpListener>,
) -> Result<Arc<dyn ProcessGroup>> {
    let group = meet(handoff, plan, listener)?;
    agree(device, plan.launch.share_devices, &*group)?;
    let ComputeDevice::Cuda(index) = device else { return Ok(group) };
    if !averages_by_nccl(plan, device) {
        return Ok(group);
    }
    let distributed = &plan.distributed;
    let config =
        NcclConfig { device: index, init_timeout: distributed.init_timeout, timeout: distributed.timeout };
    nccl::connect(group, &config)
}

/// Whether gradients go between the ranks of this plan by NCCL, on such devices.
pub(super) fn averages_by_nccl(plan: &Plan, device: ComputeDevice) -> bool {
    let wanted = match plan.backend {
        Backend::Nccl => true,
        // Alone there is nothing to average, and ranks that may share a device are not what NCCL takes.
        Backend::Auto => plan.world.world_size > 1 && !plan.launch.share_devices,
        Backend::Gloo | Backend::Mpi => false,
    };
    wanted && matches!(device, ComputeDevice::Cuda(_))
}

fn meet(handoff: &Handoff, plan: &Plan, listener: Option<TcpListener>) -> Result<Arc<dyn ProcessGroup>> {
    let place = &handoff.place;
    if plan.backend == Backend::Mpi {
        return mpi::connect(&MpiConfig {
            rank: place.rank,
            world_size: place.world_size,
            plan_hash: plan.hash.clone(),
            init_timeout: plan.distributed.init_timeout,
            timeout: plan.distributed.timeout,
        });
    }
    let Some(endpoint) = meeting(handoff, plan, listener)? else {
        return Ok(Arc::new(SoloGroup::default()));
    };
    let config = RendezvousConfig {
        rank: place.rank,
        world_size: place.world_size,
        endpoint,
        secret: handoff.secret.clone(),
        run_id: handoff.run_id.clone(),
        // The rendezvous counts restarts.
        generation: handoff.generation.saturating_sub(1),
        plan_hash: plan.hash.clone(),
        init_timeout: plan.distributed.init_timeout,
        timeout: plan.distributed.timeout,
    };
    Ok(Arc::new(GlooGroup::connect(config, plan.distributed.gloo())?))
}
