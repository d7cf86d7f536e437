//! The samples of a rank and their order: PyTorch's `DistributedSampler` as a pure function of (seed, epoch, rank, world),
//! and the shard of an evaluation, in which every sample occurs exactly once. Any position is accessible in O(1).

use crate::mt19937::Mt19937;
use std::sync::Arc;

/// A sequence of data-set indices with random access in O(1).
pub trait Order: Send + Sync {
    /// Number of indices.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The data-set index at `position`, which is below `len`.
    fn get(&self, position: usize) -> u64;
    /// The indices in batches of `size`, for a loop without a loader. The last one may be shorter.
    ///
    /// # Panics
    /// `size` is 0.
    fn batches(&self, size: usize) -> impl Iterator<Item = Vec<usize>>
    where
        Self: Sized,
    {
        let range = move |start: usize| start..(start + size).min(self.len());
        (0..self.len()).step_by(size).map(move |start| range(start).map(|i| self.get(i) as usize).collect())
    }
}

impl Order for Vec<u64> {
    fn len(&self) -> usize {
        Vec::len(self)
    }
    fn get(&self, position: usize) -> u64 {
        self[position]
    }
}

/// `torch.utils.data.DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=…, seed=…, drop_last=…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributedSampler {
    /// Samples in the data set.
    pub len: usize,
    /// At least 1.
    pub world: usize,
    /// Below `world`.
    pub rank: usize,
    /// Completed samples of the epoch, a prefix of its order. 0 as in PyTorch, unless the run resumed within the epoch with
    /// another number of processes or another batch size.
    pub start: usize,
    /// Permute the data set, differently in each epoch.
    pub shuffle: bool,
    /// Leave out the samples beyond a multiple of `world` (different ones in each shuffled epoch); otherwise the first
    /// samples are repeated to reach a multiple.
    pub drop_last: bool,
    /// Of the permutations; the epoch is added to it, as in PyTorch.
    pub seed: u64,
}

impl DistributedSampler {
    /// A shuffled data set of `len` samples, without `drop_last`.
    pub fn new(len: usize, world_size: usize, rank: usize, seed: u64) -> Self {
        Self { len, world: world_size, rank, start: 0, shuffle: true, drop_last: false, seed }
    }

    /// The same with samples in the order of the data set, or shuffled.
    pub fn with_shuffle(self, shuffle: bool) -> Self {
        Self { shuffle, ..self }
    }

    /// The same without the samples beyond a multiple of the world size, or with the first ones repeated.
    pub fn with_drop_last(self, drop_last: bool) -> Self {
        Self { drop_last, ..self }
    }

    /// Number of samples from `start` on.
    fn rest(&self) -> usize {
        self.len.saturating_sub(self.start)
    }

    /// Number of samples per rank and epoch, from `start` on.
    pub fn per_rank(&self) -> usize {
        if self.drop_last { self.rest() / self.world } else { self.rest().div_ceil(self.world) }
    }

    /// This rank's indices in `epoch`, as after `set_epoch(epoch)`. A shuffled epoch draws its permutation here, in O(len);
    /// clones of the returned value share it.
    pub fn epoch(&self, epoch: u64) -> EpochIndices {
        assert!(self.rank < self.world, "rank {} in a world of {}", self.rank, self.world);
        let permutation = match self.shuffle {
            false => Permutation::Sequential,
            true => Permutation::draw(self.len, self.seed.wrapping_add(epoch)),
        };
        EpochIndices { sampler: *self, permutation }
    }
}

#[derive(Clone, Debug)]
enum Permutation {
    Sequential,
    Narrow(Arc<[u32]>),
    Wide(Arc<[u64]>),
}

impl Permutation {
    fn draw(len: usize, seed: u64) -> Self {
        let mut generator = Mt19937::new(seed);
        match u32::try_from(len) {
            Ok(_) => Self::Narrow(generator.randperm(len, |i| i as u32).into()),
            Err(_) => Self::Wide(generator.randperm(len, |i| i as u64).into()),
        }
    }
}

/// One rank's indices in one epoch. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EpochIndices {
    sampler: DistributedSampler,
    permutation: Permutation,
}

impl Order for EpochIndices {
    fn len(&self) -> usize {
        self.sampler.per_rank()
    }

    /// Padding wraps around to the start of the permutation, repeatedly if needed.
    fn get(&self, position: usize) -> u64 {
        assert!(position < self.len(), "position {position} of {}", self.len());
        let DistributedSampler { start, rank, world, len, .. } = self.sampler;
        let i = (start + rank + position * world) % len;
        match &self.permutation {
            Permutation::Sequential => i as u64,
            Permutation::Narrow(perm) => u64::from(perm[i]),
            Permutation::Wide(perm) => perm[i],
        }
    }
}

