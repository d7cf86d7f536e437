//! Access control: a request must have the token, and name this machine as its host.
//!
//! A page of another site can make a browser send requests to this server, and even read the answers if a domain name of
//! that site resolves to this machine (DNS rebinding). Such a request has that name as its host, so other names are refused;
//! and it lacks the token.

use base::error::{Error, Result};
use data_encoding::HEXLOWER;
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

/// Bytes of a token.
const TOKEN: usize = 16;

/// What a request must match.
pub(super) struct Access {
    token: String,
    at: IpAddr,
    /// In lower case: `--host`, and the machine's name unless `--host` is a loopback address.
    names: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is for another host.
    Host,
    /// Its path does not begin with the token.
    Token,
}

impl Access {
    /// With a new token, for a server at this address, which was named `host`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(at: SocketAddr, host: &str) -> Result<Self> {
        let mut bytes = [0; TOKEN];
        getrandom::fill(&mut bytes).map_err(|e| Error::internal(format!("cannot make a token: {e}")))?;
        let mut names = vec![host.to_lowercase()];
        if !at.ip().is_loopback() {
            names.push(rustix::system::uname().nodename().to_string_lossy().to_lowercase());
        }
        Ok(Self { token: HEXLOWER.encode(&bytes), at: at.ip(), names })
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// The rest of a path after the token. `hosts` are the values of the header `Host`.
    ///
    /// # Errors
    /// The request is refused. The time it takes does not depend on how much of a token is right.
    pub fn check<'a>(&self, hosts: &[&str], path: &'a str) -> Result<&'a str, Refusal> {
        match hosts {
            [host] if self.is_own(host) => {}
            _ => return Err(Refusal::Host),
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        let (token, rest) = path.split_once('/').unwrap_or((path, ""));
        match bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            true => Ok(rest),
            false => Err(Refusal::Token),
        }
    }

    /// Whether a value of `Host` means this server. The port may be another: that of a tunnel.
    fn is_own(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        let name = name.to_lowercase();
        match name.parse::<IpAddr>() {
            // An IP address can't be a rebound domain name.
            Ok(ip) => ip.is_loopback() || self.at.is_unspecified() || ip == self.at,
            Err(_) => name == "localhost" || self.names.contains(&name),
        }
    }
}

/// A host without port and brackets.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            (name, port.strip_prefix(':').or(port.is_empty().then_some("0"))?)
        }
        None => host.split_once(':').unwrap_or((host, "0")),
    };
    port.parse::<u16>().ok()?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(at: &str, host: &str) -> Access {
        Access::new(at.parse().unwrap(), host).unwrap()
    }

    #[test]
    fn only_the_token_opens() {
        let access = access("127.0.0.1:80", "127.0.0.1");
        let token = access.token().to_owned();
        let check = |path: &str| access.check(&["localhost:80"], path).map(str::to_owned);
        assert_eq!(token.len(), 32);
        assert_eq!(check(&format!("/{token}/runs.json")).unwrap(), "runs.json");
        assert_eq!(check(&format!("/{token}/")).unwrap(), "");
        let other = format!("{}{}", &token[..31], if token.ends_with('0') { '1' } else { '0' });
        for wrong in [
            "",
            &token[..31],
            &format!("{token}0"),
            &other,
            &token.to_uppercase().replace(char::is_numeric, "A"),
        ] {
            assert_eq!(check(&format!("/{wrong}/runs.json")), Err(Refusal::Token), "{wrong}");
        }
        assert_eq!(check("/"), Err(Refusal::Token));
        assert_ne!(Access::new("127.0.0.1:80".parse().unwrap(), "").unwrap().token(), token);
    }

    #[test]
    fn only_this_machine_is_a_host() {
        let access = access("127.0.0.1:4000", "127.0.0.1");
        let path = format!("/{}/", access.token());
        let refused = |hosts: &[&str]| access.check(hosts, &path).is_err();
        for own in ["localhost", "LOCALHOST:4000", "127.0.0.1:9", "127.0.0.1", "[::1]:9", "[::1]"] {
            assert!(!refused(&[own]), "{own}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example:4000",
            "10.0.0.7",
            "[::2]",
            "localhost:x",
            "localhost:",
            "[::1",
            "[::1]x",
            "",
        ] {
            assert!(refused(&[other]), "{other}");
        }
        assert!(refused(&[]) && refused(&["localhost", "localhost"]));
    }

    #[test]
    fn a_board_for_a_network_has_its_addresses() {
        let path = |access: &Access| format!("/{}/", access.token());
        let all = access("0.0.0.0:4000", "0.0.0.0");
        assert!(all.check(&["10.0.0.7:4000"], &path(&all)).is_ok());
        assert!(all.check(&["evil.example:4000"], &path(&all)).is_err());
        let one = access("10.0.0.7:4000", "Node7.cluster");
        assert!(one.check(&["node7.cluster:4000"], &path(&one)).is_ok());
        assert!(one.check(&["10.0.0.7"], &path(&one)).is_ok());
        assert!(one.check(&["10.0.0.8"], &path(&one)).is_err());
    }
}
