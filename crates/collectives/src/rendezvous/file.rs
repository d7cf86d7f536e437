//! Rendezvous through a file on a shared file system (`file:///PATH`): rank 0 writes the address at which it listens,
//! the others read it. The file is not secret and proves nothing: a rank that reads a wrong address finds no process
//! there that knows the run's secret, and reads the file again.

use base::files::AtomicFile;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum length of the `host:port` in the file.
const MAX_LENGTH: u64 = 300;

/// The file that [`publish`] wrote. Dropping this removes it, unless another process has written it since.
#[derive(Debug)]
pub struct PublishedAddress {
    path: PathBuf,
    address: String,
}

/// Writes `address` (`host:port`) to `path` for the other ranks, atomically; replaces any existing file.
pub fn publish(path: &Path, address: &str) -> io::Result<PublishedAddress> {
    let mut draft = AtomicFile::new(path)?;
    writeln!(draft, "{address}")?;
    draft.sync()?;
    draft.put()?;
    Ok(PublishedAddress { path: path.to_owned(), address: address.to_owned() })
}

/// The current address in `path`; `None` if there is no such file, or if it contains something else.
pub(crate) fn lookup(path: &Path) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    match base::files::open(path) {
        Ok(file) => file.take(MAX_LENGTH).read_to_end(&mut text)?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let line = text.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
    let sound = |line: &&str| {
        let port = line.rsplit_once(':').map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
        matches!(port, Some((false, Ok(1..))))
            && !line.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    Ok(line.filter(sound).map(str::to_owned))
}

impl Drop for PublishedAddress {
    fn drop(&mut self) {
        if lookup(&self.path).is_ok_and(|now| now.as_ref() == Some(&self.address)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_address_is_found_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meet");
        assert_eq!(lookup(&path).unwrap(), None);
        let first = publish(&path, "n1:4711").unwrap();
        assert_eq!(lookup(&path).unwrap().as_deref(), Some("n1:4711"));
        let second = publish(&path, "[fe80::1%2]:4712").unwrap();
        drop(first);
        assert_eq!(lookup(&path).unwrap().as_deref(), Some("[fe80::1%2]:4712"), "another's file stays");
        drop(second);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn a_file_with_other_content_has_no_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meet");
        let long = format!("{}:1\n", "h".repeat(400));
        for wrong in [
            "",
            "n1:4711",
            "n1\n",
            ":1\n",
            "n1:0\n",
            "n1:70000\n",
            "n 1:1\n",
            "a:1\nb:1\n",
            &long,
            "\u{0}:1\n",
        ] {
            fs::write(&path, wrong).unwrap();
            assert_eq!(lookup(&path).unwrap(), None, "{wrong:?}");
        }
        fs::write(&path, [0xff, b':', b'1', b'\n']).unwrap();
        assert_eq!(lookup(&path).unwrap(), None);
        assert!(lookup(dir.path()).is_err(), "a folder is an error, not a missing file");
        assert!(publish(&dir.path().join("no/such"), "n1:1").is_err());
    }
}
