//! What the tests of several crates use.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What takes longer hangs, however busy the machine is. Tests assert nothing about speed.
pub const HANG: Duration = Duration::from_secs(60);

/// A new named pipe in a folder.
pub fn pipe(folder: &Path) -> io::Result<PathBuf> {
    use rustix::fs::{CWD, Mode, mkfifoat};
    let path = folder.join("pipe");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
    Ok(path)
}
