//! How a host's segment gets to its ranks: the first rank creates it and sends the descriptor to each of the others
//! through a Unix datagram socket with an abstract name, which only processes of the same network namespace can reach
//! and which leaves nothing behind. The socket's name and token travel over the authenticated connection between the
//! ranks; a datagram without the token is ignored.

use super::arena::Arena;
use crate::rendezvous::{read_by, write_by};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr,
    socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

const NAME: usize = 16;
const TOKEN: usize = 32;
const YES: [u8; 1] = [1];
const NO: [u8; 1] = [0];

/// Sets up the segment that `members` share (ascending, at least two, including `rank`). `sockets` are this rank's
/// connections to them, by member. The error says why this host has no shared memory; all members get one in that case.
pub fn share(
    rank: usize,
    members: &[usize],
    sockets: &[Option<&TcpStream>],
    deadline: Instant,
) -> Result<Arena, String> {
    let me = members.iter().position(|m| *m == rank).ok_or("this rank is not on this host")?;
    match me {
        0 => lead(members, sockets, deadline),
        _ => {
            let leader =
                sockets.first().copied().flatten().ok_or("no connection to the host's first rank")?;
            follow(me, members, leader, deadline)
        }
    }
}

fn lead(members: &[usize], sockets: &[Option<&TcpStream>], deadline: Instant) -> Result<Arena, String> {
    let made = Arena::create(members).map_err(|e| format!("cannot create shared memory: {e}"));
    let mut outcome = made.as_ref().map(|_| ()).map_err(Clone::clone);
    let others = || sockets.iter().flatten();
    for socket in others() {
        outcome = outcome.and(hand_over(socket, made.as_ref().map(|(_, fd)| fd), deadline));
    }
    let verdict = if outcome.is_ok() { YES } else { NO };
    for socket in others() {
        outcome = outcome.and(write_by(socket, &verdict, deadline).map_err(|e| e.to_string()));
    }
    outcome.and(made.map(|(arena, _)| arena))
}

/// Sends the descriptor to one member, and waits for its answer whether it has mapped the segment.
fn hand_over(socket: &TcpStream, fd: Result<&OwnedFd, &String>, deadline: Instant) -> Result<(), String> {
    let mut request = [0; NAME + TOKEN];
    read_by(socket, &mut request, &[], deadline).map_err(|e| e.to_string())?;
    let (name, token) = request.split_at(NAME);
    // Any process could listen on the name that stands for no socket.
    let fd = if name == [0; NAME] { Err(&"a rank of this host has no Unix socket".to_owned()) } else { fd };
    let sent = fd.map_err(Clone::clone).and_then(|fd| {
        send_descriptor(name, token, fd).map_err(|e| format!("cannot send the shared memory descriptor: {e}"))
    });
    write_by(socket, if sent.is_ok() { &YES } else { &NO }, deadline).map_err(|e| e.to_string())?;
    sent?;
    let mut mapped = NO;
    read_by(socket, &mut mapped, &[], deadline).map_err(|e| e.to_string())?;
    if mapped == YES { Ok(()) } else { Err("a rank of this host could not map the shared memory".into()) }
}

fn follow(me: usize, members: &[usize], leader: &TcpStream, deadline: Instant) -> Result<Arena, String> {
    let inbox = DescriptorSocket::open().map_err(|e| format!("cannot open a Unix socket: {e}"));
    // Without an inbox, the leader gets a name that stands for no socket, so that the setup fails on both sides.
    let request = inbox.as_ref().map_or([0; NAME + TOKEN], |i| i.request);
    let io = |e: crate::rendezvous::StreamError| e.to_string();
    write_by(leader, &request, deadline).map_err(io)?;
    let mut delivered = NO;
    read_by(leader, &mut delivered, &[], deadline).map_err(io)?;
    let mut arena = Err("the host's first rank could not send the shared memory descriptor".to_owned());
    if delivered == YES {
        arena = inbox.and_then(|inbox| {
            let mapped = inbox.receive().and_then(|fd| Arena::open(&fd, me, members));
            mapped.map_err(|e| format!("cannot map the shared memory: {e}"))
        });
        write_by(leader, if arena.is_ok() { &YES } else { &NO }, deadline).map_err(io)?;
    }
    let mut verdict = NO;
    read_by(leader, &mut verdict, &[], deadline).map_err(io)?;
    match verdict {
        YES => arena,
        _ => arena.and(Err("another rank of this host could not set up the shared memory".into())),
    }
}

