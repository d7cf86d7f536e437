//! One start of a run: checks that everything it needs is available, then runs this process as the node's supervisor
//! or, under a launcher that starts every rank (torchrun, srun, mpirun), as one of the ranks.

mod assertions;
mod evaluate;
mod no_effect;
mod program;
mod ready;
mod supervise;

pub use assertions::verdict;
pub use evaluate::{EvaluationRequest, evaluate};
pub use program::{ProgramLaunch, launch_program};
pub use ready::available;

use crate::plan::Plan;
use crate::worker::{JobHandoff, run_external};
use assertions::asserted;
use base::display;
use base::error::{Error, Result};
use collectives::Backend;
use ddp::device::{DeviceSpec, unusable_cuda_devices};
use launch::clusters::{LaunchFlags, Origin};
use launch::nodes::NodeRange;
use launch::{ExitCode, StopFlag, logs};
use no_effect::{no_effect, unexpanded};
use ready::ready;
use record::{Assertion, provenance};
use std::path::{Path, PathBuf};
use supervise::supervise;

/// What a start needs besides the plan and the job.
pub struct Start {
    /// The run's folder, if it is not the default.
    pub out: Option<PathBuf>,
    /// Role of this process: supervisor of a node, or one rank.
    pub origin: Origin,
    /// Launch options of the command line.
    pub launch: LaunchFlags,
    /// Conditions that the metrics must meet at the end.
    pub assertions: Vec<Assertion>,
}

/// Runs `plan` in the role of this process. `job` is complete except for its folder.
pub fn start(plan: &Plan, mut job: JobHandoff, start: Start, stop: &StopFlag) -> Result<ExitCode> {
    let Start { out, origin, launch, assertions } = start;
    if plan.nodes.nnodes == NodeRange::ONE {
        origin.is_alone(plan.is_set("launch.nnodes"), plan.nodes.rdzv_endpoint.as_ref())?;
    }
    let lines = no_effect(plan, &origin, &launch, &|name| std::env::var(name).ok());
    for line in lines.into_iter().chain(unexpanded(plan, out.as_deref())) {
        status!("warning: {line}");
    }
    // Of the ranks of a machine, one.
    if !matches!(&origin, Origin::Worker(worker) if worker.place.local_rank > 0) {
        plan.memory_warning().iter().for_each(|why| status!("warning: `model`: {why}"));
        if plan.device == DeviceSpec::Auto {
            unusable_cuda_devices()
                .iter()
                .for_each(|why| status!("warning: `device = \"auto\"` is the CPU here: {why}"));
        }
    }
    ready(plan, &origin)?;
    job.out_dir = match out {
        Some(folder) => folder,
        None => own_folder(&plan.name)?,
    };
    let node = match origin {
        Origin::Worker(worker) => {
            let (first, folder) = (worker.place.rank == 0, job.out_dir.clone());
            let code = run_external(worker, plan, job, stop)?;
            return if first { asserted(code, &folder, &assertions) } else { Ok(code) };
        }
        Origin::Node(node) => Some(node),
        Origin::Own => None,
    };
    logs::init_terminal(job.log)?;
    launch.console().check(plan.world.nproc_per_node)?;
    if plan.backend == Backend::Mpi {
        return Err(Error::usage("backend `mpi`: MPI's launcher must start the processes")
            .hint(format!("`mpirun -n {} ddp-run SPEC.toml`, or `srun`", plan.world.world_size)));
    }
    let folder = job.out_dir.clone();
    let (code, first) = supervise(plan, job, node.as_ref(), &launch, stop)?;
    if first { asserted(code, &folder, &assertions) } else { Ok(code) }
}

/// `runs/<name>`.
///
/// # Errors
/// It contains a run with another name (78): runs archived from `x` are in `runs/x.1`, and a spec may be named `x.1`.
fn own_folder(name: &str) -> Result<PathBuf> {
    let folder = Path::new("runs").join(name);
    let there = provenance::read(&folder.join("run.json")).ok().map(|file| file.latest.name);
    match there.filter(|there| there != name) {
        None => Ok(folder),
        Some(other) => {
            Err(Error::spec(format!("{} contains a run of `{}`", folder.display(), display::name(&other)))
                .hint(format!("choose a `name` other than `{name}`, or another folder with `--out DIR`")))
        }
    }
}
