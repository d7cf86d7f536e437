//! Whole rendezvous over loopback, with the peers and the strangers that they must cope with.

mod by_file;
mod leftovers;

use super::accept::MAGIC;
use super::*;
use crate::comm::gloo::{GlooGroup, GlooOptions};
use crate::comm::{ProcessGroup, ReduceOp};
use std::io::{Read, Write};
use std::thread;

fn connect(config: RendezvousConfig) -> Result<GlooGroup, CommError> {
    GlooGroup::connect(config, GlooOptions::default())
}

fn config(rank: usize, world: usize, endpoint: Endpoint, secret: &Secret) -> RendezvousConfig {
    RendezvousConfig {
        rank,
        world_size: world,
        endpoint,
        secret: secret.clone(),
        run_id: "run".into(),
        generation: 3,
        plan_hash: "0123abcd".into(),
        init_timeout: Duration::from_secs(10),
        timeout: Duration::from_secs(10),
    }
}

struct Meeting {
    listener: Option<TcpListener>,
    address: SocketAddr,
    secret: Secret,
}

impl Meeting {
    fn new(at: &str) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener: Some(listener), address, secret: Secret::generate().unwrap() }
    }

    fn host(&mut self, world: usize) -> RendezvousConfig {
        config(0, world, Endpoint::Listener(self.listener.take().unwrap()), &self.secret)
    }

    fn guest(&self, rank: usize, world: usize) -> RendezvousConfig {
        config(rank, world, Endpoint::Connect(self.address.to_string()), &self.secret)
    }
}

type Outcome = Result<GlooGroup, CommError>;

/// Runs every configuration on a thread of its own.
fn meet(configs: Vec<RendezvousConfig>) -> Vec<Outcome> {
    let threads: Vec<_> = configs.into_iter().map(|c| thread::spawn(move || connect(c))).collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

fn error(outcome: &Outcome) -> &CommError {
    match outcome {
        Ok(_) => panic!("expected an error"),
        Err(e) => {
            assert_eq!(e.kind, CommErrorKind::Rendezvous, "{e}");
            e
        }
    }
}

fn works(outcomes: Vec<Outcome>) {
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
fn worlds_form_in_any_order_on_ipv4_and_ipv6() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        if TcpListener::bind(at).is_err() {
            println!("skipped: no {at} on this machine");
            continue;
        }
        for world in [2, 5] {
            let mut m = Meeting::new(at);
            let mut configs: Vec<_> = (1..world).rev().map(|r| m.guest(r, world)).collect();
            configs.push(m.host(world));
            works(meet(configs));
        }
    }
}

#[test]
fn a_guest_that_comes_first_waits_for_the_listener() {
    let m = Meeting::new("127.0.0.1:0");
    let address = m.address;
    let guest = m.guest(1, 2);
    let secret = m.secret.clone();
    drop(m);
    let early = thread::spawn(move || connect(guest));
    let host = connect(config(0, 2, Endpoint::Bind(address), &secret));
    works(vec![host, early.join().unwrap()]);
}

#[test]
fn a_world_of_one_needs_nobody() {
    let m = Meeting::new("127.0.0.1:0");
    works(vec![connect(m.guest(0, 1))]);
}

#[test]
fn strangers_are_refused_while_the_others_meet() {
    let mut m = Meeting::new("127.0.0.1:0");
    // A thousand connections may overflow the queue, and be tried again after a second.
    let host = RendezvousConfig { init_timeout: Duration::from_secs(60), ..m.host(3) };
    let host = thread::spawn(move || connect(host));
    // Idle ones, more than are waited for at a time; with each its end in this process, as far as descriptors reach.
    let idle: Vec<_> = (0..1000).map_while(|_| TcpStream::connect(m.address).ok()).collect();
    assert!(idle.len() > 200, "only {} connections", idle.len());
    let mut talkers = Vec::new();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &MAGIC, b"D"] {
        let mut stream = TcpStream::connect(m.address).unwrap();
        // It may be thrown out before it has said everything.
        let _ = stream.write_all(garbage);
        talkers.push(stream);
    }
    let impostor = RendezvousConfig { secret: Secret::generate().unwrap(), ..m.guest(1, 3) };
    let refused = connect(impostor);
    assert!(error(&refused).message.contains("refused rank 1's proof of the run's secret"));
    let mut outcomes = meet(vec![m.guest(1, 3), m.guest(2, 3)]);
    outcomes.push(host.join().unwrap());
    works(outcomes);
    drop((idle, talkers));
}