fn send_descriptor(name: &[u8], token: &[u8], fd: &OwnedFd) -> io::Result<()> {
    let socket = datagram_socket()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let descriptors = [fd.as_fd()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let address = SocketAddrUnix::new_abstract_name(name)?;
    sendmsg_addr(&socket, &address, &[IoSlice::new(token)], &mut control, SendFlags::DONTWAIT)?;
    Ok(())
}

fn datagram_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// The socket on which a member receives the descriptor.
struct DescriptorSocket {
    socket: OwnedFd,
    request: [u8; NAME + TOKEN],
}

impl DescriptorSocket {
    fn open() -> io::Result<Self> {
        let mut request = [0; NAME + TOKEN];
        getrandom::fill(&mut request).map_err(|e| io::Error::other(e.to_string()))?;
        let socket = datagram_socket()?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(&request[..NAME])?)?;
        Ok(Self { socket, request })
    }

    /// The descriptor that came with the token; it has already arrived.
    fn receive(&self) -> io::Result<OwnedFd> {
        loop {
            let mut token = [0; TOKEN];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let read = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut token)], &mut control, flags)?;
            let descriptors = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            });
            // Descriptors from other senders are closed here.
            let fd = descriptors.flatten().last();
            if let Some(fd) = fd
                && read.bytes == TOKEN
                && token == self.request[NAME..]
            {
                return Ok(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gloo::header::HEADER;
    use crate::testing::HANG;
    use std::net::TcpListener;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let b = listener.accept().unwrap().0;
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (a, b)
    }

    #[test]
    fn a_host_of_three_shares_one_segment() {
        let (deadline, members) = (Instant::now() + HANG, [1, 4, 6]);
        let ((a, to_a), (b, to_b)) = (connection(), connection());
        let arenas = std::thread::scope(|scope| {
            let leader = scope.spawn(|| share(1, &members, &[None, Some(&to_a), Some(&to_b)], deadline));
            let second = scope.spawn(|| share(4, &members, &[Some(&a), None, None], deadline));
            let third = scope.spawn(|| share(6, &members, &[Some(&b), None, None], deadline));
            [leader, second, third].map(|t| t.join().unwrap().unwrap())
        });
        for arena in &arenas {
            arena.post(1, &[arena.me as u8; HEADER], b"");
        }
        assert!(arenas.iter().all(|a| a.all_posted(1) && a.header(1, 2) == [2; HEADER]));
        assert_eq!(arenas[2].local(6), Some(2));
    }

    #[test]
    fn a_member_that_exits_fails_the_others_without_a_hang() {
        let (deadline, members) = (Instant::now() + HANG, [0, 1, 2]);
        let ((a, to_a), (b, to_b)) = (connection(), connection());
        drop(b);
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| share(0, &members, &[None, Some(&to_a), Some(&to_b)], deadline));
            let second = scope.spawn(|| share(1, &members, &[Some(&a), None, None], deadline));
            assert!(leader.join().unwrap().is_err());
            assert!(second.join().unwrap().is_err());
        });
    }

    #[test]
    fn a_descriptor_without_the_token_is_ignored() {
        let inbox = DescriptorSocket::open().unwrap();
        let (_, fd) = Arena::create(&[0, 1]).unwrap();
        send_descriptor(&inbox.request[..NAME], &[0; TOKEN], &fd).unwrap();
        assert_eq!(inbox.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        send_descriptor(&inbox.request[..NAME], &[0; TOKEN], &fd).unwrap();
        send_descriptor(&inbox.request[..NAME], &inbox.request[NAME..], &fd).unwrap();
        assert!(inbox.receive().is_ok());
    }
}
