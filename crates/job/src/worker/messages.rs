//! Lines for the user, which the rank's log has too.

use launch::logs::ALREADY_PRINTED;

pub(super) fn warn(warning: &str) {
    tracing::warn!(target: ALREADY_PRINTED, "{warning}");
    status!("warning: {warning}");
}

pub(super) fn tell(line: &str) {
    tracing::info!(target: ALREADY_PRINTED, "{line}");
    info!("{line}");
}
