//! One entry point to all wire decoders, for the fuzzer (`fuzz/`) and the property test below.

use super::{gloo, rendezvous};

/// Decodes `bytes` as every message that a peer may send. Panics if a decoded message does not encode to the same bytes.
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
            // Prefixes that make a valid beginning more likely.
            decode_anything(&[&[tag], &bytes[..]].concat());
            let length = (bytes.len() as u16).to_le_bytes();
            decode_anything(&[&length[..], &[tag], &bytes].concat());
        }
    }
}
