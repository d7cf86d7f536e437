//! Whole rendezvous over loopback, with valid peers and with the foreign connections that they must tolerate.

mod by_file;
mod by_ports;
mod stale_processes;
mod unresponsive;

use super::accept::{MAGIC, OtherProtocol};
use super::identity::{Identity, JoinRefusal};
use super::wire::{ConnectionPurpose, Message};
use super::*;
use crate::gloo::{GlooGroup, GlooOptions};
use crate::testing::{self, HANG, Port};
use crate::{CommErrorKind, ProcessGroup, ReduceOp};
use rustix::event::{PollFd, PollFlags};
use std::io::{Read, Write};
use std::thread;

pub(super) fn connect(config: RendezvousConfig) -> Result<GlooGroup, CommError> {
    GlooGroup::connect(config, GlooOptions::default())
}

fn config(rank: usize, world: usize, endpoint: Endpoint, secret: &Secret) -> RendezvousConfig {
    let config = testing::config(rank, world, endpoint, secret);
    let plan_keys = [("epochs".to_owned(), "2".to_owned())].into();
    RendezvousConfig {
        run_id: "run".into(),
        generation: 3,
        plan_hash: "0123abcd".into(),
        plan_keys,
        ..config
    }
}

pub(super) struct TestRendezvous {
    pub listener: Option<TcpListener>,
    pub address: SocketAddr,
    secret: Secret,
    /// Reserves the port after the listener is closed.
    _port: Port,
}

impl TestRendezvous {
    pub(super) fn new(at: &str) -> Self {
        let port = Port::hold(at.parse().unwrap()).unwrap();
        let listener = TcpListener::bind(port.address).unwrap();
        let secret = Secret::generate().unwrap();
        Self { listener: Some(listener), address: port.address, secret, _port: port }
    }

    pub(super) fn leader(&mut self, world: usize) -> RendezvousConfig {
        config(0, world, Endpoint::Listener(self.listener.take().unwrap()), &self.secret)
    }

    pub(super) fn follower(&self, rank: usize, world: usize) -> RendezvousConfig {
        config(rank, world, Endpoint::Connect(self.address.to_string()), &self.secret)
    }
}

/// Options of a mesh without an engine on top.
pub(super) fn options(attempt: Duration) -> MeshOptions {
    MeshOptions { host: [0; 16], sockets: None, address: None, attempt }
}

pub(super) fn mesh(mut config: RendezvousConfig, attempt: Duration) -> Result<Mesh, CommError> {
    let deadline = deadline_of(&config);
    form_mesh(&mut config, &options(attempt), deadline)
}

/// Waits for a connection, and leaves it in the queue.
fn wait_for_connection(listener: &TcpListener) {
    let until = Some(Instant::now() + HANG);
    assert!(poll_until(&mut [PollFd::new(listener, PollFlags::IN)], until).unwrap(), "no connection");
}

fn accept(listener: &TcpListener) -> TcpStream {
    wait_for_connection(listener);
    let stream = listener.accept().unwrap().0;
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream
}

type Outcome = Result<GlooGroup, CommError>;

