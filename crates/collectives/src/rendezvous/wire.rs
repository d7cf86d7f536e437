//! The wire format of the rendezvous messages, which follow the proof of the secret: a tag, then a text or JSON. Every
//! length is checked against a limit before a message is read; decoding cannot panic.

use super::plan_keys::MAX_DIGESTS;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Version of the messages below. Raise it with any change to them or to the frames of `gloo`.
pub(super) const PROTOCOL: u32 = 5;
/// Maximum number of ranks in a run; limits the address table.
pub const MAX_WORLD: usize = 4096;
/// Maximum length of a run id or a plan hash.
pub(super) const MAX_NAME: usize = 128;
/// Maximum length of the text of a refusal.
const MAX_TEXT: usize = 1024;
/// The longest message with a text, or without anything after its tag.
pub(super) const MAX_REPORT: usize = 1 + MAX_TEXT;
/// The longest `Join`, which is all that a listener reads from a peer whose rank it doesn't know yet: names that JSON
/// writes with six bytes for each of theirs, digests, and the rest.
pub(super) const MAX_JOIN: usize = 2 * 6 * MAX_NAME + MAX_DIGESTS + 512;
/// The longest message: a full address table.
pub(super) const MAX_MESSAGE: usize = 8 + MAX_WORLD * ENTRY;
/// Each message is preceded by its length, a little-endian u32.
pub(super) const LENGTH: usize = 4;
/// The longest entry of the table.
const ENTRY: usize = 160;
/// Maximum number of data connections between two ranks.
pub const MAX_LANES: usize = 16;

/// Identifies a host: equal for ranks that can share memory.
pub type HostId = [u8; 16];