#[test]
fn a_listener_that_is_not_ours_is_told_from_rank_0() {
    let m = Meeting::new("127.0.0.1:0");
    let guest = m.guest(1, 2);
    let other = thread::spawn(move || connect(guest));
    let (mut stream, _) = m.listener.as_ref().unwrap().accept().unwrap();
    stream.write_all(&[b'x'; 100]).unwrap();
    assert!(error(&other.join().unwrap()).message.contains("not ddp-run"));
    // One that speaks the protocol, and claims to have checked our proof, but can't prove the secret itself.
    let guest = m.guest(1, 2);
    let other = thread::spawn(move || connect(guest));
    let (mut stream, _) = m.listener.as_ref().unwrap().accept().unwrap();
    stream.write_all(&[&MAGIC[..], &[7; 32]].concat()).unwrap();
    stream.read_exact(&mut [0; 72]).unwrap();
    stream.write_all(&[1; 33]).unwrap();
    assert!(error(&other.join().unwrap()).message.contains("could not prove the run's secret to rank 1"));
}

#[test]
fn ranks_of_different_plans_worlds_or_ranks_are_all_told_both_sides() {
    type Change = fn(&mut RendezvousConfig);
    let changes: [(Change, &[&str]); 2] = [
        (|c| c.plan_hash = "ffff".into(), &["rank 2 ", "(ffff)", "rank 0 (0123abcd)"]),
        (|c| c.world_size = 4, &["rank 2 ", "world of 4", "rank 0 for a world of 3"]),
    ];
    for (change, words) in changes {
        let mut m = Meeting::new("127.0.0.1:0");
        let mut odd = m.guest(2, 3);
        change(&mut odd);
        let host = m.host(3);
        for outcome in meet(vec![host, odd]) {
            words
                .iter()
                .for_each(|w| assert!(error(&outcome).message.contains(w), "{w}: {}", error(&outcome)));
        }
    }
}

#[test]
fn two_processes_that_claim_a_rank_are_both_told() {
    let mut m = Meeting::new("127.0.0.1:0");
    let outcomes = meet(vec![m.host(3), m.guest(1, 3), m.guest(1, 3)]);
    for outcome in &outcomes {
        assert!(
            error(outcome).message.contains("two processes claim rank 1: 127.0.0.1:"),
            "{}",
            error(outcome)
        );
    }
}

#[test]
fn leftovers_of_other_runs_and_generations_are_sent_away_and_the_run_forms() {
    let mut m = Meeting::new("127.0.0.1:0");
    let host = m.host(2);
    let host = thread::spawn(move || connect(host));
    let old = RendezvousConfig { generation: 2, ..m.guest(1, 2) };
    let other = RendezvousConfig { run_id: "other".into(), ..m.guest(1, 2) };
    for (stray, word) in meet(vec![old, other]).iter().zip(["generation 2; rank 0", "run `other`"]) {
        assert!(error(stray).message.contains(word), "{}", error(stray));
    }
    let mut outcomes = meet(vec![m.guest(1, 2)]);
    outcomes.push(host.join().unwrap());
    works(outcomes);
}

#[test]
fn ranks_that_never_come_are_named_to_those_who_did() {
    let mut m = Meeting::new("127.0.0.1:0");
    let start = Instant::now();
    let host = RendezvousConfig { init_timeout: Duration::from_secs(2), ..m.host(4) };
    let outcomes = meet(vec![host, m.guest(2, 4)]);
    for outcome in &outcomes {
        let e = error(outcome);
        assert!(e.message.contains("ranks 1 and 3 of 4 did not come to rank 0"), "{e}");
    }
    assert!(start.elapsed() < Duration::from_millis(4700));
    // And a host that never listens.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let guest = config(1, 2, Endpoint::Connect(address.to_string()), &m.secret);
    let outcome = connect(RendezvousConfig { init_timeout: Duration::from_millis(200), ..guest });
    assert!(error(&outcome).message.contains("rank 1 could not reach rank 0"));
}

/// The host's 10 s are not used up: a guest that dies after joining ends the rendezvous for all, or, if not all had
/// come, makes room for another start of the same rank.
#[test]
fn a_guest_that_dies_while_waiting_may_come_again() {
    let mut m = Meeting::new("127.0.0.1:0");
    let host = m.host(3);
    let host = thread::spawn(move || connect(host));
    let dying = RendezvousConfig { init_timeout: Duration::from_secs(2), ..m.guest(1, 3) };
    assert!(error(&connect(dying)).message.contains("waited for the other ranks"));
    let mut outcomes = meet(vec![m.guest(1, 3), m.guest(2, 3)]);
    outcomes.push(host.join().unwrap());
    works(outcomes);
}

#[test]
fn impossible_configurations_are_refused_before_any_socket() {
    let m = Meeting::new("127.0.0.1:0");
    let bad = [
        m.guest(2, 2),
        m.guest(0, 0),
        m.guest(0, 2),
        m.guest(0, MAX_WORLD + 1),
        RendezvousConfig { run_id: "x".repeat(129), ..m.guest(1, 2) },
        RendezvousConfig { endpoint: Endpoint::Bind(m.address), ..m.guest(1, 2) },
    ];
    for config in bad {
        let start = Instant::now();
        error(&connect(config));
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}
