//! Which GPU a rank computes on, and detection of ranks that were given the same GPU.

use super::rendezvous::name_ranks;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use std::fmt;

/// UUID of a GPU, or of the part of a GPU that a process sees as a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUuid(pub [u8; 16]);

impl fmt::Display for GpuUuid {
    /// As printed by `nvidia-smi -L`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = HEXLOWER.encode(&self.0);
        write!(f, "GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// A message that names the first ranks with the same GPU, if there are any. A pair for which `may_share` holds does not
/// count. `gpus` is indexed by rank; a rank that does not know its GPU shares none.
pub fn on_one_gpu(gpus: &[Option<GpuUuid>], may_share: impl Fn(usize, usize) -> bool) -> Option<String> {
    gpus.iter().enumerate().find_map(|(rank, own)| {
        let gpu = (*own)?;
        let clashes = |other: &usize| gpus[*other] == Some(gpu) && !may_share(rank, *other);
        let others: Vec<usize> = (rank + 1..gpus.len()).filter(clashes).collect();
        let ranks = [&[rank][..], &others].concat();
        (ranks.len() > 1).then(|| format!("{} have the same GPU, {gpu}", name_ranks(&ranks)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(gpus: &[u8], may_share: impl Fn(usize, usize) -> bool) -> Option<String> {
        let known = |gpu: &u8| (*gpu > 0).then_some(GpuUuid([*gpu; 16]));
        let gpus: Vec<_> = gpus.iter().map(known).collect();
        on_one_gpu(&gpus, may_share)
    }

    #[test]
    fn ranks_with_one_gpu_are_found_unless_they_may_share_it() {
        let never = |_, _| false;
        assert_eq!(found(&[], never), None);
        assert_eq!(found(&[1, 2, 3], never), None);
        assert_eq!(found(&[0, 0, 1, 0], never), None, "nobody knows that these are the same");
        let one = "GPU-01010101-0101-0101-0101-010101010101";
        let all = format!("ranks 1, 3 and 4 have the same GPU, {one}");
        assert_eq!(found(&[3, 1, 2, 1, 1, 2], never), Some(all));
        // Two kinds of ranks; a rank may share with those of the other kind.
        let kinds = |a: usize, b: usize| a % 2 != b % 2;
        assert_eq!(found(&[1, 1], kinds), None);
        assert_eq!(found(&[1, 1, 1], kinds), Some(format!("ranks 0 and 2 have the same GPU, {one}")));
        assert_eq!(found(&[1, 1, 1, 1], |_, _| true), None);
    }

    #[test]
    fn a_gpu_uuid_is_displayed_as_by_nvidia_smi() {
        let bytes = std::array::from_fn(|i| i as u8 * 16 + 15 - i as u8);
        assert_eq!(GpuUuid(bytes).to_string(), "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    }
}
