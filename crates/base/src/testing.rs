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

/// A path in `../shared`, or in the folder that `DDP_RUN_SHARED` names; prints a line and returns `None` if it is missing.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DDP_RUN_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = root.join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

/// A reference file from torch.
pub fn torch_ref(name: &str) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(shared("torch_ref")?.join(name)).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}
