//! Runs each operation with the algorithm that its header names.

use super::chunks::{AllGather, ReduceScatter};
use super::engine::Engine;
use super::header::Algorithm;
use super::topology::Topology;
use crate::{Call, CommError};
use std::ops::Range;

impl Engine {
    /// Runs the call that has begun.
    pub(super) fn run(&mut self, call: Call<'_>, topology: &Topology) -> Result<(), CommError> {
        let algorithm = self.header.algorithm;
        match call {
            Call::AllReduce { buf, .. } => self.all_reduce(buf.into_bytes(), topology),
            Call::Reduce { mut buf, root, .. } => match algorithm {
                Algorithm::Memory => self.reduce_in_memory(buf.bytes_mut(), Some(root)),
                Algorithm::Ring => self.reduce_chain(buf.bytes_mut(), root),
                Algorithm::ParameterServer => self.reduce_star(buf.bytes_mut(), root),
                _ => self.reduce_tree(buf.bytes_mut(), root),
            },
            Call::Broadcast { mut buf, root } => match algorithm {
                Algorithm::Memory => self.broadcast_in_memory(buf.bytes_mut(), root),
                Algorithm::Ring => self.broadcast_chain(buf.bytes_mut(), root),
                Algorithm::ParameterServer => self.broadcast_star(buf.bytes_mut(), root),
                _ => self.broadcast_tree(buf.bytes_mut(), root),
            },
            Call::AllGather { input, output } => self.all_gather(input.bytes(), output.into_bytes()),
            Call::ReduceScatter { input, output, .. } => {
                self.reduce_scatter(input.bytes(), output.into_bytes())
            }
            Call::Barrier(_) => match algorithm {
                Algorithm::Memory => self.local_barrier(),
                _ => self.barrier_dissemination(),
            },
            Call::Send { buf, to, .. } => self.send_all(buf.bytes(), to),
            Call::Recv { mut buf, from, .. } => self.recv_all(buf.bytes_mut(), from),
        }
    }

    fn all_reduce(&mut self, buf: &mut [u8], topology: &Topology) -> Result<(), CommError> {
        match self.header.algorithm {
            Algorithm::Memory => self.reduce_in_memory(buf, None),
            Algorithm::Hierarchical => self.all_reduce_hierarchical(buf, topology),
            Algorithm::Ring => self.all_reduce_ring(&topology.all(), buf),
            Algorithm::HalvingDoubling => self.all_reduce_halving_doubling(buf),
            Algorithm::Tree => self.all_reduce_tree(buf),
            Algorithm::ParameterServer => self.all_reduce_star(buf),
            _ => self.all_reduce_doubling(&topology.all(), buf),
        }
    }

    fn all_gather(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CommError> {
        let block = input.len();
        output[self.me * block..][..block].copy_from_slice(input);
        match self.header.algorithm {
            Algorithm::Memory => {
                let blocks = &self.blocks(block);
                self.through_slots(&mut AllGather { buf: output, blocks })
            }
            _ => self.all_gather_ring(output),
        }
    }

    fn reduce_scatter(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CommError> {
        let mut memory = self.take_work(input.len());
        let work = &mut bytemuck::cast_slice_mut(&mut memory)[..input.len()];
        work.copy_from_slice(input);
        let result = match self.header.algorithm {
            Algorithm::Memory => {
                let (blocks, kind, divisor) = (&self.blocks(output.len()), self.kind(), self.divisor());
                self.through_slots(&mut ReduceScatter { buf: work, blocks, kind, divisor })
            }
            _ => self.reduce_scatter_ring(work),
        };
        output.copy_from_slice(&work[self.me * output.len()..][..output.len()]);
        self.work = memory;
        result
    }

    /// The byte ranges of one block of `block` bytes per rank.
    fn blocks(&self, block: usize) -> Vec<Range<usize>> {
        (0..self.world).map(|rank| rank * block..(rank + 1) * block).collect()
    }
}
