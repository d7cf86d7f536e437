//! The bytes of one direction of a link, over several TCP connections: stripes go to the connections in turn, so that
//! several flows share the path between two hosts. Both ends count stripes from the start of a message.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::TcpStream;

/// Size of a stripe: consecutive bytes on one connection.
const STRIPE: usize = 128 << 10;

pub(super) struct Lanes {
    pub streams: Vec<TcpStream>,
    /// Bytes of the current message so far; 0 starts one.
    pub sent: usize,
    pub received: usize,
}

/// Which connection is next, and for how many bytes.
fn place(at: usize, lanes: usize) -> (usize, usize) {
    match lanes {
        1 => (0, usize::MAX),
        _ => (at / STRIPE % lanes, STRIPE - at % STRIPE),
    }
}

impl Lanes {
    pub(super) fn new(streams: Vec<TcpStream>) -> Self {
        Self { streams, sent: 0, received: 0 }
    }

    /// The connection that the next byte is sent on.
    pub(super) fn outgoing(&self) -> &TcpStream {
        &self.streams[place(self.sent, self.streams.len()).0]
    }

    /// The connection that the next byte arrives on.
    pub(super) fn incoming(&self) -> &TcpStream {
        &self.streams[place(self.received, self.streams.len()).0]
    }

    /// Writes as much as there is room for; None if there is no room.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let (lane, room) = place(self.sent, self.streams.len());
        let bytes = &bytes[..bytes.len().min(room)];
        let written = retry(|| (&self.streams[lane]).write(bytes))?;
        self.sent += written.unwrap_or(0);
        Ok(written)
    }

    /// Reads what has arrived into `head` and then `tail`; None if nothing has, 0 at the end of the stream. A message begins
    /// with `head`, so that is within its first stripe.
    pub(super) fn read(&mut self, head: &mut [u8], tail: &mut [u8]) -> io::Result<Option<usize>> {
        let (lane, room) = place(self.received, self.streams.len());
        let count = tail.len().min(room - head.len());
        let mut both = [IoSliceMut::new(head), IoSliceMut::new(&mut tail[..count])];
        let read = retry(|| (&self.streams[lane]).read_vectored(&mut both))?;
        self.received += read.unwrap_or(0);
        Ok(read)
    }
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(n) => return Ok(Some(n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
