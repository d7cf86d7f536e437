//! What carries the bytes between two ranks: TCP connections, or a pipe in their host's shared memory.

use super::lanes::Lanes;
use super::shared::GlooShared;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

pub(super) enum Wire {
    Tcp(Lanes),
    Memory(Pipe),
}

/// Both directions of shared memory between this rank and another of its host, whose local rank is `peer`.
pub(super) struct Pipe {
    shared: Arc<GlooShared>,
    peer: usize,
}

impl Wire {
    pub(super) fn memory(shared: Arc<GlooShared>, peer: usize) -> Self {
        Wire::Memory(Pipe { shared, peer })
    }

    pub(super) fn is_memory(&self) -> bool {
        matches!(self, Wire::Memory(_))
    }

    /// None for a pipe.
    pub(super) fn lanes(&self) -> Option<&Lanes> {
        match self {
            Wire::Tcp(lanes) => Some(lanes),
            Wire::Memory(_) => None,
        }
    }

    /// All connections; none for a pipe.
    pub(super) fn streams(&self) -> &[TcpStream] {
        self.lanes().map_or(&[], |lanes| &lanes.streams)
    }

    /// Starts a message to send.
    pub(super) fn begin_sending(&mut self) {
        if let Wire::Tcp(lanes) = self {
            lanes.sent = 0;
        }
    }

    /// Starts a message to receive.
    pub(super) fn begin_receiving(&mut self) {
        if let Wire::Tcp(lanes) = self {
            lanes.received = 0;
        }
    }

    /// Writes as much as there is room for; None if there is no room.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self {
            Wire::Tcp(lanes) => lanes.write(bytes),
            Wire::Memory(pipe) => Ok(pipe.write(bytes)),
        }
    }

    /// Reads what has arrived into `head`, the rest of a message's header, and then `tail`; None if nothing has, 0 at the
    /// end of a connection.
    pub(super) fn read(&mut self, head: &mut [u8], tail: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Wire::Tcp(lanes) => lanes.read(head, tail),
            Wire::Memory(pipe) => Ok(pipe.read(head, tail)),
        }
    }
}

impl Pipe {
    fn write(&self, bytes: &[u8]) -> Option<usize> {
        let count = self.shared.arena()?.pipe_write(self.peer, bytes);
        self.moved(count, bytes.is_empty())
    }

    fn read(&self, head: &mut [u8], tail: &mut [u8]) -> Option<usize> {
        let arena = self.shared.arena()?;
        let mut count = arena.pipe_read(self.peer, head);
        if count == head.len() {
            count += arena.pipe_read(self.peer, tail);
        }
        self.moved(count, head.is_empty() && tail.is_empty())
    }

    fn moved(&self, count: usize, nothing_asked: bool) -> Option<usize> {
        if count > 0 {
            self.shared.wake_rank(self.peer);
        }
        (count > 0 || nothing_asked).then_some(count)
    }
}
