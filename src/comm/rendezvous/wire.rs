//! The wire format of the rendezvous messages, which follow the proof of the secret. Decoding borrows from its input,
//! does not allocate and cannot panic; every length is first checked against a limit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of the messages below. Raise it with any change to them or to the frames of `gloo`.
pub(super) const PROTOCOL: u32 = 3;
/// Maximum number of ranks in a run; limits the address table.
pub(crate) const MAX_WORLD: usize = 4096;
/// Maximum length of a run id or a plan hash.
pub(super) const MAX_NAME: usize = 128;
/// Maximum length of the text of a refusal.
pub(super) const MAX_TEXT: usize = 1024;
/// The longest `Join`, which is all that a listener reads from a peer whose rank it doesn't know yet.
pub(super) const MAX_JOIN: usize = 512;
/// The longest message: a full address table.
pub(super) const MAX_MESSAGE: usize = 8 + MAX_WORLD * ENTRY;
/// Each message is preceded by its length, a little-endian u32.
pub(super) const LENGTH: usize = 4;
const ADDRESS: usize = 19;
/// An entry of the table: address and host.
const ENTRY: usize = ADDRESS + HOST;
/// Maximum number of data connections between two ranks.
pub(crate) const MAX_LANES: usize = 16;

const HOST: usize = 16;
/// Identifies a host: equal for ranks that can share memory.
pub(crate) type HostId = [u8; HOST];

/// A rank's entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub address: SocketAddr,
    pub host: HostId,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Rendezvous,
    /// One of several data connections, counted from 0.
    Data(u8),
    Control,
    /// Between the supervisors of two nodes.
    Supervisor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Join<'a> {
    pub purpose: Purpose,
    pub rank: u32,
    pub world: u32,
    pub generation: u64,
    pub run_id: &'a str,
    pub plan_hash: &'a str,
    /// The address at which the other ranks reach this one.
    pub listen: SocketAddr,
    pub host: HostId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Join(Join<'a>),
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
    /// Every rank's address and host (encoded; see [`entries`]).
    Table(&'a [u8]),
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
    /// The message, preceded by its length. Texts are cut to their limits.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut out = vec![0; LENGTH];
        match self {
            Message::Join(join) => encode_join(join, &mut out),
            Message::Ready => out.push(2),
            Message::Failed(text) => put_text(3, text, &mut out),
            Message::Accepted => out.push(4),
            Message::Refused(text) => put_text(5, text, &mut out),
            Message::Outdated(text) => put_text(8, text, &mut out),
            Message::Table(entries) => {
                out.push(6);
                out.extend_from_slice(entries);
            }
            Message::Go => out.push(7),
        }
        let length = (out.len() - LENGTH) as u32;
        out[..LENGTH].copy_from_slice(&length.to_le_bytes());
        out
    }
}

/// The longest prefix of `text` that has at most `limit` bytes.
pub(crate) fn truncated(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

fn put_text(tag: u8, text: &str, out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(truncated(text, MAX_TEXT).as_bytes());
}

fn encode_join(join: &Join<'_>, out: &mut Vec<u8>) {
    out.push(1);
    out.extend_from_slice(&PROTOCOL.to_le_bytes());
    let (purpose, lane) = match join.purpose {
        Purpose::Rendezvous => (0, 0),
        Purpose::Data(lane) => (1, lane),
        Purpose::Control => (2, 0),
        Purpose::Supervisor => (3, 0),
    };
    out.extend_from_slice(&[purpose, lane]);
    out.extend_from_slice(&join.rank.to_le_bytes());
    out.extend_from_slice(&join.world.to_le_bytes());
    out.extend_from_slice(&join.generation.to_le_bytes());
    for name in [join.run_id, join.plan_hash] {
        let name = truncated(name, MAX_NAME);
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(&encode_entry(&Entry { address: join.listen, host: join.host }));
}

/// Decodes the message in `bytes` (without its length).
pub(super) fn decode(bytes: &[u8]) -> Result<Message<'_>, WireError> {
    let (&tag, body) = bytes.split_first().ok_or(WireError::Malformed)?;
    let empty = |message| if body.is_empty() { Ok(message) } else { Err(WireError::Malformed) };
    let text = || {
        let text = std::str::from_utf8(body).map_err(|_| WireError::Malformed)?;
        if text.len() > MAX_TEXT { Err(WireError::Malformed) } else { Ok(text) }
    };
    match tag {
        1 => decode_join(body).map(Message::Join),
        2 => empty(Message::Ready),
        3 => text().map(Message::Failed),
        4 => empty(Message::Accepted),
        5 => text().map(Message::Refused),
        6 if entries(body).is_some() => Ok(Message::Table(body)),
        7 => empty(Message::Go),
        8 => text().map(Message::Outdated),
        _ => Err(WireError::Malformed),
    }
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; N], WireError> {
    let (head, tail) = bytes.split_first_chunk().ok_or(WireError::Malformed)?;
    *bytes = tail;
    Ok(head)
}

fn take_name<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, WireError> {
    let [length] = *take::<1>(bytes)?;
    let (head, tail) = bytes.split_at_checked(length.into()).ok_or(WireError::Malformed)?;
    *bytes = tail;
    match std::str::from_utf8(head) {
        Ok(name) if name.len() <= MAX_NAME => Ok(name),
        _ => Err(WireError::Malformed),
    }
}

fn decode_join(mut bytes: &[u8]) -> Result<Join<'_>, WireError> {
    let b = &mut bytes;
    // First, because the rest may differ in another version.
    let protocol = u32::from_le_bytes(*take(b)?);
    if protocol != PROTOCOL {
        return Err(WireError::Protocol(protocol));
    }
    let purpose = match *take::<2>(b)? {
        [0, 0] => Purpose::Rendezvous,
        [1, lane] if usize::from(lane) < MAX_LANES => Purpose::Data(lane),
        [2, 0] => Purpose::Control,
        [3, 0] => Purpose::Supervisor,
        _ => return Err(WireError::Malformed),
    };
    let join = Join {
        purpose,
        rank: u32::from_le_bytes(*take(b)?),
        world: u32::from_le_bytes(*take(b)?),
        generation: u64::from_le_bytes(*take(b)?),
        run_id: take_name(b)?,
        plan_hash: take_name(b)?,
        listen: decode_address(take(b)?).ok_or(WireError::Malformed)?,
        host: *take(b)?,
    };
    if bytes.is_empty() { Ok(join) } else { Err(WireError::Malformed) }
}

