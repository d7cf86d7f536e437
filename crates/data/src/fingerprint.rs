//! Identifies a data set without reading all of it again: by sizes, shapes, and a digest of its contents
//! ([`super::Dataset::content`]).

use super::Splits;
use super::store::DataFile;
use base::error::Result;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A digest of the contents of a data set.
pub type Content = [u8; 32];

/// Fingerprint of an opened data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of training samples.
    pub train: u64,
    /// Number of validation samples; `None` without a validation split.
    pub val: Option<u64>,
    /// SHA-256 over shapes and contents, in hexadecimal.
    pub content: String,
}

impl Fingerprint {
    /// Hashes the shapes of the splits and the digests of their contents.
    pub fn new(splits: &Splits) -> Self {
        let mut hasher = Sha256::new();
        for set in [Some(&splits.train), splits.val.as_ref()].into_iter().flatten() {
            hasher.update(format!("{:?} {:?}\n", set.input(), set.target()));
            for (name, facts) in set.fields() {
                hasher.update(format!("{name:?} {facts:?}\n"));
            }
            hasher.update(set.content().unwrap_or_default());
        }
        Self {
            train: splits.train.len() as u64,
            val: splits.val.as_ref().map(|val| val.len() as u64),
            content: HEXLOWER.encode(&hasher.finalize()),
        }
    }

    /// The differences from `other`, as text; `joins` is between the value of `self` and the value of `other`.
    pub fn differs(&self, other: &Self, joins: &str) -> Option<String> {
        let mut parts = Vec::new();
        if self.train != other.train {
            parts.push(format!("{} training samples{joins}{}", self.train, other.train));
        }
        if self.val != other.val {
            let (own, other) = (self.val.unwrap_or(0), other.val.unwrap_or(0));
            parts.push(format!("{own} validation samples{joins}{other}"));
        }
        if parts.is_empty() && self.content != other.content {
            parts.push("the same number of samples with different contents".to_owned());
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Digest of a file too large to read at each start: its length, and pieces of 4 KiB at equal distances, including the
/// beginning and the end, at most 256 KiB in all.
///
/// # Errors
/// The file cannot be read.
pub(super) fn sampled_digest(file: &DataFile) -> Result<Content> {
    const PIECE: usize = 4096;
    const PIECES: usize = 64;
    let mut hasher = Sha256::new();
    hasher.update((file.len() as u64).to_le_bytes());
    let mut buffer = Vec::new();
    if file.len() <= PIECE * PIECES {
        hasher.update(file.read(0, file.len(), &mut buffer)?);
    } else {
        let last = file.len() - PIECE;
        for i in 0..PIECES {
            hasher.update(file.read(last * i / (PIECES - 1), PIECE, &mut buffer)?);
        }
    }
    Ok(hasher.finalize().into())
}

/// Digest of several parts, in their order.
pub(super) fn digest_of_parts<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> Content {
    let mut hasher = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(train: u64, val: Option<u64>, content: &str) -> Fingerprint {
        Fingerprint { train, val, content: content.to_owned() }
    }

    #[test]
    fn describes_differences() {
        let now = ", now ";
        let before = print(399, Some(44), "a");
        assert_eq!(before.differs(&before, now), None);
        let grown = print(899, Some(99), "b");
        assert_eq!(
            before.differs(&grown, now).as_deref(),
            Some("399 training samples, now 899, 44 validation samples, now 99")
        );
        assert_eq!(
            before.differs(&print(399, None, "a"), now).as_deref(),
            Some("44 validation samples, now 0")
        );
        assert_eq!(
            before.differs(&print(399, Some(44), "b"), now).as_deref(),
            Some("the same number of samples with different contents")
        );
    }

    #[test]
    fn digests_of_large_files_sample_their_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sampled_digest = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            super::sampled_digest(&DataFile::open(file.path()).unwrap()).unwrap()
        };
        let long = vec![7u8; 1 << 20];
        let with = |at: usize| {
            let mut other = long.clone();
            other[at] = 8;
            sampled_digest(&other)
        };
        let same = sampled_digest(&long);
        assert_eq!(sampled_digest(&long.clone()), same);
        for at in [0, 4095, (1 << 20) - 1, (1 << 20) - 4096] {
            assert_ne!(with(at), same, "{at}");
        }
        assert_ne!(sampled_digest(&long[1..]), same);
        // A change between two pieces goes unnoticed: the number of bytes read does not grow with the file.
        assert_eq!(with(6000), same);
        let short = [1u8; 1000];
        assert_ne!(sampled_digest(&short), sampled_digest(&[&short[..999], &[2]].concat()));
        assert_ne!(digest_of_parts(["ab", "c"]), digest_of_parts(["a", "bc"]));
    }
}
