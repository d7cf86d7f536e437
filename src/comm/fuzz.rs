//! One entry to all decoders of the wire, for the fuzzer (`fuzz/`) and for the property test below.

use super::{gloo, rendezvous};

/// Decodes `bytes` as everything that a peer may send. Panics if what is understood does not encode to the same bytes.
pub fn decode_anything(bytes: &[u8]) {
    rendezvous::decode_anything(bytes);
    gloo::decode_anything(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000), tag in 0u8..8) {
            decode_anything(&bytes);
            // More often something that begins well.
            decode_anything(&[&[tag], &bytes[..]].concat());
            let length = (bytes.len() as u16).to_le_bytes();
            decode_anything(&[&length[..], &[tag], &bytes].concat());
        }
    }
}
