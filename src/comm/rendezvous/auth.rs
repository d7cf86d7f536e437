//! The run's shared secret and its proof. Each side sends a fresh nonce and answers the other's with an HMAC-SHA256
//! over both, under a label of its own role, so that an answer can neither be replayed nor reflected. The secret
//! itself never travels, is never printed, and is wiped from memory when dropped.

use crate::comm::{CommError, CommErrorKind};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub(super) const NONCE: usize = 32;
pub(super) const PROOF: usize = 32;

/// 32 random bytes that every process of a run knows and nobody else does.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// The hexadecimal form of a [`Secret`], for handing it to a worker; wiped when dropped.
pub struct SecretText(String);

/// Who proves: the two sides' proofs differ, so neither can be sent back as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Connector,
    Listener,
}

impl Secret {
    /// A new secret from the operating system's random source.
    pub fn generate() -> Result<Self, CommError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|e| {
            CommError::new(CommErrorKind::Rendezvous, None, format!("cannot draw a random secret: {e}"))
        })?;
        Ok(Self(bytes))
    }

    pub fn to_hex(&self) -> SecretText {
        let digit = |v: u8| char::from_digit(v.into(), 16).unwrap_or('0');
        SecretText(self.0.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect())
    }

    /// Reads what [`Secret::to_hex`] wrote (white space around it is ignored). The error never repeats the text.
    pub fn from_hex(text: &str) -> Result<Self, CommError> {
        let wrong = || {
            CommError::new(
                CommErrorKind::Rendezvous,
                None,
                "the run's secret is not 64 hexadecimal digits; generate it with `openssl rand -hex 32`",
            )
        };
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let value = |d: u8| char::from(d).to_digit(16).map(|v| v as u8);
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = value(pair[0]).zip(value(pair[1])).ok_or_else(wrong)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }

    fn mac(&self, role: Role, listener: &[u8; NONCE], connector: &[u8; NONCE]) -> Hmac<Sha256> {
        let label: &[u8] = match role {
            Role::Connector => b"ddp-run rendezvous v1: connector",
            Role::Listener => b"ddp-run rendezvous v1: listener",
        };
        // HMAC takes keys of any length, so this can't fail for 32 bytes.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(label);
        mac.update(listener);
        mac.update(connector);
        mac
    }

    pub(super) fn prove(&self, role: Role, listener: &[u8; NONCE], connector: &[u8; NONCE]) -> [u8; PROOF] {
        self.mac(role, listener, connector).finalize().into_bytes().into()
    }

    /// In constant time.
    pub(super) fn verify(
        &self,
        role: Role,
        listener: &[u8; NONCE],
        connector: &[u8; NONCE],
        proof: &[u8],
    ) -> bool {
        self.mac(role, listener, connector).verify_slice(proof).is_ok()
    }
}

pub(super) fn nonce() -> Result<[u8; NONCE], CommError> {
    Ok(Secret::generate()?.0)
}

/// Overwrites memory in a way that the optimiser may not leave out.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(bytes);
}

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        wipe(&mut std::mem::take(&mut self.0).into_bytes());
    }
}

impl std::ops::Deref for SecretText {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_comes_back_and_debug_shows_nothing() {
        let secret = Secret::generate().unwrap();
        let text = secret.to_hex();
        assert_eq!(text.len(), 64);
        assert_eq!(Secret::from_hex(&format!(" {}\n", &*text)).unwrap().0, secret.0);
        assert_eq!(format!("{secret:?} {text:?}"), "Secret(…) SecretText(…)");
        for bad in ["", "00", &"g".repeat(64), &"é".repeat(32), &"0".repeat(66)] {
            let e = Secret::from_hex(bad).unwrap_err();
            assert_eq!(e.kind, CommErrorKind::Rendezvous);
            assert!(bad.is_empty() || !e.message.contains(&format!("`{bad}`")));
        }
    }

    #[test]
    fn a_proof_holds_for_its_secret_role_and_nonces_only() {
        let (secret, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        let (a, b) = (nonce().unwrap(), nonce().unwrap());
        let proof = secret.prove(Role::Connector, &a, &b);
        assert!(secret.verify(Role::Connector, &a, &b, &proof));
        assert!(!other.verify(Role::Connector, &a, &b, &proof));
        assert!(!secret.verify(Role::Listener, &a, &b, &proof));
        assert!(!secret.verify(Role::Connector, &b, &a, &proof));
        assert!(!secret.verify(Role::Connector, &a, &b, &proof[..31]));
    }
}
