//! The connections between all pairs of ranks, while they come in.

use super::accept::Acceptor;
use super::identity::{Identity, Verdict};
use super::io::{is_closed, write_by};
use super::wire::{Message, Purpose};
use super::{CommError, Mesh, PeerSockets, failed};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long an answer to a peer may take to leave.
const ANSWER: Duration = Duration::from_secs(1);

pub(super) fn tell(stream: &TcpStream, message: Message<'_>) -> bool {
    write_by(stream, &message.frame(), Instant::now() + ANSWER).is_ok()
}

#[derive(Default)]
struct Half {
    data: Option<TcpStream>,
    control: Option<TcpStream>,
}

pub(super) struct MeshBuilder<'a> {
    me: Identity<'a>,
    links: Vec<Half>,
}

impl<'a> MeshBuilder<'a> {
    pub(super) fn new(me: Identity<'a>) -> Self {
        Self { me, links: (0..me.world).map(|_| Half::default()).collect() }
    }

    fn slot(&mut self, rank: usize, purpose: Purpose) -> Option<&mut Option<TcpStream>> {
        let half = self.links.get_mut(rank)?;
        match purpose {
            Purpose::Data => Some(&mut half.data),
            Purpose::Control => Some(&mut half.control),
            Purpose::Rendezvous => None,
        }
    }

    /// A connection that this rank made itself.
    pub(super) fn put(&mut self, rank: usize, purpose: Purpose, stream: TcpStream) {
        if let Some(slot) = self.slot(rank, purpose) {
            *slot = Some(stream);
        }
    }

    /// Takes a connection from a higher rank, or turns it away.
    pub(super) fn admit(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        message: &[u8],
        acceptor: &mut Acceptor,
    ) -> Result<(), CommError> {
        let me = self.me.rank;
        let refusal = match self.me.judge(message, from) {
            Verdict::Welcome(join) => match self.slot(join.rank as usize, join.purpose) {
                None => {
                    format!("rank {} ({from}) came after the rendezvous of all ranks was complete", join.rank)
                }
                Some(slot) if slot.as_ref().is_none_or(is_closed) && join.rank as usize > me => {
                    if stream.set_nodelay(true).is_ok() && tell(&stream, Message::Accepted) {
                        *slot = Some(stream);
                    }
                    return Ok(());
                }
                Some(_) => format!("rank {} ({from}) is already connected to rank {me}", join.rank),
            },
            Verdict::Stray(why) => why,
            Verdict::Conflict(why) => {
                tell(&stream, Message::Refused(&why));
                return Err(failed(why));
            }
        };
        tell(&stream, Message::Refused(&refusal));
        acceptor.warn("stray", Some(from), &refusal);
        Ok(())
    }

    /// Ranks with a connection still to come.
    pub(super) fn missing(&self) -> Vec<usize> {
        let incomplete = |r: &usize| self.links[*r].data.is_none() || self.links[*r].control.is_none();
        (0..self.me.world).filter(|r| *r != self.me.rank).filter(incomplete).collect()
    }

    pub(super) fn finish(self) -> Mesh {
        let pair =
            |half: Half| half.data.zip(half.control).map(|(data, control)| PeerSockets { data, control });
        self.links.into_iter().map(pair).collect()
    }
}

/// `rank 3`, `ranks 1, 2 and 5`.
pub(crate) fn name_ranks(ranks: &[usize]) -> String {
    let (last, rest) = match ranks.split_last() {
        None => return "no rank".into(),
        Some((last, [])) => return format!("rank {last}"),
        Some(split) => split,
    };
    let rest: Vec<String> = rest.iter().map(usize::to_string).collect();
    format!("ranks {} and {last}", rest.join(", "))
}
