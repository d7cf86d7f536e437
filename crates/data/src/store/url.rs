//! Addresses of downloads.

use spec::{Syntax, syntax};

/// An address that the download client takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url(pub String);

impl Syntax for Url {
    const EXPECTED: &'static str = "an address, \"https://HOST/PATH\" or \"http://HOST/PATH\"";
    const TYPES: &'static [&'static str] = &["string"];

    fn read(value: &toml::Value) -> Option<Self> {
        let text = value.as_str()?;
        let (scheme, rest) = text.split_once("://")?;
        let known = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        (known && plain && !host.is_empty()).then(|| Self(text.to_owned()))
    }

    fn write(&self) -> toml::Value {
        self.0.clone().into()
    }
}

syntax!(Url);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        let reads = |text: &str| Url::read(&text.into()).is_some();
        for good in ["https://a.org/x.csv", "HTTP://127.0.0.1:80", "http://[::1]:9/a?b=c"] {
            assert!(reads(good), "{good}");
        }
        for bad in ["a.org/x.csv", "file:///a", "s3://bucket/a", "https://", "https:///a", "http://a b", ""] {
            assert!(!reads(bad), "{bad}");
        }
    }
}
