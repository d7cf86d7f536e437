//! torchrun's store: the key-value server of its agent at MASTER_ADDR:MASTER_PORT (PyTorch's `TCPStore`), in which rank 0
//! leaves the port on which it listens. The store is not secret and proves nothing, like a file (`file`).
//!
//! A request is a byte for its kind and its arguments. Keys and values are preceded by their length (u64), lists of keys
//! by their number (u64); numbers are little-endian. `VALIDATE` comes first on a connection; it and `SET` are not
//! answered. Old versions of PyTorch expect another form, and do not answer at all.

use super::dial::resolve;
use super::io::{StreamError, read_by, write_by};
use serde::{Deserialize, Serialize};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const VALIDATE: u8 = 0;
const SET: u8 = 1;
const GET: u8 = 3;
const CHECK: u8 = 5;
const WAIT: u8 = 6;
const DELETE: u8 = 8;
/// The argument of `VALIDATE`.
const MAGIC: u32 = 0x3C85_F7CE;
/// The answer to `CHECK` if the key is there, and to `WAIT`.
const THERE: u8 = 0;

/// Time limit of a connection and an answer. The agent starts its store before the ranks.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// How long one request waits for the key.
const WAIT_TIME: Duration = Duration::from_secs(10);
/// Time limit for the removal of the key.
const REMOVAL: Duration = Duration::from_secs(1);
/// Maximum length of the value: a port in decimal digits.
const MAX_VALUE: u64 = 5;

/// Where rank 0's port is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreKey {
    /// `host:port` of the store.
    pub address: String,
    /// Different for each start of the ranks.
    pub key: String,
}

/// A port that is in the store. Dropping this removes it.
pub(super) struct PublishedPort {
    store: Connection,
    key: String,
}

impl StoreKey {
    /// Leaves `port` in the store.
    pub(super) fn publish(&self, port: u16, deadline: Instant) -> Result<PublishedPort, String> {
        let until = deadline.min(Instant::now() + ANSWER);
        let store = Connection::open(&self.address, until)?;
        let published =
            store.set(&self.key, &port.to_string(), until).and_then(|()| store.has(&self.key, until));
        match published {
            Ok(true) => Ok(PublishedPort { store, key: self.key.clone() }),
            Ok(false) => Err("it does not keep what is set".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// The port in the store; waits some time for it. `None` if it is not there.
    pub(super) fn lookup(&self, deadline: Instant) -> Result<Option<u16>, String> {
        let until = deadline.min(Instant::now() + ANSWER);
        let store = Connection::open(&self.address, until)?;
        let found = store.has(&self.key, until).map_err(|e| e.to_string())?
            || store.wait(&self.key, deadline.min(Instant::now() + WAIT_TIME)).map_err(|e| e.to_string())?;
        match found {
            true => store.get(&self.key, deadline.min(Instant::now() + ANSWER)).map(Some),
            false => Ok(None),
        }
    }
}

struct Connection(TcpStream);

impl Connection {
    fn open(address: &str, until: Instant) -> Result<Self, String> {
        let mut last = "the name resolves to no address".to_owned();
        for address in resolve(address, until)? {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    stream.set_nonblocking(true).map_err(|e| e.to_string())?;
                    let hello = [&[VALIDATE][..], &MAGIC.to_le_bytes()].concat();
                    write_by(&stream, &hello, until).map_err(|e| e.to_string())?;
                    return Ok(Self(stream));
                }
                Err(e) => last = e.to_string(),
            }
        }
        Err(last)
    }

    fn set(&self, key: &str, value: &str, until: Instant) -> Result<(), StreamError> {
        write_by(&self.0, &[&[SET][..], &text(key), &text(value)].concat(), until)
    }

    fn has(&self, key: &str, until: Instant) -> Result<bool, StreamError> {
        self.ask_of_keys(CHECK, key, until).map(|answer| answer == THERE)
    }

    /// Whether the key is there before `until`.
    fn wait(&self, key: &str, until: Instant) -> Result<bool, StreamError> {
        match self.ask_of_keys(WAIT, key, until) {
            Ok(answer) => Ok(answer == THERE),
            Err(StreamError::Deadline) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn ask_of_keys(&self, request: u8, key: &str, until: Instant) -> Result<u8, StreamError> {
        write_by(&self.0, &[&[request][..], &1u64.to_le_bytes(), &text(key)].concat(), until)?;
        let mut answer = [0];
        read_by(&self.0, &mut answer, &[], until)?;
        Ok(answer[0])
    }

    /// The port under `key`.
    fn get(&self, key: &str, until: Instant) -> Result<u16, String> {
        let read = || {
            write_by(&self.0, &[&[GET][..], &text(key)].concat(), until)?;
            let mut length = [0; 8];
            read_by(&self.0, &mut length, &[], until)?;
            let length = u64::from_le_bytes(length);
            let mut value = vec![0; length.min(MAX_VALUE) as usize];
            read_by(&self.0, &mut value, &[], until)?;
            Ok::<_, StreamError>((length, value))
        };
        let (length, value) = read().map_err(|e| e.to_string())?;
        let digits = std::str::from_utf8(&value).ok().filter(|_| length <= MAX_VALUE);
        let port = digits.and_then(|digits| digits.parse().ok()).filter(|port| *port > 0);
        port.ok_or_else(|| format!("its value of `{key}` is not a port"))
    }
}

impl Drop for PublishedPort {
    fn drop(&mut self) {
        let until = Instant::now() + REMOVAL;
        let request = [&[DELETE][..], &text(&self.key)].concat();
        // The number of removed keys: with the answer the request is complete.
        let _ = write_by(&self.store.0, &request, until)
            .and_then(|()| read_by(&self.store.0, &mut [0; 8], &[], until));
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}
