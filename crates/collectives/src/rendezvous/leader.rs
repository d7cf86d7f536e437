//! Rank 0's part: it gathers the other ranks, checks that they belong to the same run, sends the address table, and
//! releases all ranks once every connection is made. It reports any failure to all ranks that have come.

use super::accept::{AcceptEvent, Acceptor, JoinResult};
use super::identity::{Identity, JoinRefusal};
use super::io::{StreamError, is_closed, read_message, write_by};
use super::mesh::{MeshBuilder, name_ranks, refuse, send_message};
use super::wire::{self, ConnectionPurpose, MAX_REPORT, Message, TableEntry};
use super::{CommError, Mesh, MeshOptions, RendezvousConfig};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

struct JoinedRank {
    rank: usize,
    stream: TcpStream,
    from: SocketAddr,
    entry: TableEntry,
    ready: bool,
}

impl JoinedRank {
    fn error(&self, why: impl Into<String>) -> CommError {
        CommError::rendezvous(why).caused_by(Some(self.rank))
    }

    fn lost(&self, e: &StreamError) -> CommError {
        self.error(format!("rank {} ({}) disconnected during the rendezvous: {e}", self.rank, self.from))
    }
}

struct Leader<'a> {
    me: Identity<'a>,
    options: &'a MeshOptions,
    /// The address at which peers reach this rank, if it is not the one that they have connected to.
    listen: Option<SocketAddr>,
    at: String,
    acceptor: Acceptor,
    members: Vec<JoinedRank>,
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

    fn next(&mut self) -> Result<AcceptEvent, CommError> {
        let watch: Vec<&TcpStream> = self.members.iter().map(|g| &g.stream).collect();
        self.acceptor.next(&watch, self.deadline)
    }

    /// Runs until every rank has joined.
    fn gather(&mut self) -> Result<(), CommError> {
        while self.members.len() + 1 < self.me.config.world_size {
            match self.next()? {
                AcceptEvent::Joined(stream, from, joined) => self.admit(stream, from, joined)?,
                AcceptEvent::Watched(index) => {
                    // The rank may come back: a restarted worker connects again.
                    let gone = self.members.remove(index);
                    tracing::warn!(
                        "rendezvous: rank {} ({}) disconnected before all ranks had connected",
                        gone.rank,
                        gone.from
                    );
                }
                AcceptEvent::Deadline => {
                    let came = |r: &usize| self.members.iter().any(|g| g.rank == *r);
                    let missing: Vec<usize> = (1..self.me.config.world_size).filter(|r| !came(r)).collect();
                    let rejection = self.acceptor.rejection().map(|why| format!("; {why}"));
                    let why = format!(
                        "{} of {} did not connect to rank 0 at {} before init_timeout{}",
                        name_ranks(&missing),
                        self.me.config.world_size,
                        self.at,
                        rejection.unwrap_or_default()
                    );
                    return Err(CommError::rendezvous(why).caused_by(missing.first().copied()));
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, stream: TcpStream, from: SocketAddr, joined: JoinResult) -> Result<(), CommError> {
        let refusal = match self.me.check_join(joined, from) {
            Ok(join) if join.purpose == ConnectionPurpose::Rendezvous => {
                let (rank, entry) = (join.rank, join.entry);
                self.members.retain(|g| g.rank != rank || !is_closed(&g.stream));
                let Some(other) = self.members.iter().find(|g| g.rank == rank) else {
                    self.members.push(JoinedRank { rank, stream, from, entry, ready: false });
                    return Ok(());
                };
                let why = format!(
                    "two processes have rank {rank}: {} and {from}; give each node a different --node-rank",
                    other.from
                );
                JoinRefusal::Conflict(why)
            }
            Ok(join) => JoinRefusal::Foreign(format!(
                "rank {} ({from}) connected before the rendezvous was complete",
                join.rank
            )),
            Err(refusal) => refusal,
        };
        refuse(&mut self.acceptor, &stream, from, refusal)
    }

    /// Runs until every pair of ranks is connected.
    fn connect(&mut self) -> Result<Mesh, CommError> {
        // Without its own interface, rank 0 is reached at the address already used; port 0 indicates this.
        let own = self.listen.unwrap_or(SocketAddr::from(([0; 4], 0)));
        let mut entries = vec![TableEntry { address: own, host: self.me.host }; self.me.config.world_size];
        for member in &self.members {
            entries[member.rank] = member.entry;
        }
        let hosts = entries.iter().map(|e| e.host).collect();
        self.broadcast(Message::Table(entries))?;
        let mut mesh = MeshBuilder::new(self.me, hosts, self.options);
        loop {
            let unready: Vec<usize> = self.members.iter().filter(|g| !g.ready).map(|g| g.rank).collect();
            let missing = mesh.missing();
            if unready.is_empty() && missing.is_empty() {
                break;
            }
            match self.next()? {
                AcceptEvent::Joined(stream, from, joined) => {
                    mesh.admit(stream, from, joined, &mut self.acceptor)?
                }
                AcceptEvent::Watched(index) => self.receive(index)?,
                AcceptEvent::Deadline => {
                    let late = if missing.is_empty() { unready } else { missing };
                    let why = "could not connect to all other ranks before init_timeout";
                    let why = format!("{} {why}", name_ranks(&late));
                    return Err(CommError::rendezvous(why).caused_by(late.first().copied()));
                }
            }
        }
        self.broadcast(Message::Go)?;
        Ok(mesh.finish())
    }

    fn broadcast(&self, message: Message<'_>) -> Result<(), CommError> {
        let frame = message.frame();
        for member in &self.members {
            let until = self.deadline.max(Instant::now() + Duration::from_secs(1));
            write_by(&member.stream, &frame, until).map_err(|e| member.lost(&e))?;
        }
        Ok(())
    }

    /// Handles a member's message while connections are made.
    fn receive(&mut self, index: usize) -> Result<(), CommError> {
        let member = &mut self.members[index];
        let until = self.deadline.min(Instant::now() + Duration::from_secs(1));
        let bytes = read_message(&member.stream, MAX_REPORT, &[], until).map_err(|e| member.lost(&e))?;
        match wire::decode(&bytes) {
            Ok(Message::Ready) => {
                member.ready = true;
                Ok(())
            }
            Ok(Message::Failed(why)) => Err(member.error(why)),
            _ => {
                let why = format!("rank {} ({}) sent an unexpected message", member.rank, member.from);
                Err(member.error(why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TestRendezvous, assert_says, connect, options};
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
            let AcceptEvent::Joined(stream, from, joined) = leader.next().unwrap() else {
                panic!("no rank connected")
            };
            leader.admit(stream, from, joined).unwrap();
        }
        leader.deadline = Instant::now();
        let lost = leader.run();
        let says = "ranks 1 and 3 of 4 did not connect to rank 0";
        assert_says(&lost, says);
        assert_says(&follower.join().unwrap(), says);
    }
}
