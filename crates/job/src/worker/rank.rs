//! A worker process, started by the supervisor (`ddp-run worker`, hidden) or by a launcher such as torchrun.

use super::connect::connect;
use super::evaluate::evaluate_rank;
use super::failure_report::FailureReport;
use super::handoff::{Handoff, JobHandoff, received};
use super::parts::GroupParts;
use super::profile::profile_of;
use super::run_folder::{EndOfRun, LogAccess, RunFolder, open_log};
use super::start_state::{StartState, provenance_of};
use super::step_times::measured;
use super::stop_at::StopAt;
use super::{InjectedFault, RankJob, RankParts, RecorderOptions, Resume, keep_kernels, train};
use crate::plan::{Plan, Purpose, WorldRequest};
use crate::registry::Registry;
use base::error::{Error, Result};
use collectives::Backend;
use collectives::rendezvous::Secret;
use ddp::device;
use launch::clusters::slurm::SlurmJob;
use launch::clusters::{self, Ancestor, WorkerEnv};
use launch::logs::ALREADY_PRINTED;
use launch::{Endpoint, ExitCode, OnSecondSignal, RankPosition, SelfExit, StopFlag, logs};
use record::Profile;
use record::history::Start;
use spec::JobTree;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;
use train::training::TrainingEnd;

/// `ddp-run worker`: all input comes over the supervisor's pipe.
pub fn run(registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    stop.on_second(OnSecondSignal::Ignore);
    let received = received(stop)?;
    let handoff = received.handoff;
    let profile = profile_of(&handoff);
    logs::init_worker(&handoff, handoff.job.log, profile.clone())?;
    logs::record_panics(&handoff);
    // The supervisor limits the time of a stop.
    watch(stop, None, None, |_| ())?;
    let failure_report = FailureReport::new(&handoff, stop);
    let done = caught(|| {
        let plan = resolved(&handoff, registry)?;
        work(&plan, received.listener, &failure_report, None, profile)
    });
    // The supervisor's report shows the failure note; printing the error here would repeat it.
    failure_report.end(done).or_else(|e| Ok(e.kind.into()))
}

/// A panic is a bug, with the exit code for bugs; the hook has already written it to the log. An error of a forward pass is none.
fn caught(work: impl FnOnce() -> Result<TrainingEnd>) -> Result<TrainingEnd> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| match panic.downcast::<Error>() {
        Ok(error) => Err(*error),
        Err(panic) => Err(Error::internal(format!("panicked: {}", base::panics::message(&*panic)))),
    })
}

/// Runs one rank under a launcher: rank RANK of WORLD_SIZE.
pub fn run_external(
    environment: WorkerEnv,
    plan: &Plan,
    job: JobHandoff,
    stop: &StopFlag,
) -> Result<ExitCode> {
    let (launcher, starter) = (environment.to_string(), Ancestor::launcher());
    let parts = RankParts::new(plan);
    let mut handoff = handoff_of(environment, &parts.group, job)?;
    let first = handoff.place.rank == 0;
    let run = clusters::run_id(&|name| std::env::var(name).ok(), handoff.job.rdzv_id.as_deref())?;
    let LogAccess { others, writes } = LogAccess::new(&handoff, &run);
    if first {
        handoff.job.provenance = Some(provenance_of(plan, &handoff.job, &launcher, run));
    }
    let start_state = StartState::new(&handoff.job);
    if first {
        info!("launched by {launcher}");
    }
    let profile = open_log(&handoff, writes)?;
    tracing::info!(target: ALREADY_PRINTED, "launched by {launcher}");
    let mut failure_report = FailureReport::new(&handoff, stop);
    failure_report.writes = writes;
    let requeue = requeue_on_stop(parts.requeue, first);
    let end = EndOfRun::new(handoff.job.out_dir.clone());
    let last = {
        let (start_state, end) = (start_state.clone(), end.clone());
        move |why| {
            if why == SelfExit::Overdue {
                status!("{}", start_state.saved());
            }
            end.record(&Ok(ExitCode::Stopped));
        }
    };
    watch(stop, Some(*parts.checkpoint.grace), requeue.clone(), last)?;
    watch_launcher(starter, stop);
    let run = handoff.job.provenance.as_ref().map(|start| &start.run);
    let mut folder = run.map(|run| {
        let end = end.clone();
        RunFolder { parts: &parts, job: &handoff.job, run, others, end, lock: None }
    });
    let done = caught(|| work(plan, None, &failure_report, folder.as_mut(), profile));
    let ended = failure_report.end(done);
    if let Ok(ExitCode::Stopped) = ended {
        // If ranks do not share a folder, only rank 0 knows what is saved.
        if first {
            status!("stopped on request; {}", start_state.saved());
        }
        requeue.iter().for_each(SlurmJob::requeue_and_say_so);
    }
    end.record(&ended);
    if let (Err(_), Some(lock)) = (&ended, folder.and_then(|folder| folder.lock)) {
        lock.end_of_failed_start();
    }
    ended
}

