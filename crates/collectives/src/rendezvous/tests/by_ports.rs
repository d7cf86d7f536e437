//! Rank 0 listens on any port and leaves it in torchrun's store, or takes the first free one of several.

use super::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

type Keys = Arc<(Mutex<BTreeMap<String, Vec<u8>>>, Condvar)>;

/// A store as PyTorch's: `value` is what it has under `key` from the start.
struct Store {
    address: String,
    keys: Keys,
}

impl Store {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let keys = Keys::default();
        let served = keys.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let keys = served.clone();
                thread::spawn(move || drop(serve(stream, &keys)));
            }
        });
        Self { address, keys }
    }

    fn key(&self) -> StoreKey {
        StoreKey { address: self.address.clone(), key: "ddp-run/port".into() }
    }
}

fn serve(
    mut stream: TcpStream,
    (keys, changed): &(Mutex<BTreeMap<String, Vec<u8>>>, Condvar),
) -> std::io::Result<()> {
    fn bytes<const N: usize>(stream: &mut TcpStream) -> std::io::Result<[u8; N]> {
        let mut bytes = [0; N];
        stream.read_exact(&mut bytes).map(|()| bytes)
    }
    fn text(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
        let mut text = vec![0; u64::from_le_bytes(bytes(stream)?) as usize];
        stream.read_exact(&mut text).map(|()| text)
    }
    let key = |stream: &mut TcpStream| text(stream).map(|key| String::from_utf8(key).unwrap());
    assert_eq!(bytes(&mut stream)?, [0, 0xce, 0xf7, 0x85, 0x3c], "the connection is validated");
    loop {
        match bytes(&mut stream)? {
            [1] => {
                let (key, value) = (key(&mut stream)?, text(&mut stream)?);
                keys.lock().unwrap().insert(key, value);
                changed.notify_all();
            }
            [3] => {
                let key = key(&mut stream)?;
                let value = keys.lock().unwrap().get(&key).cloned();
                // PyTorch's closes the connection, too.
                let Some(value) = value else { return Ok(()) };
                stream.write_all(&[&(value.len() as u64).to_le_bytes()[..], &value].concat())?;
            }
            [request @ (5 | 6)] => {
                assert_eq!(u64::from_le_bytes(bytes(&mut stream)?), 1, "one key");
                let key = key(&mut stream)?;
                let mut keys = keys.lock().unwrap();
                while request == 6 && !keys.contains_key(&key) {
                    keys = changed.wait(keys).unwrap();
                }
                stream.write_all(&[u8::from(!keys.contains_key(&key))])?;
            }
            [8] => {
                let key = key(&mut stream)?;
                let removed = keys.lock().unwrap().remove(&key).is_some();
                stream.write_all(&i64::from(removed).to_le_bytes())?;
            }
            other => panic!("request {other:?}"),
        }
    }
}

fn by_ports(rank: usize, world: usize, ports: &Ports, secret: &Secret) -> RendezvousConfig {
    let endpoint = match rank {
        0 => Endpoint::BindAgreed([127, 0, 0, 1].into(), ports.clone()),
        _ => Endpoint::ConnectAgreed("127.0.0.1".into(), ports.clone()),
    };
    config(rank, world, endpoint, secret)
}

fn ranks(ports: &Ports, secret: &Secret) -> Vec<RendezvousConfig> {
    (0..3).rev().map(|rank| by_ports(rank, 3, ports, secret)).collect()
}

#[test]
fn ranks_connect_through_the_store_when_the_next_port_is_taken() {
    let (store, secret) = (Store::new(), Secret::generate().unwrap());
    // It never answers.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = taken.local_addr().unwrap().port();
    let ports = Ports { store: Some(store.key()), first, run: String::new() };
    // Left by a rank 0 that was killed.
    let closed = Port::on_loopback().address.port().to_string();
    store.keys.0.lock().unwrap().insert(store.key().key, closed.into_bytes());
    assert_working(connect_all(ranks(&ports, &secret)));
    assert!(store.keys.0.lock().unwrap().is_empty(), "the port is removed");
    taken.set_nonblocking(true).unwrap();
    assert_eq!(taken.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody tries it");
}

/// torchrun without a store, one that can't be reached, and one that has something else under the key.
#[test]
fn without_a_store_rank_0_takes_the_first_free_port_and_the_others_find_it() {
    let secret = Secret::generate().unwrap();
    let closed = StoreKey { address: Port::on_loopback().address.to_string(), key: "k".into() };
    for store in [None, Some(closed)] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let first = taken.local_addr().unwrap().port();
        let followers = ranks(&Ports { store, first, run: String::new() }, &secret);
        let outcomes = thread::spawn(|| connect_all(followers));
        // Its program closes the connection, or talks in another way.
        let mut caller = accept(&taken);
        let _ = caller.write_all(&[b'x'; 100]);
        drop((caller, taken));
        assert_working(outcomes.join().unwrap());
    }
}

#[test]
fn what_is_not_a_port_in_the_store_is_no_port() {
    let store = Store::new();
    for value in ["", "0", "65536", "123456", "-1", "x"] {
        store.keys.0.lock().unwrap().insert(store.key().key, value.into());
        let found = store.key().lookup(Instant::now() + HANG);
        assert!(found.is_err_and(|why| why.contains("is not a port")), "{value}");
    }
    store.keys.0.lock().unwrap().clear();
    let early = Instant::now() + Duration::from_millis(20);
    assert_eq!(store.key().lookup(early), Ok(None));
    let published = store.key().publish(4711, Instant::now() + HANG).unwrap();
    assert_eq!(store.key().lookup(Instant::now() + HANG), Ok(Some(4711)));
    drop(published);
}

#[test]
fn a_rank_0_without_a_free_port_names_the_variable_that_chooses_one() {
    let secret = Secret::generate().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::Bind(taken.local_addr().unwrap());
    let soon = Duration::from_millis(10);
    let outcome = connect(RendezvousConfig { init_timeout: soon, ..config(0, 2, at, &secret) });
    assert!(error(&outcome).hint.as_ref().is_some_and(|hint| hint.contains("DDP_RUN_PORT")));
    let ports = Ports { store: None, first: 65530, run: String::new() };
    let lonely = RendezvousConfig { init_timeout: soon, ..by_ports(1, 2, &ports, &secret) };
    let outcome = connect(lonely);
    assert_says(&outcome, "rank 0 at 127.0.0.1, one of ports 65528 to 65535 before init_timeout");
    assert!(error(&outcome).hint.as_ref().is_some_and(|hint| hint.contains("DDP_RUN_PORT")));
}
