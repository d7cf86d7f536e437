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
    Stray(String),
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
    pub(super) fn judge<'m>(&self, message: &'m [u8], from: SocketAddr) -> Result<Join<'m>, Refusal> {
        let me = self.rank;
        let join = match wire::decode(message) {
            Ok(Message::Join(join)) => join,
            Err(WireError::Protocol(theirs)) => {
                return Err(Refusal::Conflict(format!(
                    "a process at {from} speaks version {theirs} of the rendezvous protocol, rank {me} version \
                     {PROTOCOL}; run the same ddp-run on every node"
                )));
            }
            _ => return Err(Refusal::Stray("it sent something else than a request to join".into())),
        };
        let peer = format!("rank {} ({from})", join.rank);
        if join.run_id != self.run_id || join.generation < self.generation {
            return Err(Refusal::Stray(format!(
                "{peer} belongs to run `{}`, generation {}; rank {me} to run `{}`, generation {}",
                join.run_id, join.generation, self.run_id, self.generation
            )));
        }
        if join.generation > self.generation {
            return Err(Refusal::Outdated(format!(
                "{peer} is of generation {} of run `{}`, rank {me} only of generation {}: rank {me} is a leftover \
                 of an earlier start",
                join.generation, self.run_id, self.generation
            )));
        }
        let conflict = if join.world as usize != self.world {
            format!(
                "{peer} was started for a world of {}, rank {me} for a world of {}; give every node the same \
                 --nnodes and --nproc-per-node",
                join.world, self.world
            )
        } else if join.rank as usize >= self.world {
            format!("{peer} is not in a world of {}", self.world)
        } else if join.plan_hash != self.plan_hash {
            format!(
                "{peer} was started with another plan ({}) than rank {me} ({}); start every rank with the same \
                 spec and overrides",
                join.plan_hash, self.plan_hash
            )
        } else if join.rank as usize == me {
            format!("{peer} claims a rank that is taken by the process that it connected to")
        } else {
            return Ok(join);
        };
        Err(Refusal::Conflict(conflict))
    }
}
