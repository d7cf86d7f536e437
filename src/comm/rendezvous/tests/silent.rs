//! A process at rank 0's address, or only its system, accepts connections and sends nothing.

use super::by_file::by_file;
use super::*;

/// Timeout of one attempt. Rank 0 may be slower: then there is another attempt.
const ATTEMPT: Duration = Duration::from_millis(250);

fn stands(meshes: [Result<Mesh, CommError>; 2]) {
    for mesh in meshes {
        assert_eq!(mesh.unwrap().sockets.iter().flatten().count(), 1);
    }
}

/// The file is left over, and its address now belongs to a process that is stopped, or is not part of the run.
#[test]
fn a_silent_listener_at_a_stale_address_only_costs_another_look() {
    for accepts in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meet");
        let secret = Secret::generate().unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        std::fs::write(&path, format!("{}\n", silent.local_addr().unwrap())).unwrap();
        let guest = by_file(1, 2, &path, &secret);
        let guest = thread::spawn(move || mesh(guest, ATTEMPT));
        wait_for_caller(&silent);
        let _open = accepts.then(|| accept(&silent));
        let host = mesh(by_file(0, 2, &path, &secret), ATTEMPT);
        stands([host, guest.join().unwrap()]);
    }
}

/// Rank 0's socket may exist long before rank 0 does, or another process may hold the port until rank 0 gets it.
#[test]
fn a_silent_listener_is_called_again_until_rank_0_answers_there() {
    let mut m = Meeting::new("127.0.0.1:0");
    let guest = m.guest(1, 2);
    let guest = thread::spawn(move || mesh(guest, ATTEMPT));
    let _unanswered = [(); 2].map(|()| accept(m.listener.as_ref().unwrap()));
    let host = mesh(m.host(2), ATTEMPT);
    stands([host, guest.join().unwrap()]);
}

#[test]
fn what_was_silent_until_the_end_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meet");
    let m = Meeting::new("127.0.0.1:0");
    std::fs::write(&path, format!("{}\n", m.address)).unwrap();
    for guest in [m.guest(1, 2), by_file(1, 2, &path, &m.secret)] {
        let guest = RendezvousConfig { init_timeout: 8 * ATTEMPT, ..guest };
        let outcome = mesh(guest, ATTEMPT);
        let told = &error(&outcome).message;
        let silent = format!("before init_timeout: the listener at {} does not respond", m.address);
        assert!(told.starts_with("rank 1 could not reach rank 0 at ") && told.ends_with(&silent), "{told}");
    }
}