/// The first `len` indices of an order.
#[derive(Clone, Debug)]
pub struct Prefix<O> {
    /// The whole order.
    pub order: O,
    /// At most the order's length.
    pub len: usize,
}

impl<O: Order> Order for Prefix<O> {
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, position: usize) -> u64 {
        self.order.get(position)
    }
}

/// One rank's shard of an evaluation: samples `rank`, `rank + world`, …, so that every sample occurs exactly once over all
/// ranks. Shards differ by at most one sample, so ranks may have different numbers of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalShard {
    /// Samples in the data set.
    pub len: usize,
    /// At least 1.
    pub world: usize,
    /// Below `world`.
    pub rank: usize,
}

impl EvalShard {
    /// Rank `rank`'s shard of `len` samples.
    ///
    /// # Panics
    /// `rank` is not below `world_size`.
    pub fn new(len: usize, world_size: usize, rank: usize) -> Self {
        assert!(rank < world_size, "rank {rank} of {world_size}");
        Self { len, world: world_size, rank }
    }
}

impl Order for EvalShard {
    fn len(&self) -> usize {
        self.len.saturating_sub(self.rank).div_ceil(self.world)
    }
    fn get(&self, position: usize) -> u64 {
        assert!(position < self.len(), "position {position} of {}", self.len());
        (self.rank + position * self.world) as u64
    }
}

/// One rank's part of an evaluation in whole batches: batches `rank`, `rank + world`, … of those that one process would have. So outputs, which
/// may depend on the batch, are the same with any number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalBatches {
    /// Samples in the data set.
    pub len: usize,
    /// At least 1.
    pub batch_size: usize,
    /// At least 1.
    pub world: usize,
    /// Below `world`.
    pub rank: usize,
}

impl EvalBatches {
    /// Batches of all ranks.
    pub fn batch_count(&self) -> usize {
        self.len.div_ceil(self.batch_size)
    }
}