/// Runs every configuration on its own thread.
pub(super) fn connect_all(configs: Vec<RendezvousConfig>) -> Vec<Outcome> {
    let threads: Vec<_> = configs.into_iter().map(|c| thread::spawn(move || connect(c))).collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

pub(super) fn error<T>(outcome: &Result<T, CommError>) -> &CommError {
    match outcome {
        Ok(_) => panic!("expected an error"),
        Err(e) => {
            assert_eq!(e.kind, CommErrorKind::Rendezvous, "{e}");
            e
        }
    }
}

#[track_caller]
pub(super) fn assert_says<T>(outcome: &Result<T, CommError>, text: &str) {
    let message = &error(outcome).message;
    assert!(message.contains(text), "no `{text}` in: {message}");
}

pub(super) fn assert_working(outcomes: Vec<Outcome>) {
    let world = outcomes.len() as i32;
    let groups: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    thread::scope(|scope| {
        for g in &groups {
            scope.spawn(move || {
                let mut v = [1i32];
                g.all_reduce((&mut v[..]).into(), ReduceOp::Sum).unwrap();
                assert_eq!(v, [world]);
            });
        }
    });
}

#[test]
fn groups_form_in_any_order_on_ipv4_and_ipv6() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        if Port::hold(at.parse().unwrap()).is_err() {
            println!("skipped: no {at} on this machine");
            continue;
        }
        for world in [2, 5] {
            let mut m = TestRendezvous::new(at);
            let mut configs: Vec<_> = (1..world).rev().map(|r| m.follower(r, world)).collect();
            configs.push(m.leader(world));
            assert_working(connect_all(configs));
        }
    }
}

#[test]
fn a_follower_that_starts_first_waits_for_the_listener() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    let follower = m.follower(1, 2);
    m.listener = None;
    let early = thread::spawn(move || connect(follower));
    let leader = connect(config(0, 2, Endpoint::Bind(m.address), &m.secret));
    assert_working(vec![leader, early.join().unwrap()]);
}

#[test]
fn a_group_of_one_rank_needs_no_connection() {
    let m = TestRendezvous::new("127.0.0.1:0");
    assert_working(vec![connect(m.follower(0, 1))]);
}

#[test]
fn foreign_connections_are_rejected_while_the_group_forms() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    // So many connections may overflow the queue, and are then retried after a second.
    let leader = m.leader(3);
    let leader = thread::spawn(move || connect(leader));
    // Idle connections, twice as many as are kept at a time. Both ends are in this process, which may have no more than 1024 descriptors.
    let idle = [(); 256].map(|()| TcpStream::connect(m.address).unwrap());
    let mut talkers = Vec::new();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &MAGIC, b"D"] {
        let mut stream = TcpStream::connect(m.address).unwrap();
        // The connection may be closed before everything is sent.
        let _ = stream.write_all(garbage);
        talkers.push(stream);
    }
    let impostor = RendezvousConfig { secret: Secret::generate().unwrap(), ..m.follower(1, 3) };
    let refused = connect(impostor);
    assert_says(&refused, "rejected rank 1's proof of the run's secret");
    let mut outcomes = connect_all(vec![m.follower(1, 3), m.follower(2, 3)]);
    outcomes.push(leader.join().unwrap());
    assert_working(outcomes);
    drop((idle, talkers));
}

#[test]
fn a_foreign_listener_is_distinguished_from_rank_0() {
    let m = TestRendezvous::new("127.0.0.1:0");
    let follower = m.follower(1, 2);
    let other = thread::spawn(move || connect(follower));
    let mut stream = accept(m.listener.as_ref().unwrap());
    stream.write_all(&[b'x'; 100]).unwrap();
    assert_says(&other.join().unwrap(), "not ddp-run");
    // A peer that speaks the protocol and claims to have checked our proof, but cannot prove the secret itself.
    let follower = m.follower(1, 2);
    let other = thread::spawn(move || connect(follower));
    let mut stream = accept(m.listener.as_ref().unwrap());
    stream.write_all(&[&MAGIC[..], &[7; 32]].concat()).unwrap();
    stream.read_exact(&mut [0; 72]).unwrap();
    stream.write_all(&[1; 33]).unwrap();
    assert_says(&other.join().unwrap(), "does not have the secret of rank 1");
}

