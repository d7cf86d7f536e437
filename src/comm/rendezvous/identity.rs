//! Whether two processes belong to the same run: what each reports about itself, and the messages for a mismatch.

use super::RendezvousConfig;
use super::wire::{self, HostId, Join, Message, PROTOCOL, Purpose, WireError};
use std::net::SocketAddr;

#[derive(Clone, Copy)]
pub(super) struct Identity<'a> {
    pub rank: usize,
    pub world: usize,
    run_id: &'a str,
    generation: u64,
    plan_hash: &'a str,
    pub host: HostId,
}

/// Why a peer that sent a `Join` is refused.
pub(super) enum Refusal {
    /// A leftover of another run or start: it is turned away and the rendezvous continues.
    Foreign(String),
    /// A peer of a later generation: this rank's own generation is over.
    Outdated(String),
    /// The run can't form as it was started: all ranks are told.
    Conflict(String),
}

impl<'a> Identity<'a> {
    pub(super) fn of(config: &'a RendezvousConfig, host: HostId) -> Self {
        Self {
            rank: config.rank,
            world: config.world_size,
            run_id: &config.run_id,
            generation: config.generation,
            plan_hash: &config.plan_hash,
            host,
        }
    }

    pub(super) fn join(&self, purpose: Purpose, listen: SocketAddr) -> Vec<u8> {
        Message::Join(Join {
            purpose,
            rank: self.rank as u32,
            world: self.world as u32,
            generation: self.generation,
            run_id: self.run_id,
            plan_hash: self.plan_hash,
            listen,
            host: self.host,
        })
        .frame()
    }

    /// Decodes and checks the `Join` that came from `from`.
    pub(super) fn check_join<'m>(&self, message: &'m [u8], from: SocketAddr) -> Result<Join<'m>, Refusal> {
        let me = self.rank;
        let join = match wire::decode(message) {
            Ok(Message::Join(join)) => join,
            Err(WireError::Protocol(theirs)) => {
                return Err(Refusal::Conflict(format!(
                    "a process at {from} uses version {theirs} of the rendezvous protocol, but rank {me} uses version \
                     {PROTOCOL}; run the same version of ddp-run on every node"
                )));
            }
            _ => return Err(Refusal::Foreign("it did not send a join request".into())),
        };
        let peer = format!("rank {} ({from})", join.rank);
        if join.run_id != self.run_id || join.generation < self.generation {
            return Err(Refusal::Foreign(format!(
                "{peer} belongs to run `{}`, generation {}, but rank {me} belongs to run `{}`, generation {}",
                join.run_id, join.generation, self.run_id, self.generation
            )));
        }
        if join.generation > self.generation {
            return Err(Refusal::Outdated(format!(
                "{peer} is in generation {} of run `{}`, but rank {me} is in generation {}: rank {me} is a process \
                 of an earlier start",
                join.generation, self.run_id, self.generation
            )));
        }
        let conflict = if join.world as usize != self.world {
            format!(
                "{peer} has world size {}, but rank {me} has world size {}; give every node the same --nnodes and \
                 --nproc-per-node",
                join.world, self.world
            )
        } else if join.rank as usize >= self.world {
            format!("{peer} is out of range for world size {}", self.world)
        } else if join.plan_hash != self.plan_hash {
            format!(
                "{peer} has a different plan ({}) from rank {me} ({}); start every rank with the same spec and \
                 overrides",
                join.plan_hash, self.plan_hash
            )
        } else if join.rank as usize == me {
            format!("{peer} has the same rank as the process that it connected to")
        } else {
            return Ok(join);
        };
        Err(Refusal::Conflict(conflict))
    }
}
