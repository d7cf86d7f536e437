//! The source of the key from which a run's secret is derived.
//!
//! Processes that a launcher starts must have the same key before they communicate: `DDP_RUN_SECRET`,
//! `DDP_RUN_SECRET_FILE`, or a key in the user's home folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Secret, SecretText};
use crate::CommError;
use crate::variables::variables;
use base::display;
use base::files::{TempPath, folder};
use zeroize::Zeroizing;

/// The source of the key by which the processes of a run authenticate each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// `DDP_RUN_SECRET`; holds its value, because the environment is read once.
    Env(SecretText),
    /// `DDP_RUN_SECRET_FILE`.
    File(PathBuf),
    /// `~/.config/ddp-run/secret`: created at first use, readable only by its owner. Nodes that share the home folder
    /// share the key.
    Home(PathBuf),
}

/// Shorter keys can be guessed.
const MIN_KEY: usize = 16;
const MAX_KEY: u64 = 4096;

impl KeySource {
    /// The source that the environment (`get`) names: `DDP_RUN_SECRET`, else the file `DDP_RUN_SECRET_FILE`, else the key in
    /// the home folder. `None` without a variable and without a home folder.
    pub fn find(get: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let vars = variables(get);
        if let Some(text) = vars.text("DDP_RUN_SECRET") {
            return Some(Self::Env(text.into()));
        }
        if let Some(path) = vars.text("DDP_RUN_SECRET_FILE") {
            return Some(Self::File(path.into()));
        }
        let config = vars.text("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.or_else(|| Some(PathBuf::from(vars.text("HOME")?).join(".config")))?;
        Some(Self::Home(config.join("ddp-run/secret")))
    }

    /// The error if there is no source.
    pub fn missing() -> CommError {
        CommError::configuration(
            "the ranks have no secret for authentication, and there is no home folder to create one in",
        )
        .hint(
            "set DDP_RUN_SECRET_FILE to a file with the same 16 or more characters on every node (mode 600)",
        )
    }

    /// The run's secret for `purpose`, which must be spelled the same on all ranks.
    ///
    /// Errors: the key is missing, too short, or in a file that others may read.
    pub fn secret(&self, purpose: &str) -> Result<Secret, CommError> {
        let key = match self {
            KeySource::Env(text) => Zeroizing::new(text.trim().as_bytes().to_vec()),
            KeySource::File(path) => read_key(path)?,
            KeySource::Home(path) => {
                make_key(path)?;
                read_key(path)?
            }
        };
        if key.len() < MIN_KEY {
            let name = match self {
                KeySource::Env(_) => "DDP_RUN_SECRET".to_string(),
                KeySource::File(p) | KeySource::Home(p) => p.display().to_string(),
            };
            return Err(CommError::configuration(format!(
                "{name} has {} characters; at least {MIN_KEY} are required",
                key.len()
            ))
            .hint("`openssl rand -hex 32` generates a key; all ranks need the same one"));
        }
        Ok(Secret::derive(&key, purpose))
    }
}

fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, CommError> {
    let cannot = |e: io::Error| {
        CommError::configuration(format!("cannot read the secret file {}: {e}", path.display()))
    };
    let file = base::files::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.mode();
    if mode & 0o077 != 0 {
        let what = format!(
            "the secret file {} has mode {:o}: other users may read or change it",
            path.display(),
            mode & 0o777
        );
        return Err(CommError::configuration(what).hint(format!("chmod 600 {}", path.display())));
    }
    // Sized for the whole key: a vector that grows does not wipe its old memory.
    let mut key = Zeroizing::new(Vec::with_capacity(2 * MAX_KEY as usize));
    file.take(MAX_KEY).read_to_end(&mut key).map_err(cannot)?;
    Ok(Zeroizing::new(key.trim_ascii().to_vec()))
}

/// Creates the key file if it does not exist. Several ranks may try at once, on several nodes: a hard link is created
/// atomically, and only one succeeds, on NFS too.
fn make_key(path: &Path) -> Result<(), CommError> {
    if path.exists() {
        return Ok(());
    }
    let secret = Secret::generate()?;
    let write = || {
        fs::create_dir_all(folder(path))?;
        let scratch = TempPath::beside(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(scratch.path())?;
        file.write_all(secret.to_hex().as_bytes())?;
        file.sync_all()?;
        match fs::hard_link(scratch.path(), path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    };
    write().map_err(|e| {
        CommError::configuration(format!("cannot create the secret file {}: {e}", display::path(path))).hint(
            "set DDP_RUN_SECRET_FILE to a file with the same 16 or more characters on every node (mode 600)",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn ranks_that_start_together_share_the_home_key() {
        let folder = tempfile::tempdir().expect("tempdir");
        let source = KeySource::Home(folder.path().join("ddp-run/secret"));
        let threads: Vec<_> = (0..8)
            .map(|_| (source.clone(), "run"))
            .map(|(s, p)| std::thread::spawn(move || s.secret(p)))
            .collect();
        let secrets: Vec<_> =
            threads.into_iter().map(|t| t.join().expect("thread").expect("secret")).collect();
        assert!(secrets.windows(2).all(|w| w[0] == w[1]));
        assert_ne!(secrets[0], source.secret("another run").expect("secret"));
        let left: Vec<_> = fs::read_dir(folder.path().join("ddp-run")).expect("dir").collect();
        assert_eq!(left.len(), 1, "scratch files are left: {left:?}");
    }

    #[test]
    fn a_readable_or_short_key_is_refused() {
        let folder = tempfile::tempdir().expect("tempdir");
        let pipe = KeySource::File(base::testing::pipe(folder.path()).unwrap());
        let error = pipe.secret("run").expect_err("it is not waited for");
        assert!(error.message.contains("no regular file"), "{error}");
        let path = folder.path().join("key");
        fs::write(&path, "0123456789abcdef\n").expect("write");
        for mode in [0o644, 0o640, 0o620, 0o610] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("chmod");
            let error = KeySource::File(path.clone()).secret("run").expect_err("not its owner's alone");
            assert!(error.message.contains(&format!("mode {mode:o}")), "{error}");
        }
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("chmod");
        let secret = KeySource::File(path).secret("run").expect("fine");
        assert_eq!(
            secret,
            KeySource::Env("0123456789abcdef".to_owned().into()).secret("run").expect("the same key")
        );
        let error = KeySource::Env("short".to_owned().into()).secret("run").expect_err("short");
        assert!(error.message.contains("at least 16"), "{error}");
    }
}
