//! The protocol between the supervisors of a run's nodes: one JSON object per line, over a connection authenticated
//! with the run's secret (within node 0: over a socket pair).

use super::events::{NodeEnd, NodeFailure, Recall};
use crate::ExitCode;
use crate::{Inbox, MAX_LINE, NodeGeneration};
use base::error::{Error, ErrorKind};
use collectives::rendezvous::write_by;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spec::Values;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Timeout for sending a message; a node that does not read for this long is lost.
const SEND: Duration = Duration::from_secs(5);

/// From a node to node 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum NodeReport {
    Hello(Hello),
    Ended {
        end: NodeEnd,
        /// The step of the newest checkpoint that this node can see.
        checkpoint: Option<u64>,
        port: Option<u16>,
    },
    /// A stop signal reached this supervisor.
    StopRequested {
        /// It was the second signal.
        at_once: bool,
    },
}

/// The first message of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version: String,
    pub node_rank: Option<usize>,
    pub host: String,
    /// Number of workers that this node starts.
    pub nproc: usize,
    pub plan_hash: String,
    /// The keys on which the hash depends, with their values as text.
    pub keys: Values,
    /// The settings of nodes and restarts, from the command line or the spec.
    pub terms: String,
    /// The last generation that this supervisor has seen; 0 if none.
    pub generation: u64,
    /// The port that rank 0 of the next generation will listen on, on node 0.
    pub port: Option<u16>,
}

/// From node 0 to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    Start(Start),
    Recall {
        how: Recall,
    },
    Refused {
        why: String,
        later: bool,
    },
    /// No order yet: node 0 is waiting for other nodes.
    Wait,
    Dismissed,
    Finish {
        code: ExitCode,
        failure: Option<NodeFailure>,
    },
}

/// A node's part of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    #[serde(flatten)]
    pub part: NodeGeneration,
    /// The port that rank 0 listens on, on node 0.
    pub port: Option<u16>,
}

/// One end of a connection between two supervisors.
#[derive(Debug)]
pub struct Link {
    inbox: Inbox<TcpStream>,
}

/// The other end is closed, or does not follow the protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

impl Link {
    /// A link to another node. If that host vanishes, nothing arrives, not even end-of-file: the kernel then breaks
    /// the connection after 15 s.
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
        Ok(Self { inbox: Inbox::new(stream) })
    }

    /// A link within this process; returns both ends.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        let end = |socket: UnixStream| -> std::io::Result<Self> {
            socket.set_nonblocking(true)?;
            // The link only needs a stream socket, of either kind.
            Ok(Self { inbox: Inbox::new(TcpStream::from(OwnedFd::from(socket))) })
        };
        Ok((end(a)?, end(b)?))
    }

    pub fn stream(&self) -> &TcpStream {
        self.inbox.source()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }

    pub fn send(&self, message: &impl Serialize) -> Result<(), Closed> {
        let mut line = serde_json::to_vec(message).map_err(|_| Closed)?;
        line.push(b'\n');
        write_by(self.stream(), &line, Instant::now() + SEND).map_err(|_| Closed)
    }

    /// The messages received so far; does not block. Messages received before the end of the connection are returned;
    /// the end is reported by the next call.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, Closed> {
        let lines = self.inbox.lines();
        if lines.is_empty() && self.inbox.is_closed() {
            return Err(Closed);
        }
        lines.iter().map(|line| serde_json::from_slice(line).map_err(|_| Closed)).collect()
    }

    /// Shuts down sending, and waits until the other end has read everything and closed, or for `patience`: closing a
    /// socket with unread input would discard what was sent.
    pub fn close(self, patience: Duration) {
        let _ = self.stream().shutdown(Shutdown::Write);
        let until = Instant::now() + patience;
        let _ = collectives::rendezvous::read_by(self.stream(), &mut vec![0; MAX_LINE], &[], until);
    }
}

/// The error for a socket that could not be set up.
pub fn no_link(e: std::io::Error) -> Error {
    Error::new(ErrorKind::Rendezvous, format!("cannot set up the connection between supervisors: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::testing::HANG;

    #[test]
    fn messages_arrive_complete_and_in_order() {
        let (a, mut b) = Link::pair().expect("pair");
        assert_eq!(b.receive::<Order>(), Ok(vec![]));
        let recall = Order::Recall { how: Recall::Save };
        a.send(&recall).expect("sent");
        a.send(&Order::Dismissed).expect("sent");
        write_by(a.stream(), b"{\"order\":", Instant::now() + HANG).expect("sent");
        assert_eq!(b.receive(), Ok(vec![recall, Order::Dismissed]));
        write_by(a.stream(), b"\"dismissed\"}\n", Instant::now() + HANG).expect("sent");
        // The socket is not dropped: a process that another test starts may hold a copy of it until its `exec`.
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
