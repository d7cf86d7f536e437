//! The part of every rank but 0: it reports to rank 0, connects to the ranks below it, and accepts those above.

use super::accept::{AcceptEvent, Acceptor};
use super::dial::{Dial, DialError, Target};
use super::identity::Identity;
use super::io::{StreamError, poll_until, read_message};
use super::mesh::{MeshBuilder, name_ranks, send_message};
use super::ports::OTHER_PORT;
use super::wire::{self, ConnectionPurpose, MAX_MESSAGE, Message, TableEntry};
use super::{CommError, Mesh, MeshOptions, RendezvousConfig, deadline_of};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Rank 0, which knows the missing ranks, reports before its followers time out.
const REPORT_TIME: Duration = Duration::from_secs(1);
/// Pauses between two checks whether an old process has ended.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The deadline in messages.
const BY_WHEN: &str = "before init_timeout";

struct Follower<'a> {
    options: &'a MeshOptions,
    me: Identity<'a>,
    target: &'a Target,
    deadline: Instant,
    /// The connection to rank 0.
    leader: TcpStream,
    listen: SocketAddr,
}

pub(super) fn run(
    config: &RendezvousConfig,
    options: &MeshOptions,
    target: &Target,
    deadline: Instant,
) -> Result<Mesh, CommError> {
    let me = Identity { config, host: options.host };
    let mut pause = FIRST_PAUSE;
    let (side, listener, table) = loop {
        let JoinedLeader { leader, listener, listen, deadline: of_all } =
            join(options, &me, target, deadline)?;
        let side = Follower { options, me, target, deadline: of_all, leader, listen };
        let reply = match side.read() {
            // It may have been a rank 0 that was being ended: no ranks of this generation are connected yet.
            Err(StreamError::Closed | StreamError::Io(_)) if config.generation > 0 => {
                LeaderReply::Outdated(format!("rank 0 at {target} disconnected during the rendezvous"))
            }
            read => side.interpret(read)?,
        };
        match reply {
            LeaderReply::Table(table) => break (side, listener, table),
            LeaderReply::Outdated(_) if Instant::now() < deadline => {}
            LeaderReply::Outdated(why) => return Err(CommError::rendezvous(why).caused_by(Some(0))),
            LeaderReply::Go => return Err(CommError::rendezvous("rank 0 sent an unexpected message")),
        }
        let _ = poll_until(&mut [], Some((Instant::now() + pause).min(deadline)));
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    let mesh = side.connect(&table, listener).inspect_err(|error| {
        send_message(&side.leader, Message::Failed(&error.message));
    })?;
    send_message(&side.leader, Message::Ready);
    match side.receive()? {
        LeaderReply::Go => Ok(mesh),
        LeaderReply::Table(_) | LeaderReply::Outdated(_) => {
            Err(CommError::rendezvous("rank 0 sent an unexpected message"))
        }
    }
}

/// A follower that rank 0 knows.
struct JoinedLeader {
    leader: TcpStream,
    listener: TcpListener,
    listen: SocketAddr,
    /// Not before that of rank 0, which may have come later than this rank.
    deadline: Instant,
}

/// Reports to rank 0. The listener for this rank's peers is only on the interface that reaches rank 0: on loopback if
/// rank 0 is there.
fn join(
    options: &MeshOptions,
    me: &Identity<'_>,
    target: &Target,
    deadline: Instant,
) -> Result<JoinedLeader, CommError> {
    let config = me.config;
    let name = format!("rank {}", config.rank);
    let (secret, attempt) = (&config.secret, Some(options.attempt));
    let (peer, by_when) = ("rank 0", BY_WHEN);
    let dial = Dial { target, peer, me: &name, secret, watch: &[], attempt, deadline, by_when };
    let mut bound: Option<(TcpListener, SocketAddr)> = None;
    let leader = dial
        .run(false, |stream| {
            let (listener, listen) = listen_beside(stream, options).map_err(|e| {
                CommError::rendezvous(format!("rank {} cannot listen for its peers: {e}", config.rank))
            })?;
            bound = Some((listener, listen));
            Ok(me.join(ConnectionPurpose::Rendezvous, listen))
        })
        .map_err(|e| match e {
            // No other rank is to blame.
            DialError::Unreachable(e) => e,
            DialError::Failed(e) if matches!(target, Target::Agreed(..)) => {
                e.caused_by(Some(0)).hint(OTHER_PORT)
            }
            DialError::Failed(e) => e.caused_by(Some(0)),
            DialError::Watched => CommError::rendezvous("the rendezvous ended"),
        })?;
    let Some((listener, listen)) = bound else {
        return Err(CommError::rendezvous("the rendezvous has no listener"));
    };
    Ok(JoinedLeader { leader, listener, listen, deadline: deadline_of(config) })
}

fn listen_beside(stream: &TcpStream, options: &MeshOptions) -> std::io::Result<(TcpListener, SocketAddr)> {
    let mut address = stream.local_addr()?;
    address.set_port(0);
    if let Some(ip) = options.address {
        address = (ip, 0).into();
    }
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

enum LeaderReply {
    Table(Vec<TableEntry>),
    Go,
    /// Rank 0 was one of an earlier generation; the right one is still to come.
    Outdated(String),
}

impl Follower<'_> {
    /// Rank 0's next message; an error if it ends the rendezvous.
    fn receive(&self) -> Result<LeaderReply, CommError> {
        self.interpret(self.read())
    }

    fn read(&self) -> Result<Vec<u8>, StreamError> {
        read_message(&self.leader, MAX_MESSAGE, &[], self.deadline + REPORT_TIME)
    }

    fn interpret(&self, read: Result<Vec<u8>, StreamError>) -> Result<LeaderReply, CommError> {
        let rank = self.me.config.rank;
        let from_host = |m: String| CommError::rendezvous(m).caused_by(Some(0));
        let bytes = read.map_err(|e| {
            from_host(match e {
                StreamError::Deadline => format!(
                    "rank {rank} timed out at init_timeout: rank 0 at {} has not reported that all ranks are connected",
                    self.target
                ),
                e => format!("rank 0 at {} disconnected during the rendezvous (detected by rank {rank}): {e}", self.target),
            })
        })?;
        match wire::decode(&bytes) {
            Ok(Message::Go) => Ok(LeaderReply::Go),
            Ok(Message::Refused(why)) => Err(from_host(why.to_owned())),
            Ok(Message::Outdated(why)) => Ok(LeaderReply::Outdated(why.to_owned())),
            Ok(Message::Table(table)) if table.len() == self.me.config.world_size => {
                Ok(LeaderReply::Table(table))
            }
            Ok(Message::Table(_)) => {
                Err(from_host("rank 0 sent an address table of the wrong length".into()))
            }
            _ => Err(from_host("rank 0 sent an unexpected message".into())),
        }
    }

    /// Why rank 0 sent a message while connections were being made: at that point it can only be a failure.
    fn failure(&self) -> CommError {
        match self.receive() {
            Err(e) => e,
            Ok(_) => CommError::rendezvous("rank 0 sent an unexpected message"),
        }
    }

    fn connect(&self, table: &[TableEntry], listener: TcpListener) -> Result<Mesh, CommError> {
        let hosts = table.iter().map(|e| e.host).collect();
        let mut mesh = MeshBuilder::new(self.me, hosts, self.options);
        let me = format!("rank {}", self.me.config.rank);
        for (peer, TableEntry { address, .. }) in table.iter().enumerate().take(self.me.config.rank) {
            let target = match address.port() {
                // The address at which rank 0 has already been reached.
                0 => self
                    .leader
                    .peer_addr()
                    .map_err(|e| CommError::rendezvous(format!("rank 0 disconnected: {e}")))?,
                _ => self.scoped(*address),
            };
            let target = Target::At(target.to_string());
            for purpose in mesh.purposes(peer) {
                let name = format!("rank {peer}");
                let dial = Dial {
                    target: &target,
                    peer: &name,
                    me: &me,
                    secret: &self.me.config.secret,
                    watch: &[&self.leader],
                    // A peer in the table is not stale, but it answers only after it has connected to the ranks below it.
                    attempt: None,
                    deadline: self.deadline,
                    by_when: BY_WHEN,
                };
                let stream =
                    dial.run(true, |_| Ok(self.me.join(purpose, self.listen))).map_err(|e| match e {
                        DialError::Watched => self.failure(),
                        DialError::Failed(e) | DialError::Unreachable(e) => e.caused_by(Some(peer)),
                    })?;
                mesh.put(peer, purpose, stream);
            }
        }
        self.accept_peers(&mut mesh, listener)?;
        Ok(mesh.finish())
    }

    fn accept_peers(&self, mesh: &mut MeshBuilder<'_>, listener: TcpListener) -> Result<(), CommError> {
        let mut acceptor = Acceptor::new(vec![listener], self.me.config.secret.clone())?;
        loop {
            let missing = mesh.missing();
            if missing.is_empty() {
                return Ok(());
            }
            match acceptor.next(&[&self.leader], self.deadline)? {
                AcceptEvent::Joined(stream, from, joined) => {
                    mesh.admit(stream, from, joined, &mut acceptor)?
                }
                AcceptEvent::Watched(_) => return Err(self.failure()),
                AcceptEvent::Deadline => {
                    let (late, me) = (name_ranks(&missing), self.me.config.rank);
                    let why = format!("{late} did not connect to rank {me} before init_timeout");
                    return Err(CommError::rendezvous(why).caused_by(missing.first().copied()));
                }
            }
        }
    }

    /// A link-local IPv6 address is valid only with the interface, which is another one on each host.
    fn scoped(&self, address: SocketAddr) -> SocketAddr {
        match (address, self.listen) {
            (SocketAddr::V6(mut peer), SocketAddr::V6(own)) if peer.ip().is_unicast_link_local() => {
                peer.set_scope_id(own.scope_id());
                peer.into()
            }
            _ => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TestRendezvous, assert_working, connect, connect_all, options};
    use super::super::{ATTEMPT, Endpoint};
    use super::*;

    /// Its place is free for another start of the same rank.
    #[test]
    fn a_member_that_exits_while_waiting_can_be_replaced() {
        let mut m = TestRendezvous::new("127.0.0.1:0");
        let leader = m.leader(3);
        let leader = std::thread::spawn(move || connect(leader));
        let (config, options) = (m.follower(1, 3), options(ATTEMPT));
        let Endpoint::Connect(address) = &config.endpoint else { panic!("followers connect") };
        let (me, target) = (Identity { config: &config, host: options.host }, &Target::At(address.clone()));
        let own = deadline_of(&config);
        let JoinedLeader { leader: stream, listener: _listener, listen, deadline } =
            join(&options, &me, target, own).unwrap();
        assert!(deadline > own, "rank 0's may be as late");
        // Here it passes as soon as it has joined; rank 2 has not come yet.
        let deadline = Instant::now();
        let side = Follower { options: &options, me, target, deadline, leader: stream, listen };
        let lost = side.receive().err().unwrap();
        assert!(lost.message.contains("rank 1 timed out at init_timeout"), "{lost}");
        drop(side);
        let mut outcomes = connect_all(vec![m.follower(1, 3), m.follower(2, 3)]);
        outcomes.push(leader.join().unwrap());
        assert_working(outcomes);
    }
}
