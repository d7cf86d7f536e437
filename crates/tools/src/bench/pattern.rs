//! The content of the buffers, for which every result is known exactly in every type.
//!
//! Element i has a base value c(i) between 2 and 256 / world - 1, chosen by a hash. Ranks 2k and 2k+1 contribute
//! c(i) + 1 and c(i) - 1, in an order given by another bit of the hash; an odd last rank contributes c(i). So the mean is
//! c(i), the sum world x c(i), the maximum c(i) + 1 and the minimum c(i) - 1. Every partial sum is an integer of at
//! most 256 (exact in bf16, no overflow in u8), and a rank that is left out, counted twice or misplaced changes the
//! result. Reducing a mean, maximum or minimum again does not change it, so results can be checked after any number
//! of reductions.

use collectives::{DType, Element, ReduceOp, SliceMut, SliceRef};
use half::{bf16, f16};
use std::fmt::Display;

#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    pub rank: usize,
    pub world: usize,
}

/// The first wrong element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub index: usize,
    pub expected: String,
    pub got: String,
}

/// Runs the body with the Rust type of a [`DType`].
macro_rules! typed {
    ($dtype:expr, $t:ident => $body:expr) => {
        typed!(@match $dtype, $t, $body, F32 f32, F64 f64, F16 f16, BF16 bf16, I32 i32, I64 i64, U8 u8)
    };
    (@match $dtype:expr, $t:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $dtype {
            $(DType::$variant => {
                type $t = $type;
                $body
            })*
        }
    };
}

impl Pattern {
    /// Writes this rank's contribution.
    pub fn fill(&self, buf: SliceMut<'_>) {
        let dtype = buf.dtype();
        typed!(dtype, T => {
            let table = table::<T>();
            for (i, v) in bytemuck::cast_slice_mut::<u8, T>(buf.into_bytes()).iter_mut().enumerate() {
                *v = table[self.contribution(i) & MASK];
            }
        });
    }

    /// Checks, element by element, that `buf` is the reduction of all ranks' contributions.
    pub fn check(&self, buf: SliceRef<'_>, op: ReduceOp) -> Result<(), Wrong> {
        typed!(buf.dtype(), T => self.compare::<T>(bytemuck::cast_slice(buf.bytes()), op))
    }

    fn compare<T: Whole>(&self, values: &[T], op: ReduceOp) -> Result<(), Wrong> {
        let table = table::<T>();
        let expected = |i| table[self.reduced(i, op) & MASK];
        match values.iter().enumerate().position(|(i, v)| *v != expected(i)) {
            None => Ok(()),
            Some(index) => {
                let (expected, got) = (expected(index).to_string(), values[index].to_string());
                Err(Wrong { index, expected, got })
            }
        }
    }

    fn contribution(&self, i: usize) -> usize {
        let hash = hash(i);
        let base = self.base(hash);
        if self.world % 2 == 1 && self.rank == self.world - 1 {
            return base;
        }
        // Mixed again, so that the order within a pair does not depend on the base value.
        let signs = (hash ^ (hash >> 16)).wrapping_mul(0x85EB_CA6B) >> 16;
        let above = (signs >> (self.rank / 2 % 16) & 1) as usize == self.rank % 2;
        if above { base + 1 } else { base - 1 }
    }

    fn reduced(&self, i: usize, op: ReduceOp) -> usize {
        let base = self.base(hash(i));
        match op {
            ReduceOp::Sum => base * self.world,
            ReduceOp::Mean => base,
            ReduceOp::Max => base + 1,
            ReduceOp::Min => base - 1,
        }
    }

    fn base(&self, hash: u32) -> usize {
        let choices = (256 / self.world).saturating_sub(2).max(1) as u64;
        2 + ((u64::from(hash) * choices) >> 32) as usize
    }
}

/// Fibonacci hashing: the high bits are evenly distributed and their period is not that of a chunk.
fn hash(i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9E37_79B1)
}

/// Values up to 256, and a mask that avoids the bounds check.
const MASK: usize = 511;

fn table<T: Whole>() -> [T; MASK + 1] {
    std::array::from_fn(|v| T::whole(v as u16))
}

/// Element types that hold these integers.
trait Whole: Element + PartialEq + Display {
    fn whole(value: u16) -> Self;
}

