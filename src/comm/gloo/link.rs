//! The link to one peer: bytes in, bytes out, never blocking. It owns the half-read header and the facts about the
//! peer that outlive a call; what they mean is the engine's business.

use super::control::FrameReader;
use super::header::{HEADER, Header, Malformed};
use super::wire::Wire;
use crate::comm::Place;
use std::io;

/// Payload that travels in the same system call as its header.
const INLINE: usize = 8192;

pub(super) struct Link {
    pub wire: Wire,
    pub control_in: FrameReader,
    /// Nothing more comes on a data (the control) connection.
    pub data_closed: bool,
    pub control_closed: bool,
    /// The peer has said goodbye.
    pub departed: bool,
    /// It asked for a sign of life between two calls: it gets one in the next.
    pub asked: bool,
    /// How many calls it has made on its device, and where it is: its answer to the last question.
    pub here: Option<(u64, Place)>,
    /// Of the current call: bytes of the own header that are out; whether the peer's header has been accepted;
    /// whether payload of the peer is being read.
    header_out: usize,
    pub matched: bool,
    pub reading: bool,
    head: [u8; HEADER],
    head_filled: usize,
    /// A whole header that no call has accepted yet.
    parked: Option<Header>,
}

pub(super) enum Got {
    /// Payload bytes (perhaps 0, if only a header, or a part of one, has come).
    Bytes(usize),
    WouldBlock,
    Closed,
    Garbage,
}

impl Link {
    pub(super) fn new(wire: Wire) -> Self {
        Self {
            wire,
            control_in: FrameReader::new(),
            data_closed: false,
            control_closed: false,
            departed: false,
            asked: false,
            here: None,
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
        // The next header begins a message, and is waited for where messages begin.
        if self.head_filled == 0 && self.parked.is_none() {
            self.wire.begin_receiving();
        }
    }

    pub(super) fn parked(&self) -> Option<&Header> {
        self.parked.as_ref()
    }

    /// The parked header belongs to the current call.
    pub(super) fn accept(&mut self) {
        self.parked = None;
        self.matched = true;
    }

    pub(super) fn header_is_out(&self) -> bool {
        self.header_out == HEADER
    }

    /// Sends the call's header, if it is not out yet, and as much of `payload` as there is room for. Returns the
    /// payload bytes sent; None if there was no room at all.
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

    /// Reads the next header, if none is parked or accepted, and with the same system call the payload behind it
    /// into `payload`, which may hold no more than what the peer sends in this call.
    pub(super) fn recv(&mut self, payload: &mut [u8]) -> io::Result<Got> {
        if self.matched || self.parked.is_some() {
            if payload.is_empty() {
                return Ok(Got::Bytes(0));
            }
            return Ok(match self.wire.read(payload)? {
                None => Got::WouldBlock,
                Some(0) => Got::Closed,
                Some(n) => Got::Bytes(n),
            });
        }
        if self.head_filled == 0 {
            self.wire.begin_receiving();
        }
        let missing = HEADER - self.head_filled;
        match self.wire.read_two(&mut self.head[self.head_filled..], payload)? {
            None => Ok(Got::WouldBlock),
            Some(0) => Ok(Got::Closed),
            Some(n) if n < missing => {
                self.head_filled += n;
                Ok(Got::Bytes(0))
            }
            Some(n) => {
                self.head_filled = 0;
                match Header::decode(&self.head) {
                    Ok(header) => self.parked = Some(header),
                    Err(Malformed) => return Ok(Got::Garbage),
                }
                Ok(Got::Bytes(n - missing))
            }
        }
    }
}
