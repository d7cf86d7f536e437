//! Decodes headers and control frames from arbitrary bytes, for the fuzzer.

use super::control::FrameReader;
use super::header::{HEADER, Header};

/// Decodes a header, or a stream of control frames in pieces whose size is set by the first byte.
pub(crate) fn decode_anything(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<HEADER>()
        && let Ok(header) = Header::decode(head)
    {
        assert_eq!(&header.encode(), head);
        assert!(!header.to_string().is_empty());
    }
    let Some((piece, mut bytes)) = bytes.split_first() else { return };
    let mut reader = FrameReader::new();
    while !bytes.is_empty() {
        // No space: the length exceeds the limit, which ends the connection.
        let Some(space) = reader.space() else { return };
        let n = space.len().min(usize::from(*piece) + 1).min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        bytes = &bytes[n..];
        if reader.advance(n) {
            let Some(frame) = reader.take().map(|control| control.frame()) else { return };
            assert!(frame.len() <= super::control::MAX_FRAME);
        }
    }
}
