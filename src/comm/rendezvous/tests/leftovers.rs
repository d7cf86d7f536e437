//! Leftovers of an earlier attempt do not prevent a newer one from meeting.

use super::*;

/// After a restart, a rank of the new attempt connects before the old rank 0 has ended. Only the leftover is told to
/// give up, and ends; the new run forms at the same address.
#[test]
fn a_newer_generation_outlasts_the_leftover_of_an_older_one() {
    let mut m = Meeting::new("127.0.0.1:0");
    let old = RendezvousConfig { generation: 2, ..m.host(2) };
    let old = thread::spawn(move || connect(old));
    let guest = m.guest(1, 2);
    let guest = thread::spawn(move || connect(guest));
    let leftover = old.join().unwrap();
    assert!(
        error(&leftover).message.contains("rank 0 is a process of an earlier start"),
        "{}",
        error(&leftover)
    );
    assert!(!guest.is_finished());
    let host = connect(config(0, 2, Endpoint::Bind(m.address), &m.secret));
    works(vec![host, guest.join().unwrap()]);
}

/// The leftover is killed while the new rank waits for its answer.
#[test]
fn a_rank_0_that_vanishes_is_waited_for_after_a_restart_and_given_up_at_the_start() {
    for (generation, comes_back) in [(1, true), (0, false)] {
        let mut m = Meeting::new("127.0.0.1:0");
        let listener = m.listener.take().unwrap();
        let secret = m.secret.clone();
        let guest = RendezvousConfig { generation, ..m.guest(1, 2) };
        let guest = thread::spawn(move || connect(guest));
        let mut acceptor = accept::Acceptor::new(vec![listener], secret).unwrap();
        match acceptor.next(&[], Instant::now() + HANG).unwrap() {
            accept::Event::Joined(stream, ..) => drop(stream),
            _ => panic!("nobody came"),
        }
        drop(acceptor);
        if comes_back {
            let host = config(0, 2, Endpoint::Bind(m.address), &m.secret);
            let host = connect(RendezvousConfig { generation, ..host });
            works(vec![host, guest.join().unwrap()]);
        } else {
            let lost = guest.join().unwrap();
            assert!(error(&lost).message.contains("disconnected during the rendezvous"), "{}", error(&lost));
        }
    }
}

#[test]
fn rank_0_waits_for_an_address_that_another_process_still_has() {
    let mut m = Meeting::new("127.0.0.1:0");
    let holder = m.listener.take().unwrap();
    let host = config(0, 2, Endpoint::Bind(m.address), &m.secret);
    let hurried = RendezvousConfig {
        init_timeout: Duration::from_millis(120),
        ..config(0, 2, Endpoint::Bind(m.address), &m.secret)
    };
    assert!(error(&connect(hurried)).message.contains("rank 0 cannot listen on 127.0.0.1"));
    let host = thread::spawn(move || connect(host));
    let guest = m.guest(1, 2);
    let guest = thread::spawn(move || connect(guest));
    // The guest has connected to the wrong listener: rank 0 is not listening yet.
    drop(accept(&holder));
    drop(holder);
    works(vec![host.join().unwrap(), guest.join().unwrap()]);
}
