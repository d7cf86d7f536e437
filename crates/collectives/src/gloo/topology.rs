//! Which ranks share a host's memory, and which algorithm a call uses.

use super::header::{Algorithm, CallOperation};
use super::options::{AlgorithmChoice, Transport};
use crate::rendezvous::HostId;
use sha2::{Digest, Sha256};

/// Over connections, buffers of up to this many bytes use the algorithms for small buffers: the round trips of a ring
/// cost more than its bandwidth gains (measured with `ddp-run bench allreduce`).
pub const SMALL: usize = 64 << 10;

/// Equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Topology {
    /// The ranks that share memory, ascending; hosts are ordered by their first rank. A rank that shares no memory is alone.
    pub hosts: Vec<Vec<usize>>,
    pub world: usize,
}

impl Topology {
    pub(super) fn from_hosts(hosts: &[HostId]) -> Self {
        let mut groups: Vec<(HostId, Vec<usize>)> = Vec::new();
        for (rank, host) in hosts.iter().enumerate() {
            match groups.iter_mut().find(|(h, _)| h == host) {
                Some((_, ranks)) => ranks.push(rank),
                None => groups.push((*host, vec![rank])),
            }
        }
        Self { hosts: groups.into_iter().map(|(_, ranks)| ranks).collect(), world: hosts.len() }
    }

    /// All ranks are joined by connections.
    pub(super) fn scattered(world: usize) -> Self {
        Self { hosts: (0..world).map(|rank| vec![rank]).collect(), world }
    }

    pub(super) fn host_of(&self, rank: usize) -> &[usize] {
        self.hosts.iter().find(|h| h.contains(&rank)).map_or(&[], Vec::as_slice)
    }

    /// Whether any two ranks share memory.
    pub(super) fn shares(&self) -> bool {
        self.hosts.len() < self.world
    }

    /// The ranks with the same local rank as `rank`, if all hosts have the same number of ranks.
    pub(super) fn column(&self, rank: usize) -> Option<Vec<usize>> {
        let place = self.host_of(rank).iter().position(|r| *r == rank)?;
        let alike = self.hosts.iter().all(|h| h.len() == self.hosts[0].len());
        alike.then(|| self.hosts.iter().map(|h| h[place]).collect())
    }

    /// The first rank of each host.
    pub(super) fn leaders(&self) -> Vec<usize> {
        self.hosts.iter().filter_map(|h| h.first().copied()).collect()
    }

    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.world).collect()
    }

    /// The algorithm of a call of `operation` on buffers of `bytes`.
    pub(super) fn choose(
        &self,
        choice: AlgorithmChoice,
        operation: CallOperation,
        bytes: usize,
    ) -> Algorithm {
        chosen((self.hosts.len(), self.world), choice, operation, bytes)
    }
}

/// The algorithm of a call among `world` ranks on `hosts`.
fn chosen(
    (hosts, world): (usize, usize),
    choice: AlgorithmChoice,
    operation: CallOperation,
    bytes: usize,
) -> Algorithm {
    let one_memory = hosts == 1;
    let by_size = if bytes <= SMALL { Algorithm::Doubling } else { Algorithm::Ring };
    let all_reduces = operation == CallOperation::AllReduce;
    match (choice, operation) {
        (_, CallOperation::Send | CallOperation::Recv) => Algorithm::Direct,
        (AlgorithmChoice::Auto | AlgorithmChoice::Hierarchical, _) if one_memory => Algorithm::Memory,
        (_, CallOperation::Barrier) => Algorithm::Doubling,
        (_, CallOperation::AllGather | CallOperation::ReduceScatter) => Algorithm::Ring,
        (AlgorithmChoice::Auto | AlgorithmChoice::Hierarchical, _) => match all_reduces && hosts < world {
            true => Algorithm::Hierarchical,
            false => by_size,
        },
        (AlgorithmChoice::Ring, _) => Algorithm::Ring,
        (AlgorithmChoice::HalvingDoubling, _) if all_reduces => Algorithm::HalvingDoubling,
        (AlgorithmChoice::HalvingDoubling | AlgorithmChoice::Tree, _) => Algorithm::Tree,
        (AlgorithmChoice::ParameterServer, _) => Algorithm::ParameterServer,
    }
}

