//! One entry point to all wire decoders, for the fuzzer (`fuzz/`) and the property test below.

use super::control::{MAX_FRAME, read_all};
use super::header::{HEADER, Header};
use super::rendezvous;

/// Decodes `bytes` as every message that a peer may send: of the rendezvous, a header, and a stream of control frames in
/// pieces whose size is set by the first byte. Panics if a decoded message does not encode to the same bytes.
pub fn decode_anything(bytes: &[u8]) {
    rendezvous::decode_anything(bytes);
    if let Some(head) = bytes.first_chunk::<HEADER>()
        && let Some(header) = Header::decode(head)
    {
        assert_eq!(&header.encode(), head);
        assert!(!header.to_string().is_empty());
    }
    let Some((piece, bytes)) = bytes.split_first() else { return };
    for control in read_all(bytes, usize::from(*piece) + 1).into_iter().flatten() {
        // JSON may leave out what is null.
        assert!(control.frame().len() <= MAX_FRAME + 64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::sample;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), tag in 0u8..8) {
            decode_anything(&bytes);
            // Prefixes that make a valid beginning more likely.
            decode_anything(&[&[tag], &bytes[..]].concat());
            let length = (bytes.len() as u16).to_le_bytes();
            decode_anything(&[&[tag], &length[..], &[tag], &bytes].concat());
            let mut header = sample().encode();
            header[8..48].iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
            decode_anything(&header);
        }
    }
}
