//! What several tests here use.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// SHA-256 over the indices as little-endian i64, as in the reference files.
pub fn sha256_of_indices(indices: impl Iterator<Item = u64>) -> String {
    let mut hasher = Sha256::new();
    for index in indices {
        hasher.update(index.to_le_bytes());
    }
    HEXLOWER.encode(&hasher.finalize())
}