#[test]
fn ranks_with_different_plans_or_world_sizes_all_report_both_sides() {
    type Change = fn(&mut RendezvousConfig);
    let changes: [(Change, &[&str]); 2] = [
        (
            |c| {
                c.plan_hash = "ffff".into();
                c.plan_keys = [("epochs".to_owned(), "3".to_owned())].into();
            },
            &["rank 2 ", "(ffff)", "rank 0 (0123abcd): it differs in epochs, 2 on rank 0"],
        ),
        (|c| c.world_size = 4, &["rank 2 ", "world size 4", "rank 0 has world size 3"]),
    ];
    for (change, words) in changes {
        let mut m = TestRendezvous::new("127.0.0.1:0");
        let mut deviant = m.follower(2, 3);
        change(&mut deviant);
        let leader = m.leader(3);
        for outcome in connect_all(vec![leader, deviant]) {
            words.iter().for_each(|word| assert_says(&outcome, word));
        }
    }
}

#[test]
fn two_processes_with_the_same_rank_both_fail() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    let outcomes = connect_all(vec![m.leader(3), m.follower(1, 3), m.follower(1, 3)]);
    for outcome in &outcomes {
        assert_says(outcome, "two processes have rank 1: 127.0.0.1:");
    }
}

#[test]
fn processes_of_other_runs_and_generations_are_rejected_and_the_group_forms() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    let leader = m.leader(2);
    let leader = thread::spawn(move || connect(leader));
    let old = RendezvousConfig { generation: 2, ..m.follower(1, 2) };
    let other = RendezvousConfig { run_id: "other".into(), ..m.follower(1, 2) };
    for (stray, word) in connect_all(vec![old, other]).iter().zip(["generation 2, but rank 0", "run `other`"])
    {
        assert_says(stray, word);
    }
    let mut outcomes = connect_all(vec![m.follower(1, 2)]);
    outcomes.push(leader.join().unwrap());
    assert_working(outcomes);
}

/// Impossible configurations, which are refused before any socket; peers that rank 0 of 3 rejects; and
/// errors of reads and writes.
pub(crate) fn messages() -> Vec<String> {
    let m = TestRendezvous::new("127.0.0.1:0");
    let bad = [
        m.follower(2, 2),
        m.follower(0, 0),
        m.follower(0, 2),
        m.follower(0, MAX_WORLD + 1),
        RendezvousConfig { run_id: "x".repeat(129), ..m.follower(1, 2) },
        RendezvousConfig { endpoint: Endpoint::Bind(m.address), ..m.follower(1, 2) },
    ];
    let mut all: Vec<String> = bad.into_iter().map(|c| error(&connect(c)).message.clone()).collect();
    let (own, at) = (m.follower(0, 3), SocketAddr::from(([10, 0, 0, 2], 5000)));
    let foreign = [
        RendezvousConfig { run_id: "other".into(), ..m.follower(1, 3) },
        RendezvousConfig { generation: 2, ..m.follower(1, 3) },
        RendezvousConfig { generation: 4, ..m.follower(1, 3) },
        RendezvousConfig { plan_hash: "ffff".into(), ..m.follower(1, 3) },
        m.follower(1, 4),
        m.follower(3, 3),
        m.follower(0, 3),
    ];
    let join = |c: RendezvousConfig| {
        let frame = Identity { config: &c, host: [0; 16] }.join(ConnectionPurpose::Rendezvous, at);
        match wire::decode(&frame[wire::LENGTH..]) {
            Ok(Message::Join(join)) => Ok(join),
            other => panic!("{other:?}"),
        }
    };
    for joined in foreign.into_iter().map(join).chain([Err(OtherProtocol(wire::PROTOCOL + 1))]) {
        let refusal = Identity { config: &own, host: [0; 16] }.check_join(joined, at).expect_err("refused");
        let (JoinRefusal::Foreign(why) | JoinRefusal::Outdated(why) | JoinRefusal::Conflict(why)) = refusal;
        all.push(why);
    }
    all.extend(
        [StreamError::Closed, StreamError::Deadline, StreamError::Watched, StreamError::TooLong(9)]
            .map(|t| t.to_string()),
    );
    all.extend([Target::At("n1:29500".into()), Target::File("/shared/meet".into())].map(|t| t.to_string()));
    all
}
