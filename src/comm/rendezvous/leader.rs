//! Rank 0's part: it gathers the other ranks, checks that they belong to the same run, sends the address table, and
//! releases all ranks once every connection is made. It reports any failure to all ranks that have come.

use super::accept::{Acceptor, Event};
use super::identity::{Identity, Refusal};
use super::io::{is_closed, read_message, write_by};
use super::mesh::{MeshBuilder, name_ranks, refuse, send_message};
use super::wire::{self, Entry, HostId, MAX_TEXT, Message, Purpose};
use super::{CommError, CommErrorKind, Mesh, MeshOptions, RendezvousConfig};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

struct Member {
    rank: usize,
    stream: TcpStream,
    from: SocketAddr,
    listen: SocketAddr,
    host: HostId,
    ready: bool,
}

struct Leader<'a> {
    me: Identity<'a>,
    options: &'a MeshOptions,
    /// The address at which peers reach this rank, if it is not the one that they have connected to.
    listen: Option<SocketAddr>,
    at: String,
    acceptor: Acceptor,
    members: Vec<Member>,
    deadline: Instant,
}

pub(super) fn run(
    config: &RendezvousConfig,
    options: &MeshOptions,
    listener: TcpListener,
    deadline: Instant,
) -> Result<Mesh, CommError> {
    Leader::new(config, options, listener, deadline)?.run()
}

impl<'a> Leader<'a> {
    fn new(
        config: &'a RendezvousConfig,
        options: &'a MeshOptions,
        listener: TcpListener,
        deadline: Instant,
    ) -> Result<Self, CommError> {
        let at = listener.local_addr().map_or_else(|_| "its address".into(), |a| a.to_string());
        let mut listeners = vec![listener];
        let mut listen = None;
        if let Some(address) = options.address {
            let second = TcpListener::bind((address, 0)).and_then(|l| Ok((l.local_addr()?, l)));
            let (at, second) = second.map_err(|e| {
                CommError::rendezvous(format!("rank {} cannot listen on {address}: {e}", config.rank))
            })?;
            listen = Some(at);
            listeners.push(second);
        }
        let acceptor = Acceptor::new(listeners, config.secret.clone())?;
        let me = Identity { config, host: options.host };
        Ok(Self { me, options, listen, at, acceptor, members: Vec::new(), deadline })
    }

    fn run(&mut self) -> Result<Mesh, CommError> {
        let result = self.gather().and_then(|()| self.connect());
        if let Err(error) = &result {
            for member in &self.members {
                send_message(&member.stream, Message::Refused(&error.message));
            }
        }
        result
    }

    fn next(&mut self) -> Result<Event, CommError> {
        let watch: Vec<&TcpStream> = self.members.iter().map(|g| &g.stream).collect();
        self.acceptor.next(&watch, self.deadline)
    }