/// A rank's entry in the table: the address at which the other ranks reach it, and its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableEntry {
    pub address: SocketAddr,
    pub host: HostId,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ConnectionPurpose {
    Rendezvous,
    /// One of several data connections, counted from 0.
    Data(usize),
    Control,
    /// Between the supervisors of two nodes.
    Supervisor,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Join {
    pub purpose: ConnectionPurpose,
    pub rank: usize,
    pub world: usize,
    pub generation: u64,
    pub run_id: String,
    pub plan_hash: String,
    /// Digests of the plan's keys.
    pub plan_keys: String,
    pub entry: TableEntry,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Join(Join),
    /// To rank 0: all connections of the sender are made.
    Ready,
    /// To rank 0: the sender can't continue, and why.
    Failed(&'a str),
    /// A data or control connection is accepted.
    Accepted,
    /// The receiver, or the whole run, can't continue, and why.
    Refused(&'a str),
    /// The sender is a rank 0 of an earlier generation than the receiver's: the right one is still to come.
    Outdated(&'a str),
    /// Every rank's address and host.
    Table(Vec<TableEntry>),
    /// Every rank is ready.
    Go,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireError {
    Malformed,
    /// A `Join` in another version of this protocol.
    Protocol(u32),
}

impl Message<'_> {
    /// The message, preceded by its length. Texts are cut to their limit. Its tag, the version in a `Join` and the form of
    /// texts are the same in all versions, so that incompatible versions can report it.
    pub(super) fn frame(&self) -> Vec<u8> {
        let cut = |text: &str| truncated(text, MAX_TEXT).as_bytes().to_vec();
        let (tag, body) = match self {
            Message::Join(join) => (1, [&PROTOCOL.to_le_bytes()[..], &json(join)].concat()),
            Message::Ready => (2, Vec::new()),
            Message::Failed(text) => (3, cut(text)),
            Message::Accepted => (4, Vec::new()),
            Message::Refused(text) => (5, cut(text)),
            Message::Table(entries) => (6, json(entries)),
            Message::Go => (7, Vec::new()),
            Message::Outdated(text) => (8, cut(text)),
        };
        let length = (1 + body.len()) as u32;
        [&length.to_le_bytes()[..], &[tag], &body].concat()
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("structs of numbers and text")
}

/// The longest prefix of `text` that has at most `limit` bytes.
pub fn truncated(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Decodes the message in `bytes` (without its length).
pub(super) fn decode(bytes: &[u8]) -> Result<Message<'_>, WireError> {
    let (tag, body) = bytes.split_first().ok_or(WireError::Malformed)?;
    let text = || std::str::from_utf8(body).ok().filter(|text| text.len() <= MAX_TEXT);
    let message = match (tag, body) {
        (1, body) => Some(Message::Join(decode_join(body)?)),
        (2, []) => Some(Message::Ready),
        (3, _) => text().map(Message::Failed),
        (4, []) => Some(Message::Accepted),
        (5, _) => text().map(Message::Refused),
        (6, body) => serde_json::from_slice(body).ok().map(Message::Table),
        (7, []) => Some(Message::Go),
        (8, _) => text().map(Message::Outdated),
        _ => None,
    };
    message.ok_or(WireError::Malformed)
}

fn decode_join(body: &[u8]) -> Result<Join, WireError> {
    // First, because the rest may differ in another version.
    let (protocol, join) = body.split_first_chunk().ok_or(WireError::Malformed)?;
    let protocol = u32::from_le_bytes(*protocol);
    if protocol != PROTOCOL {
        return Err(WireError::Protocol(protocol));
    }
    let short = |join: &Join| {
        let names = [&join.run_id, &join.plan_hash];
        names.iter().all(|name| name.len() <= MAX_NAME) && join.plan_keys.len() <= MAX_DIGESTS
    };
    serde_json::from_slice(join).ok().filter(short).ok_or(WireError::Malformed)
}

/// For the fuzzer: a message that decodes must be the same when it is encoded again.
#[cfg(any(test, fuzzing))]
pub fn decode_anything(bytes: &[u8]) {
    if let Ok(message) = decode(bytes) {
        assert_eq!(decode(&message.frame()[LENGTH..]), Ok(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(message: Message<'_>) {
        let frame = message.frame();
        assert_eq!(u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - LENGTH);
        assert_eq!(decode(&frame[LENGTH..]), Ok(message));
    }

    /// As long as an entry can be.
    fn entry() -> TableEntry {
        let address = "[ffff:eeee:dddd:cccc:bbbb:aaaa:9999:8888%4294967295]:65535".parse().unwrap();
        TableEntry { address, host: [255; 16] }
    }

    fn join(name: &str) -> Join {
        Join {
            purpose: ConnectionPurpose::Data(MAX_LANES - 1),
            rank: usize::MAX,
            world: usize::MAX,
            generation: u64::MAX,
            run_id: name.into(),
            plan_hash: name.into(),
            plan_keys: "f".repeat(MAX_DIGESTS),
            entry: entry(),
        }
    }

    #[test]
    fn messages_round_trip_within_their_limits() {
        let longest = Message::Join(join(&"\u{1}".repeat(MAX_NAME)));
        assert!(longest.frame().len() <= LENGTH + MAX_JOIN);
        let too_long = Message::Join(join(&"n".repeat(MAX_NAME + 1))).frame();
        assert_eq!(decode(&too_long[LENGTH..]), Err(WireError::Malformed));
        let other = TableEntry { address: "127.0.0.1:9".parse().unwrap(), host: [3; 16] };
        for m in [
            longest,
            Message::Ready,
            Message::Accepted,
            Message::Go,
            Message::Refused("né"),
            Message::Failed(""),
            Message::Outdated("o"),
            Message::Table(vec![entry(), other]),
        ] {
            round_trip(m);
        }
        assert!(Message::Table(vec![entry(); MAX_WORLD]).frame().len() <= LENGTH + MAX_MESSAGE);
    }

    #[test]
    fn another_protocol_version_is_distinguished_from_invalid_bytes() {
        let mut join = vec![1];
        join.extend_from_slice(&(PROTOCOL + 1).to_le_bytes());
        join.extend_from_slice(b"whatever a later version may hold");
        assert_eq!(decode(&join), Err(WireError::Protocol(PROTOCOL + 1)));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let text = "é".repeat(MAX_TEXT);
        let frame = Message::Refused(&text).frame();
        let Ok(Message::Refused(back)) = decode(&frame[LENGTH..]) else { panic!() };
        assert_eq!((back.len(), frame.len()), (MAX_TEXT, LENGTH + MAX_REPORT));
    }

    proptest! {
        #[test]
        fn damaged_joins_never_panic(at in 0usize..400, value: u8, keep in 0usize..400) {
            let mut bytes = Message::Join(join("run")).frame().split_off(LENGTH);
            if let Some(b) = bytes.get_mut(at) { *b = value }
            bytes.truncate(keep);
            decode_anything(&bytes);
        }
    }
}
