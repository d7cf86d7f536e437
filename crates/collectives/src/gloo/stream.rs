//! The loop under every algorithm over links. It sends and receives at once, so that two ranks with full buffers cannot
//! block each other; it reduces each block while the next one is in flight; and it forwards bytes as soon as they are
//! done, so that a ring or a chain works as a pipeline.

use super::engine::Engine;
use crate::reduce::{Reduction, combine};
use crate::{CommError, ReduceOp};
use std::ops::Range;

/// Maximum number of bytes passed to the kernel at once, so that sending and receiving alternate.
const SEND: usize = 512 << 10;
/// Received bytes wait for their reduction in a block of this size, which should stay in the second-level cache.
const STAGE: usize = 256 << 10;

/// What happens to received bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReceiveAction {
    Store,
    /// Combine with the contents of the buffer, as the second operand; the last operand of a mean brings its divisor.
    Combine(Option<usize>),
}

/// Parts of the buffer to send, in this order: the first `lead` bytes at once, each later byte when as many bytes have
/// been received and processed.
pub(super) struct Tx<'s> {
    pub peer: usize,
    pub parts: &'s [Range<usize>],
    pub lead: usize,
}

/// Parts of the buffer to receive, in this order.
pub(super) struct Rx<'s> {
    pub peer: usize,
    pub parts: &'s [(Range<usize>, ReceiveAction)],
}

impl Engine {
    pub(super) fn kind(&self) -> Reduction {
        Reduction { dtype: self.header.dtype, op: self.header.reduce_op }
    }

    /// The divisor that is passed with the last contribution of a reduction. A mean is over the whole world.
    pub(super) fn divisor(&self) -> Option<usize> {
        (self.header.reduce_op == ReduceOp::Mean).then_some(self.world)
    }

    /// Moves everything in `tx` and `rx`. Headers are exchanged even when there are no bytes. Returns when the kernel
    /// has the last byte to send, and the last byte received is processed.
    pub(super) fn stream(
        &mut self,
        buf: &mut [u8],
        tx: Option<Tx<'_>>,
        rx: Option<Rx<'_>>,
    ) -> Result<(), CommError> {
        let mut stage = std::mem::take(&mut self.stage);
        let combines = rx.as_ref().is_some_and(|r| r.parts.iter().any(|(_, a)| *a != ReceiveAction::Store));
        if combines && stage.is_empty() {
            stage.resize(STAGE / 8, 0);
        }
        let mut out = tx.map(Outflow::new);
        let kind = self.kind();
        let mut inflow = rx.map(|rx| Inflow::new(rx, kind));
        let result = self.pump(buf, bytemuck::cast_slice_mut(&mut stage), &mut out, &mut inflow);
        if let Some(i) = &inflow {
            self.link(i.rx.peer)?.reading = false;
        }
        self.stage = stage;
        result
    }

    fn pump(
        &mut self,
        buf: &mut [u8],
        stage: &mut [u8],
        out: &mut Option<Outflow<'_>>,
        inflow: &mut Option<Inflow<'_>>,
    ) -> Result<(), CommError> {
        let mut spinning = None;
        loop {
            let done = inflow.as_ref().map_or(0, |i| i.done);
            let sent = match out {
                Some(out) => out.advance(self, buf, done)?,
                None => Flow::Over,
            };
            let got = match inflow {
                Some(inflow) => inflow.advance(self, buf, stage)?,
                None => Flow::Over,
            };
            match (sent, got) {
                (Flow::Over, Flow::Over) => return Ok(()),
                (Flow::Moved, _) | (_, Flow::Moved) => spinning = None,
                _ if self.spin(&mut spinning) => {}
                _ => {
                    let send_to = out.as_ref().filter(|_| sent == Flow::Blocked).map(|o| o.tx.peer);
                    let recv_from = inflow.as_ref().filter(|_| got == Flow::Blocked).map(|i| i.rx.peer);
                    self.wait(send_to, recv_from)?;
                }
            }
        }
    }

    /// Tells `peer` that this rank has entered the call, without payload.
    pub(super) fn announce(&mut self, peer: usize) -> Result<(), CommError> {
        self.send_all(&[], peer)
    }

    /// Waits until `peer` has entered the same call.
    pub(super) fn expect(&mut self, peer: usize) -> Result<(), CommError> {
        self.stream(&mut [], None, Some(Rx { peer, parts: &[] }))
    }

