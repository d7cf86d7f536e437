//! The limit of open files. A rank holds a few connections to each other rank; if it could not open one, the others
//! would wait for it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use base::error::{Error, Result};

/// Descriptors besides connections: files, pipes, memory, a device's driver.
const OTHERS: usize = 64;

/// Raises the limit so that this process and its children can open this number of `connections`.
///
/// Errors (exit 69): the hard limit is lower.
pub fn raise_limit_for(connections: usize) -> Result<()> {
    let needed = connections.saturating_add(OTHERS) as u64;
    let cannot = |allowed: u64| {
        let what = format!(
            "each process of this run needs up to {needed} open files and connections, but the limit is {allowed}"
        );
        Error::unavailable(what).hint(format!(
            "raise the hard limit to {needed} or more: `ulimit -Hn`, `LimitNOFILE=` of systemd, `--ulimit nofile=` of Docker"
        ))
    };
    let limit = getrlimit(Resource::Nofile);
    match raised(limit, needed).map_err(cannot)? {
        None => Ok(()),
        Some(limit) => {
            setrlimit(Resource::Nofile, limit).map_err(|_| cannot(limit.current.unwrap_or(u64::MAX)))
        }
    }
}

/// The raised limit, if the present one does not allow `needed`; the hard limit as an error, if that is too low.
fn raised(limit: Rlimit, needed: u64) -> std::result::Result<Option<Rlimit>, u64> {
    match limit {
        Rlimit { current: None, .. } => Ok(None),
        Rlimit { current: Some(soft), .. } if soft >= needed => Ok(None),
        Rlimit { maximum: Some(hard), .. } if hard < needed => Err(hard),
        Rlimit { maximum, .. } => Ok(Some(Rlimit { current: Some(needed), maximum })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raises_the_soft_limit_up_to_the_hard_limit() {
        let limit = |current, maximum| Rlimit { current, maximum };
        assert_eq!(raised(limit(Some(300), Some(300)), 300), Ok(None));
        assert_eq!(raised(limit(None, None), 300), Ok(None));
        assert_eq!(raised(limit(Some(100), Some(400)), 300), Ok(Some(limit(Some(300), Some(400)))));
        assert_eq!(raised(limit(Some(100), None), 300), Ok(Some(limit(Some(300), None))));
        assert_eq!(raised(limit(Some(100), Some(299)), 300), Err(299));
    }
}
