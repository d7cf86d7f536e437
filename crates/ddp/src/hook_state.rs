//! Gathers the state of all ranks' hooks for a checkpoint and scatters it again, one bucket of one rank at a time.

use base::error::Error;
use collectives::{CommError, ProcessGroup};
use serde::{Deserialize, Serialize};

/// State that all ranks' hooks keep between steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookState {
    /// The hook's name in specs.
    pub name: String,
    /// Elements of each bucket to which the state belongs.
    pub buckets: Vec<usize>,
    /// `[rank][bucket]`
    pub values: Vec<Vec<Vec<f32>>>,
}

impl HookState {
    /// Why this state does not fit the hook `name` of `world` ranks with these buckets; `None` if it fits.
    pub(super) fn mismatch(&self, name: &str, world: usize, buckets: &[usize]) -> Option<String> {
        if self.values.len() != world {
            Some(format!("it was saved by {} processes, this run has {world}", self.values.len()))
        } else if self.name != name {
            Some(format!("this run uses `{name}`"))
        } else if self.buckets != buckets {
            Some("the bucket sizes differ".to_owned())
        } else {
            None
        }
    }
}

/// Distinguishes this traffic from other messages between two ranks.
const TAG: u32 = 0x6863;

/// Gathers all ranks' states of the hook `name` on rank 0; `None` there if it has none, and on the other ranks. `state`
/// returns this rank's for a bucket. A collective.
pub(super) fn gather(
    name: &str,
    buckets: &[usize],
    state: &dyn Fn(usize) -> Result<Vec<f32>, Error>,
    group: &dyn ProcessGroup,
) -> Result<Option<HookState>, Error> {
    let (rank, world) = (group.rank(), group.world_size());
    let mut all = vec![Vec::with_capacity(buckets.len()); if rank == 0 { world } else { 0 }];
    for bucket in 0..buckets.len() {
        let own = state(bucket)?;
        let mut lengths = vec![0i64; world];
        group.all_gather((&[own.len() as i64][..]).into(), (&mut lengths).into())?;
        if rank != 0 {
            if !own.is_empty() {
                group.send((&own).into(), 0, TAG)?;
            }
            continue;
        }
        all[0].push(own);
        for (from, length) in lengths.iter().enumerate().skip(1) {
            let mut state = vec![0f32; *length as usize];
            if !state.is_empty() {
                group.recv((&mut state).into(), from, TAG)?;
            }
            all[from].push(state);
        }
    }
    let any = all.iter().flatten().any(|state| !state.is_empty());
    Ok(any.then(|| HookState { name: name.to_owned(), buckets: buckets.to_vec(), values: all }))
}

/// Scatters `values`, which only rank 0 has; `restore` receives this rank's part by bucket. A collective.
pub(super) fn scatter(
    restore: &mut dyn FnMut(usize, Vec<f32>),
    buckets: usize,
    values: Vec<Vec<Vec<f32>>>,
    group: &dyn ProcessGroup,
) -> Result<(), CommError> {
    let (rank, world) = (group.rank(), group.world_size());
    let length = |rank: usize, bucket: usize| {
        values.get(rank).and_then(|buckets| buckets.get(bucket)).map_or(0, |state| state.len() as i64)
    };
    for bucket in 0..buckets {
        let mut lengths: Vec<i64> = (0..world).map(|rank| length(rank, bucket)).collect();
        group.broadcast((&mut lengths).into(), 0)?;
        if rank == 0 {
            for to in (1..world).filter(|to| lengths[*to] > 0) {
                group.send((&values[to][bucket]).into(), to, TAG)?;
            }
        }
        let mut own = match rank {
            0 => values.first().and_then(|buckets| buckets.get(bucket)).cloned().unwrap_or_default(),
            _ => vec![0f32; lengths[rank] as usize],
        };
        if rank != 0 && !own.is_empty() {
            group.recv((&mut own).into(), 0, TAG)?;
        }
        if !own.is_empty() {
            restore(bucket, own);
        }
    }
    Ok(())
}
