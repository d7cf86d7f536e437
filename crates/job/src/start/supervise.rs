//! A run under this process as the supervisor of its node: the folder's lock, what the supervisor takes from the plan, and
//! the end of the run in messages, metrics and Slurm's queue.

use crate::plan::Plan;
use crate::worker::{
    JobHandoff, OwnSpec, Resume, StartState, continues_the_run, newest_step, provenance_of, requeue_on_stop,
    weights_are_there,
};
use base::error::{ErrorKind, Result};
use launch::clusters::slurm::SlurmJob;
use launch::clusters::{self, LaunchFlags, NodeEnv};
use launch::nodes::{Limits, NodeRange, Nodes};
use launch::{ExitCode, LocalLaunch, StopFlag};
use record::MetricsBaseline;
use record::history::{FolderLock, writes_to_no_others};
use std::sync::Arc;
use std::time::Duration;

/// Locks the run's folder and runs the workers. Node 0 handles what concerns the whole run. Returns whether this is node 0.
pub(super) fn supervise(
    plan: &Plan,
    mut job: JobHandoff,
    node: Option<&NodeEnv>,
    flags: &LaunchFlags,
    stop: &StopFlag,
) -> Result<(ExitCode, bool)> {
    let node_rank = node.map(|n| n.node_rank).or(flags.node_rank);
    let first = node_rank == Some(0) || plan.nodes.nnodes == NodeRange::ONE;
    // Nodes may share the folder.
    let lock = match first && !stop.requested() {
        true => take_folder(plan, &mut job, node.map_or("ddp-run", |n| n.launcher.name()), stop)?,
        false => None,
    };
    if stop.requested() {
        status!("stopped on request before the run started");
        requeue_on_stop(plan.slurm.requeue, first).iter().for_each(SlurmJob::requeue_and_say_so);
        return Ok((ExitCode::Stopped, first));
    }
    let start_state = StartState::new(&job);
    let mut launch = LocalLaunch::new(plan.world.nproc_per_node, &job, job.logs())?;
    launch.log_format = job.log.format;
    launch.threads_per_worker = plan.launch.threads;
    launch.policy.grace = shutdown(plan);
    launch.policy.stop_deadline = *plan.checkpoint.grace;
    launch.stop = stop.clone();
    launch.console = flags.console();
    let (out_dir, before) = (job.out_dir.clone(), MetricsBaseline::read(&job.out_dir));
    let mut nodes = nodes_of(plan, node_rank, flags)?;
    nodes.newest_checkpoint = Some(Arc::new(move || newest_step(&job)));
    let ended = nodes.run(launch);
    if first {
        before.conclude_or_warn(&out_dir, ExitCode::from_result(&ended) as u8, ended.as_ref().err());
    }
    let may_go_on = [ErrorKind::WorkerFailed, ErrorKind::Collective, ErrorKind::Rendezvous];
    let _lock = match lock {
        Some(lock) if ended.is_err() => {
            lock.end_of_failed_start();
            None
        }
        held => held,
    };
    let code = ended.map_err(|e| match e.hint.is_none() && first && may_go_on.contains(&e.kind) {
        true => e.hint(start_state.saved()),
        false => e,
    })?;
    if code == ExitCode::Stopped {
        match first {
            true => status!("stopped on request; {}", start_state.saved()),
            // Only node 0 knows what is saved.
            false => status!("stopped on request"),
        }
        requeue_on_stop(plan.slurm.requeue, first).iter().for_each(SlurmJob::requeue_and_say_so);
    }
    Ok((code, first))
}

/// Locks the run's folder, and checks what the run continues from.
fn take_folder(
    plan: &Plan,
    job: &mut JobHandoff,
    launcher: &str,
    stop: &StopFlag,
) -> Result<Option<FolderLock>> {
    let run = clusters::run_id(&|name| std::env::var(name).ok(), job.rdzv_id.as_deref())?;
    writes_to_no_others(&job.out_dir, &job.logs())?;
    let patience = *plan.distributed.init_timeout;
    let lock = FolderLock::take(&job.out_dir, &run, patience, &|| stop.requested())?;
    job.provenance = Some(provenance_of(plan, job, launcher, run));
    match (may_begin(plan, job), lock) {
        (Err(error), Some(lock)) => {
            lock.end_of_failed_start();
            Err(error)
        }
        (checked, lock) => checked.map(|()| lock),
    }
}

/// Checks what the run continues from.
fn may_begin(plan: &Plan, job: &JobHandoff) -> Result<()> {
    continues_the_run(OwnSpec::new(plan), job)?;
    // A run that continues resumes from its own checkpoints.
    if newest_step(job).is_none() {
        let resume = Resume::parse(&job.resume);
        resume.is_there()?;
        if !matches!(resume, Resume::From(_)) {
            plan.may_start()?;
            weights_are_there(&plan.model)?;
        }
    }
    Ok(())
}

/// How long workers may take to end after a failure. A stop request may follow, whose grace period is no longer for that.
fn shutdown(plan: &Plan) -> Duration {
    (*plan.launch.shutdown_timeout).min(*plan.checkpoint.grace)
}

fn nodes_of(plan: &Plan, node_rank: Option<usize>, flags: &LaunchFlags) -> Result<Nodes> {
    let limits = Limits::new(plan.nodes.nnodes);
    Ok(Nodes {
        limits: Limits {
            max_restarts: plan.nodes.max_restarts,
            join: *plan.distributed.init_timeout,
            rejoin: *plan.nodes.rejoin_timeout,
            shutdown: shutdown(plan),
            grace: *plan.checkpoint.grace,
            settle: flags.rdzv_conf.and_then(|conf| conf.last_call).unwrap_or(limits.settle),
            ..limits
        },
        node_rank,
        endpoint: plan.nodes.rdzv_endpoint.clone(),
        bind: plan.nodes.bind,
        interface: plan.gloo.address()?,
        key: if plan.nodes.nnodes.max > 1 { Some(clusters::key_of_environment()?) } else { None },
        plan_hash: plan.hash.clone(),
        keys: plan.keys_of_results.clone(),
        rdzv_id: flags.rdzv_id.clone().and_then(|id| id.0),
        ..Nodes::default()
    })
}
