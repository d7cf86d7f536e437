//! Control messages between ranks, which must not queue behind data: failures, goodbyes, probes. The frames and their
//! reader; decoding borrows, does not allocate and cannot panic.

use super::header::{HEADER, Header};
use super::rendezvous::truncated;
use super::{CommErrorKind, Phase, Place};

/// Maximum length of the text of an `Abort`; longer texts are cut.
const MAX_TEXT: usize = 1024;
/// Length (u16) and tag.
const PREFIX: usize = 3;
pub(super) const MAX_FRAME: usize = PREFIX + 5 + MAX_TEXT;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control<'a> {
    /// The group has ended: the kind of failure, the culprit, and the cause in words that fit every rank.
    Abort { kind: CommErrorKind, culprit: Option<usize>, cause: &'a str },
    /// The sender needs nothing more and closes its connections.
    Goodbye,
    /// Asks whether the receiver is in a call.
    Probe,
    /// Answers `Probe`: the current call, and the step and phase.
    ProbeReply(Header, Place),
    /// The host's shared memory has something new, for a rank that cannot sleep on that memory alone.
    Wake,
    /// Asks how many calls the receiver has made on its device.
    ProgressRequest,
    /// Answers `ProgressRequest`: the number of calls, and the step and phase.
    Progress(u64, Place),
}

impl Control<'_> {
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut out = vec![0; PREFIX];
        out[2] = match self {
            Control::Abort { kind, culprit, cause } => {
                out.push(*kind as u8);
                out.extend_from_slice(&culprit.map_or(u32::MAX, |c| c as u32).to_le_bytes());
                out.extend_from_slice(truncated(cause, MAX_TEXT).as_bytes());
                1
            }
            Control::Goodbye => 2,
            Control::Probe => 3,
            Control::ProbeReply(header, place) => {
                out.extend_from_slice(&header.encode());
                put_place(&mut out, *place);
                4
            }
            Control::Wake => 5,
            Control::ProgressRequest => 6,
            Control::Progress(calls, place) => {
                out.extend_from_slice(&calls.to_le_bytes());
                put_place(&mut out, *place);
                7
            }
        };
        let length = (out.len() - PREFIX) as u16;
        out[..2].copy_from_slice(&length.to_le_bytes());
        out
    }
}

fn put_place(out: &mut Vec<u8>, place: Place) {
    out.extend_from_slice(&place.step.to_le_bytes());
    out.push(place.phase as u8);
}

fn take_place(bytes: &[u8]) -> Option<Place> {
    let (step, phase) = bytes.split_first_chunk()?;
    let [phase] = phase else { return None };
    Some(Place { step: u64::from_le_bytes(*step), phase: *Phase::ALL.get(usize::from(*phase))? })
}

fn decode(tag: u8, body: &[u8]) -> Option<Control<'_>> {
    match (tag, body) {
        (1, [kind, rest @ ..]) => {
            let (culprit, text) = rest.split_first_chunk()?;
            let culprit = Some(u32::from_le_bytes(*culprit)).filter(|c| *c != u32::MAX);
            Some(Control::Abort {
                kind: *CommErrorKind::ALL.get(usize::from(*kind))?,
                culprit: culprit.map(|c| c as usize),
                cause: std::str::from_utf8(text).ok()?,
            })
        }
        (2, []) => Some(Control::Goodbye),
        (3, []) => Some(Control::Probe),
        (4, body) => {
            let (header, place) = body.split_first_chunk::<HEADER>()?;
            let place = take_place(place)?;
            Header::decode(header).ok().map(|header| Control::ProbeReply(header, place))
        }
        (5, []) => Some(Control::Wake),
        (6, []) => Some(Control::ProgressRequest),
        (7, body) => {
            let (calls, place) = body.split_first_chunk()?;
            Some(Control::Progress(u64::from_le_bytes(*calls), take_place(place)?))
        }
        _ => None,
    }
}

