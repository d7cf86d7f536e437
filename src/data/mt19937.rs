//! PyTorch's CPU `Generator`, bit for bit: the 32-bit Mersenne Twister and the ways in which torch turns its words
//! into permutations and floats. `randperm` and `random_split` decide which samples a run sees; `rand`, `randn`, `uniform`
//! and `linear_default` let a model start from torch's own initial weights. Sources: `ATen/core/MT19937RNGEngine.h`,
//! `ATen/native/TensorFactories.cpp` (randperm), `ATen/core/TransformationHelper.h`, `ATen/core/DistributionsHelper.h`,
//! `ATen/native/cpu/DistributionTemplates.h` (its AVX2 path, which is what x86-64 machines run).

use super::avx_mathfun::{log256, sincos256};

const N: usize = 624;
const M: usize = 397;

/// `torch.Generator(device="cpu")`.
#[derive(Clone)]
pub struct Mt19937 {
    state: [u32; N],
    next: usize,
    /// The second half of the last Box-Muller pair (`next_double_normal_sample`).
    spare_normal: Option<f64>,
}

impl Mt19937 {
    /// `Generator().manual_seed(seed)`. Only the low 32 bits count, as in torch.
    pub fn new(seed: u64) -> Self {
        let mut state = [0u32; N];
        state[0] = seed as u32;
        for i in 1..N {
            let previous = state[i - 1];
            state[i] = 1_812_433_253u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(i as u32);
        }
        Self { state, next: N, spare_normal: None }
    }

    /// 32 random bits (`CPUGeneratorImpl::random`).
    pub fn random(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// 64 random bits, the first draw on top (`CPUGeneratorImpl::random64`).
    pub fn random64(&mut self) -> u64 {
        let high = u64::from(self.random());
        high << 32 | u64::from(self.random())
    }

    fn refill(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ twist;
        }
        self.next = 0;
    }

    /// One f32 in [0, 1) with 24 bits (`torch.rand`).
    pub fn rand(&mut self) -> f32 {
        (self.random() & 0x00ff_ffff) as f32 * (1.0 / 16_777_216.0)
    }

