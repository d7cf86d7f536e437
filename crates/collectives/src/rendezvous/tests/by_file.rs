//! Rank 0 writes the address at which it listens to a file.

use super::*;

pub(super) fn by_file(
    rank: usize,
    world: usize,
    path: &std::path::Path,
    secret: &Secret,
) -> RendezvousConfig {
    let endpoint = match rank {
        0 => Endpoint::Publish {
            address: IpAddr::from([127, 0, 0, 1]),
            host: "127.0.0.1".into(),
            file: path.to_owned(),
        },
        _ => Endpoint::Lookup(path.to_owned()),
    };
    config(rank, world, endpoint, secret)
}

#[test]
fn ranks_connect_through_a_file_which_is_removed_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meet");
    let secret = Secret::generate().unwrap();
    assert_working(connect_all((0..3).rev().map(|rank| by_file(rank, 3, &path, &secret)).collect()));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let lonely =
        RendezvousConfig { init_timeout: Duration::from_millis(100), ..by_file(1, 2, &path, &secret) };
    let outcome = connect(lonely);
    assert_says(&outcome, "meet before init_timeout: the file has no address yet");
    let nowhere = by_file(0, 2, &dir.path().join("no/such/folder"), &secret);
    assert_says(&connect(nowhere), "cannot write its address");
}

/// The file is left over from a run whose port is closed, or now belongs to another program or another run.
#[test]
fn a_stale_address_file_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meet");
    let secret = Secret::generate().unwrap();
    let closed = Port::on_loopback();
    std::fs::write(&path, format!("{}\n", closed.address)).unwrap();
    let follower = by_file(1, 2, &path, &secret);
    let follower = thread::spawn(move || connect(follower));
    // A foreign program answers at the next address.
    let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::write(&path, format!("{}\n", foreign.local_addr().unwrap())).unwrap();
    let mut caller = accept(&foreign);
    caller.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n, and so on and on and on").unwrap();
    let _ = caller.read(&mut [0; 64]);
    drop(caller);
    // Another run's rank 0 listens at the third.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    std::fs::write(&path, format!("{}\n", listener.local_addr().unwrap())).unwrap();
    let mut acceptor = accept::Acceptor::new(vec![listener], Secret::generate().unwrap()).unwrap();
    let until = Instant::now() + HANG;
    while !acceptor.has_warned("it does not have the run's secret") {
        assert!(Instant::now() < until, "the follower does not come");
        let glance = Instant::now() + Duration::from_millis(10);
        assert!(matches!(acceptor.next(&[], glance).unwrap(), accept::AcceptEvent::Deadline));
    }
    drop(acceptor);
    let leader = connect(by_file(0, 2, &path, &secret));
    assert_working(vec![leader, follower.join().unwrap()]);
}
