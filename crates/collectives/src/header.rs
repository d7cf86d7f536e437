//! The header of a call, as text and on the wire. The data that an engine sends for a call begins with its [`Header`];
//! a receiver compares it with its own call before it reads any payload, so ranks that disagree find out at once.
//! Decoding checks every field, does not allocate and cannot panic.

use crate::{DType, ReduceOp};
use base::named;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Size of an encoded header in bytes.
pub(super) const HEADER: usize = 56;
const MAGIC: [u8; 4] = *b"DDPg";

named! {
    /// Codes on the wire are positions: append only.
    pub(super) enum CallOperation {
        AllReduce = "all_reduce",
        Reduce = "reduce",
        Broadcast = "broadcast",
        AllGather = "all_gather",
        ReduceScatter = "reduce_scatter",
        Barrier = "barrier",
        Send = "send",
        Recv = "recv",
    }
}

impl CallOperation {
    /// Whether the operation is between two ranks. These are numbered for each pair, the others for the group.
    pub(super) const fn is_pairwise(self) -> bool {
        matches!(self, CallOperation::Send | CallOperation::Recv)
    }
}

named! {
    /// The algorithm of a call; part of the header because all ranks must choose the same one. Codes on the wire are
    /// positions: append only.
    pub enum Algorithm {
        /// One message, or none.
        Direct = "direct",
        /// Pipelined around the ring of ranks, or along a chain from or to the root.
        Ring = "ring",
        /// Recursive doubling, binomial tree, dissemination: a logarithmic number of whole messages.
        Doubling = "doubling",
        /// Recursive halving, then recursive doubling.
        HalvingDoubling = "halving-doubling",
        /// Up a binomial tree, then down.
        Tree = "tree",
        /// One rank gathers, reduces and sends back.
        ParameterServer = "parameter-server",
        /// In shared memory, with all ranks on one host.
        Memory = "shared-memory",
        /// In shared memory within each host, over links between hosts.
        Hierarchical = "hierarchical",
        /// Chosen by the library (MPI, NCCL).
        Library = "library",
    }
}

/// One call of a rank, as announced to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub operation: CallOperation,
    pub dtype: DType,
    pub reduce_op: ReduceOp,
    pub algorithm: Algorithm,
    /// The root, or the peer of a send or recv.
    pub root: u32,
    pub tag: u32,
    /// Digest of the run id.
    pub run: u64,
    pub generation: u64,
    /// The sequence number; group calls count from 1.
    pub sequence: u64,
    /// Elements in the buffer; for gathers and scatters, in one rank's block.
    pub count: u64,
}

