//! The secret that only the processes of a run know. It is never sent over the network or printed, and is wiped from
//! memory when dropped.

use crate::CommError;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// 32 bytes. `Debug` prints none of them; comparison takes constant time.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

/// A secret as text: the hex digits of a [`Secret`], to pass it to a worker, or the key that one is derived from.
#[derive(Clone)]
pub struct SecretText(Zeroizing<String>);

impl Secret {
    /// A new secret from the operating system's random source.
    pub fn generate() -> Result<Self, CommError> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut_slice())
            .map_err(|e| CommError::rendezvous(format!("cannot generate a random secret: {e}")))?;
        Ok(Self(bytes))
    }

    /// Derives a secret from key material of any length for `purpose`: the HMAC-SHA256 of `purpose` under the key.
    pub fn derive(key: &[u8], purpose: &str) -> Self {
        let mut mac = keyed(key);
        mac.update(purpose.as_bytes());
        Self(Zeroizing::new(mac.finalize().into_bytes().into()))
    }

    /// Derives a secret from this one for `purpose`.
    pub fn derived(&self, purpose: &str) -> Self {
        Self::derive(self.bytes(), purpose)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lowercase hex digits.
    pub fn to_hex(&self) -> SecretText {
        HEXLOWER.encode(&*self.0).into()
    }

    /// Parses the output of [`Secret::to_hex`], ignoring white space around it. The error never repeats the text.
    pub(crate) fn from_hex(text: &str) -> Result<Self, CommError> {
        let digits = text.trim().as_bytes();
        let mut bytes = Zeroizing::new([0; 32]);
        // `decode_mut` requires an output of exactly the decoded size.
        match digits.len() == 64 && HEXLOWER_PERMISSIVE.decode_mut(digits, bytes.as_mut_slice()).is_ok() {
            true => Ok(Self(bytes)),
            false => Err(CommError::rendezvous(
                "the run's secret is not 64 hexadecimal digits; generate it with `openssl rand -hex 32`",
            )),
        }
    }
}

pub(super) fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&*other.0).into()
    }
}

impl Eq for Secret {}

impl PartialEq for SecretText {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl Eq for SecretText {}

impl std::ops::Deref for SecretText {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_hex())
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        Self::from_hex(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommErrorKind;

    #[test]
    fn hex_round_trips_and_debug_hides_the_secret() {
        let secret = Secret::generate().unwrap();
        assert_ne!(secret, Secret::generate().unwrap());
        let text = secret.to_hex();
        assert_eq!(text.len(), 64);
        assert!(
            text == text.clone()
                && text != secret.derived("x").to_hex()
                && text != text[1..].to_owned().into()
        );
        assert_eq!(Secret::from_hex(&format!(" {}\n", &*text)).unwrap(), secret);
        assert_eq!(format!("{secret:?} {text:?}"), "Secret(…) SecretText(…)");
        for bad in ["", "00", &"g".repeat(64), &"é".repeat(32), &"0".repeat(66)] {
            let e = Secret::from_hex(bad).unwrap_err();
            assert_eq!(e.kind, CommErrorKind::Rendezvous);
            assert!(bad.is_empty() || !e.message.contains(&format!("`{bad}`")));
        }
    }

    #[test]
    fn json_round_trips_and_errors_do_not_contain_the_secret() {
        let secret = Secret::derive(b"key", "a test");
        let json = serde_json::to_string(&secret).unwrap();
        assert_eq!(json, format!("\"{}\"", &*secret.to_hex()));
        assert_eq!(serde_json::from_str::<Secret>(&json).unwrap(), secret);
        let error = serde_json::from_str::<Secret>("\"beef\"").unwrap_err().to_string();
        assert!(error.contains("64 hexadecimal digits") && !error.contains("beef"), "{error}");
    }

    #[test]
    fn derivation_is_hmac_sha256() {
        // RFC 4231, test case 2.
        let secret = Secret::derive(b"Jefe", "what do ya want for nothing?");
        assert_eq!(&*secret.to_hex(), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert_eq!(secret.derived("x"), Secret::derive(secret.bytes(), "x"));
    }
}
