//! What must be true of this machine and this build before a run starts: devices, engine, data files, open files.

use crate::plan::Plan;
use crate::worker::{InjectedFault, keep_kernels};
use base::error::{Error, Result};
use collectives::{Backend, mpi, nccl};
use ddp::device::{self, supports_precision};
use launch::clusters::Origin;
use launch::{cores::usable_cores, descriptors};

/// Checks that this machine and this build have what the plan needs.
pub(super) fn ready(plan: &Plan, origin: &Origin) -> Result<()> {
    if let Origin::Worker(worker) = origin {
        // Querying a device's name opens it.
        let device = device::of_rank(plan.device, worker.place.local_rank);
        keep_kernels(device, plan.precision, &worker.place.local_rank.to_string());
    }
    if plan.backend != Backend::Mpi {
        let local = match origin {
            Origin::Worker(worker) => worker.place.local_world_size,
            Origin::Own | Origin::Node(_) => plan.world.nproc_per_node,
        };
        descriptors::raise_limit_for(plan.gloo.connections(plan.world.world_size, local))?;
    }
    available(plan)?;
    if !matches!(origin, Origin::Worker(_)) {
        plan.dataset.source.check_files().map_err(Error::of_data)?;
    }
    let local = match origin {
        // A launcher may make only one device visible to each rank.
        Origin::Worker(_) if device::count(plan.device) == 1 => 1,
        Origin::Worker(worker) => worker.place.local_world_size,
        Origin::Own | Origin::Node(_) => {
            // For `gpu` without a device, the plan assumes one process.
            plan.launch.nproc_per_node.resolve(usable_cores(), || device::count(plan.device))?;
            plan.world.nproc_per_node
        }
    };
    plan.devices_suffice(local, device::count(plan.device))?;
    supports_precision(plan.precision, device::of_rank(plan.device, 0))?;
    // The workers read it again; an error here prevents the start.
    InjectedFault::from_env(&|name| std::env::var(name).ok(), plan.world.world_size).map(drop)
}

/// Checks that this build can run the plan.
pub fn available(plan: &Plan) -> Result<()> {
    device::available(plan.device)?;
    match plan.backend {
        Backend::Auto | Backend::Gloo => Ok(()),
        Backend::Mpi => match mpi::status() {
            Ok(_) => Ok(()),
            Err(why) => Err(Error::unavailable(format!("backend `mpi`: {why}"))
                .hint("`backend = \"gloo\"` needs no MPI library, and works under mpirun too")),
        },
        Backend::Nccl => {
            let there = nccl::status().and_then(|_| device::cuda_devices());
            let unavailable = |why| Error::unavailable(format!("backend `nccl`: {why}"));
            there
                .map(drop)
                .map_err(|why| unavailable(why).hint("`backend = \"gloo\"` works with every device"))
        }
    }
}
