//! Process groups whose ranks are threads of this process.

use super::gloo::{GlooGroup, GlooOptions};
use super::rendezvous::{Endpoint, RendezvousConfig, Secret};
use super::{CommError, ProcessGroup};
use std::net::TcpListener;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long the ranks wait for each other, at the start and in a call.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Runs `work` on `world_size` ranks, each a thread of this process with a group of its own, and returns their results
/// by rank. As `torch.multiprocessing.spawn`, with threads: for programs that use the CPU, for tests and examples. Groups of processes
/// are made by [`init`](crate::init()). Ranks that train build a model each: clones of a Burn module share running state.
///
/// Errors: the group does not form (the system refuses a socket or shared memory). A panic of a rank is passed on.
///
/// ```
/// use ddp_run_collectives::{ReduceOp, spawn};
///
/// let sums = spawn(4, |group| {
///     let mut values = [group.rank() as f32; 2];
///     group.all_reduce((&mut values[..]).into(), ReduceOp::Sum)?;
///     Ok(values)
/// })?;
/// assert_eq!(sums, [[6.0, 6.0]; 4]);
/// # Ok::<(), ddp_run_collectives::CommError>(())
/// ```
pub fn spawn<T: Send>(
    world_size: usize,
    work: impl Fn(Arc<dyn ProcessGroup>) -> Result<T, CommError> + Sync,
) -> Result<Vec<T>, CommError> {
    let configs = configs(world_size, TIMEOUT)?;
    let work = &work;
    thread::scope(|scope| {
        let ranks: Vec<_> = configs
            .into_iter()
            .map(|config| {
                scope.spawn(move || work(Arc::new(GlooGroup::connect(config, GlooOptions::default())?)))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// What the ranks need to meet in this process, by rank.
pub(crate) fn configs(world_size: usize, timeout: Duration) -> Result<Vec<RendezvousConfig>, CommError> {
    let failed = |e: std::io::Error| CommError::rendezvous(format!("cannot listen on 127.0.0.1: {e}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    let secret = Secret::generate()?;
    let mut listener = Some(listener);
    let config = |rank| RendezvousConfig {
        rank,
        world_size,
        endpoint: listener.take().map_or_else(|| Endpoint::Connect(address.clone()), Endpoint::Listener),
        secret: secret.clone(),
        run_id: "threads".into(),
        generation: 0,
        plan_hash: String::new(),
        plan_keys: Default::default(),
        init_timeout: TIMEOUT,
        timeout,
    };
    Ok((0..world_size).map(config).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommErrorKind, SliceMut, SliceRef};

    #[test]
    fn results_are_by_rank() {
        let gathered = spawn(3, |group| {
            let mut all = [0i32; 3];
            group
                .all_gather(SliceRef::from(&[group.rank() as i32 * 10][..]), SliceMut::from(&mut all[..]))?;
            Ok((group.rank(), all))
        });
        assert_eq!(gathered.unwrap(), [0, 1, 2].map(|rank| (rank, [0, 10, 20])));
    }

    #[test]
    fn the_error_of_a_rank_is_returned() {
        let error = spawn(2, |group| group.broadcast(SliceMut::from(&mut [0f32][..]), 7)).unwrap_err();
        assert_eq!(error.kind, CommErrorKind::Misuse, "{error}");
    }
}
