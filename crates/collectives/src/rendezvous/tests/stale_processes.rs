//! Processes of an earlier attempt do not prevent a newer one from connecting.

use super::*;

/// After a restart, a rank of the new attempt connects before the old rank 0 has ended. Only the old one fails;
/// the new run forms at the same address.
#[test]
fn a_rank_0_of_an_older_generation_exits_and_the_newer_one_forms() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    let old = RendezvousConfig { generation: 2, ..m.leader(2) };
    let old = thread::spawn(move || connect(old));
    let follower = m.follower(1, 2);
    let follower = thread::spawn(move || connect(follower));
    let stale = old.join().unwrap();
    assert_says(&stale, "rank 0 is a process of an earlier start");
    assert!(!follower.is_finished());
    let leader = connect(config(0, 2, Endpoint::Bind(m.address), &m.secret));
    assert_working(vec![leader, follower.join().unwrap()]);
}

/// The old process is killed while the new rank waits for its answer.
#[test]
fn a_lost_rank_0_is_retried_after_a_restart_and_an_error_at_the_first_start() {
    for (generation, comes_back) in [(1, true), (0, false)] {
        let mut m = TestRendezvous::new("127.0.0.1:0");
        let listener = m.listener.take().unwrap();
        let secret = m.secret.clone();
        let follower = RendezvousConfig { generation, ..m.follower(1, 2) };
        let follower = thread::spawn(move || connect(follower));
        let mut acceptor = accept::Acceptor::new(vec![listener], secret).unwrap();
        match acceptor.next(&[], Instant::now() + HANG).unwrap() {
            accept::AcceptEvent::Joined(stream, ..) => drop(stream),
            _ => panic!("no rank connected"),
        }
        drop(acceptor);
        if comes_back {
            let leader = config(0, 2, Endpoint::Bind(m.address), &m.secret);
            let leader = connect(RendezvousConfig { generation, ..leader });
            assert_working(vec![leader, follower.join().unwrap()]);
        } else {
            assert_says(&follower.join().unwrap(), "disconnected during the rendezvous");
        }
    }
}

#[test]
fn an_address_is_retried_until_its_holder_has_left() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    let (holder, address) = (m.listener.take().unwrap(), m.address);
    let own = bind(0, address, Instant::now() + HANG, || drop(holder)).unwrap();
    assert_eq!(own.local_addr().unwrap(), address);
}

#[test]
fn rank_0_retries_an_address_that_is_in_use() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    let holder = m.listener.take().unwrap();
    let leader = config(0, 2, Endpoint::Bind(m.address), &m.secret);
    let hurried = RendezvousConfig {
        init_timeout: Duration::from_millis(120),
        ..config(0, 2, Endpoint::Bind(m.address), &m.secret)
    };
    assert_says(&connect(hurried), "rank 0 cannot listen on 127.0.0.1");
    let leader = thread::spawn(move || connect(leader));
    let follower = m.follower(1, 2);
    let follower = thread::spawn(move || connect(follower));
    // The follower has connected to the wrong listener: rank 0 is not listening yet.
    drop(accept(&holder));
    drop(holder);
    assert_working(vec![leader.join().unwrap(), follower.join().unwrap()]);
}
