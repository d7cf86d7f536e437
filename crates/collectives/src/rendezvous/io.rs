//! Reads and writes whole messages on nonblocking sockets, with a deadline, while other sockets are watched: a rank
//! that waits for one peer must still learn that the rendezvous as a whole has failed.

use super::wire::LENGTH;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Why a read or write did not complete.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The system's error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other side has closed the connection.
    #[error("connection closed")]
    Closed,
    /// The deadline has passed.
    #[error("timed out")]
    Deadline,
    /// A watched socket has something to read, or is closed.
    #[error("the rendezvous ended")]
    Watched,
    /// The message is longer than it may be.
    #[error("a message of {0} bytes exceeds the limit")]
    TooLong(usize),
}

/// `poll(2)` until `deadline`; false if it has passed. Retries after signals.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        // A duration too long for the system's clock type counts as none.
        let timeout = left.and_then(|d| Timespec::try_from(d).ok());
        match poll(fds, timeout.as_ref()) {
            Ok(0) if left == Some(Duration::ZERO) => return Ok(false),
            Ok(0) => {}
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Waits until `stream` can be read or written, or one of `watch` has something to read.
fn ready(
    stream: &TcpStream,
    want: PollFlags,
    watch: &[&TcpStream],
    deadline: Instant,
) -> Result<(), StreamError> {
    let mut fds: Vec<PollFd<'_>> = watch.iter().map(|w| PollFd::new(w, PollFlags::IN)).collect();
    fds.push(PollFd::new(stream, want));
    if !poll_until(&mut fds, Some(deadline))? {
        return Err(StreamError::Deadline);
    }
    let watched = fds[..watch.len()].iter().any(|fd| !fd.revents().is_empty());
    if watched { Err(StreamError::Watched) } else { Ok(()) }
}

/// Fills `buf` from a nonblocking `stream`.
pub fn read_by(
    mut stream: &TcpStream,
    buf: &mut [u8],
    watch: &[&TcpStream],
    deadline: Instant,
) -> Result<(), StreamError> {
    let mut filled = 0;
    while filled < buf.len() {
        match stream.read(&mut buf[filled..]) {
            Ok(0) => return Err(StreamError::Closed),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready(stream, PollFlags::IN, watch, deadline)?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StreamError::Io(e)),
        }
    }
    Ok(())
}

/// Writes all of `bytes` to a nonblocking `stream`.
pub fn write_by(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> Result<(), StreamError> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready(stream, PollFlags::OUT, &[], deadline)?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(StreamError::Io(e)),
        }
    }
    Ok(())
}

/// Reads one message, without its length; allocates at most `limit` bytes.
pub(super) fn read_message(
    stream: &TcpStream,
    limit: usize,
    watch: &[&TcpStream],
    deadline: Instant,
) -> Result<Vec<u8>, StreamError> {
    let mut length = [0; LENGTH];
    read_by(stream, &mut length, watch, deadline)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(StreamError::TooLong(length));
    }
    let mut message = vec![0; length];
    read_by(stream, &mut message, watch, deadline)?;
    Ok(message)
}

/// Whether the other side has closed the connection and nothing is left to read.
pub(super) fn is_closed(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(n) => n == 0,
        Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}