pub(super) fn encode_entry(entry: &Entry) -> [u8; ENTRY] {
    let mut out = [0; ENTRY];
    out[..ADDRESS].copy_from_slice(&encode_address(entry.address));
    out[ADDRESS..].copy_from_slice(&entry.host);
    out
}

/// Family (4 or 6), address in 16 bytes, port.
fn encode_address(address: SocketAddr) -> [u8; ADDRESS] {
    let mut out = [0; ADDRESS];
    match address.ip() {
        IpAddr::V4(ip) => {
            out[0] = 4;
            out[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out[0] = 6;
            out[1..17].copy_from_slice(&ip.octets());
        }
    }
    out[17..].copy_from_slice(&address.port().to_le_bytes());
    out
}

fn decode_address(bytes: &[u8; ADDRESS]) -> Option<SocketAddr> {
    let (ip, port) = bytes[1..].split_first_chunk::<16>()?;
    let port = u16::from_le_bytes(port.try_into().ok()?);
    let ip: IpAddr = match bytes[0] {
        4 if ip[4..] == [0; 12] => Ipv4Addr::from(*ip.first_chunk::<4>()?).into(),
        6 => Ipv6Addr::from(*ip).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn decode_entry(bytes: &[u8; ENTRY]) -> Option<Entry> {
    let (address, host) = bytes.split_first_chunk::<ADDRESS>()?;
    Some(Entry { address: decode_address(address)?, host: host.try_into().ok()? })
}

/// The entries of a `Table`, by rank; None if it is damaged or too long.
pub(super) fn entries(table: &[u8]) -> Option<impl Iterator<Item = Entry> + '_> {
    let (entries, rest) = table.as_chunks::<ENTRY>();
    let sound = rest.is_empty()
        && entries.len() <= MAX_WORLD
        && entries.iter().all(|entry| decode_entry(entry).is_some());
    sound.then(|| entries.iter().filter_map(decode_entry))
}

/// For the fuzzer: a message that decodes must encode to the same bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn decode_anything(bytes: &[u8]) {
    if let Ok(message) = decode(bytes) {
        assert_eq!(&message.frame()[LENGTH..], bytes);
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

    #[test]
    fn messages_round_trip() {
        let listen = "[fe80::1]:4711".parse().unwrap();
        let (run_id, plan_hash) = ("r".repeat(MAX_NAME), "p".repeat(MAX_NAME));
        let join = Join {
            purpose: Purpose::Control,
            rank: 3,
            world: 8,
            generation: u64::MAX,
            run_id: &run_id,
            plan_hash: &plan_hash,
            listen,
            host: [9; HOST],
        };
        round_trip(Message::Join(join));
        assert!(Message::Join(join).frame().len() <= LENGTH + MAX_JOIN);
        for m in [
            Message::Ready,
            Message::Accepted,
            Message::Go,
            Message::Refused("né"),
            Message::Failed(""),
            Message::Outdated("o"),
        ] {
            round_trip(m);
        }
        round_trip(Message::Join(Join { purpose: Purpose::Data(MAX_LANES as u8 - 1), ..join }));
        let other = Entry { address: "127.0.0.1:9".parse().unwrap(), host: [3; HOST] };
        let all = [Entry { address: listen, host: [1; HOST] }, other];
        let table = all.map(|e| encode_entry(&e)).concat();
        round_trip(Message::Table(&table));
        assert_eq!(entries(&table).unwrap().collect::<Vec<_>>(), all);
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
        assert_eq!(back.len(), MAX_TEXT);
    }

    proptest! {
        #[test]
        fn damaged_joins_never_panic(at in 0usize..80, value: u8, keep in 0usize..80) {
            let join = Join {
                purpose: Purpose::Data(0), rank: 1, world: 2, generation: 0, run_id: "run", plan_hash: "0123456789",
                listen: "127.0.0.1:1".parse().unwrap(), host: [0; HOST],
            };
            let mut bytes = Message::Join(join).frame().split_off(LENGTH);
            if let Some(b) = bytes.get_mut(at) { *b = value }
            bytes.truncate(keep);
            let _ = decode(&bytes);
        }
    }
}
