//! Non-blocking reading of lines from a pipe or a connection.

use std::io::{ErrorKind, Read};

/// Upper limit of a line's length; the longest lines contain the tail of a log.
pub const MAX_LINE: usize = 256 << 10;

/// Lines that another process sends.
#[derive(Debug)]
pub struct Inbox<R> {
    from: R,
    /// The part of a line received so far.
    partial: Vec<u8>,
    closed: bool,
}

impl<R: Read> Inbox<R> {
    /// Reading `from` must not block.
    pub fn new(from: R) -> Self {
        Self { from, partial: Vec::new(), closed: false }
    }

    /// What it reads from.
    pub fn source(&self) -> &R {
        &self.from
    }

    /// No more lines will come: the other end is closed, or its line exceeds the limit.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The complete lines received so far.
    pub fn lines(&mut self) -> Vec<Vec<u8>> {
        let mut chunk = [0; 4096];
        while !self.closed && self.partial.len() <= MAX_LINE {
            match self.from.read(&mut chunk) {
                Ok(n) if n > 0 => self.partial.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                _ => self.closed = true,
            }
        }
        let mut lines: Vec<Vec<u8>> = self.partial.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
        self.partial = lines.pop().unwrap_or_default();
        self.closed |= self.partial.len() > MAX_LINE;
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_complete_lines_before_the_end() {
        let mut inbox = Inbox::new(&b"one\ntwo\nth"[..]);
        assert_eq!((inbox.lines(), inbox.is_closed()), (vec!["one".into(), "two".into()], true));
        let mut endless = Inbox::new(std::io::repeat(b'x'));
        assert!(endless.lines().is_empty() && endless.is_closed());
    }
}
