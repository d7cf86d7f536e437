//! The link to one peer: non-blocking reads and writes. It owns the partly read header and the peer's state that
//! outlives a call; the engine interprets them.

use super::control::FrameReader;
use super::header::{HEADER, Header};
use super::wire::Wire;
use std::io;

/// Maximum payload that is sent in the same system call as its header.
const INLINE: usize = 8192;

pub(super) struct PeerLink {
    pub wire: Wire,
    pub control_in: FrameReader,
    /// Nothing more arrives on a data connection, or on the control connection.
    pub data_closed: bool,
    pub control_closed: bool,
    /// The peer has said goodbye.
    pub departed: bool,
    /// The peer has sent a probe between two calls; it is answered in the next call.
    pub probe_pending: bool,
    /// State of the current call: bytes of this rank's header sent; whether the peer's header has been accepted;
    /// whether payload is being read from the peer.
    header_out: usize,
    pub matched: bool,
    pub reading: bool,
    head: [u8; HEADER],
    head_filled: usize,
    /// A complete header that no call has accepted yet.
    parked: Option<Header>,
}

pub(super) enum LinkRead {
    /// Number of payload bytes (0 if only a header, or a part of one, has arrived).
    Bytes(usize),
    WouldBlock,
    Closed,
    Invalid,
}

impl PeerLink {
    pub(super) fn new(wire: Wire) -> Self {
        Self {
            wire,
            control_in: FrameReader::default(),
            data_closed: false,
            control_closed: false,
            departed: false,
            probe_pending: false,
            header_out: 0,
            matched: false,
            reading: false,
            head: [0; HEADER],
            head_filled: 0,
            parked: None,
        }
    }

    pub(super) fn begin(&mut self) {
        self.header_out = 0;
        self.matched = false;
        self.reading = false;
        // The next header begins a message, so it arrives on the connection where messages begin.
        if self.head_filled == 0 && self.parked.is_none() {
            self.wire.begin_receiving();
        }
    }

    pub(super) fn parked(&self) -> Option<&Header> {
        self.parked.as_ref()
    }

    /// Accepts the parked header for the current call.
    pub(super) fn accept(&mut self) {
        self.parked = None;
        self.matched = true;
    }

    pub(super) fn header_is_out(&self) -> bool {
        self.header_out == HEADER
    }

    /// Sends the call's header, if it has not been sent, and as much of `payload` as there is room for. Returns the
    /// number of payload bytes sent, None if there was no room at all.
    pub(super) fn send(&mut self, header: &Header, payload: &[u8]) -> io::Result<Option<usize>> {
        if self.header_is_out() {
            return self.wire.write(payload);
        }
        if self.header_out == 0 {
            self.wire.begin_sending();
        }
        let head = header.encode();
        let head = &head[self.header_out..];
        let inline = payload.len().min(INLINE);
        let mut frame = [0; HEADER + INLINE];
        frame[..head.len()].copy_from_slice(head);
        frame[head.len()..head.len() + inline].copy_from_slice(&payload[..inline]);
        let sent = self.wire.write(&frame[..head.len() + inline])?;
        Ok(sent.map(|n| {
            self.header_out += n.min(head.len());
            n.saturating_sub(head.len())
        }))
    }

    /// Reads the next header, if none is parked or accepted, and in the same system call the payload after it into
    /// `payload`, which may not be longer than what the peer sends in this call.
    pub(super) fn recv(&mut self, payload: &mut [u8]) -> io::Result<LinkRead> {
        if self.matched || self.parked.is_some() {
            if payload.is_empty() {
                return Ok(LinkRead::Bytes(0));
            }
            return Ok(match self.wire.read(&mut [], payload)? {
                None => LinkRead::WouldBlock,
                Some(0) => LinkRead::Closed,
                Some(n) => LinkRead::Bytes(n),
            });
        }
        if self.head_filled == 0 {
            self.wire.begin_receiving();
        }
        let missing = HEADER - self.head_filled;
        match self.wire.read(&mut self.head[self.head_filled..], payload)? {
            None => Ok(LinkRead::WouldBlock),
            Some(0) => Ok(LinkRead::Closed),
            Some(n) if n < missing => {
                self.head_filled += n;
                Ok(LinkRead::Bytes(0))
            }
            Some(n) => {
                self.head_filled = 0;
                self.parked = Header::decode(&self.head);
                Ok(if self.parked.is_some() { LinkRead::Bytes(n - missing) } else { LinkRead::Invalid })
            }
        }
    }
}
