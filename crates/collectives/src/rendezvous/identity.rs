//! Whether two processes belong to the same run: what each reports about itself, and the messages for a mismatch.

use super::RendezvousConfig;
use super::accept::{JoinResult, OtherProtocol};
use super::plan_keys;
use super::wire::{ConnectionPurpose, HostId, Join, Message, PROTOCOL, TableEntry};
use std::net::SocketAddr;

#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub config: &'a RendezvousConfig,
    pub host: HostId,
}

/// Why a peer that sent a `Join` is refused.
pub(super) enum JoinRefusal {
    /// A process of another run or start: it is rejected and the rendezvous continues.
    Foreign(String),
    /// A peer of a later generation: this rank's own generation is over.
    Outdated(String),
    /// The run can't form as it was started: all ranks fail with this reason.
    Conflict(String),
}

impl Identity<'_> {
    pub(super) fn join(&self, purpose: ConnectionPurpose, listen: SocketAddr) -> Vec<u8> {
        let RendezvousConfig { rank, world_size, run_id, generation, plan_hash, .. } = self.config;
        Message::Join(Join {
            purpose,
            rank: *rank,
            world: *world_size,
            generation: *generation,
            run_id: run_id.clone(),
            plan_hash: plan_hash.clone(),
            plan_keys: plan_keys::digests(&self.config.plan_keys),
            entry: TableEntry { address: listen, host: self.host },
        })
        .frame()
    }

    /// Checks the `Join` that came from `from`.
    pub(super) fn check_join(&self, joined: JoinResult, from: SocketAddr) -> Result<Join, JoinRefusal> {
        let own = self.config;
        let me = own.rank;
        let join = joined.map_err(|OtherProtocol(theirs)| {
            JoinRefusal::Conflict(format!(
                "a process at {from} uses version {theirs} of the rendezvous protocol, but rank {me} uses version \
                 {PROTOCOL}; run the same version of ddp-run on every node"
            ))
        })?;
        let peer = format!("rank {} ({from})", join.rank);
        if join.run_id != own.run_id || join.generation < own.generation {
            return Err(JoinRefusal::Foreign(format!(
                "{peer} belongs to run `{}`, generation {}, but rank {me} belongs to run `{}`, generation {}",
                join.run_id, join.generation, own.run_id, own.generation
            )));
        }
        if join.generation > own.generation {
            return Err(JoinRefusal::Outdated(format!(
                "{peer} is in generation {} of run `{}`, but rank {me} is in generation {}: rank {me} is a process \
                 of an earlier start",
                join.generation, own.run_id, own.generation
            )));
        }
        let conflict = if join.world != own.world_size {
            format!(
                "{peer} has world size {}, but rank {me} has world size {}; give every node the same --nnodes and \
                 --nproc-per-node",
                join.world, own.world_size
            )
        } else if join.rank >= own.world_size {
            format!("{peer} is out of range for world size {}", own.world_size)
        } else if join.plan_hash != own.plan_hash {
            format!(
                "{peer} has a different plan ({}) from rank {me} ({}){}; start every rank with the same spec and \
                 overrides",
                join.plan_hash,
                own.plan_hash,
                plan_keys::differing(&own.plan_keys, me, &join.plan_keys)
            )
        } else if join.rank == me {
            format!("{peer} has the same rank as the process that it connected to")
        } else {
            return Ok(join);
        };
        Err(JoinRefusal::Conflict(conflict))
    }
}
