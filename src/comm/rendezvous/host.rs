//! Rank 0's part: it gathers the others, checks that they mean the same run, sends the address table, and lets
//! everyone go when every connection stands. Whatever goes wrong, it tells all that have come.

use super::accept::{Acceptor, Event};
use super::identity::{Identity, Verdict};
use super::io::{is_closed, read_message, write_by};
use super::mesh::{MeshBuilder, name_ranks, tell};
use super::wire::{self, MAX_TEXT, Message, Purpose};
use super::{CommError, CommErrorKind, Mesh, RendezvousConfig, failed};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

struct Guest {
    rank: usize,
    stream: TcpStream,
    from: SocketAddr,
    listen: SocketAddr,
    ready: bool,
}

struct Host<'a> {
    me: Identity<'a>,
    at: String,
    acceptor: Acceptor,
    guests: Vec<Guest>,
    deadline: Instant,
}

pub(super) fn run(
    config: &RendezvousConfig,
    listener: TcpListener,
    deadline: Instant,
) -> Result<Mesh, CommError> {
    let at = listener.local_addr().map_or_else(|_| "its address".into(), |a| a.to_string());
    let acceptor = Acceptor::new(listener, config.secret.clone())?;
    let mut host = Host { me: Identity::of(config), at, acceptor, guests: Vec::new(), deadline };
    let result = host.gather().and_then(|()| host.connect());
    if let Err(error) = &result {
        for guest in &host.guests {
            tell(&guest.stream, Message::Refused(&error.message));
        }
    }
    result
}

impl Host<'_> {
    fn next(&mut self) -> Result<Event, CommError> {
        let watch: Vec<&TcpStream> = self.guests.iter().map(|g| &g.stream).collect();
        self.acceptor.next(&watch, self.deadline)
    }

    /// Until every rank has joined.
    fn gather(&mut self) -> Result<(), CommError> {
        while self.guests.len() + 1 < self.me.world {
            match self.next()? {
                Event::Joined(stream, from, message) => self.admit(stream, from, &message)?,
                Event::Watched(index) => {
                    // It may come back: a worker that is restarted connects anew.
                    let gone = self.guests.remove(index);
                    tracing::warn!("rendezvous: rank {} ({}) left before all had come", gone.rank, gone.from);
                }
                Event::Deadline => {
                    let came = |r: &usize| self.guests.iter().any(|g| g.rank == *r);
                    let missing: Vec<usize> = (1..self.me.world).filter(|r| !came(r)).collect();
                    return Err(CommError::new(
                        CommErrorKind::Rendezvous,
                        missing.first().copied(),
                        format!(
                            "{} of {} did not come to rank 0 at {} before init_timeout",
                            name_ranks(&missing),
                            self.me.world,
                            self.at
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, stream: TcpStream, from: SocketAddr, message: &[u8]) -> Result<(), CommError> {
        let refusal = match self.me.judge(message, from) {
            Verdict::Welcome(join) if join.purpose == Purpose::Rendezvous => {
                let rank = join.rank as usize;
                self.guests.retain(|g| g.rank != rank || !is_closed(&g.stream));
                let Some(other) = self.guests.iter().find(|g| g.rank == rank) else {
                    self.guests.push(Guest { rank, stream, from, listen: join.listen, ready: false });
                    return Ok(());
                };
                let why = format!(
                    "two processes claim rank {rank}: {} and {from}; each node needs a --node-rank of its own",
                    other.from
                );
                tell(&stream, Message::Refused(&why));
                return Err(failed(why));
            }
            Verdict::Welcome(join) => {
                format!("rank {} ({from}) came before the rendezvous was complete", join.rank)
            }
            Verdict::Stray(why) => why,
            Verdict::Conflict(why) => {
                tell(&stream, Message::Refused(&why));
                return Err(failed(why));
            }
        };
        tell(&stream, Message::Refused(&refusal));
        self.acceptor.warn("stray", Some(from), &refusal);
        Ok(())
    }

    /// Until every pair of ranks is connected.
    fn connect(&mut self) -> Result<Mesh, CommError> {
        // Nobody dials rank 0 by the table: each knows already how to reach it.
        let mut table = wire::encode_address(SocketAddr::from(([0; 4], 0))).repeat(self.me.world);
        for guest in &self.guests {
            let entry = wire::encode_address(guest.listen);
            table[guest.rank * entry.len()..][..entry.len()].copy_from_slice(&entry);
        }
        self.broadcast(Message::Table(&table))?;
        let mut mesh = MeshBuilder::new(self.me);
        loop {
            let unready: Vec<usize> = self.guests.iter().filter(|g| !g.ready).map(|g| g.rank).collect();
            let missing = mesh.missing();
            if unready.is_empty() && missing.is_empty() {
                break;
            }
            match self.next()? {
                Event::Joined(stream, from, message) => {
                    mesh.admit(stream, from, &message, &mut self.acceptor)?
                }
                Event::Watched(index) => self.hear(index)?,
                Event::Deadline => {
                    let late = if missing.is_empty() { unready } else { missing };
                    return Err(CommError::new(
                        CommErrorKind::Rendezvous,
                        late.first().copied(),
                        format!("{} could not connect to all others before init_timeout", name_ranks(&late)),
                    ));
                }
            }
        }
        self.broadcast(Message::Go)?;
        Ok(mesh.finish())
    }

    fn broadcast(&self, message: Message<'_>) -> Result<(), CommError> {
        let frame = message.frame();
        for guest in &self.guests {
            write_by(&guest.stream, &frame, self.deadline.max(Instant::now() + Duration::from_secs(1)))
                .map_err(|e| {
                    let message =
                        format!("rank {} ({}) left during the rendezvous: {e}", guest.rank, guest.from);
                    CommError::new(CommErrorKind::Rendezvous, Some(guest.rank), message)
                })?;
        }
        Ok(())
    }

    /// What a guest says while connections are made.
    fn hear(&mut self, index: usize) -> Result<(), CommError> {
        let guest = &mut self.guests[index];
        let error = |m: String| CommError::new(CommErrorKind::Rendezvous, Some(guest.rank), m);
        let until = self.deadline.min(Instant::now() + Duration::from_secs(1));
        let bytes = read_message(&guest.stream, MAX_TEXT + 1, &[], until).map_err(|e| {
            error(format!("rank {} ({}) left during the rendezvous: {e}", guest.rank, guest.from))
        })?;
        match wire::decode(&bytes) {
            Ok(Message::Ready) => {
                guest.ready = true;
                Ok(())
            }
            Ok(Message::Failed(why)) => Err(error(why.to_owned())),
            _ => {
                Err(error(format!("rank {} ({}) sent an answer that makes no sense", guest.rank, guest.from)))
            }
        }
    }
}
