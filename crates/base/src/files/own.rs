//! Files of this program under names that others use, too.

use crate::error::{Error, IoContext, Result};
use std::io::Read;
use std::path::Path;

/// How much of a file is searched.
const SEARCHED: u64 = 64 << 10;

/// Whether nothing is lost with a file: it is missing or empty, or has one of these texts near its beginning, as what this program
/// writes there.
///
/// # Errors
/// `ErrorKind::Io`: it can't be read, or is no regular file.
pub fn is_own(path: &Path, marks: &[&str]) -> Result<bool> {
    if path.symlink_metadata().is_err() {
        return Ok(true);
    }
    let mut begins = Vec::new();
    super::open(path).and_then(|file| file.take(SEARCHED).read_to_end(&mut begins)).doing("read", path)?;
    let begins = String::from_utf8_lossy(&begins);
    Ok(begins.is_empty() || marks.iter().any(|mark| begins.contains(mark)))
}

/// Checks that a file whose name no user has typed may be replaced.
///
/// # Errors
/// `ErrorKind::Io`: another program, or a user, has written it, or it can't be read.
pub fn replaces_no_other(path: &Path, marks: &[&str]) -> Result<()> {
    match is_own(path, marks)? {
        true => Ok(()),
        false => Err(Error::io(format!("{} was not written by ddp-run", path.display()))
            .hint("`--out` writes elsewhere; or move it away")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let replaces = || replaces_no_other(&path, &["first", "of ours"]).map_err(|e| e.message);
        assert_eq!(replaces(), Ok(()));
        for (text, is_own) in [("", true), ("what is of ours", true), ("mine", false)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(replaces().is_ok(), is_own, "{text}");
        }
        assert!(replaces().unwrap_err().ends_with("/f was not written by ddp-run"));
        // What can't be read is not said to be of others.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let why = replaces().unwrap_err();
        assert!(why.starts_with("cannot read ") && why.contains("/f: Is a directory"), "{why}");
    }
}
