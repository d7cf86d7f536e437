//! The connections between all pairs of ranks, while they are being made.

use super::accept::{Acceptor, FOREIGN, JoinResult};
use super::identity::{Identity, JoinRefusal};
use super::io::{is_closed, write_by};
use super::wire::{ConnectionPurpose, HostId, Message};
use super::{CommError, Mesh, MeshOptions, PeerSockets, lanes};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Time limit for sending an answer to a peer.
const ANSWER: Duration = Duration::from_secs(1);

pub(super) fn send_message(stream: &TcpStream, message: Message<'_>) -> bool {
    write_by(stream, &message.frame(), Instant::now() + ANSWER).is_ok()
}

/// Refuses the peer that sent its `Join` over `stream`; an error if this rank's run then can't form.
pub(super) fn refuse(
    acceptor: &mut Acceptor,
    stream: &TcpStream,
    from: SocketAddr,
    refusal: JoinRefusal,
) -> Result<(), CommError> {
    match refusal {
        JoinRefusal::Foreign(why) => {
            send_message(stream, Message::Refused(&why));
            acceptor.warn(FOREIGN, Some(from), &why);
            Ok(())
        }
        JoinRefusal::Outdated(why) => {
            send_message(stream, Message::Outdated(&why));
            Err(CommError::rendezvous(why))
        }
        JoinRefusal::Conflict(why) => {
            send_message(stream, Message::Refused(&why));
            Err(CommError::rendezvous(why))
        }
    }
}

/// The connections to one peer.
struct PeerSlots {
    data: Vec<Option<TcpStream>>,
    control: Option<TcpStream>,
}

pub(super) struct MeshBuilder<'a> {
    me: Identity<'a>,
    hosts: Vec<HostId>,
    links: Vec<PeerSlots>,
}

impl<'a> MeshBuilder<'a> {
    /// `hosts` is by rank.
    pub(super) fn new(me: Identity<'a>, hosts: Vec<HostId>, options: &MeshOptions) -> Self {
        let half = |host: &HostId| PeerSlots {
            data: (0..lanes(options.sockets, *host == me.host)).map(|_| None).collect(),
            control: None,
        };
        Self { me, links: hosts.iter().map(half).collect(), hosts }
    }

    fn slot(&mut self, rank: usize, purpose: ConnectionPurpose) -> Option<&mut Option<TcpStream>> {
        let half = self.links.get_mut(rank)?;
        match purpose {
            ConnectionPurpose::Data(lane) => half.data.get_mut(lane),
            ConnectionPurpose::Control => Some(&mut half.control),
            ConnectionPurpose::Rendezvous | ConnectionPurpose::Supervisor => None,
        }
    }

    /// The purposes for which a peer is connected.
    pub(super) fn purposes(&self, peer: usize) -> impl Iterator<Item = ConnectionPurpose> + use<> {
        let lanes = self.links.get(peer).map_or(0, |half| half.data.len());
        (0..lanes).map(ConnectionPurpose::Data).chain([ConnectionPurpose::Control])
    }

    /// Adds a connection that this rank has made itself.
    pub(super) fn put(&mut self, rank: usize, purpose: ConnectionPurpose, stream: TcpStream) {
        if let Some(slot) = self.slot(rank, purpose) {
            *slot = Some(stream);
        }
    }

    /// Accepts a connection from a higher rank, or refuses it.
    pub(super) fn admit(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        joined: JoinResult,
        acceptor: &mut Acceptor,
    ) -> Result<(), CommError> {
        let me = self.me.config.rank;
        let refusal = match self.me.check_join(joined, from) {
            Ok(join) => match self.slot(join.rank, join.purpose) {
                None => JoinRefusal::Foreign(format!(
                    "rank {} ({from}) connected after the rendezvous was complete, or uses more sockets per pair \
                     than rank {me}",
                    join.rank
                )),
                Some(slot) if slot.as_ref().is_none_or(is_closed) && join.rank > me => {
                    if stream.set_nodelay(true).is_ok() && send_message(&stream, Message::Accepted) {
                        *slot = Some(stream);
                    }
                    return Ok(());
                }
                Some(_) => JoinRefusal::Foreign(format!(
                    "rank {} ({from}) is already connected to rank {me}",
                    join.rank
                )),
            },
            Err(refusal) => refusal,
        };
        refuse(acceptor, &stream, from, refusal)
    }

    /// Ranks to which a connection is still missing.
    pub(super) fn missing(&self) -> Vec<usize> {
        let incomplete = |r: &usize| {
            let half = &self.links[*r];
            half.control.is_none() || half.data.iter().any(Option::is_none)
        };
        (0..self.me.config.world_size).filter(|r| *r != self.me.config.rank).filter(incomplete).collect()
    }

    pub(super) fn finish(self) -> Mesh {
        let pair = |half: PeerSlots| {
            let data: Option<Vec<TcpStream>> = half.data.into_iter().collect();
            data.zip(half.control).map(|(data, control)| PeerSockets { data, control })
        };
        Mesh { sockets: self.links.into_iter().map(pair).collect(), hosts: self.hosts }
    }
}

/// `rank 3`, `ranks 1, 2 and 5`.
pub fn name_ranks(ranks: &[usize]) -> String {
    let (last, rest) = match ranks.split_last() {
        None => return "no rank".into(),
        Some((last, [])) => return format!("rank {last}"),
        Some(split) => split,
    };
    let rest: Vec<String> = rest.iter().map(usize::to_string).collect();
    format!("ranks {} and {last}", rest.join(", "))
}