/// One rank of `ddp-run eval` under a launcher. It writes nothing to the run's folder.
pub fn evaluate_external(
    environment: WorkerEnv,
    plan: &Plan,
    job: JobHandoff,
    stop: &StopFlag,
) -> Result<ExitCode> {
    let starter = Ancestor::launcher();
    let handoff = handoff_of(environment, &RankParts::new(plan).group, job)?;
    logs::init_without(handoff.job.log)?;
    let mut failure_report = FailureReport::new(&handoff, stop);
    failure_report.writes = false;
    watch(stop, None, None, |_| ())?;
    watch_launcher(starter, stop);
    let done = caught(|| work(plan, None, &failure_report, None, None));
    failure_report.end(done)
}

/// The handoff that a supervisor would have sent to this rank.
fn handoff_of(mut environment: WorkerEnv, parts: &GroupParts<'_>, job: JobHandoff) -> Result<Handoff> {
    // torchrun's default is the same for every run.
    if let Some(id) = job.rdzv_id.as_ref().filter(|_| ["", "none"].contains(&environment.run_id.as_str())) {
        environment.run_id.clone_from(id);
    }
    let (endpoint, secret) = match parts.backend {
        // MPI connects the ranks itself.
        Backend::Mpi => (Endpoint::Solo, Secret::generate()?),
        _ => {
            let endpoint = environment.endpoint(parts.rdzv_endpoint)?;
            let secret = environment.secret(&endpoint)?;
            (endpoint, secret)
        }
    };
    let log_dir = job.logs();
    let mut handoff = Handoff::new(environment.place, endpoint, secret, job);
    handoff.log_dir = log_dir;
    handoff.threads = environment.threads();
    handoff.run_id = environment.run_id;
    handoff.attempt = environment.attempt;
    // It distinguishes this attempt's ranks from processes of an earlier one.
    handoff.generation = u64::from(environment.attempt);
    Ok(handoff)
}

/// The Slurm job to requeue, with `launch.requeue`, when the run is stopped on request; only one process of a run, the `first`, requeues it.
pub fn requeue_on_stop(requeue: bool, first: bool) -> Option<SlurmJob> {
    (requeue && first).then(|| SlurmJob::detect(&|name| std::env::var(name).ok())).flatten()
}

/// How long storage may take for what a process that ends itself still reads and writes.
const EXIT_IO_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends this process if a stop signal comes before training, or if it has not stopped within `grace` after one. `last` comes last,
/// beside the main thread.
fn watch(
    stop: &StopFlag,
    grace: Option<Duration>,
    requeue: Option<SlurmJob>,
    last: impl FnOnce(SelfExit) + Send + 'static,
) -> Result<()> {
    stop.watch(grace, move |why| {
        let overdue = (why == SelfExit::Overdue).then(|| {
            let grace = grace.unwrap_or_default().as_secs_f64();
            format!("did not stop within {grace} s of the signal (`checkpoint.grace`)")
        });
        overdue.iter().for_each(|message| status!("{message}"));
        // Before anything that takes storage: Slurm waits only so long.
        requeue.iter().for_each(SlurmJob::requeue_and_say_so);
        // Where the log hangs, the run's folder may not.
        in_time(move || match overdue {
            Some(message) => tracing::error!(target: ALREADY_PRINTED, "{message}"),
            None => tracing::info!("stopped on request before training began"),
        });
        in_time(move || last(why));
        base::status::flush();
    })
}

/// Ends this process if the launcher that started it is gone while it waits for the other ranks.
fn watch_launcher(launcher: Option<Ancestor>, stop: &StopFlag) {
    let Some(launcher) = launcher else { return };
    launcher.watch(stop, |why| {
        status!("error: {why}");
        in_time(move || tracing::error!(target: ALREADY_PRINTED, "{why}"));
        base::status::flush();
        std::process::exit(ExitCode::Rendezvous as i32);
    });
}

/// Waits for `last`, unless storage hangs.
fn in_time(last: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let spawned = std::thread::Builder::new().name("last-words".into()).spawn(move || {
        last();
        let _ = done.send(());
    });
    if spawned.is_ok() {
        let _ = ended.recv_timeout(EXIT_IO_TIMEOUT);
    }
}

