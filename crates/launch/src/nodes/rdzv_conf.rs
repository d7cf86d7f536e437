//! torchrun's `--rdzv-backend`, `--rdzv-id` and `--rdzv-conf`, as far as they have a meaning here.

use std::str::FromStr;
use std::time::Duration;

/// The value of `--rdzv-backend`. Both mean the same here: the first process listens at the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdzvBackend {
    Static,
    C10d,
}

impl FromStr for RdzvBackend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "static" => Ok(Self::Static),
            "c10d" => Ok(Self::C10d),
            _ => Err("expected static or c10d, which both mean that node 0 listens at the endpoint; no other service is \
                      used"
                .to_owned()),
        }
    }
}

/// The value of `--rdzv-id`: the same on all nodes of a run. `None` for torchrun's default, `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdzvId(pub Option<String>);

/// What a message of the rendezvous holds.
const LONGEST_ID: usize = 128;

impl FromStr for RdzvId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.len() > LONGEST_ID || text.chars().any(char::is_control) {
            return Err(format!("expected 1 to {LONGEST_ID} bytes without control characters"));
        }
        Ok(Self((text != "none").then(|| text.to_owned())))
    }
}

/// The value of `--rdzv-conf`: `KEY=SECONDS,…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdzvConf {
    /// `timeout` or `join_timeout`: how long the rendezvous waits for all nodes (`distributed.init_timeout`).
    pub join: Option<Duration>,
    /// `last_call_timeout`: how long it waits for further nodes once the minimum is present.
    pub last_call: Option<Duration>,
}

impl RdzvConf {
    const KEYS: &str = "timeout, join_timeout (both: how long the rendezvous waits for all nodes) and last_call_timeout (how \
                        long it waits for further nodes once the minimum is present)";
}

impl FromStr for RdzvConf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut conf = Self::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{pair}` is not KEY=VALUE; keys are {}", Self::KEYS))?;
            let (key, value) = (key.trim(), value.trim());
            let place = match key {
                "timeout" | "join_timeout" => &mut conf.join,
                "last_call_timeout" => &mut conf.last_call,
                _ => return Err(format!("`{key}` has no meaning here; keys are {}", Self::KEYS)),
            };
            let seconds = value.parse::<u32>().ok().filter(|s| *s > 0);
            let seconds =
                seconds.ok_or_else(|| format!("`{key}` is `{value}`; expected whole seconds above 0"))?;
            let seconds = Duration::from_secs(seconds.into());
            if place.replace(seconds).is_some_and(|before| before != seconds) {
                return Err(format!("`{key}` is set twice, with different values"));
            }
        }
        Ok(conf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_configuration_are_those_with_a_meaning() {
        let seconds = |n| Some(Duration::from_secs(n));
        let parse = |text: &str| text.parse::<RdzvConf>();
        assert_eq!(parse(""), Ok(RdzvConf::default()));
        assert_eq!(parse(" timeout = 900 "), Ok(RdzvConf { join: seconds(900), last_call: None }));
        assert_eq!(
            parse("join_timeout=60,last_call_timeout=5,"),
            Ok(RdzvConf { join: seconds(60), last_call: seconds(5) })
        );
        assert_eq!(parse("timeout=60,join_timeout=60"), Ok(RdzvConf { join: seconds(60), last_call: None }));
        for (wrong, why) in [
            ("timeout=60,join_timeout=61", "twice"),
            ("close_timeout=5", "`close_timeout` has no meaning here; keys are timeout, join_timeout"),
            ("timeout", "not KEY=VALUE"),
            ("timeout=0", "above 0"),
            ("timeout=1.5", "whole seconds"),
        ] {
            assert!(parse(wrong).is_err_and(|e| e.contains(why)), "{wrong}: {:?}", parse(wrong));
        }
    }

    #[test]
    fn other_backends_are_refused() {
        assert_eq!("c10d".parse(), Ok(RdzvBackend::C10d));
        assert_eq!("Static".parse(), Ok(RdzvBackend::Static));
        assert!("etcd-v2".parse::<RdzvBackend>().is_err_and(|e| e.contains("node 0 listens")));
    }

    #[test]
    fn torchruns_default_id_is_none() {
        assert_eq!("none".parse(), Ok(RdzvId(None)));
        assert_eq!(" job-7 ".parse(), Ok(RdzvId(Some("job-7".to_owned()))));
        for wrong in ["", "a\nb", &"x".repeat(LONGEST_ID + 1)] {
            assert!(wrong.parse::<RdzvId>().is_err(), "{wrong:?}");
        }
    }
}
