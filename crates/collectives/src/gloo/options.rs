//! Options of the engine in a spec: transport and algorithm.

use crate::CommError;
use crate::rendezvous::lanes;
use schemars::JsonSchema;
use serde::Deserialize;
use spec::{Fields, choice};
use std::net::IpAddr;

choice! {
    /// How two ranks exchange bytes.
    Transport:
    /// Shared memory between ranks of one host, TCP between hosts.
    Auto = "auto",
    /// Shared memory; ranks on several hosts are an error.
    Shm = "shm",
    /// TCP between all ranks.
    Tcp = "tcp",
}

choice! {
    /// How an all-reduce is carried out. Other collectives take the nearest relative.
    AlgorithmChoice:
    /// By size and topology.
    Auto = "auto",
    /// Scatter-reduce, then all-gather, around the ring of ranks.
    Ring = "ring",
    /// Recursive halving, then recursive doubling.
    HalvingDoubling = "halving-doubling",
    /// Up a binomial tree, then down.
    Tree = "tree",
    /// One rank gathers, reduces and sends back; for comparison.
    ParameterServer = "parameter-server",
    /// Shared memory inside a host, a ring between hosts.
    Hierarchical = "hierarchical",
}

/// `[distributed]`: connections and algorithms of the gloo engine. `transport`, `algorithm` and `sockets` must be equal on
/// all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GlooOptions {
    /// How two ranks exchange bytes.
    pub transport: Transport,
    /// How an all-reduce is carried out.
    pub algorithm: AlgorithmChoice,
    /// Network interface to which peers connect, such as `eth0`. Default: the one that reaches rank 0.
    #[schemars(extend("x-changes-results" = false))]
    pub interface: Option<String>,
    /// TCP connections for data between two processes; not with `shm`. Default: 1 within a host, 4 between hosts.
    #[schemars(range(min = 1, max = 16), extend("x-changes-results" = false))]
    pub sockets: Option<usize>,
    /// Name of this rank's host: ranks with equal names share memory. By default, the system determines it.
    #[serde(skip)]
    pub host: Option<String>,
}

impl GlooOptions {
    /// The options in `[distributed]` of a job spec; what is wrong is reported to `fields`.
    pub fn read(fields: &mut Fields<'_>) -> Self {
        let options: Self = fields.config();
        let no_name = |i: &String| i.is_empty() || i.contains(|c: char| c.is_whitespace() || c == '/');
        if options.interface.as_ref().is_some_and(no_name) {
            fields.problem("interface", "expected the name of a network interface, such as \"eth0\"");
        }
        if options.transport == Transport::Shm && options.sockets.is_some() {
            fields.problem_with_key("sockets", "counts TCP connections; `transport = \"shm\"` makes none");
        }
        options
    }

    /// Maximum number of connections that one of `world` ranks has open if `local` of them are on its host. With each
    /// peer: one for the rendezvous, one for control, and those for data.
    pub fn connections(&self, world: usize, local: usize) -> usize {
        let elsewhere = world.saturating_sub(local);
        let here = world.saturating_sub(1 + elsewhere);
        here * (2 + lanes(self.sockets, true)) + elsewhere * (2 + lanes(self.sockets, false))
    }

    /// The address of `interface`, if one is set.
    pub fn address(&self) -> Result<Option<IpAddr>, CommError> {
        let Some(name) = &self.interface else { return Ok(None) };
        let all = if_addrs::get_if_addrs()
            .map_err(|e| CommError::rendezvous(format!("cannot list network interfaces: {e}")))?;
        let of_that_name = all.iter().filter(|i| i.name == *name).map(if_addrs::Interface::ip);
        // IPv4 first: link-local IPv6 addresses need a scope that other hosts don't know.
        match of_that_name.min_by_key(|ip| !ip.is_ipv4()) {
            Some(ip) => Ok(Some(ip)),
            None => {
                let mut names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
                names.sort_unstable();
                names.dedup();
                Err(CommError::rendezvous(format!(
                    "network interface `{name}` does not exist or has no address; available: {}",
                    names.join(", ")
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommErrorKind;

    #[test]
    fn connections_to_other_hosts_are_more() {
        let options = GlooOptions::default();
        assert_eq!(options.connections(1, 1), 0);
        assert_eq!(options.connections(64, 64), 63 * 3);
        assert_eq!(options.connections(64, 8), 7 * 3 + 56 * 6);
        assert_eq!(GlooOptions { sockets: Some(16), ..options }.connections(2, 1), 18);
    }

    #[test]
    fn a_missing_interface_is_reported_with_the_available_ones() {
        let options = GlooOptions { interface: Some("no-such0".into()), ..GlooOptions::default() };
        let error = options.address().unwrap_err();
        assert_eq!(error.kind, CommErrorKind::Rendezvous);
        let there = error.message.split("available: ").nth(1).unwrap();
        let mut names: Vec<&str> = there.split(", ").collect();
        names.dedup();
        assert_eq!(names.join(", "), there, "each once");
        assert!(error.message.contains("`no-such0`") && names.contains(&"lo"), "{error}");
        let loopback = GlooOptions { interface: Some("lo".into()), ..GlooOptions::default() };
        assert!(loopback.address().unwrap().is_some_and(|ip| ip.is_loopback()));
    }
}
