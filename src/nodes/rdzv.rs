//! The values of `--nnodes` and `--rdzv-endpoint`: the number of nodes of a run, and where they meet.

use ::spec::{Syntax, syntax};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The number of nodes that a run may have: `N`, or torchrun's `MIN:MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// At least 1.
    pub min: usize,
    /// At least `min`.
    pub max: usize,
}

/// A larger number is taken for a typing error.
const MAX_NODES: usize = 1 << 16;

impl NodeRange {
    pub const ONE: Self = Self { min: 1, max: 1 };

    pub const fn exactly(nodes: usize) -> Self {
        Self { min: nodes, max: nodes }
    }

    /// Nodes may join and leave.
    pub const fn is_elastic(&self) -> bool {
        self.min < self.max
    }
}

impl FromStr for NodeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |t: &str| t.trim().parse::<usize>().ok().filter(|n| (1..=MAX_NODES).contains(n));
        let range = match text.split_once(':') {
            Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| Self { min, max }),
            None => number(text).map(Self::exactly),
        };
        range.filter(|r| r.min <= r.max).ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

impl Syntax for NodeRange {
    const EXPECTED: &'static str = "a number of nodes from 1 to 65536, or a range of them, \"MIN:MAX\"";
    const TYPES: &'static [&'static str] = &["integer", "string"];
    const LEAST: Option<u32> = Some(1);

    fn read(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::Integer(i) => i.to_string().parse().ok(),
            toml::Value::String(s) if s.contains(':') => s.parse().ok(),
            _ => None,
        }
    }

    fn write(&self) -> toml::Value {
        match self.is_elastic() {
            true => toml::Value::String(self.to_string()),
            false => toml::Value::Integer(self.max as i64),
        }
    }
}

syntax!(NodeRange);

impl fmt::Display for NodeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_elastic() {
            true => write!(f, "{}:{}", self.min, self.max),
            false => write!(f, "{}", self.min),
        }
    }
}

/// Where separately started processes meet, in the forms of PyTorch's `init_method` and torchrun's `--rdzv-endpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RdzvEndpoint {
    /// `HOST:PORT` or `tcp://HOST:PORT`: the first one (node rank 0, rank 0) listens there.
    Tcp { host: String, port: u16 },
    /// `file:///PATH` on a file system that all share: the first one listens on a port chosen by its system, and
    /// writes the address to the file.
    File(PathBuf),
}

/// torchrun's default port.
pub const DEFAULT_PORT: u16 = 29400;

impl Syntax for RdzvEndpoint {
    const EXPECTED: &'static str = "HOST:PORT, tcp://HOST:PORT or file:///ABSOLUTE/PATH";
    const TYPES: &'static [&'static str] = &["string"];

    fn read(value: &toml::Value) -> Option<Self> {
        value.as_str()?.parse().ok().filter(|endpoint| !matches!(endpoint, Self::Tcp { port: 0, .. }))
    }

    fn write(&self) -> toml::Value {
        toml::Value::String(self.to_string())
    }
}

syntax!(RdzvEndpoint);

/// Port 0 is torchrun's form of "any port", for a run on one node.
impl FromStr for RdzvEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {}", Self::EXPECTED);
        if let Some(path) = text.strip_prefix("file://") {
            let absolute = path.starts_with('/') && path.len() > 1 && !path.ends_with('/');
            return if absolute { Ok(Self::File(path.into())) } else { Err(wrong()) };
        }
        let text = text.strip_prefix("tcp://").unwrap_or(text);
        // `[::1]:29400`, `node0:29400`, `node0`; a bare IPv6 address needs brackets.
        let (host, port) = match text.rsplit_once(':') {
            _ if text.ends_with(']') => (text, DEFAULT_PORT),
            Some((host, _)) if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) => {
                return Err(wrong());
            }
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (text, DEFAULT_PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong());
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl RdzvEndpoint {
    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        matches!(self, Self::Tcp { host, .. } if is_loopback(host))
    }
}

/// Whether a host is this machine by an address that no other has.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl fmt::Display for RdzvEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::File(path) => write!(f, "file://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_a_number_or_a_range() {
        assert_eq!("4".parse(), Ok(NodeRange::exactly(4)));
        assert_eq!("1:4".parse(), Ok(NodeRange { min: 1, max: 4 }));
        assert!(!NodeRange::exactly(4).is_elastic());
        for wrong in ["0", "4:1", "1:", ":2", "a", "", "1:2:3", "70000", "-1"] {
            assert!(wrong.parse::<NodeRange>().is_err(), "{wrong}");
        }
        for text in ["1", "2:8"] {
            assert_eq!(text.parse::<NodeRange>().map(|r| r.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn endpoints_are_read_as_they_are_printed() {
        let tcp = |host: &str, port| RdzvEndpoint::Tcp { host: host.into(), port };
        for (text, endpoint) in [
            ("node0:1234", tcp("node0", 1234)),
            ("tcp://10.0.0.1:1234", tcp("10.0.0.1", 1234)),
            ("[::1]:1234", tcp("::1", 1234)),
            ("node0", tcp("node0", DEFAULT_PORT)),
            ("[::1]", tcp("::1", DEFAULT_PORT)),
            ("file:///shared/x", RdzvEndpoint::File("/shared/x".into())),
        ] {
            assert_eq!(text.parse(), Ok(endpoint.clone()), "{text}");
            assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
        for wrong in ["", ":1", "a:x", "::1:5", "file://rel", "file:///", "http://a:1", "a b:1"] {
            assert!(wrong.parse::<RdzvEndpoint>().is_err(), "{wrong}");
        }
    }
}
