//! A worker process: started by the supervisor (`ddp-run worker`, hidden), or by torchrun and its like.

use crate::comm::gloo::GlooGroup;
use crate::comm::rendezvous::{self, RendezvousConfig};
use crate::comm::{ProcessGroup, SoloGroup};
use crate::error::{Error, ExitCode, IoContext, Result};
use crate::launch::logs::LogFormat;
use crate::launch::{Endpoint, Failure, Handoff, JobHandoff, OnSecondSignal, StopFlag, WorkerEnv, env, logs};
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::spec::JobTree;
use crate::telemetry::ProgressMode;
use crate::train::Ended;
use crate::worker::{Job, RecorderOptions, Resume, train};
use std::net::{TcpListener, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// `ddp-run worker`: everything comes down the supervisor's pipe.
pub fn run(registry: &Registry) -> Result<ExitCode> {
    let stop = StopFlag::install(OnSecondSignal::Ignore)?;
    let received = Handoff::receive()?;
    let handoff = received.handoff;
    let format = handoff.job.flags.get("log-format").and_then(|f| f.parse().ok()).unwrap_or_default();
    logs::init_worker(&handoff, format)?;
    logs::record_panics(&handoff);
    let done = caught(|| {
        let plan = resolved(&handoff, registry)?;
        work(&handoff, &plan, received.listener, &stop)
    });
    // The supervisor's report shows the failure note; printing here as well would say it twice.
    finish(&handoff, done).or_else(|e| Ok(e.code))
}

/// A panic is a bug, with the exit code for bugs; the hook has already written it to the log.
fn caught(work: impl FnOnce() -> Result<Ended>) -> Result<Ended> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Error::internal(format!("panicked: {text}")))
    })
}

/// Under a launcher: this process is rank RANK of WORLD_SIZE.
pub fn run_external(
    environment: WorkerEnv,
    plan: &Plan,
    job: JobHandoff,
    format: LogFormat,
) -> Result<ExitCode> {
    let stop = StopFlag::install(OnSecondSignal::Exit)?;
    let secret = environment.secret()?;
    let mut handoff = Handoff::new(environment.place, environment.endpoint, secret, job);
    handoff.threads = env::threads_per_worker(env::usable_cores(), environment.place.local_world_size);
    handoff.run_id = environment.run_id;
    handoff.attempt = environment.attempt;
    std::fs::create_dir_all(&handoff.log_dir).doing("create", &handoff.log_dir)?;
    if handoff.place.rank == 0 {
        eprint!("{}", plan.text());
        super::train::write_provenance(plan, &handoff.job)?;
    }
    drop(logs::open_with_header(&handoff)?);
    logs::init_worker(&handoff, format)?;
    logs::record_panics(&handoff);
    finish(&handoff, caught(|| work(&handoff, plan, None, &stop)))
}

/// A failure is noted for the supervisor before the process ends with its code.
fn finish(handoff: &Handoff, done: Result<Ended>) -> Result<ExitCode> {
    match done {
        Ok(Ended::Done) => Ok(ExitCode::Done),
        Ok(Ended::Stopped) => Ok(ExitCode::Stopped),
        Err(e) => {
            let rank = handoff.place.rank;
            tracing::error!("{}", e.message);
            // The exit code says it too; the note only adds words.
            let _ = Failure::of(rank, &e).write(&handoff.log_dir);
            Err(Error { message: format!("rank {rank}: {}", e.message), ..e })
        }
    }
}

fn resolved(handoff: &Handoff, registry: &Registry) -> Result<Plan> {
    let tree = JobTree::parse(&handoff.job.spec_name, &handoff.job.job_toml, &[])?;
    Ok(Plan::resolve(&tree, registry, WorldRequest::of(handoff.place.world_size))?)
}

fn work(handoff: &Handoff, plan: &Plan, listener: Option<TcpListener>, stop: &StopFlag) -> Result<Ended> {
    let threads = plan.launch.threads.unwrap_or(handoff.threads);
    // A pool that exists already (a program around ddp-run made one) is left as it is.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    let group = connect(handoff, plan, listener)?;
    tracing::info!(
        "rank {} of {} is ready: backend {}, {threads} threads",
        handoff.place.rank,
        handoff.place.world_size,
        group.backend()
    );
    train(Job {
        plan,
        group,
        out_dir: &handoff.job.out_dir,
        resume: Resume::parse(&handoff.job.resume),
        stop: &|| stop.requested(),
        recorder: RecorderOptions { progress: progress_mode(handoff) },
    })
}

fn progress_mode(handoff: &Handoff) -> ProgressMode {
    let name = handoff.job.flags.get("progress").map(String::as_str).unwrap_or("auto");
    let known = ProgressMode::CHOICES.into_iter().find(|(choice, _)| *choice == name);
    known.map_or_else(ProgressMode::default, |(_, mode)| mode)
}

fn connect(handoff: &Handoff, plan: &Plan, listener: Option<TcpListener>) -> Result<Arc<dyn ProcessGroup>> {
    let place = &handoff.place;
    let endpoint = match (&handoff.endpoint, listener) {
        (Endpoint::Solo, _) => return Ok(Arc::new(SoloGroup::default())),
        (_, Some(listener)) => rendezvous::Endpoint::Listener(listener),
        (Endpoint::Inherited { addr, .. }, None) => rendezvous::Endpoint::Bind(*addr),
        (Endpoint::Listen { host, port }, None) => {
            let address = (host.as_str(), *port).to_socket_addrs().ok().and_then(|mut a| a.next());
            let address = address.ok_or_else(|| {
                Error::new(
                    ExitCode::Rendezvous,
                    format!("the address {host}:{port} to listen on is not known"),
                )
            })?;
            rendezvous::Endpoint::Bind(address)
        }
        (Endpoint::Connect { host, port }, None) => rendezvous::Endpoint::Connect(format!("{host}:{port}")),
    };
    let secret = rendezvous::Secret::from_hex(&handoff.secret.to_hex())?;
    let config = RendezvousConfig {
        rank: place.rank,
        world_size: place.world_size,
        endpoint,
        secret,
        run_id: handoff.run_id.clone(),
        generation: u64::from(handoff.generation),
        plan_hash: plan.hash.clone(),
        init_timeout: plan.distributed.init_timeout,
        timeout: plan.distributed.timeout,
    };
    Ok(Arc::new(GlooGroup::connect(config, plan.distributed.gloo())?))
}