impl Header {
    /// What all calls of a group have in common.
    pub(super) fn base(algorithm: Algorithm, run: u64, generation: u64) -> Self {
        Self {
            operation: CallOperation::Barrier,
            dtype: DType::U8,
            reduce_op: ReduceOp::Sum,
            algorithm,
            root: 0,
            tag: 0,
            run,
            generation,
            sequence: 0,
            count: 0,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = self.operation as u8;
        out[5] = self.dtype as u8;
        out[6] = self.reduce_op as u8;
        out[7] = self.algorithm as u8;
        out[8..12].copy_from_slice(&self.root.to_le_bytes());
        out[12..16].copy_from_slice(&self.tag.to_le_bytes());
        for (slot, value) in out[16..48].as_chunks_mut::<8>().0.iter_mut().zip([
            self.run,
            self.generation,
            self.sequence,
            self.count,
        ]) {
            *slot = value.to_le_bytes();
        }
        out
    }

    /// None if malformed.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|b| u32::from_le_bytes(*b));
        let long = |at: usize| bytes[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        // The last eight bytes are reserved and zero.
        if !bytes.starts_with(&MAGIC) || long(48)? != 0 {
            return None;
        }
        Some(Self {
            operation: *CallOperation::ALL.get(usize::from(bytes[4]))?,
            dtype: *DType::ALL.get(usize::from(bytes[5]))?,
            reduce_op: *ReduceOp::ALL.get(usize::from(bytes[6]))?,
            algorithm: *Algorithm::ALL.get(usize::from(bytes[7]))?,
            root: word(8)?,
            tag: word(12)?,
            run: long(16)?,
            generation: long(24)?,
            sequence: long(32)?,
            count: long(40)?,
        })
    }

    /// Whether `theirs`, sent by rank `peer`, matches this rank's call.
    pub(super) fn agrees_with(&self, theirs: &Header, me: usize, peer: usize) -> bool {
        match self.operation {
            CallOperation::Recv => {
                let expected = Header { operation: CallOperation::Send, root: me as u32, ..*self };
                self.root as usize == peer && expected == *theirs
            }
            // A send has no answer.
            CallOperation::Send => false,
            _ => self == theirs,
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { operation, dtype, count, root, tag, sequence, .. } = self;
        let op = self.reduce_op.name();
        write!(f, "{} #{sequence}", operation.name())?;
        match operation {
            CallOperation::AllReduce => write!(f, " ({op} of {count} {dtype})"),
            CallOperation::Reduce => write!(f, " ({op} of {count} {dtype} to rank {root})"),
            CallOperation::Broadcast => write!(f, " ({count} {dtype} from rank {root})"),
            CallOperation::AllGather => write!(f, " ({count} {dtype} a rank)"),
            CallOperation::ReduceScatter => write!(f, " ({op}, {count} {dtype} a rank)"),
            CallOperation::Barrier => Ok(()),
            CallOperation::Send => write!(f, " ({count} {dtype} to rank {root}, tag {tag})"),
            CallOperation::Recv => write!(f, " ({count} {dtype} from rank {root}, tag {tag})"),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sample() -> Header {
        let base = Header::base(Algorithm::Ring, 0x1234, 7);
        Header { operation: CallOperation::AllReduce, dtype: DType::F32, sequence: 12, count: 1024, ..base }
    }

    #[test]
    fn every_header_field_round_trips() {
        for operation in CallOperation::ALL {
            for dtype in DType::ALL {
                for reduce_op in ReduceOp::ALL {
                    for algorithm in Algorithm::ALL {
                        let h = Header {
                            operation,
                            dtype,
                            reduce_op,
                            algorithm,
                            root: 3,
                            tag: u32::MAX,
                            count: u64::MAX,
                            ..sample()
                        };
                        assert_eq!(Header::decode(&h.encode()), Some(h));
                    }
                }
            }
        }
    }

    #[test]
    fn wire_codes_never_change() {
        let types = [("f32", 0), ("f64", 1), ("f16", 2), ("bf16", 3), ("i32", 4), ("i64", 5), ("u8", 6)];
        assert_eq!(DType::ALL.map(|d| (d.name(), d as u8)), types);

        let operations = [
            ("all_reduce", 0),
            ("reduce", 1),
            ("broadcast", 2),
            ("all_gather", 3),
            ("reduce_scatter", 4),
            ("barrier", 5),
            ("send", 6),
            ("recv", 7),
        ];
        assert_eq!(CallOperation::ALL.map(|o| (o.name(), o as u8)), operations);

        let reduce_ops = [("sum", 0), ("mean", 1), ("max", 2), ("min", 3)];
        assert_eq!(ReduceOp::ALL.map(|op| (op.name(), op as u8)), reduce_ops);

        let algorithms = [
            ("direct", 0),
            ("ring", 1),
            ("doubling", 2),
            ("halving-doubling", 3),
            ("tree", 4),
            ("parameter-server", 5),
            ("shared-memory", 6),
            ("hierarchical", 7),
            ("library", 8),
        ];
        assert_eq!(Algorithm::ALL.map(|a| (a.name(), a as u8)), algorithms);
    }

    #[test]
    fn a_recv_agrees_only_with_its_send() {
        let recv = Header { operation: CallOperation::Recv, root: 2, tag: 9, ..sample() };
        let send = Header { operation: CallOperation::Send, root: 1, tag: 9, ..sample() };
        assert!(recv.agrees_with(&send, 1, 2));
        assert!(!recv.agrees_with(&Header { tag: 8, ..send }, 1, 2));
        assert!(!recv.agrees_with(&Header { count: 8, ..send }, 1, 2));
        assert!(!recv.agrees_with(&sample(), 1, 2));
        assert!(!send.agrees_with(&send, 1, 2));
    }
}
