//! A worker of the measurement: one rank. For each transport and algorithm it forms a new group and measures all sizes
//! and element types in it.

use super::measure::measure;
use super::task::{Meeting, News, Task};
use crate::comm::SliceMut;
use crate::comm::gloo::{AlgorithmChoice, GlooGroup, GlooOptions, Transport};
use crate::comm::rendezvous::{Endpoint, RendezvousConfig};
use crate::error::{Error, ExitCode, Result};
use crate::launch;
use std::net::TcpListener;
use std::time::Duration;

/// `ddp-run bench-worker`. A failure goes to the parent, which prints it, so it is not printed here.
pub fn run() -> Result<ExitCode> {
    let task = Task::receive()?;
    match measure_all(&task) {
        Ok(()) => News::Done.tell().map(|()| ExitCode::Done),
        Err(e) => {
            News::Failed { code: e.code, message: e.message }.tell()?;
            Ok(e.code)
        }
    }
}

fn measure_all(task: &Task) -> Result<()> {
    let plan = &task.plan;
    let listener = match task.meeting {
        Meeting::Listener(fd) => Some(
            launch::adopt_listener(fd)
                .map_err(|e| Error::internal(format!("the rendezvous socket was not inherited: {e}")))?,
        ),
        Meeting::Address(_) => None,
    };
    // One for all rows, so that none pays for its pages.
    let mut words = vec![0u64; plan.largest().div_ceil(8)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    for (generation, (transport, algorithm)) in plan.groups().enumerate() {
        let group = connect(task, listener.as_ref(), generation as u64, transport, algorithm)?;
        for case in plan.cases(transport, algorithm) {
            let buf = SliceMut::from_bytes(case.dtype, &mut bytes[..case.bytes()])
                .ok_or_else(|| Error::internal(format!("the buffer does not fit {case}")))?;
            if let Some(timing) = measure(&group, &case, plan.op, plan.budget(), buf)? {
                News::Row(timing).tell()?;
            }
        }
    }
    Ok(())
}

/// The listener outlives the group, so that early ranks of the next one wait at it; the generation tells them apart.
fn connect(
    task: &Task,
    listener: Option<&TcpListener>,
    generation: u64,
    transport: Transport,
    algorithm: AlgorithmChoice,
) -> Result<GlooGroup> {
    let endpoint = match (&task.meeting, listener) {
        (Meeting::Address(address), _) => Endpoint::Connect(address.clone()),
        (Meeting::Listener(_), Some(listener)) => Endpoint::Listener(
            listener
                .try_clone()
                .map_err(|e| Error::internal(format!("cannot share the rendezvous socket: {e}")))?,
        ),
        (Meeting::Listener(_), None) => return Err(Error::internal("rank 0 has no rendezvous socket")),
    };
    let config = RendezvousConfig {
        rank: task.rank,
        world_size: task.plan.world,
        endpoint,
        secret: task.secret.clone(),
        run_id: task.run_id.clone(),
        generation,
        plan_hash: String::new(),
        init_timeout: task.plan.timeout().min(Duration::from_secs(30)),
        timeout: task.plan.timeout(),
    };
    let options = GlooOptions { transport, algorithm, ..GlooOptions::default() };
    GlooGroup::connect(config, options).map_err(|e| {
        let e = Error::from(e);
        Error { message: format!("transport {transport}, algorithm {algorithm}: {}", e.message), ..e }
    })
}
