//! A counter-based random generator, keyed by (seed, epoch, sample) and a stream number. A draw does not depend on thread,
//! rank or order, so augmentation is the same after a resume and with any number of workers. Philox4x32-10 of Salmon,
//! Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), as in cuRAND and torch's CUDA
//! generator.

use super::SampleKey;
use std::convert::Infallible;

/// One block of Philox4x32 with ten rounds: 128 random bits for a counter and a key.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product0 = u64::from(counter[0]) * 0xd251_1f53;
        let product1 = u64::from(counter[2]) * 0xcd9e_8d57;
        counter = [
            (product1 >> 32) as u32 ^ counter[1] ^ key[0],
            product1 as u32,
            (product0 >> 32) as u32 ^ counter[3] ^ key[1],
            product0 as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

/// The purpose of a draw. Each stream is independent under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stream {
    /// Position of the random crop.
    Crop = 1,
    /// Whether the image is flipped.
    Flip = 2,
    /// Position of the square that cutout clears.
    Cutout = 3,
    /// Window of random-resized-crop.
    ResizedCrop = 4,
    /// Order and factors of the color-jitter steps.
    ColorJitter = 5,
    /// A micro-batch's mixup or cutmix.
    Mix = 6,
    /// A synthetic sample's input.
    Input = 16,
    /// A synthetic sample's noise.
    Noise = 17,
    /// The weights of the function that generates synthetic targets.
    Truth = 18,
    /// A token of a generated text.
    Token = 19,
    /// The first of the user's transforms; the others follow.
    Transforms = 256,
}

/// The sequence of draws for one key and stream.
#[derive(Clone, Debug)]
pub struct CounterRng {
    key: [u32; 2],
    /// Words 1 to 3 of the counter; word 0 counts blocks.
    nonce: [u32; 3],
    block: u32,
    words: [u32; 4],
    /// Number of `words` already returned.
    used: usize,
}

impl CounterRng {
    /// (seed, epoch, sample) has 192 bits, more than a counter: a first block hashes it into key and nonce.
    pub fn new(key: SampleKey, stream: Stream) -> Self {
        Self::numbered(key, stream as u32)
    }

    /// The draws of the user's transform of this number.
    pub fn of_transform(key: SampleKey, number: u32) -> Self {
        Self::numbered(key, Stream::Transforms as u32 + number)
    }

    fn numbered(key: SampleKey, stream: u32) -> Self {
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        let ([s0, s1], [e0, e1]) = (halves(key.sample), halves(key.epoch));
        let [k0, k1, n0, n1] = philox4x32([s0, s1, e0, e1], halves(key.seed));
        Self { key: [k0, k1], nonce: [n0, n1, stream], block: 0, words: [0; 4], used: 4 }
    }

    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            let [n0, n1, n2] = self.nonce;
            self.words = philox4x32([self.block, n0, n1, n2], self.key);
            self.block = self.block.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// Uniform in [0, 1), 24 bits.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// Uniform in [from, to]: `to` only by rounding.
    pub fn between(&mut self, from: f32, to: f32) -> f32 {
        from + self.uniform() * (to - from)
    }

    /// Uniform among 0, 1, …, n - 1 (`n` at least 1). The multiplication of Lemire 2019 with its rejection: no bias.
    pub fn below(&mut self, n: u32) -> u32 {
        assert!(n > 0, "a draw below 0");
        let floor = n.wrapping_neg() % n;
        loop {
            let product = u64::from(self.next_u32()) * u64::from(n);
            if product as u32 >= floor {
                return (product >> 32) as u32;
            }
        }
    }

    /// Standard normal (Box-Muller).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.uniform()).cos()
    }
}

/// For `rand_distr`.
impl rand_core::TryRng for CounterRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next_u32())
    }
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32)
    }
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes
            .chunks_mut(4)
            .for_each(|chunk| chunk.copy_from_slice(&self.next_u32().to_le_bytes()[..chunk.len()]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers from the Random123 distribution (`kat_vectors`, philox4x32 10).
    #[test]
    fn philox_has_known_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    fn rng(seed: u64, epoch: u64, sample: u64, stream: Stream) -> CounterRng {
        CounterRng::new(SampleKey { seed, epoch, sample }, stream)
    }

    #[test]
    fn draws_depend_on_every_part_of_the_key() {
        let draws =
            |mut r: CounterRng| [r.next_u32(), r.next_u32(), r.next_u32(), r.next_u32(), r.next_u32()];
        let base = draws(rng(1, 2, 3, Stream::Crop));
        assert_eq!(base, draws(rng(1, 2, 3, Stream::Crop)));
        for other in [
            rng(2, 2, 3, Stream::Crop),
            rng(1, 3, 3, Stream::Crop),
            rng(1, 2, 4, Stream::Crop),
            rng(1, 2, 3, Stream::Flip),
            rng(1 | 1 << 40, 2, 3, Stream::Crop),
            rng(1, 2 | 1 << 40, 3, Stream::Crop),
            rng(1, 2, 3 | 1 << 40, Stream::Crop),
            rng(1, 3, 2, Stream::Crop),
        ] {
            assert_ne!(base, draws(other));
        }
    }

    #[test]
    fn draws_have_the_expected_moments() {
        let n = 100_000u64;
        let (mut sum, mut square, mut mean, mut counts) = (0.0f64, 0.0f64, 0.0f64, [0u32; 6]);
        for sample in 0..n {
            let mut r = rng(5, 0, sample, Stream::Noise);
            let x = f64::from(r.normal());
            (sum, square) = (sum + x, square + x * x);
            mean += f64::from(r.uniform());
            counts[r.below(6) as usize] += 1;
        }
        let n = n as f64;
        assert!((sum / n).abs() < 0.015, "mean {}", sum / n);
        assert!((square / n - 1.0).abs() < 0.02, "variance {}", square / n);
        assert!((mean / n - 0.5).abs() < 0.005);
        assert!(counts.iter().all(|&c| (f64::from(c) - n / 6.0).abs() < 600.0), "{counts:?}");
    }
}
