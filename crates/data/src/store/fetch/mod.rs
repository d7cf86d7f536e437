//! Downloads files. A file is renamed to its final name only after it has been checked: otherwise a wrong file would be used at
//! every later start.
//!
//! A file has several addresses, which are asked in order. What is downloaded goes to a partial file beside the target, which
//! one process at a time holds locked; it stays if the transfer fails, and the next attempt continues it.

#[cfg(feature = "download")]
mod client;
#[cfg(not(feature = "download"))]
#[path = "no_client.rs"]
mod client;
mod part;
mod permission;
mod progress;
#[cfg(all(test, feature = "download"))]
mod tests;
mod transfer;

pub use permission::Refusal;
pub use progress::megabytes;

use super::digest::{FileSpec, verify};
use super::place::Cache;
use base::error::{Error, IoContext, Result};
use base::files::folder;
use part::PartialFile;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use transfer::{Failed, Fetcher};

/// Ends a transfer of which no byte has arrived for this long.
const STALL: Duration = Duration::from_secs(60);
/// Shortest time between two lines about a transfer.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// A file to download.
#[derive(Clone, Copy, Debug)]
pub struct Download<'a> {
    /// Its addresses, in the order in which they are asked; at least one.
    pub urls: &'a [String],
    /// Where it is put.
    pub target: &'a Path,
    /// What it must be. Only a file with a digest is continued by a later process: it shows whether the parts fit.
    pub spec: &'a FileSpec,
}

/// Downloads a file, with progress messages to `say`. The file must match its spec and pass `check`, which parses it: many files have no
/// known digest.
///
/// # Errors
/// No address has the file; the message says why each of them does not. Or the file can't be written.
pub fn fetch(
    wanted: Download<'_>,
    check: &dyn Fn(&Path) -> Result<()>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let fetcher = Fetcher { stall: STALL, every: REPORT_EVERY, sleep: &std::thread::sleep };
    fetch_with(&fetcher, wanted, check, say)
}

fn fetch_with(
    fetcher: &Fetcher<'_>,
    wanted: Download<'_>,
    check: &dyn Fn(&Path) -> Result<()>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let parent = folder(wanted.target);
    std::fs::create_dir_all(parent).doing("create", parent)?;
    let accept = |path: &Path| verify(path, wanted.spec, &Cache::none()).and_then(|()| check(path));
    let Some(mut part) = PartialFile::lock(wanted.target, fetcher.sleep, say)? else {
        // Another process has downloaded it meanwhile.
        return accept(wanted.target);
    };
    if wanted.spec.digest.is_none() {
        part.restart()?;
    }
    let mut reasons = Vec::new();
    for url in wanted.urls {
        match from(fetcher, url, wanted, &mut part, &accept, say) {
            Ok(()) => return part.put(wanted.target),
            Err(Failed::Here(error)) => return Err(error),
            Err(Failed::There { why, .. }) => reasons.push((url, why)),
        }
    }
    if wanted.spec.digest.is_none() {
        part.restart()?;
    }
    part.leave();
    Err(in_vain(wanted.target, &reasons))
}

/// Downloads the file from one address and checks it.
fn from(
    fetcher: &Fetcher<'_>,
    url: &str,
    wanted: Download<'_>,
    part: &mut PartialFile,
    accept: &dyn Fn(&Path) -> Result<()>,
    say: &mut dyn FnMut(&str),
) -> std::result::Result<(), Failed> {
    loop {
        fetcher.transfer(url, wanted.spec, part, say)?;
        part.sync()?;
        let Err(error) = accept(part.path()) else { return Ok(()) };
        let whole = part.is_whole();
        part.restart()?;
        let message = part.named_as(wanted.target, &error.message);
        if whole {
            return Err(Failed::There {
                why: format!("it is not the expected file\n{message}"),
                again: false,
            });
        }
        say(&format!("{url}: the parts of the file do not fit together; downloading it from the start"));
    }
}

fn in_vain(target: &Path, reasons: &[(&String, String)]) -> Error {
    let mut message = match reasons {
        [(url, why)] => return Error::data(format!("cannot download {url}: {why}")).hint(hint(target)),
        _ => format!("cannot download {}", name(target)),
    };
    for (url, why) in reasons {
        let _ = write!(message, "\n  {url}: {}", why.replace('\n', "\n    "));
    }
    Error::data(message).hint(hint(target))
}

fn hint(target: &Path) -> String {
    format!(
        "check the network (HTTPS_PROXY names a proxy) and `[dataset] url`, or copy the file to {} by hand",
        super::place::absolute(target).display()
    )
}

/// The name of a file, for messages.
fn name(path: &Path) -> String {
    base::display::name(&path.file_name().unwrap_or_default().to_string_lossy())
}
