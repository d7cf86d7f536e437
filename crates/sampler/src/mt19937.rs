//! PyTorch's CPU `Generator`, bit for bit: the 32-bit Mersenne Twister, and the permutations that torch derives from it.
//! `randperm` and `random_split` determine which samples a run uses. Sources: `ATen/core/MT19937RNGEngine.h`,
//! `ATen/native/TensorFactories.cpp` (randperm).

const N: usize = 624;
const M: usize = 397;

/// `torch.Generator(device="cpu")`.
#[derive(Clone)]
pub struct Mt19937 {
    state: [u32; N],
    next: usize,
}

impl Mt19937 {
    /// `Generator().manual_seed(seed)`. Only the low 32 bits are used, as in torch.
    pub fn new(seed: u64) -> Self {
        let mut state = [0u32; N];
        state[0] = seed as u32;
        for i in 1..N {
            let previous = state[i - 1];
            state[i] = 1_812_433_253u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(i as u32);
        }
        Self { state, next: N }
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

    /// 64 random bits, the first draw in the high half (`CPUGeneratorImpl::random64`).
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

    /// `torch.randperm(n, generator=self)`, each index converted by `value`.
    pub fn randperm<T: Copy>(&mut self, n: usize, value: impl Fn(usize) -> T) -> Vec<T> {
        let mut perm = Vec::with_capacity(n);
        // torch's bound below which it uses 32 random bits per draw.
        if n < (u32::MAX / 20) as usize {
            perm.extend((0..n).map(value));
            for i in 0..n.saturating_sub(1) {
                let z = self.random() as usize % (n - i);
                perm.swap(i, i + z);
            }
            return perm;
        }
        for i in 0..n {
            let z = (self.random64() % (i as u64 + 1)) as usize;
            perm.push(value(i));
            perm.swap(i, z);
        }
        perm
    }
}

/// `torch.randperm(n, generator=Generator().manual_seed(seed))`.
pub fn randperm(n: usize, seed: u64) -> Vec<u64> {
    Mt19937::new(seed).randperm(n, |i| i as u64)
}

/// `random_split(range(n), lengths, generator=Generator().manual_seed(seed))`: the indices of each part.
pub fn random_split(n: usize, lengths: &[usize], seed: u64) -> Vec<Vec<u64>> {
    let mut rest = randperm(n, seed).into_iter();
    lengths.iter().map(|&length| rest.by_ref().take(length).collect()).collect()
}

#[cfg(test)]
#[path = "mt19937_tests.rs"]
mod tests;