    /// Runs until every rank has joined.
    fn gather(&mut self) -> Result<(), CommError> {
        while self.members.len() + 1 < self.me.config.world_size {
            match self.next()? {
                Event::Joined(stream, from, message) => self.admit(stream, from, &message)?,
                Event::Watched(index) => {
                    // The rank may come back: a restarted worker connects again.
                    let gone = self.members.remove(index);
                    tracing::warn!(
                        "rendezvous: rank {} ({}) disconnected before all ranks had connected",
                        gone.rank,
                        gone.from
                    );
                }
                Event::Deadline => {
                    let came = |r: &usize| self.members.iter().any(|g| g.rank == *r);
                    let missing: Vec<usize> = (1..self.me.config.world_size).filter(|r| !came(r)).collect();
                    return Err(CommError::new(
                        CommErrorKind::Rendezvous,
                        missing.first().copied(),
                        format!(
                            "{} of {} did not connect to rank 0 at {} before init_timeout",
                            name_ranks(&missing),
                            self.me.config.world_size,
                            self.at
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, stream: TcpStream, from: SocketAddr, message: &[u8]) -> Result<(), CommError> {
        let refusal = match self.me.check_join(message, from) {
            Ok(join) if join.purpose == Purpose::Rendezvous => {
                let rank = join.rank as usize;
                self.members.retain(|g| g.rank != rank || !is_closed(&g.stream));
                let Some(other) = self.members.iter().find(|g| g.rank == rank) else {
                    let (listen, host) = (join.listen, join.host);
                    self.members.push(Member { rank, stream, from, listen, host, ready: false });
                    return Ok(());
                };
                let why = format!(
                    "two processes have rank {rank}: {} and {from}; give each node a different --node-rank",
                    other.from
                );
                Refusal::Conflict(why)
            }
            Ok(join) => Refusal::Foreign(format!(
                "rank {} ({from}) connected before the rendezvous was complete",
                join.rank
            )),
            Err(refusal) => refusal,
        };
        refuse(&mut self.acceptor, &stream, from, refusal)
    }

    /// Runs until every pair of ranks is connected.
    fn connect(&mut self) -> Result<Mesh, CommError> {
        // Without its own interface, rank 0 is reached at the address already used; port 0 says so.
        let own = self.listen.unwrap_or(SocketAddr::from(([0; 4], 0)));
        let mut entries = vec![Entry { address: own, host: self.me.host }; self.me.config.world_size];
        for member in &self.members {
            entries[member.rank] = Entry { address: member.listen, host: member.host };
        }
        let table: Vec<u8> = entries.iter().flat_map(wire::encode_entry).collect();
        self.broadcast(Message::Table(&table))?;
        let hosts = entries.iter().map(|e| e.host).collect();
        let mut mesh = MeshBuilder::new(self.me, hosts, self.options);
        loop {
            let unready: Vec<usize> = self.members.iter().filter(|g| !g.ready).map(|g| g.rank).collect();
            let missing = mesh.missing();
            if unready.is_empty() && missing.is_empty() {
                break;
            }
            match self.next()? {
                Event::Joined(stream, from, message) => {
                    mesh.admit(stream, from, &message, &mut self.acceptor)?
                }
                Event::Watched(index) => self.receive(index)?,
                Event::Deadline => {
                    let late = if missing.is_empty() { unready } else { missing };
                    return Err(CommError::new(
                        CommErrorKind::Rendezvous,
                        late.first().copied(),
                        format!(
                            "{} could not connect to all other ranks before init_timeout",
                            name_ranks(&late)
                        ),
                    ));
                }
            }
        }
        self.broadcast(Message::Go)?;
        Ok(mesh.finish())
    }

    fn broadcast(&self, message: Message<'_>) -> Result<(), CommError> {
        let frame = message.frame();
        for member in &self.members {
            write_by(&member.stream, &frame, self.deadline.max(Instant::now() + Duration::from_secs(1)))
                .map_err(|e| {
                    let message = format!(
                        "rank {} ({}) disconnected during the rendezvous: {e}",
                        member.rank, member.from
                    );
                    CommError::new(CommErrorKind::Rendezvous, Some(member.rank), message)
                })?;
        }
        Ok(())
    }

    /// Handles a member's message while connections are made.
    fn receive(&mut self, index: usize) -> Result<(), CommError> {
        let member = &mut self.members[index];
        let error = |m: String| CommError::new(CommErrorKind::Rendezvous, Some(member.rank), m);
        let until = self.deadline.min(Instant::now() + Duration::from_secs(1));
        let bytes = read_message(&member.stream, MAX_TEXT + 1, &[], until).map_err(|e| {
            error(format!("rank {} ({}) disconnected during the rendezvous: {e}", member.rank, member.from))
        })?;
        match wire::decode(&bytes) {
            Ok(Message::Ready) => {
                member.ready = true;
                Ok(())
            }
            Ok(Message::Failed(why)) => Err(error(why.to_owned())),
            _ => Err(error(format!("rank {} ({}) sent an unexpected message", member.rank, member.from))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TestRendezvous, connect, error, options};
    use super::super::{ATTEMPT, deadline_of};
    use super::*;

    #[test]
    fn ranks_that_never_connect_are_named_to_the_others() {
        let mut m = TestRendezvous::new("127.0.0.1:0");
        let listener = m.listener.take().unwrap();
        let follower = m.follower(2, 4);
        let follower = std::thread::spawn(move || connect(follower));
        let (config, options) = (m.follower(0, 4), options(ATTEMPT));
        let mut leader = Leader::new(&config, &options, listener, deadline_of(&config)).unwrap();
        // The deadline passes when rank 2 has come.
        while leader.members.is_empty() {
            let Event::Joined(stream, from, message) = leader.next().unwrap() else {
                panic!("no rank connected")
            };
            leader.admit(stream, from, &message).unwrap();
        }
        leader.deadline = Instant::now();
        let lost = leader.run();
        for e in [error(&lost), error(&follower.join().unwrap())] {
            assert!(e.message.contains("ranks 1 and 3 of 4 did not connect to rank 0"), "{e}");
        }
    }
}
