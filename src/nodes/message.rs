//! What the supervisors of a run's nodes say to each other: one JSON object a line, over a connection that has proved the
//! run's secret (within node 0: over a pair of sockets).

use super::events::{Failure, NodeEnd};
use crate::comm::rendezvous::write_by;
use crate::error::{Error, ExitCode, Result};
use crate::launch::{Inbox, MAX_LINE, Part};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// For the operating system to take a message; a node that does not read for so long is lost.
const SEND: Duration = Duration::from_secs(5);

/// From a node to node 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    Hello(Hello),
    Ended {
        end: NodeEnd,
        /// The newest checkpoint's step, as far as this node sees it.
        checkpoint: Option<u64>,
        port: Option<u16>,
    },
    /// A stop signal reached this supervisor.
    StopRequested {
        /// It was the second one.
        at_once: bool,
    },
}

/// The first message of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version: String,
    pub node_rank: Option<usize>,
    pub host: String,
    /// Workers that this node starts.
    pub nproc: usize,
    pub plan_hash: String,
    /// What the command line or the spec says of nodes and restarts.
    pub terms: String,
    /// The last generation that this supervisor has seen; 0 for none.
    pub generation: u64,
    /// Where rank 0 of the next generation will listen, on node 0.
    pub port: Option<u16>,
}

/// From node 0 to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    Start(Start),
    Recall {
        save: bool,
    },
    Refused {
        why: String,
        later: bool,
    },
    /// Nothing yet: node 0 is there, and waits for others.
    Wait,
    Dismissed,
    Finish {
        code: ExitCode,
        failure: Option<Failure>,
    },
}

/// A node's part of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    #[serde(flatten)]
    pub part: Part,
    /// Where rank 0 listens, on node 0.
    pub port: Option<u16>,
}

/// One end of a connection between two supervisors.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    inbox: Inbox,
}

/// The other end is gone, or speaks another language.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

impl Link {
    /// Over a connection to another node. A host that vanishes sends nothing, not even the end of a connection: the kernel
    /// then breaks it after 15 s.
    pub fn new(stream: TcpStream) -> std::io::Result<Self> {
        use rustix::net::sockopt;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(5))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(2))?;
        sockopt::set_tcp_keepcnt(&stream, 5)?;
        #[cfg(target_os = "linux")]
        sockopt::set_tcp_user_timeout(&stream, 15_000)?;
        Ok(Self { stream, inbox: Inbox::default() })
    }

    /// Both ends, within this process.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        let end = |socket: UnixStream| -> std::io::Result<Self> {
            socket.set_nonblocking(true)?;
            // A stream socket is all that is needed of either kind.
            Ok(Self { stream: TcpStream::from(OwnedFd::from(socket)), inbox: Inbox::default() })
        };
        Ok((end(a)?, end(b)?))
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub fn send(&self, message: &impl Serialize) -> std::result::Result<(), Closed> {
        let mut line = serde_json::to_vec(message).map_err(|_| Closed)?;
        line.push(b'\n');
        write_by(&self.stream, &line, Instant::now() + SEND).map_err(|_| Closed)
    }

    /// The messages that have come, without waiting. What came before the end of the connection is not lost: the end is
    /// reported by the next call.
    pub fn receive<T: DeserializeOwned>(&mut self) -> std::result::Result<Vec<T>, Closed> {
        let lines = self.inbox.lines(&self.stream);
        if lines.is_empty() && self.inbox.is_closed() {
            return Err(Closed);
        }
        lines.iter().map(|line| serde_json::from_slice(line).map_err(|_| Closed)).collect()
    }

    /// Says that nothing more follows, and waits until the other end has read all and closed, or for `patience`: closing
    /// with bytes unread would take back what was sent.
    pub fn close(self, patience: Duration) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let until = Instant::now() + patience;
        let _ = crate::comm::rendezvous::read_by(&self.stream, &mut vec![0; MAX_LINE], &[], until);
    }
}

/// A socket that could not be set up.
pub fn no_link(e: std::io::Error) -> Error {
    Error::new(ExitCode::Rendezvous, format!("cannot set up the connection between supervisors: {e}"))
}

/// A node's failure as the error that its supervisor ends with.
pub fn error_of(code: ExitCode, failure: Option<Failure>) -> Result<ExitCode> {
    match failure {
        None => Ok(code),
        Some(Failure { message, hint, .. }) => Err(Error { hint, ..Error::new(code, message) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::testing::HANG;

    #[test]
    fn messages_come_whole_and_in_order_and_before_the_end() {
        let (a, mut b) = Link::pair().expect("pair");
        assert_eq!(b.receive::<Order>(), Ok(vec![]));
        let recall = Order::Recall { save: true };
        a.send(&recall).expect("sent");
        a.send(&Order::Dismissed).expect("sent");
        write_by(a.stream(), b"{\"order\":", Instant::now() + HANG).expect("sent");
        assert_eq!(b.receive(), Ok(vec![recall, Order::Dismissed]));
        write_by(a.stream(), b"\"dismissed\"}\n", Instant::now() + HANG).expect("sent");
        // Not dropped: a process that another test starts may hold a copy of it until its `exec`.
        a.stream().shutdown(Shutdown::Write).expect("connected");
        assert_eq!(b.receive(), Ok(vec![Order::Dismissed]));
        assert_eq!(b.receive::<Order>(), Err(Closed));
    }

    #[test]
    fn garbage_and_endless_lines_close_the_link() {
        let (a, mut b) = Link::pair().expect("pair");
        write_by(a.stream(), b"hello\n", Instant::now() + HANG).expect("sent");
        assert_eq!(b.receive::<Order>(), Err(Closed));
        let (a, mut b) = Link::pair().expect("pair");
        let writer = std::thread::spawn(move || {
            let _ = write_by(a.stream(), &vec![b'x'; 4 * MAX_LINE], Instant::now() + HANG);
            a
        });
        let until = Instant::now() + HANG;
        while b.receive::<Order>().is_ok() {
            assert!(Instant::now() < until, "an endless line is taken");
        }
        drop(b);
        drop(writer.join());
    }
}
