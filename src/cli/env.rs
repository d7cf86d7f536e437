//! `ddp-run env`: what this build and this machine offer, and why something is missing.

use crate::error::Result;
use crate::launch::{WorkerEnv, env::usable_cores};
use crate::registry::Registry;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {}

pub fn run(_: &Args, registry: &Registry) -> Result<()> {
    let launcher = match WorkerEnv::detect(&|name| std::env::var(name).ok()) {
        Ok(None) => "none: ddp-run starts its own workers".to_owned(),
        Ok(Some(env)) => format!("RANK {} of WORLD_SIZE {}", env.place.rank, env.place.world_size),
        Err(e) => format!("inconsistent: {}", e.message),
    };
    let rows = [
        ("ddp-run", env!("CARGO_PKG_VERSION").to_owned()),
        ("burn", "0.22.1 (flex CPU backend, autodiff)".to_owned()),
        ("system", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
        ("cores", usable_cores().to_string()),
        ("launcher", launcher),
        ("device cpu", "yes".to_owned()),
        ("device cuda", "no: this build has no CUDA support".to_owned()),
        ("backend gloo", "yes (TCP)".to_owned()),
        ("backend nccl", "no: needs CUDA".to_owned()),
        ("backend mpi", "no: this build has no MPI support".to_owned()),
        ("models", registry.model_names().join(", ")),
        ("datasets", registry.dataset_names().join(", ")),
        ("optimizers", crate::optim::OptimizerPlan::names().join(", ")),
        ("schedulers", crate::optim::Schedule::names().join(", ")),
    ];
    for (name, value) in rows {
        println!("{name:<14} {value}");
    }
    Ok(())
}