impl Order for EvalBatches {
    fn len(&self) -> usize {
        let own = self.batch_count().saturating_sub(self.rank).div_ceil(self.world);
        // The last batch of all may be short, and is the last one of its rank.
        let has_last = own > 0 && self.rank + (own - 1) * self.world + 1 == self.batch_count();
        let missing = if has_last { self.batch_count() * self.batch_size - self.len } else { 0 };
        own * self.batch_size - missing
    }
    fn get(&self, position: usize) -> u64 {
        assert!(position < self.len(), "position {position} of {}", self.len());
        let (batch, within) = (position / self.batch_size, position % self.batch_size);
        ((self.rank + batch * self.world) * self.batch_size + within) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sha256_of_indices;
    use base::testing::torch_ref;
    use proptest::prelude::*;

    fn all(order: &dyn Order) -> Vec<u64> {
        (0..order.len()).map(|i| order.get(i)).collect()
    }

    fn sampler(len: usize, world: usize, rank: usize, shuffle: bool, drop_last: bool) -> DistributedSampler {
        DistributedSampler { len, world, rank, start: 0, shuffle, drop_last, seed: 0 }
    }

    #[test]
    fn small_vectors_of_torch() {
        let ranks =
            |shuffle, drop_last| [0, 1, 2, 3].map(|r| all(&sampler(10, 4, r, shuffle, drop_last).epoch(0)));
        // randperm(10, seed 0) = [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
        assert_eq!(ranks(true, false), [[4, 3, 6], [1, 9, 2], [7, 0, 4], [5, 8, 1]]);
        assert_eq!(ranks(true, true), [[4, 3], [1, 9], [7, 0], [5, 8]]);
        assert_eq!(ranks(false, false), [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]);
        // More ranks than samples: padding wraps around the whole set.
        assert_eq!(all(&sampler(3, 8, 7, false, false).epoch(0)), [1]);
        assert!(all(&sampler(3, 8, 7, true, true).epoch(0)).is_empty());
    }

    #[test]
    fn an_order_continues_after_its_start_and_wraps_around() {
        // randperm(10, seed 0) = [4, 1, 7, 5, 3, 9, 0, 8, 6, 2], of which five are completed.
        let rest = |world, drop_last| {
            let of = |rank| DistributedSampler { start: 5, ..sampler(10, world, rank, true, drop_last) };
            (0..world).map(|rank| all(&of(rank).epoch(0))).collect::<Vec<_>>()
        };
        assert_eq!(rest(1, false), [[9, 0, 8, 6, 2]]);
        assert_eq!(rest(2, false), [[9, 8, 2], [0, 6, 4]]);
        assert_eq!(rest(2, true), [[9, 8], [0, 6]]);
        let done = DistributedSampler { start: 10, ..sampler(10, 3, 1, true, false) };
        assert!(all(&done.epoch(0)).is_empty());
    }

    #[test]
    fn equals_torch_in_every_reference_case() {
        let Some(reference) = torch_ref("distributed_sampler.json") else { return };
        let cases = reference["cases"].as_array().unwrap();
        assert!(cases.len() >= 96);
        for case in cases {
            let number = |key: &str| case[key].as_u64().unwrap() as usize;
            let flag = |key: &str| case[key].as_bool().unwrap();
            for rank in 0..number("world") {
                let sampler = DistributedSampler {
                    seed: number("seed") as u64,
                    ..sampler(number("n"), number("world"), rank, flag("shuffle"), flag("drop_last"))
                };
                let indices = all(&sampler.epoch(number("epoch") as u64));
                assert_eq!(indices.len(), number("num_samples"));
                assert_eq!(
                    sha256_of_indices(indices.iter().copied()),
                    case["sha256"][rank].as_str().unwrap(),
                    "rank {rank} of {case}"
                );
                if let Some(expected) = case["ranks"].as_array() {
                    assert_eq!(serde_json::to_value(&indices).unwrap(), expected[rank]);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn ranks_have_equal_counts_and_every_index_once_plus_padding(
            len in 1usize..200, world in 1usize..20, shuffle: bool, drop_last: bool, seed: u64, epoch in 0u64..1000,
        ) {
            let mut seen = vec![0usize; len];
            let (mut padded, mut dropped) = (0, 0);
            for rank in 0..world {
                let sampler = DistributedSampler { len, world, rank, start: 0, shuffle, drop_last, seed };
                let used = sampler.per_rank() * world;
                (padded, dropped) = (used.saturating_sub(len), len.saturating_sub(used));
                let indices = all(&sampler.epoch(epoch));
                prop_assert_eq!(indices.len(), sampler.per_rank());
                for index in indices {
                    seen[index as usize] += 1;
                }
            }
            prop_assert_eq!(padded, if drop_last { 0 } else { (world - len % world) % world });
            prop_assert_eq!(dropped, if drop_last { len % world } else { 0 });
            // With drop_last no sample is repeated; without, wrapping around repeats all samples almost equally often.
            let total = len + padded - dropped;
            let (least, most) = (total / len, total.div_ceil(len));
            prop_assert!(seen.iter().all(|&n| n == least || n == most));
            prop_assert_eq!(seen.iter().sum::<usize>(), total);
        }

        #[test]
        fn an_evaluation_uses_every_sample_once(len in 0usize..300, world in 1usize..20) {
            let shards: Vec<EvalShard> = (0..world).map(|rank| EvalShard { len, world, rank }).collect();
            let mut seen: Vec<u64> = shards.iter().flat_map(|s| all(s)).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..len as u64));
            let sizes = shards.iter().map(Order::len);
            prop_assert!(sizes.into_iter().all(|n| n == len / world || n == len.div_ceil(world)));
        }
    }

    #[test]
    fn batches_are_the_order_in_pieces() {
        let order = DistributedSampler::new(10, 2, 1, 3).epoch(0);
        let batches: Vec<Vec<usize>> = order.batches(2).collect();
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(batches.concat().iter().map(|i| *i as u64).collect::<Vec<_>>(), all(&order));
        let in_order = DistributedSampler::new(5, 2, 0, 3).with_shuffle(false);
        assert_eq!(in_order.epoch(0).batches(9).collect::<Vec<_>>(), [[0, 2, 4]]);
        assert_eq!(in_order.with_drop_last(true).epoch(0).batches(9).collect::<Vec<_>>(), [[0, 2]]);
        assert_eq!(EvalShard::new(5, 2, 1).batches(1).collect::<Vec<_>>(), [[1], [3]]);
    }

    #[test]
    #[should_panic(expected = "rank 3 of 2")]
    fn a_rank_outside_of_the_world_has_no_shard() {
        EvalShard::new(5, 2, 3);
    }

    #[test]
    fn batches_of_an_evaluation_are_those_of_one_process() {
        for (len, batch_size) in [(0, 4), (1, 4), (8, 4), (10, 4), (13, 3), (5, 8)] {
            let of = |world, rank| all(&EvalBatches { len, batch_size, world, rank });
            let one = of(1, 0);
            assert_eq!(one, (0..len as u64).collect::<Vec<_>>());
            for world in 2..5 {
                let ranks: Vec<Vec<u64>> = (0..world).map(|rank| of(world, rank)).collect();
                for (number, batch) in one.chunks(batch_size).enumerate() {
                    let own = ranks[number % world].chunks(batch_size).nth(number / world);
                    assert_eq!(own, Some(batch), "batch {number} of {len} samples on {world} ranks");
                }
                assert_eq!(ranks.iter().map(Vec::len).sum::<usize>(), len);
            }
        }
    }
}
