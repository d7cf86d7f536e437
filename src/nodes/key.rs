//! The source of the key from which a run's secret is derived.
//!
//! A supervised run draws a new secret and passes it over a pipe, so it is in no argument list and no environment.
//! Workers started by a launcher (torchrun) must have the same key before they communicate: `DDP_RUN_SECRET`,
//! `DDP_RUN_SECRET_FILE`, or a key in the user's home folder.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::error::{Error, IoContext, Result};
use base::files::{Scratch, folder};
use collectives::rendezvous::{Secret, SecretText};
use zeroize::Zeroizing;

/// The source of an externally launched worker's key.
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
    /// The run's secret for `purpose`, which must be spelled the same on all ranks.
    ///
    /// Errors: the key is missing, too short, or a file that others may read (exit 2).
    pub fn secret(&self, purpose: &str) -> Result<Secret> {
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
            return Err(Error::usage(format!(
                "{name} has {} characters; at least {MIN_KEY} are required",
                key.len()
            ))
            .hint("`openssl rand -hex 32` generates a key; all ranks need the same one"));
        }
        Ok(Secret::derive(&key, purpose))
    }
}

fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let cannot = |e: io::Error| Error::usage(format!("cannot read the secret file {}: {e}", path.display()));
    let file = base::files::open(path).map_err(cannot)?;
    let mode = file.metadata().map_err(cannot)?.mode();
    if mode & 0o077 != 0 {
        let what = format!(
            "the secret file {} has mode {:o}: other users may read or change it",
            path.display(),
            mode & 0o777
        );
        return Err(Error::usage(what).hint(format!("chmod 600 {}", path.display())));
    }
    // Sized for the whole key: a vector that grows does not wipe its old memory.
    let mut key = Zeroizing::new(Vec::with_capacity(2 * MAX_KEY as usize));
    file.take(MAX_KEY).read_to_end(&mut key).map_err(cannot)?;
    Ok(Zeroizing::new(key.trim_ascii().to_vec()))
}

/// Creates the key file if it does not exist. Several ranks may try at once, on several nodes: a hard link is created
/// atomically, and only one succeeds, on NFS too.
fn make_key(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let folder = folder(path);
    fs::create_dir_all(folder).doing("create", folder)?;
    let scratch = Scratch::beside(path).doing("create", path)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(scratch.path())
        .doing("create", scratch.path())?;
    let written = file.write_all(Secret::generate()?.to_hex().as_bytes()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| match fs::hard_link(scratch.path(), path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    });
    linked.doing("write", path)
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
