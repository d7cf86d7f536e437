//! A process at rank 0's address, or only its system, accepts connections and sends nothing.

use super::by_file::by_file;
use super::*;

/// Timeout of one attempt. Rank 0 may be slower: then there is another attempt.
const ATTEMPT: Duration = Duration::from_millis(250);

fn assert_connected(meshes: [Result<Mesh, CommError>; 2]) {
    for mesh in meshes {
        assert_eq!(mesh.unwrap().sockets.iter().flatten().count(), 1);
    }
}

/// The file is left over, and its address now belongs to a process that is stopped, or is not part of the run.
#[test]
fn an_unresponsive_listener_at_a_stale_address_is_retried() {
    for accepts in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meet");
        let secret = Secret::generate().unwrap();
        let unresponsive = TcpListener::bind("127.0.0.1:0").unwrap();
        std::fs::write(&path, format!("{}\n", unresponsive.local_addr().unwrap())).unwrap();
        let follower = by_file(1, 2, &path, &secret);
        let follower = thread::spawn(move || mesh(follower, ATTEMPT));
        wait_for_connection(&unresponsive);
        let _open = accepts.then(|| accept(&unresponsive));
        let leader = mesh(by_file(0, 2, &path, &secret), ATTEMPT);
        assert_connected([leader, follower.join().unwrap()]);
    }
}

/// Rank 0's socket may exist long before rank 0 does, or another process may hold the port until rank 0 gets it.
#[test]
fn an_unresponsive_listener_is_retried_until_rank_0_answers() {
    let mut m = TestRendezvous::new("127.0.0.1:0");
    let follower = m.follower(1, 2);
    let follower = thread::spawn(move || mesh(follower, ATTEMPT));
    let _unanswered = [(); 2].map(|()| accept(m.listener.as_ref().unwrap()));
    let leader = mesh(m.leader(2), ATTEMPT);
    assert_connected([leader, follower.join().unwrap()]);
}

#[test]
fn a_listener_that_never_responds_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meet");
    let m = TestRendezvous::new("127.0.0.1:0");
    std::fs::write(&path, format!("{}\n", m.address)).unwrap();
    let followers = [m.follower(1, 2), by_file(1, 2, &path, &m.secret)].map(|follower| {
        let follower = RendezvousConfig { init_timeout: 8 * ATTEMPT, ..follower };
        thread::spawn(move || mesh(follower, ATTEMPT))
    });
    for follower in followers {
        let outcome = follower.join().unwrap();
        let message = &error(&outcome).message;
        let end = format!("before init_timeout: the listener at {} does not respond", m.address);
        assert!(
            message.starts_with("rank 1 could not reach rank 0 at ") && message.ends_with(&end),
            "{message}"
        );
    }
}