    /// One f64 in [0, 1) with 53 bits (`torch.rand(dtype=torch.float64)`).
    pub fn rand_f64(&mut self) -> f64 {
        (self.random64() & ((1 << 53) - 1)) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// `tensor.uniform_(from, to)` for f32. Compiled torch fuses the multiplication and the addition.
    pub fn uniform(&mut self, out: &mut [f32], from: f32, to: f32) {
        for x in out {
            *x = self.rand().mul_add(to - from, from);
        }
    }

    /// `torch.randn(n)` for f32. Below 16 values torch draws pairs in f64; from 16 on it fills blocks of 16, and draws the last
    /// 16 values anew when the length is no multiple of 16.
    pub fn randn(&mut self, out: &mut [f32]) {
        let n = out.len();
        if n < 16 {
            for x in out {
                *x = self.normal_f64() as f32;
            }
            return;
        }
        for x in out.iter_mut() {
            *x = self.rand();
        }
        for block in out.chunks_exact_mut(16) {
            normal_fill_16(block);
        }
        if !n.is_multiple_of(16) {
            let tail = &mut out[n - 16..];
            for x in tail.iter_mut() {
                *x = self.rand();
            }
            normal_fill_16(tail);
        }
    }

    /// One standard normal value (`normal_distribution<double>`): Box-Muller, of which the second half is kept.
    fn normal_f64(&mut self) -> f64 {
        if let Some(spare) = self.spare_normal.take() {
            return spare;
        }
        let u1 = self.rand_f64();
        let u2 = self.rand_f64();
        let radius = (-2.0 * (-u2).ln_1p()).sqrt();
        let theta = 2.0 * std::f64::consts::PI * u1;
        self.spare_normal = Some(radius * theta.sin());
        radius * theta.cos()
    }

    /// `torch.bernoulli` of a tensor that holds `p`: one f64 draw per value. (`tensor.bernoulli_(p)` with a number is another stream
    /// in torch builds with MKL.)
    pub fn bernoulli(&mut self, out: &mut [bool], p: f64) {
        for value in out {
            *value = self.rand_f64() < p;
        }
    }

    /// The initial weight (`outputs * inputs`, row-major as `[out, in]`) and bias of `torch.nn.Linear(inputs, outputs)`:
    /// `kaiming_uniform_(a = sqrt(5))`, then uniform within `1 / sqrt(inputs)`.
    pub fn linear_default(&mut self, inputs: usize, outputs: usize) -> (Vec<f32>, Vec<f32>) {
        let fan_in = inputs.max(1) as f64;
        let gain = (2.0f64 / (1.0 + 5.0f64.sqrt().powi(2))).sqrt();
        let weight_bound = (3.0f64.sqrt() * (gain / fan_in.sqrt())) as f32;
        let bias_bound = (1.0 / fan_in.sqrt()) as f32;
        let (mut weight, mut bias) = (vec![0.0; inputs * outputs], vec![0.0; outputs]);
        self.uniform(&mut weight, -weight_bound, weight_bound);
        self.uniform(&mut bias, -bias_bound, bias_bound);
        (weight, bias)
    }

    /// `torch.randperm(n, generator=self)`.
    pub fn randperm(&mut self, n: usize) -> Vec<u64> {
        let mut perm = Vec::new();
        self.randperm_into(n, &mut perm, |i| i as u64);
        perm
    }

    /// The same permutation in half the memory; `n` must fit in 32 bits.
    pub fn randperm_u32(&mut self, n: u32) -> Vec<u32> {
        let mut perm = Vec::new();
        self.randperm_into(n as usize, &mut perm, |i| i as u32);
        perm
    }

    fn randperm_into<T: Copy>(&mut self, n: usize, perm: &mut Vec<T>, value: impl Fn(usize) -> T) {
        perm.clear();
        perm.reserve_exact(n);
        // torch's bound below which 32 random bits a draw are enough.
        if n < (u32::MAX / 20) as usize {
            perm.extend((0..n).map(value));
            for i in 0..n.saturating_sub(1) {
                let z = self.random() as usize % (n - i);
                perm.swap(i, i + z);
            }
            return;
        }
        for i in 0..n {
            let z = (self.random64() % (i as u64 + 1)) as usize;
            perm.push(value(i));
            perm.swap(i, z);
        }
    }
}

/// `normal_fill_16_AVX2`: 16 uniform values become 16 standard normal ones.
fn normal_fill_16(block: &mut [f32]) {
    for lane in 0..8 {
        let radius = (-2.0 * log256(1.0 - block[lane])).sqrt();
        let (sin, cos) = sincos256(std::f32::consts::TAU * block[lane + 8]);
        block[lane] = radius * cos;
        block[lane + 8] = radius * sin;
    }
}

/// `torch.randperm(n, generator=Generator().manual_seed(seed))`.
pub fn randperm(n: usize, seed: u64) -> Vec<u64> {
    Mt19937::new(seed).randperm(n)
}

/// `random_split(range(n), lengths, generator=Generator().manual_seed(seed))`: the indices of each part, or `None` when
/// the lengths don't sum to `n`.
pub fn random_split(n: usize, lengths: &[usize], seed: u64) -> Option<Vec<Vec<u64>>> {
    if lengths.iter().sum::<usize>() != n {
        return None;
    }
    let perm = randperm(n, seed);
    let mut rest = &perm[..];
    let mut parts = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let (part, tail) = rest.split_at(length);
        parts.push(part.to_vec());
        rest = tail;
    }
    Some(parts)
}

/// The lengths that `random_split` makes of fractions that sum to 1: rounded down, then one more to each part in turn while
/// samples are left over.
pub fn split_lengths(n: usize, fractions: &[f64]) -> Vec<usize> {
    let mut lengths: Vec<usize> = fractions.iter().map(|f| (n as f64 * f).floor() as usize).collect();
    let rest = n.saturating_sub(lengths.iter().sum());
    for i in 0..rest {
        let parts = lengths.len();
        lengths[i % parts] += 1;
    }
    lengths
}

#[cfg(test)]
#[path = "mt19937_tests.rs"]
mod tests;
