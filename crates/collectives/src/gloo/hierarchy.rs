//! All-reduce over hosts with several ranks: in shared memory within each host, over connections between hosts. If all
//! hosts have the same number of ranks, each rank exchanges one part of the buffer between hosts; otherwise the first
//! rank of each host exchanges all of it.

use super::chunks;
use super::engine::Engine;
use super::ring::part;
use super::topology::{SMALL, Topology};
use crate::CommError;
use std::ops::Range;

impl Engine {
    pub(super) fn all_reduce_hierarchical(
        &mut self,
        buf: &mut [u8],
        topology: &Topology,
    ) -> Result<(), CommError> {
        let host = topology.host_of(self.me).to_vec();
        let place = host.iter().position(|r| *r == self.me).unwrap_or(0);
        let column = topology.column(self.me).filter(|_| buf.len() > SMALL);
        let kind = self.kind();
        let size = kind.dtype.size();
        let blocks: Vec<Range<usize>> = (0..host.len())
            .map(|index| match (&column, index) {
                (Some(_), _) => part(buf.len() / size, size, host.len(), index),
                (None, 0) => 0..buf.len(),
                (None, _) => buf.len()..buf.len(),
            })
            .collect();
        if host.len() > 1 {
            let mut work = chunks::ReduceScatter { buf, blocks: &blocks, kind, divisor: None };
            self.through_slots(&mut work)?;
        }
        let across = column.clone().unwrap_or_else(|| topology.leaders());
        let own = &mut buf[blocks[place].clone()];
        if column.is_some() || place == 0 {
            match own.len() <= SMALL {
                true => self.all_reduce_doubling(&across, own)?,
                false => self.all_reduce_ring(&across, own)?,
            }
        }
        if host.len() > 1 {
            self.through_slots(&mut chunks::AllGather { buf, blocks: &blocks })?;
        }
        Ok(())
    }
}