macro_rules! whole {
    ($($t:ty: $from:expr),*) => {$(
        impl Whole for $t {
            fn whole(value: u16) -> Self {
                $from(value)
            }
        }
    )*};
}
whole!(
    f32: f32::from, f64: f64::from, i32: i32::from, i64: i64::from, u8: |v| v as u8,
    f16: |v| f16::from_f32(f32::from(v)), bf16: |v| bf16::from_f32(f32::from(v))
);

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 5000;

    fn filled(dtype: DType, rank: usize, world: usize) -> Vec<u64> {
        let mut words = vec![0u64; (COUNT * dtype.size()).div_ceil(8)];
        Pattern { rank, world }.fill(view(&mut words, dtype));
        words
    }

    fn view(words: &mut [u64], dtype: DType) -> SliceMut<'_> {
        let bytes = bytemuck::cast_slice_mut(words);
        SliceMut::from_bytes(dtype, &mut bytes[..COUNT * dtype.size()]).unwrap()
    }

    fn read(words: &[u64], dtype: DType, i: usize) -> f64 {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let text = typed!(dtype, T => bytemuck::cast_slice::<u8, T>(bytes)[i].to_string());
        text.parse().unwrap()
    }

    #[test]
    fn the_expected_result_equals_plain_arithmetic_in_every_type() {
        for world in [2, 3, 4, 7, 8, 33, 64] {
            let pattern = Pattern { rank: 0, world };
            for dtype in DType::ALL {
                let ranks: Vec<_> = (0..world).map(|r| filled(dtype, r, world)).collect();
                for i in (0..COUNT).step_by(7) {
                    let all: Vec<f64> = ranks.iter().map(|r| read(r, dtype, i)).collect();
                    let sum: f64 = all.iter().sum();
                    assert!(
                        sum <= 256.0 && (dtype != DType::U8 || sum <= 255.0),
                        "{world} {dtype} {i}: {sum}"
                    );
                    let max = all.iter().copied().fold(f64::MIN, f64::max);
                    let min = all.iter().copied().fold(f64::MAX, f64::min);
                    let mean = sum / world as f64;
                    for (op, want) in [
                        (ReduceOp::Sum, sum),
                        (ReduceOp::Mean, mean),
                        (ReduceOp::Max, max),
                        (ReduceOp::Min, min),
                    ] {
                        assert_eq!(pattern.reduced(i, op) as f64, want, "{op:?} {world} {dtype} {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn finds_one_wrong_element_at_any_index() {
        let pattern = Pattern { rank: 1, world: 2 };
        for dtype in DType::ALL {
            for index in [0, 1, COUNT / 2, COUNT - 1] {
                let mut words = vec![0u64; (COUNT * dtype.size()).div_ceil(8)];
                typed!(dtype, T => {
                    let values = &mut bytemuck::cast_slice_mut::<u64, T>(&mut words)[..COUNT];
                    for (i, v) in values.iter_mut().enumerate() {
                        *v = T::whole(pattern.reduced(i, ReduceOp::Max) as u16);
                    }
                });
                assert_eq!(pattern.check(view(&mut words, dtype).as_ref(), ReduceOp::Max), Ok(()));
                let right = pattern.reduced(index, ReduceOp::Max);
                typed!(dtype, T => {
                    bytemuck::cast_slice_mut::<u64, T>(&mut words)[index] = T::whole(right as u16 + 1)
                });
                let wrong = pattern.check(view(&mut words, dtype).as_ref(), ReduceOp::Max).unwrap_err();
                assert_eq!(wrong.index, index, "{dtype}");
                assert_eq!((wrong.expected, wrong.got), (right.to_string(), (right + 1).to_string()));
            }
        }
    }

    #[test]
    fn detects_a_missing_rank_and_a_shifted_chunk() {
        for world in [2, 3, 4, 8] {
            let sums = |ranks: &[usize], shift: usize| {
                let at = |r: usize, i: usize| Pattern { rank: r, world }.contribution(i + shift) as f32;
                (0..64).map(|i| ranks.iter().map(|r| at(*r, i)).sum()).collect::<Vec<f32>>()
            };
            let check = |values: &[f32]| Pattern { rank: 0, world }.check(values.into(), ReduceOp::Sum);
            let everyone: Vec<usize> = (0..world).collect();
            assert_eq!(check(&sums(&everyone, 0)), Ok(()));
            assert!(check(&sums(&everyone[1..], 0)).is_err(), "rank 0 is left out of {world}");
            for twice in 1..world {
                let mut ranks = everyone.clone();
                ranks[0] = twice;
                assert!(check(&sums(&ranks, 0)).is_err(), "rank {twice} of {world} stands in for rank 0");
            }
            for shift in [1, 2, 16, 64, 1024, 65536] {
                assert!(check(&sums(&everyone, shift)).is_err(), "{world} ranks, shifted by {shift}");
            }
        }
    }

    #[test]
    fn rejects_nan() {
        let pattern = Pattern { rank: 0, world: 2 };
        assert_eq!(pattern.check((&[f32::NAN][..]).into(), ReduceOp::Mean).unwrap_err().got, "NaN");
    }
}
