//! Where separately started processes meet, as text.

use super::bracketed;
use ::spec::{Syntax, syntax};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where separately started processes meet, in the forms of PyTorch's `init_method` and torchrun's `--rdzv-endpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RdzvEndpoint {
    /// `HOST:PORT` or `tcp://HOST:PORT`: the first one (node rank 0, rank 0) listens there.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port at which the first one listens.
        port: u16,
    },
    /// `file:///PATH` on a file system that all share: the first one listens on a port chosen by its system, and
    /// writes the address to the file.
    File(PathBuf),
}

/// torchrun's default port.
const DEFAULT_PORT: u16 = 29400;

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
            Self::Tcp { host, port } => write!(f, "{}:{port}", bracketed(host)),
            Self::File(path) => write!(f, "file://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
