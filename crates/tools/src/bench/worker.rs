//! A worker of the measurement: one rank. For each transport and algorithm it forms a new group, and measures all
//! sizes and element types with it.

use super::measure::measure;
use super::messages::Message;
use super::plan::Plan;
use base::error::{Error, Result};
use collectives::SliceMut;
use collectives::gloo::{AlgorithmChoice, GlooGroup, GlooOptions, Transport};
use collectives::rendezvous::{Endpoint as RendezvousEndpoint, RendezvousConfig};
use launch::{Endpoint, ExitCode, Handoff, Received, StopFlag};
use std::time::Duration;

/// `ddp-run bench-worker`. A failure is sent to the parent, which prints it; it is not printed here.
pub fn run(stop: &StopFlag) -> Result<ExitCode> {
    let by_hand = || {
        Error::usage("`ddp-run bench-worker` is started by `ddp-run bench`, not by hand")
            .hint("`ddp-run bench allreduce` measures")
    };
    let task = Handoff::take(stop, by_hand, |_| ())?;
    match measure_all(&task) {
        Ok(()) => Message::Done.send().map(|()| ExitCode::Done),
        Err(e) => {
            let code = e.kind.into();
            Message::Failed { code, message: e.message }.send()?;
            Ok(code)
        }
    }
}

fn measure_all(task: &Received<Plan>) -> Result<()> {
    let plan = &task.handoff.job;
    // One buffer for all rows, so that its pages are allocated only once.
    let mut words = vec![0u64; plan.largest().div_ceil(8)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    for (generation, (transport, algorithm)) in plan.groups().enumerate() {
        let group = connect(task, generation as u64, transport, algorithm)?;
        for case in plan.cases(transport, algorithm) {
            let buf = SliceMut::from_bytes(case.dtype, &mut bytes[..case.bytes()])
                .ok_or_else(|| Error::internal(format!("the buffer does not fit {case}")))?;
            if let Some(timing) = measure(&group, &case, plan.op, plan.budget(), buf)? {
                Message::Row(timing).send()?;
            }
        }
    }
    Ok(())
}

/// The listener outlives the group, so that ranks that are early for the next group wait there; the generation
/// distinguishes the groups.
fn connect(
    task: &Received<Plan>,
    generation: u64,
    transport: Transport,
    algorithm: AlgorithmChoice,
) -> Result<GlooGroup> {
    let Handoff { place, endpoint, secret, run_id, job: plan, .. } = &task.handoff;
    let endpoint = match (endpoint, &task.listener) {
        (_, Some(listener)) => RendezvousEndpoint::Listener(
            listener
                .try_clone()
                .map_err(|e| Error::internal(format!("cannot share the rendezvous socket: {e}")))?,
        ),
        (Endpoint::Connect { host, port }, None) => RendezvousEndpoint::Connect(format!("{host}:{port}")),
        _ => return Err(Error::internal("rank 0 has no rendezvous socket")),
    };
    let config = RendezvousConfig {
        rank: place.rank,
        world_size: place.world_size,
        endpoint,
        secret: secret.clone(),
        run_id: run_id.clone(),
        generation,
        plan_hash: String::new(),
        plan_keys: Default::default(),
        init_timeout: plan.timeout().min(Duration::from_secs(30)),
        timeout: plan.timeout(),
    };
    let options = GlooOptions { transport, algorithm, ..GlooOptions::default() };
    GlooGroup::connect(config, options).map_err(|e| {
        let e = Error::from(e);
        Error { message: format!("transport {transport}, algorithm {algorithm}: {}", e.message), ..e }
    })
}
