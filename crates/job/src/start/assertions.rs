//! `--assert`: what must hold of a run's metrics when it is done.

use base::error::{Error, ErrorKind, Result};
use launch::ExitCode;
use record::{Assertion, read_events};
use std::path::Path;

/// Checks what is asserted of a run that is done, by its metrics.
///
/// # Errors
/// An assertion does not hold (exit code 1).
pub(super) fn asserted(code: ExitCode, folder: &Path, assertions: &[Assertion]) -> Result<ExitCode> {
    if code != ExitCode::Done || assertions.is_empty() {
        return Ok(code);
    }
    let path = folder.join("metrics.jsonl");
    // The run may have had nothing to train.
    let events = if path.exists() { read_events(&path)? } else { Vec::new() };
    verdict(assertions.iter().map(|assertion| assertion.verdict_of(&events)))?;
    Ok(code)
}

/// Prints which assertions hold.
///
/// # Errors
/// The lines of those that do not (exit code 1).
pub fn verdict(verdicts: impl Iterator<Item = (bool, String)>) -> Result<()> {
    let (held, unmet): (Vec<_>, Vec<_>) = verdicts.partition(|(holds, _)| *holds);
    held.iter().for_each(|(_, line)| status!("{line}"));
    match unmet.is_empty() {
        true => Ok(()),
        false => {
            let lines: Vec<String> = unmet.into_iter().map(|(_, line)| line).collect();
            Err(Error::new(ErrorKind::Unmet, lines.join("\n")))
        }
    }
}
