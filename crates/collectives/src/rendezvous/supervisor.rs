//! The same proof of the secret for another kind of connection: between the supervisors of a run's nodes.

use super::accept::{AcceptEvent, Acceptor, FOREIGN};
use super::dial::{ATTEMPT, Dial, DialError, Target};
use super::mesh::send_message;
use super::wire::{ConnectionPurpose, Join, Message, TableEntry};
use super::{CommError, Secret};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

/// Accepts connections from supervisors.
pub struct SupervisorListener(Acceptor);

/// What [`SupervisorListener::next`] has waited for.
pub enum SupervisorEvent {
    /// A supervisor that has proved the secret; nothing that it sends after that has been read.
    Connected(TcpStream, SocketAddr),
    /// The watched socket with this index has something to read, or is closed.
    Readable(usize),
    /// The deadline has passed.
    Deadline,
}

impl SupervisorListener {
    /// Without a listener, there are no connections and `next` only watches.
    pub fn new(listener: Option<TcpListener>, secret: Secret) -> Result<Self, CommError> {
        Acceptor::new(listener.into_iter().collect(), secret).map(Self)
    }

    /// The next supervisor, or an event on a watched socket.
    pub fn next(&mut self, watch: &[&TcpStream], deadline: Instant) -> Result<SupervisorEvent, CommError> {
        loop {
            let (stream, from, joined) = match self.0.next(watch, deadline)? {
                AcceptEvent::Joined(stream, from, joined) => (stream, from, joined),
                AcceptEvent::Watched(index) => return Ok(SupervisorEvent::Readable(index)),
                AcceptEvent::Deadline => return Ok(SupervisorEvent::Deadline),
            };
            let why = match joined {
                Ok(Join { purpose: ConnectionPurpose::Supervisor, .. }) => {
                    if send_message(&stream, Message::Accepted) {
                        return Ok(SupervisorEvent::Connected(stream, from));
                    }
                    continue;
                }
                Ok(_) => "this endpoint accepts supervisors, not workers",
                Err(_) => "it runs a different version of ddp-run; run the same version on every node",
            };
            send_message(&stream, Message::Refused(why));
            self.0.warn(FOREIGN, Some(from), why);
        }
    }

    /// The last connection that was rejected, and why, if it may be that of a missing node.
    pub fn rejection(&self) -> Option<&str> {
        self.0.rejection()
    }
}

/// Connects to the supervisor at `target`, which `me` needs, and authenticates both sides. Retries until `deadline`.
pub fn connect_supervisor(
    target: &Target,
    peer: &str,
    me: &str,
    secret: &Secret,
    deadline: Instant,
) -> Result<TcpStream, CommError> {
    let join = |stream: &TcpStream| {
        let address = stream.local_addr().map_err(|e| CommError::rendezvous(e.to_string()))?;
        let (run_id, plan_hash, entry) =
            (String::new(), String::new(), TableEntry { address, host: [0; 16] });
        let purpose = ConnectionPurpose::Supervisor;
        let (rank, world, generation, plan_keys) = (0, 0, 0, String::new());
        let join = Join { purpose, rank, world, generation, run_id, plan_hash, plan_keys, entry };
        Ok(Message::Join(join).frame())
    };
    let attempt = Some(ATTEMPT);
    let dial = Dial { target, peer, me, secret, watch: &[], attempt, deadline, by_when: "in time" };
    dial.run(true, join).map_err(|e| match e {
        DialError::Failed(e) | DialError::Unreachable(e) => e,
        DialError::Watched => CommError::rendezvous("no connection is watched"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn supervisors_connect_and_processes_without_the_secret_do_not() {
        let secret = Secret::generate().expect("secret");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let target = Target::At(listener.local_addr().expect("address").to_string());
        let mut listener = SupervisorListener::new(Some(listener), secret.clone()).expect("listener");
        let other = Secret::generate().expect("secret");
        let (own, theirs) = (target.clone(), target.clone());
        let foreign =
            std::thread::spawn(move || connect_supervisor(&theirs, "node 0", "node 7", &other, soon()));
        let follower = std::thread::spawn(move || {
            let stream = connect_supervisor(&own, "node 0", "node 1", &secret, soon()).expect("connected");
            (&stream).write_all(b"x").expect("write");
            stream
        });
        let Ok(SupervisorEvent::Connected(mut stream, _)) = listener.next(&[], soon()) else {
            panic!("no supervisor connected")
        };
        assert!(matches!(listener.next(&[&stream], soon()), Ok(SupervisorEvent::Readable(0))));
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("what was sent after the handshake is all there");
        assert_eq!(&byte, b"x");
        while !foreign.is_finished() {
            let soon = Instant::now() + Duration::from_millis(10);
            assert!(matches!(listener.next(&[], soon), Ok(SupervisorEvent::Deadline)));
        }
        let error = foreign.join().expect("thread").expect_err("another secret");
        assert!(error.message.contains("rejected node 7's proof"), "{error}");
        let rejection = listener.rejection().expect("one was rejected");
        assert!(rejection.ends_with("was rejected: it does not have the run's secret"), "{rejection}");
        drop(follower.join());
    }

    #[test]
    fn a_supervisor_that_is_not_reached_is_reported() {
        let (secret, target) = (Secret::generate().expect("secret"), Target::File("no-such-file".into()));
        let error =
            connect_supervisor(&target, "node 0", "node 1", &secret, Instant::now()).expect_err("no file");
        let text = "node 1 could not reach node 0 at the address in no-such-file in time: the file has no address yet";
        assert_eq!(error.message, text);
    }
}