/// Assembles frames from a stream of bytes; holds one frame at most.
pub(super) struct FrameReader {
    buffer: [u8; MAX_FRAME],
    filled: usize,
}

impl FrameReader {
    pub(super) fn new() -> Self {
        Self { buffer: [0; MAX_FRAME], filled: 0 }
    }

    fn need(&self) -> usize {
        match self.filled {
            0..PREFIX => PREFIX,
            _ => PREFIX + usize::from(u16::from_le_bytes([self.buffer[0], self.buffer[1]])),
        }
    }

    /// Buffer for the next bytes: never more than the current frame still needs. None if its length exceeds the limit.
    pub(super) fn space(&mut self) -> Option<&mut [u8]> {
        let need = self.need();
        self.buffer.get_mut(self.filled..need)
    }

    /// Accepts `n` bytes written to `space`; true when a frame is complete.
    pub(super) fn advance(&mut self, n: usize) -> bool {
        self.filled += n;
        self.filled >= PREFIX && self.filled == self.need()
    }

    /// Decodes the complete frame and frees its space; None if it is malformed.
    pub(super) fn take(&mut self) -> Option<Control<'_>> {
        let end = std::mem::take(&mut self.filled);
        decode(self.buffer[2], &self.buffer[PREFIX..end])
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::sample;
    use super::*;

    /// Feeds bytes in pieces of `piece`, as a socket would; returns the decoded frames as text.
    fn feed(mut bytes: &[u8], piece: usize) -> Result<Vec<String>, ()> {
        let (mut reader, mut seen) = (FrameReader::new(), Vec::new());
        while !bytes.is_empty() {
            let space = reader.space().ok_or(())?;
            let n = space.len().min(piece).min(bytes.len());
            space[..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if reader.advance(n) {
                seen.push(format!("{:?}", reader.take().ok_or(())?));
            }
        }
        Ok(seen)
    }

    #[test]
    fn frames_round_trip_in_pieces_of_any_size() {
        let long = "é".repeat(2000);
        let frames = [
            Control::Abort {
                kind: CommErrorKind::Timeout,
                culprit: Some(3),
                cause: "rank 3 did not respond",
            },
            Control::Goodbye,
            Control::Probe,
            Control::ProbeReply(sample(), Place { step: u64::MAX, phase: Phase::Finish }),
            Control::Wake,
            Control::ProgressRequest,
            Control::Progress(u64::MAX - 1, Place { step: 3, phase: Phase::Data }),
            Control::Abort { kind: CommErrorKind::Aborted, culprit: None, cause: truncated(&long, MAX_TEXT) },
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(|f| f.frame()).collect();
        let want: Vec<String> = frames.iter().map(|f| format!("{f:?}")).collect();
        for piece in [1, 2, 7, 5000] {
            assert_eq!(feed(&bytes, piece), Ok(want.clone()));
        }
        let cut_frame = Control::Abort { kind: CommErrorKind::Aborted, culprit: None, cause: &long }.frame();
        assert_eq!(cut_frame.len(), MAX_FRAME);
    }

    #[test]
    fn wire_codes_never_change() {
        let phases = [
            ("setup", 0),
            ("data", 1),
            ("forward", 2),
            ("backward", 3),
            ("sync", 4),
            ("update", 5),
            ("evaluate", 6),
            ("save", 7),
            ("finish", 8),
        ];
        assert_eq!(Phase::ALL.map(|phase| (phase.name(), phase as u8)), phases);
        let kinds = [
            ("peer-lost", 0),
            ("timeout", 1),
            ("mismatch", 2),
            ("misuse", 3),
            ("rendezvous", 4),
            ("aborted", 5),
        ];
        assert_eq!(CommErrorKind::ALL.map(|kind| (kind.name(), kind as u8)), kinds);
    }

    #[test]
    fn a_length_over_the_limit_is_rejected() {
        assert_eq!(feed(&[0xff, 0xff, 1, 0], 4), Err(()));
    }
}
