//! Control messages between ranks, which must not queue behind data: failures, goodbyes, probes. A frame is a length (u16)
//! and JSON; decoding cannot panic.

use super::header::Header;
use super::rendezvous::truncated;
use super::{CommErrorKind, StepPhase};
use serde::{Deserialize, Serialize};

/// Maximum length of the text of an `Abort`; longer texts are cut.
const MAX_TEXT: usize = 1024;
/// Bytes of the length.
const PREFIX: usize = 2;
/// JSON writes some bytes of a text as six.
pub(super) const MAX_FRAME: usize = PREFIX + 6 * MAX_TEXT + 512;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Control {
    /// The group has ended: the kind of failure, the culprit, and the cause as a text that fits every rank.
    Abort { kind: CommErrorKind, culprit: Option<usize>, cause: String },
    /// The sender needs nothing more and closes its connections.
    Goodbye,
    /// Asks whether the receiver is in a call.
    Probe,
    /// Answers `Probe`: the current call, and the step and phase.
    ProbeReply(Header, StepPhase),
    /// The host's shared memory has something new, for a rank that cannot sleep on that memory alone.
    Wake,
    /// Asks how many calls the receiver has made on its device.
    ProgressRequest,
    /// Answers `ProgressRequest`: the number of calls, and the step and phase.
    Progress(u64, StepPhase),
}

impl Control {
    /// An `Abort`.
    pub(super) fn abort(kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> Self {
        Self::Abort { kind, culprit, cause: truncated(cause, MAX_TEXT).to_owned() }
    }

    pub(super) fn frame(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).expect("numbers and text");
        [&(json.len() as u16).to_le_bytes()[..], &json].concat()
    }

    /// The frame at the beginning of `bytes`; None if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, json) = bytes.split_first_chunk()?;
        serde_json::from_slice(json.get(..usize::from(u16::from_le_bytes(*length)))?).ok()
    }
}

/// Assembles frames from a stream of bytes; holds one frame at most.
#[derive(Default)]
pub(super) struct FrameReader {
    buffer: Vec<u8>,
    filled: usize,
}

impl FrameReader {
    fn need(&self) -> usize {
        match self.filled {
            0..PREFIX => PREFIX,
            _ => PREFIX + usize::from(u16::from_le_bytes([self.buffer[0], self.buffer[1]])),
        }
    }

    /// Buffer for the next bytes: never more than the current frame still needs. None if its length exceeds the limit.
    pub(super) fn space(&mut self) -> Option<&mut [u8]> {
        let need = Some(self.need()).filter(|need| *need <= MAX_FRAME)?;
        self.buffer.resize(need, 0);
        self.buffer.get_mut(self.filled..)
    }

    /// Accepts `n` bytes written to `space`; true when a frame is complete.
    pub(super) fn advance(&mut self, n: usize) -> bool {
        self.filled += n;
        self.filled >= PREFIX && self.filled == self.need()
    }

    /// Decodes the complete frame and frees its space; None if it is malformed.
    pub(super) fn take(&mut self) -> Option<Control> {
        let end = std::mem::take(&mut self.filled);
        Control::decode(&self.buffer[..end])
    }
}

/// Reads all frames in `bytes`, which arrive in pieces of `piece`; None if one is malformed or too long.
#[cfg(any(test, fuzzing))]
pub(super) fn read_all(mut bytes: &[u8], piece: usize) -> Option<Vec<Control>> {
    let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
    while !bytes.is_empty() {
        let space = reader.space()?;
        let (now, later) = bytes.split_at(space.len().min(piece).min(bytes.len()));
        space[..now.len()].copy_from_slice(now);
        bytes = later;
        if reader.advance(now.len()) {
            seen.push(reader.take()?);
        }
    }
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::super::header::tests::sample;
    use super::*;

    #[test]
    fn frames_round_trip_in_pieces_of_any_size() {
        let long = "é".repeat(2000);
        let frames = [
            Control::abort(CommErrorKind::Timeout, Some(3), "rank 3 did not respond"),
            Control::Goodbye,
            Control::Probe,
            Control::ProbeReply(sample(), StepPhase { step: u64::MAX, phase: Phase::Finish }),
            Control::Wake,
            Control::ProgressRequest,
            Control::Progress(u64::MAX - 1, StepPhase { step: 3, phase: Phase::Data }),
            Control::abort(CommErrorKind::Aborted, None, &long),
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(|f| f.frame()).collect();
        for piece in [1, 2, 7, 5000] {
            assert_eq!(read_all(&bytes, piece).as_deref(), Some(&frames[..]));
        }
        let longest = Control::abort(CommErrorKind::Aborted, Some(usize::MAX), &"\u{1}".repeat(2000)).frame();
        assert!((6 * MAX_TEXT..=MAX_FRAME).contains(&longest.len()), "{}", longest.len());
    }

    #[test]
    fn a_length_over_the_limit_is_rejected() {
        assert_eq!(read_all(&[0xff, 0xff, b'1', 0], 4), None);
    }
}
