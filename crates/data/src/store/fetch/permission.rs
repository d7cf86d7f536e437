//! Whether missing files may be downloaded.

use base::error::Error;
use base::named;
use base::named::switch;
use std::path::Path;

/// In the environment, it forbids every download unless it is empty or off (`0`, `false`).
const OFFLINE: &str = "DDP_RUN_OFFLINE";

named! {
    /// Why a missing file is not downloaded.
    pub enum Refusal {
        Key = "`[dataset] download` is false",
        Offline = "DDP_RUN_OFFLINE forbids downloads",
        NoClient = "this build cannot download (cargo feature `download`)",
    }
}

impl Refusal {
    /// With the key `download` of a data set.
    pub fn new(download: bool) -> Option<Self> {
        let set = std::env::var_os(OFFLINE)
            .is_some_and(|value| !value.is_empty() && value.to_str().and_then(switch) != Some(false));
        Self::among(download, set, cfg!(feature = "download"))
    }

    fn among(download: bool, offline: bool, client: bool) -> Option<Self> {
        match (download, offline, client) {
            (false, ..) => Some(Self::Key),
            (_, true, _) => Some(Self::Offline),
            (_, _, false) => Some(Self::NoClient),
            _ => None,
        }
    }

    /// Says in an error about a missing file why it is not downloaded, and both ways to get it: from `url`, to `target`.
    pub fn explain(self, missing: Error, url: &str, target: &Path) -> Error {
        let target = super::super::place::absolute(target);
        missing.hint(format!(
            "{self}. `ddp-run data fetch SPEC` downloads it on a machine with a network that shares this folder; \
             or copy {url} to {} by hand",
            target.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_need_the_key_the_environment_and_the_client() {
        assert_eq!(Refusal::among(true, false, true), None);
        assert_eq!(Refusal::among(false, true, false), Some(Refusal::Key));
        assert_eq!(Refusal::among(true, true, false), Some(Refusal::Offline));
        assert_eq!(Refusal::among(true, false, false), Some(Refusal::NoClient));
        let error = Refusal::Offline.explain(Error::data("x is missing"), "http://a/x", Path::new("/d/x"));
        assert_eq!(
            error.hint.unwrap(),
            "DDP_RUN_OFFLINE forbids downloads. `ddp-run data fetch SPEC` downloads it on a machine with a network that \
             shares this folder; or copy http://a/x to /d/x by hand"
        );
    }
}