fn resolved(handoff: &Handoff, registry: &Registry) -> Result<Plan> {
    let tree = JobTree::parse(&handoff.job.spec_name, &handoff.job.job_toml, &[]);
    let purpose = if handoff.job.evaluation.is_some() { Purpose::Use } else { Purpose::Train };
    let RankPosition { world_size, local_world_size, .. } = handoff.place;
    let request = WorldRequest { local: Some(local_world_size), ..WorldRequest::new(world_size).to(purpose) };
    Ok(Plan::resolve(&tree, registry, request)?)
}

/// Starts rayon's global pool. An existing one (of a program that embeds ddp-run) is left alone.
///
/// The main thread is one of the threads, so that it need not wake another for its own part. Not if it would be the only one: then
/// what other threads give to the pool would wait for it. Nor another thread: after its end the pool would lack one.
fn start_compute_threads(threads: usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let is_main = std::thread::current().name() == Some("main");
    // A thread of another pool can't be in this one, and a failed attempt would leave the program without a global pool.
    let joins = is_main && threads > 1 && rayon::current_thread_index().is_none();
    let _ = if joins { pool.use_current_thread() } else { pool }.build_global();
}

/// Connects and trains. Passes the ranks' group and any error to `failure_report` as soon as they are known. A `folder` is
/// locked after the rendezvous, so that the other ranks receive the error; a supervisor has locked it otherwise.
fn work(
    plan: &Plan,
    listener: Option<TcpListener>,
    failure_report: &FailureReport<'_>,
    folder: Option<&mut RunFolder<'_>>,
    profile: Option<Profile>,
) -> Result<TrainingEnd> {
    let (handoff, stop) = (failure_report.handoff, failure_report.stop);
    let parts = RankParts::new(plan);
    let threads = parts.threads.unwrap_or(handoff.threads);
    start_compute_threads(threads);
    let RankPosition { rank, world_size, .. } = handoff.place;
    let (job, generation) = (parts.name, handoff.generation);
    let _span = tracing::debug_span!("run", job, rank, world_size, generation).entered();
    // The value was checked before the start; this generation may have fewer ranks.
    let fault = InjectedFault::from_env(&|name| std::env::var(name).ok(), usize::MAX)?;
    let fault = fault.filter(|f| f.is_due_in(handoff.generation));
    fault.iter().for_each(|f| f.at_connect(rank));
    let stop_at = StopAt::from_env(&|name| std::env::var(name).ok())?;
    let device = device::of_rank(parts.device, handoff.place.local_rank);
    let kept = keep_kernels(device, parts.precision, &handoff.place.local_rank.to_string());
    kept.iter().for_each(|kept| tracing::info!("{kept}"));
    let met = || {
        if handoff.job.evaluation.is_none() {
            // An evaluation has nothing to save: a stop signal ends it at once.
            stop.connected();
        }
    };
    let group = connect(handoff, &parts.group, device, listener, met)?;
    let group = match fault {
        Some(fault) => fault.arm(group),
        None => group,
    };
    let group = measured(group, &|name| std::env::var(name).ok());
    let _ = failure_report.group.set(group.clone());
    tracing::info!(
        "rank {rank} of {world_size} is ready on {device}: backend {}, {threads} threads",
        group.backend()
    );
    let local_rank = handoff.place.local_rank;
    if let Some(evaluation) = &handoff.job.evaluation {
        return evaluate_rank(&parts, evaluation, device, local_rank, &*group).map(|()| TrainingEnd::Done);
    }
    let JobHandoff { out_dir, provenance, job_toml, .. } = &handoff.job;
    let provenance = provenance.as_ref().filter(|_| rank == 0);
    if let Some(folder) = folder {
        folder.lock()?;
    }
    let places = group.clone();
    train(RankJob {
        plan,
        group,
        device,
        local_rank,
        out_dir,
        resume: Resume::parse(&handoff.job.resume),
        start: provenance.map(|provenance| Start { out_dir, provenance, job_toml }),
        stop: &|| stop.requested_at_step() || stop_at.is_due(places.place()),
        failed: &|error| failure_report.write(error),
        recorder: RecorderOptions {
            progress: handoff.job.progress,
            set: handoff.job.set.clone(),
            restart: handoff.reason.clone().map(|reason| (u64::from(handoff.attempt), reason)),
        },
        profile,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_forward_pass_is_no_bug() {
        let refused = caught(|| base::panics::end_with(Error::spec("too few values"))).unwrap_err();
        assert_eq!(
            (refused.kind, refused.message.as_str()),
            (base::error::ErrorKind::Spec, "too few values")
        );
    }
}
