//! Rank 0's port where the launcher has reserved none for it: rank 0 takes any free port and leaves it in torchrun's store, or
//! takes the first free one of several candidates, which the others try in turn.

use super::agent_store::{PublishedPort, StoreKey};
use super::{BIND_PAUSE, CommError, bracketed, poll_until};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::time::Instant;

/// Number of candidates.
const CANDIDATES: u16 = 8;

/// How ranks agree on rank 0's port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// torchrun's store, if it has one.
    pub store: Option<StoreKey>,
    /// The first candidate, for launchers without a store and for a store that does not answer.
    pub first: u16,
    /// Distinguishes runs whose candidates overlap; empty if the run's id does.
    pub run: String,
}

impl Ports {
    /// Under torchrun, whose MASTER_PORT is that of its agent's store (`has_store`) or one that was free when it looked.
    /// `attempt` counts the starts of the ranks. With a store, the first candidate is the next port.
    pub fn of_torchrun(host: &str, port: u16, has_store: bool, run_id: &str, attempt: u64) -> Self {
        let store = has_store.then(|| StoreKey {
            address: format!("{}:{port}", bracketed(host)),
            key: format!("ddp-run/port-of-rank-0/{run_id}/{attempt}"),
        });
        let next = || port.checked_add(1).unwrap_or(port - 1);
        Self { first: if store.is_some() { next() } else { port }, store, run: String::new() }
    }

    fn candidate(&self, index: u16) -> u16 {
        self.first.checked_add(index).unwrap_or(u16::MAX - index)
    }

    fn candidates(&self) -> impl Iterator<Item = u16> + use<> {
        let ports = self.clone();
        (0..CANDIDATES).map(move |index| ports.candidate(index))
    }

    /// Rank 0's listener. The store keeps the port until the second part is dropped.
    pub(super) fn listen(
        &self,
        rank: usize,
        address: IpAddr,
        deadline: Instant,
    ) -> Result<(TcpListener, Option<PublishedPort>), CommError> {
        let cannot =
            |e: std::io::Error| CommError::rendezvous(format!("rank {rank} cannot listen on {address}: {e}"));
        if let Some(store) = &self.store {
            let listener = TcpListener::bind((address, 0)).map_err(cannot)?;
            let port = listener.local_addr().map_err(cannot)?.port();
            match store.publish(port, deadline) {
                Ok(published) => return Ok((listener, Some(published))),
                Err(why) => tracing::warn!(
                    "rendezvous: torchrun's store at {} can't be used ({why}); rank {rank} listens on {}",
                    store.address,
                    self.candidates_as_text()
                ),
            }
        }
        loop {
            for port in self.candidates() {
                match TcpListener::bind((address, port)) {
                    Ok(listener) => return Ok((listener, None)),
                    Err(e) if e.kind() == ErrorKind::AddrInUse => {}
                    Err(e) => return Err(cannot(e)),
                }
            }
            if Instant::now() >= deadline {
                let all = self.candidates_as_text();
                return Err(CommError::rendezvous(format!(
                    "rank {rank} cannot listen on {address}: other processes use {all}"
                ))
                .hint(OTHER_PORT));
            }
            let _ = poll_until(&mut [], Some((Instant::now() + BIND_PAUSE).min(deadline)));
        }
    }

    fn candidates_as_text(&self) -> String {
        let (low, high) = self.candidates().fold((u16::MAX, 0), |(low, high), p| (low.min(p), high.max(p)));
        format!("one of ports {low} to {high}")
    }
}

/// The way out if rank 0's port is taken.
pub(super) const OTHER_PORT: &str = "`DDP_RUN_PORT=PORT`, the same for every rank, is the port of rank 0";

/// `one of ports 29501 to 29508`, `the port in torchrun's store at node0:29500`.
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.store {
            Some(store) => write!(f, "the port in torchrun's store at {}", store.address),
            None => f.write_str(&self.candidates_as_text()),
        }
    }
}

/// What another rank has tried.
#[derive(Default)]
pub(super) struct PortSearch {
    /// The store does not answer.
    no_store: bool,
    /// The next candidate; after the last one comes the store again.
    candidate: u16,
}

impl PortSearch {
    /// The next port to try, and whether it is rank 0's own word.
    pub(super) fn next(&mut self, ports: &Ports, deadline: Instant) -> Result<(u16, bool), String> {
        let at_first = self.candidate == 0;
        if let Some(store) = ports.store.as_ref().filter(|_| at_first && !self.no_store) {
            match store.lookup(deadline) {
                Ok(Some(port)) => return Ok((port, true)),
                Ok(None) if Instant::now() >= deadline => {
                    return Err("rank 0 has not left its port there".to_owned());
                }
                // Rank 0 may not reach the store.
                Ok(None) => {}
                Err(why) => {
                    tracing::warn!("rendezvous: torchrun's store at {} can't be used ({why})", store.address);
                    self.no_store = true;
                }
            }
        }
        let port = ports.candidate(self.candidate);
        self.candidate = (self.candidate + 1) % CANDIDATES;
        Ok((port, false))
    }

    /// Whether other candidates are to be tried before a pause.
    pub(super) fn goes_on(&self) -> bool {
        self.candidate != 0
    }
}
