//! Lines for the user, which the rank's log has too.

use crate::launch::logs::SAID;

pub(super) fn warn(warning: &str) {
    tracing::warn!(target: SAID, "{warning}");
    say!("warning: {warning}");
}

pub(super) fn tell(line: &str) {
    tracing::info!(target: SAID, "{line}");
    inform!("{line}");
}
