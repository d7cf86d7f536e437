//! The proof of the run's secret. Each side sends a fresh nonce and answers the other's with an HMAC-SHA256 over both,
//! labelled with its own role, so that an answer can neither be replayed nor reflected.

use super::secret::{Secret, keyed};
use crate::CommError;
use hmac::{Hmac, Mac};
use sha2::Sha256;

pub(super) const NONCE: usize = 32;
pub(super) const PROOF: usize = 32;

/// Which side proves: the two sides' proofs differ, so neither can be sent back as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeRole {
    Connector,
    Listener,
}

impl Secret {
    fn mac(&self, role: HandshakeRole, listener: &[u8; NONCE], connector: &[u8; NONCE]) -> Hmac<Sha256> {
        let label: &[u8] = match role {
            HandshakeRole::Connector => b"ddp-run rendezvous v1: connector",
            HandshakeRole::Listener => b"ddp-run rendezvous v1: listener",
        };
        let mut mac = keyed(self.bytes());
        mac.update(label);
        mac.update(listener);
        mac.update(connector);
        mac
    }

    pub(super) fn prove(
        &self,
        role: HandshakeRole,
        listener: &[u8; NONCE],
        connector: &[u8; NONCE],
    ) -> [u8; PROOF] {
        self.mac(role, listener, connector).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    pub(super) fn verify(
        &self,
        role: HandshakeRole,
        listener: &[u8; NONCE],
        connector: &[u8; NONCE],
        proof: &[u8],
    ) -> bool {
        self.mac(role, listener, connector).verify_slice(proof).is_ok()
    }
}

pub(super) fn nonce() -> Result<[u8; NONCE], CommError> {
    Ok(*Secret::generate()?.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_valid_only_for_its_secret_role_and_nonces() {
        let (secret, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        let (a, b) = (nonce().unwrap(), nonce().unwrap());
        let proof = secret.prove(HandshakeRole::Connector, &a, &b);
        assert!(secret.verify(HandshakeRole::Connector, &a, &b, &proof));
        assert!(!other.verify(HandshakeRole::Connector, &a, &b, &proof));
        assert!(!secret.verify(HandshakeRole::Listener, &a, &b, &proof));
        assert!(!secret.verify(HandshakeRole::Connector, &b, &a, &proof));
        assert!(!secret.verify(HandshakeRole::Connector, &a, &b, &proof[..31]));
    }
}