    pub(super) fn send_all(&mut self, buf: &[u8], peer: usize) -> Result<(), CommError> {
        let all = 0..buf.len();
        let mut out = Outflow::new(Tx { peer, parts: std::slice::from_ref(&all), lead: buf.len() });
        loop {
            match out.advance(self, buf, 0)? {
                Flow::Over => return Ok(()),
                Flow::Moved => {}
                Flow::Blocked | Flow::Held => self.wait(Some(peer), None)?,
            }
        }
    }

    pub(super) fn recv_all(&mut self, buf: &mut [u8], peer: usize) -> Result<(), CommError> {
        let parts = [(0..buf.len(), ReceiveAction::Store)];
        self.stream(buf, None, Some(Rx { peer, parts: &parts }))
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Flow {
    Over,
    Moved,
    Blocked,
    /// Nothing may be sent until more has been received.
    Held,
}

struct Outflow<'s> {
    tx: Tx<'s>,
    part: usize,
    /// Offset within the part.
    at: usize,
    sent: usize,
}

impl<'s> Outflow<'s> {
    fn new(tx: Tx<'s>) -> Self {
        Self { tx, part: 0, at: 0, sent: 0 }
    }

    fn advance(&mut self, engine: &mut Engine, buf: &[u8], done: usize) -> Result<Flow, CommError> {
        while self.tx.parts.get(self.part).is_some_and(|p| self.at == p.len()) {
            self.part += 1;
            self.at = 0;
        }
        let header_out = engine.link(self.tx.peer)?.header_is_out();
        let Some(part) = self.tx.parts.get(self.part) else {
            if header_out {
                return Ok(Flow::Over);
            }
            let sent = engine.try_send(self.tx.peer, &[])?;
            return Ok(if sent.is_some() { Flow::Moved } else { Flow::Blocked });
        };
        let allowed = (self.tx.lead + done - self.sent).min(part.len() - self.at).min(SEND);
        if allowed == 0 && header_out {
            return Ok(Flow::Held);
        }
        let from = part.start + self.at;
        match engine.try_send(self.tx.peer, &buf[from..from + allowed])? {
            None => Ok(Flow::Blocked),
            Some(n) => {
                self.at += n;
                self.sent += n;
                Ok(Flow::Moved)
            }
        }
    }
}

struct Inflow<'s> {
    rx: Rx<'s>,
    kind: Reduction,
    part: usize,
    /// Offset within the part: received and processed.
    at: usize,
    /// In the stage, not processed yet.
    staged: usize,
    /// Processed bytes of all parts.
    done: usize,
}

impl<'s> Inflow<'s> {
    fn new(rx: Rx<'s>, kind: Reduction) -> Self {
        Self { rx, kind, part: 0, at: 0, staged: 0, done: 0 }
    }

    fn advance(&mut self, engine: &mut Engine, buf: &mut [u8], stage: &mut [u8]) -> Result<Flow, CommError> {
        while self.rx.parts.get(self.part).is_some_and(|(p, _)| self.at == p.len()) {
            self.part += 1;
            self.at = 0;
        }
        let link = engine.link(self.rx.peer)?;
        let Some((part, action)) = self.rx.parts.get(self.part) else {
            if link.matched {
                return Ok(Flow::Over);
            }
            return Ok(flow(engine.try_recv(self.rx.peer, &mut [])?));
        };
        link.reading = true;
        let from = part.start + self.at;
        match action {
            ReceiveAction::Store => {
                let got = engine.try_recv(self.rx.peer, &mut buf[from..part.end])?;
                self.at += got.unwrap_or(0);
                self.done += got.unwrap_or(0);
                Ok(flow(got))
            }
            ReceiveAction::Combine(divisor) => {
                let room = (part.len() - self.at).min(STAGE);
                let got = engine.try_recv(self.rx.peer, &mut stage[self.staged..room])?;
                self.staged += got.unwrap_or(0);
                self.combine(&mut buf[from..part.end], stage, *divisor);
                Ok(flow(got))
            }
        }
    }

    /// Combines the whole elements in the stage; a partial element stays there.
    fn combine(&mut self, acc: &mut [u8], stage: &mut [u8], divisor: Option<usize>) {
        let whole = self.staged - self.staged % self.kind.dtype.size();
        if whole == 0 {
            return;
        }
        combine(self.kind, &mut acc[..whole], &stage[..whole], divisor);
        stage.copy_within(whole..self.staged, 0);
        self.staged -= whole;
        self.at += whole;
        self.done += whole;
    }
}

fn flow(got: Option<usize>) -> Flow {
    if got.is_some() { Flow::Moved } else { Flow::Blocked }
}