/// The algorithm of an all-reduce of `bytes`, without a group: for a plan. `hosts` are the numbers of ranks of the hosts.
pub fn all_reduce_algorithm(
    transport: Transport,
    choice: AlgorithmChoice,
    hosts: &[usize],
    bytes: usize,
) -> Algorithm {
    let world: usize = hosts.iter().sum();
    let memories = match transport {
        Transport::Tcp => world,
        Transport::Auto | Transport::Shm => hosts.len(),
    };
    chosen((memories, world), choice, CallOperation::AllReduce, bytes)
}

/// Two processes with equal ids can reach each other's abstract Unix sockets, so they can share memory: the same boot
/// of the same kernel, and the same network namespace. `name` replaces both.
pub(super) fn host_id(name: Option<&str>) -> HostId {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let network = std::fs::read_link("/proc/self/ns/net").ok();
    let own = match (name, boot, network) {
        (Some(name), ..) => format!("name {name}"),
        (None, Some(boot), Some(network)) => format!("{boot} {}", network.display()),
        // If the system does not provide them, no other process is on this host.
        _ => format!("process {} {:?}", std::process::id(), std::time::SystemTime::now()),
    };
    let digest = Sha256::digest(own.as_bytes());
    digest.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(hosts: &[u8]) -> Topology {
        Topology::from_hosts(&hosts.iter().map(|h| [*h; 16]).collect::<Vec<_>>())
    }

    #[test]
    fn hosts_are_found_however_ranks_are_spread() {
        let t = topology(&[1, 2, 1, 2, 3]);
        assert_eq!(t.hosts, [vec![0, 2], vec![1, 3], vec![4]]);
        assert_eq!((t.host_of(3), t.leaders()), (&[1, 3][..], vec![0, 1, 4]));
        assert_eq!(t.column(2), None);
        assert_eq!(topology(&[1, 2, 1, 2]).column(2), Some(vec![2, 3]));
        assert!(t.shares() && !topology(&[1, 2, 3]).shares());
        assert_eq!(topology(&[1, 2, 3]), Topology::scattered(3));
    }

    #[test]
    fn the_choice_follows_the_topology() {
        use AlgorithmChoice as C;
        use CallOperation as O;
        let (one, two, far) = (topology(&[1, 1, 1]), topology(&[1, 1, 2]), topology(&[1, 2, 3]));
        assert_eq!(one.choose(C::Auto, O::AllReduce, 4), Algorithm::Memory);
        assert_eq!(one.choose(C::Ring, O::AllReduce, 4), Algorithm::Ring);
        assert_eq!(one.choose(C::Auto, O::Barrier, 0), Algorithm::Memory);
        assert_eq!(two.choose(C::Auto, O::AllReduce, 4), Algorithm::Hierarchical);
        assert_eq!(two.choose(C::Auto, O::Broadcast, 1 << 20), Algorithm::Ring);
        assert_eq!(far.choose(C::Auto, O::AllReduce, SMALL), Algorithm::Doubling);
        assert_eq!(far.choose(C::Auto, O::AllReduce, SMALL + 1), Algorithm::Ring);
        assert_eq!(far.choose(C::Hierarchical, O::AllReduce, SMALL + 1), Algorithm::Ring);
        assert_eq!(far.choose(C::HalvingDoubling, O::Reduce, 4), Algorithm::Tree);
        assert_eq!(far.choose(C::ParameterServer, O::Send, 4), Algorithm::Direct);
    }

    #[test]
    fn a_plan_knows_the_algorithm_of_a_call() {
        let auto = |transport, hosts: &[usize], bytes| {
            all_reduce_algorithm(transport, AlgorithmChoice::Auto, hosts, bytes)
        };
        assert_eq!(auto(Transport::Auto, &[4], 4), Algorithm::Memory);
        assert_eq!(auto(Transport::Tcp, &[4], 4), Algorithm::Doubling);
        assert_eq!(auto(Transport::Auto, &[4, 4], 4), Algorithm::Hierarchical);
        assert_eq!(auto(Transport::Auto, &[1, 1], SMALL + 1), Algorithm::Ring);
    }

    #[test]
    fn processes_of_one_machine_have_one_host() {
        assert_eq!(host_id(None), host_id(None));
        assert_ne!(host_id(None), host_id(Some("a")));
        assert_ne!(host_id(Some("b")), host_id(Some("a")));
    }
}
