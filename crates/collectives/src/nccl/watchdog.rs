//! The watchdog thread of a group: it detects when collectives end, is informed of lost peers and of NCCL's own failures,
//! enforces the deadline, and ends the communicator, in order or not. Nothing else ends it, so a call that hangs in
//! NCCL blocks no other thread.

use super::engine::{Engine, poll_control};
use super::library::CommunicatorState;
use crate::CommError;
use crate::calls::lock;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two checks of the device while it has work; a buffer may be kept too long by this time.
const LOOK: Duration = Duration::from_millis(1);
/// Pause between two checks of the peers.
const TICK: Duration = Duration::from_millis(50);
/// Time for the device's last collectives, and for NCCL's orderly end, when the group is dropped.
const LEAVE: Duration = Duration::from_secs(10);
/// How long to wait for an end that hangs; after that, the process continues without it.
const PATIENCE: Duration = Duration::from_secs(25);

pub(super) fn start(engine: Arc<Engine>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("nccl-watchdog".into()).spawn(move || watch(&engine))
}

fn watch(engine: &Engine) {
    if let Err(why) = engine.context.enter() {
        engine.broken(&why);
    }
    let mut looked_at_peers = Instant::now();
    let (mut leaving, mut failed) = (None::<Instant>, None::<Instant>);
    loop {
        leaving = leaving.or_else(|| sleep(engine).then(Instant::now));
        // The first failure counts; later ones follow from it.
        if let Err(why) = engine.retire()
            && engine.failure().is_none()
        {
            engine.broken(&why);
        }
        let peers = looked_at_peers.elapsed() >= TICK;
        if peers {
            looked_at_peers = Instant::now();
        }
        if engine.failure().is_none() {
            // Any error found is the group's failure from now on.
            let _ = look(engine, peers);
        }
        if engine.failure().is_some() {
            engine.end(*failed.get_or_insert_with(Instant::now));
        }
        if let Some(since) = leaving {
            if lock(&engine.queue).is_empty() || since.elapsed() > LEAVE {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
    leave(engine);
    lock(&engine.queue).left = true;
    engine.wake.notify_all();
}

/// Sleeps until there is something to check. True when the group is being dropped.
fn sleep(engine: &Engine) -> bool {
    let queue = lock(&engine.queue);
    if queue.leaving {
        return true;
    }
    let pause = if queue.is_empty() { TICK } else { LOOK };
    let (queue, _) = engine.wake.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner);
    queue.leaving
}

fn look(engine: &Engine, peers: bool) -> Result<(), CommError> {
    if peers {
        poll_control(&*engine.control).map_err(|error| engine.fail(error))?;
    }
    engine.listen()?;
    let late = lock(&engine.queue).overdue(engine.timeout).or_else(|| engine.hangs(engine.timeout));
    late.map_or(Ok(()), |call| Err(engine.overdue(call)))
}

/// Ends the communicator of a group that is dropped.
fn leave(engine: &Engine) {
    if !lock(&engine.queue).is_empty() {
        return engine.end(Instant::now());
    }
    let Some(mut communicator) = engine.take() else { return };
    let until = Instant::now() + LEAVE;
    let mut state = communicator.finalize();
    while state == Ok(CommunicatorState::InProgress) && Instant::now() < until {
        std::thread::sleep(LOOK);
        state = communicator.state();
    }
    let ended = match state {
        Ok(CommunicatorState::Ready) => communicator.destroy(),
        Ok(CommunicatorState::InProgress) => communicator.abort(),
        Err(why) => communicator.abort().and(Err(why)),
    };
    if let Err(why) = ended {
        tracing::warn!("rank {}: NCCL's communicator could not be destroyed: {why}", engine.control.rank());
    }
}

/// Ends the watchdog and, through it, the communicator; the wait for them is limited.
pub(super) fn stop(engine: &Engine, thread: JoinHandle<()>) {
    let mut queue = lock(&engine.queue);
    queue.leaving = true;
    engine.wake.notify_all();
    let waiting = engine.wake.wait_timeout_while(queue, PATIENCE, |queue| !queue.left);
    let left = waiting.unwrap_or_else(PoisonError::into_inner).0.left;
    if left {
        // The thread has nothing left to do but return.
        let _ = thread.join();
    } else {
        tracing::warn!(
            "rank {}: NCCL did not shut down in time; the process continues without it",
            engine.control.rank()
        );
    }
}
