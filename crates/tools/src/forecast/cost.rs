//! How many messages an all-reduce has on its longest path, and how many bytes pass there: Hockney's model of a link (a message
//! of m bytes takes alpha + m / beta), and the counts of Thakur, Rabenseifner and Gropp, "Optimization of Collective
//! Communication Operations in MPICH" (2005), for the algorithms of the gloo engine.

use collectives::Algorithm;

/// What a link does in one all-reduce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Messages, one after the other.
    pub messages: f64,
    /// Bytes on the link, as a multiple of the buffer.
    pub volume: f64,
}

impl Terms {
    const NONE: Self = Self { messages: 0.0, volume: 0.0 };

    /// Of an all-reduce between `ranks` that are all alike. `Hierarchical` is made of others, and has none of its own.
    pub fn new(algorithm: Algorithm, ranks: usize) -> Self {
        if ranks < 2 {
            return Self::NONE;
        }
        let others = (ranks - 1) as f64;
        let (whole, up) = (f64::from(ranks.ilog2()), f64::from(ranks.next_power_of_two().ilog2()));
        // Ranks beyond the largest power of two hand their buffer to a partner, and get the result at the end.
        let core = (1_usize << ranks.ilog2()) as f64;
        let folded = if ranks.is_power_of_two() { 0.0 } else { 2.0 };
        let (messages, volume) = match algorithm {
            Algorithm::Direct | Algorithm::Hierarchical => return Self::NONE,
            Algorithm::Ring | Algorithm::Library => (2.0 * others, 2.0 * others / ranks as f64),
            Algorithm::Doubling => (whole + folded, whole + folded),
            Algorithm::HalvingDoubling => (2.0 * whole + folded, 2.0 * (core - 1.0) / core + folded),
            Algorithm::Tree => (2.0 * up, 2.0 * up),
            Algorithm::ParameterServer => (2.0 * others, 2.0 * others),
            // Ranks wait for the notices of all others. Each writes what the others reduce, reads its own part of every buffer, and
            // copies the parts of the others.
            Algorithm::Memory => (up, 1.0 + 2.0 * others / ranks as f64),
        };
        Self { messages, volume }
    }

    /// Between nodes in the two trees of NCCL (Sanders, Speck and Traeff, 2009): each has half of the buffer, and who has children
    /// in one is a leaf in the other. Within a node follows a chain of `each` processes, whose bytes pass meanwhile.
    pub fn of_trees(nodes: usize, each: usize) -> (Self, Self) {
        let up = f64::from(nodes.next_power_of_two().ilog2());
        let chain = (each.max(1) - 1) as f64;
        (Self { messages: 2.0 * up, volume: 2.0 }, Self { messages: 2.0 * chain, volume: 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_are_those_of_the_papers() {
        let of = |algorithm, ranks| {
            let Terms { messages, volume } = Terms::new(algorithm, ranks);
            (messages, volume)
        };
        assert_eq!(of(Algorithm::Ring, 4), (6.0, 1.5));
        assert_eq!(of(Algorithm::Doubling, 8), (3.0, 3.0));
        assert_eq!(of(Algorithm::Doubling, 6), (4.0, 4.0));
        assert_eq!(of(Algorithm::HalvingDoubling, 8), (6.0, 1.75));
        assert_eq!(of(Algorithm::HalvingDoubling, 5), (6.0, 3.5));
        assert_eq!(of(Algorithm::Tree, 5), (6.0, 6.0));
        assert_eq!(of(Algorithm::ParameterServer, 3), (4.0, 4.0));
        assert_eq!(of(Algorithm::Memory, 4), (2.0, 2.5));
    }

    #[test]
    fn one_rank_sends_nothing() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Terms::new(algorithm, 1), Terms::NONE);
        }
    }

    /// A ring moves the fewest bytes, a doubling needs the fewest messages.
    #[test]
    fn rings_are_for_large_buffers_and_doubling_for_small_ones() {
        for ranks in [4, 8, 16, 64] {
            let (ring, doubling) =
                (Terms::new(Algorithm::Ring, ranks), Terms::new(Algorithm::Doubling, ranks));
            assert!(ring.volume < 2.0 && ring.volume < doubling.volume && doubling.messages < ring.messages);
        }
    }
}
