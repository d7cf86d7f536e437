//! Checks the sizes and digests of files, and records verified files in the cache.

use super::place::{Cache, stamp};
use base::error::{Error, IoContext, Result};
use data_encoding::HEXLOWER;
use md5::Md5;
use sha2::Sha256;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The expected digest of a file, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Digest {
    /// Detects damage, not tampering; the digest published by torchvision and for MNIST.
    Md5(String),
    Sha256(String),
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Md5(hex) => write!(f, "MD5 {hex}"),
            Self::Sha256(hex) => write!(f, "SHA-256 {hex}"),
        }
    }
}

impl Digest {
    /// The digest of the same kind for the contents of `reader`.
    pub fn compute(&self, reader: &mut dyn Read) -> std::io::Result<Self> {
        match self {
            Self::Md5(_) => Ok(Self::Md5(hash::<Md5>(reader)?)),
            Self::Sha256(_) => Ok(Self::Sha256(hash::<Sha256>(reader)?)),
        }
    }
}

fn hash<H: sha2::Digest>(reader: &mut dyn Read) -> std::io::Result<String> {
    let (mut hasher, mut buffer) = (H::new(), vec![0; 1 << 18]);
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(HEXLOWER.encode(&hasher.finalize()))
}

/// The expected size and digest of a file; `None` if not known.
#[derive(Clone, Debug)]
pub struct FileSpec {
    pub size: Option<u64>,
    pub digest: Option<Digest>,
    /// Where to get the file, for messages.
    pub from: String,
}

impl fmt::Display for FileSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.size, &self.digest) {
            (Some(size), Some(digest)) => write!(f, "{size} bytes, {digest}"),
            (Some(size), None) => write!(f, "{size} bytes"),
            (None, Some(digest)) => write!(f, "{digest}"),
            (None, None) => f.write_str("any size"),
        }
    }
}

/// Checks a file's size and digest. A file already verified and unchanged since (by its `stamp`) is not read
/// again; this is recorded in `cache`, and without a usable cache the file is read every time.
pub fn verify(path: &Path, spec: &FileSpec, cache: &Cache) -> Result<()> {
    let meta = fs::metadata(path).doing("read", path)?;
    if let Some(size) = spec.size
        && meta.len() != size
    {
        return Err(damaged(path, spec, &format!("{} bytes", meta.len())));
    }
    let Some(expected) = &spec.digest else { return Ok(()) };
    let stamp = format!("{} {expected}\n", stamp(&meta));
    let note = cache.record_path(path);
    if note.as_ref().is_some_and(|note| base::files::read_text(note).is_ok_and(|noted| noted == stamp)) {
        return Ok(());
    }
    let mut file = base::files::open(path).doing("read", path)?;
    let found = expected.compute(&mut file).doing("read", path)?;
    if found != *expected {
        return Err(damaged(path, spec, &format!("{} bytes, {found}", meta.len())));
    }
    if let Some(note) = note {
        // If this fails, only speed is lost.
        let _ = super::place::write_atomically(&note, stamp.as_bytes());
    }
    Ok(())
}

fn damaged(path: &Path, spec: &FileSpec, found: &str) -> Error {
    Error::data(format!(
        "{} is damaged or the wrong file\n  expected {spec}\n  found    {found}",
        path.display()
    ))
    .hint(format!("delete it and download it again from {}", spec.from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn spec(size: u64, sha256: &str) -> FileSpec {
        FileSpec {
            size: Some(size),
            digest: Some(Digest::Sha256(sha256.to_owned())),
            from: "https://example.org/abc".to_owned(),
        }
    }

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn sizes_and_digests_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        let path = folder.path().join("abc");
        fs::write(&path, "abc").unwrap();
        verify(&path, &spec(3, ABC), &cache).unwrap();
        verify(&path, &spec(3, ABC), &cache).unwrap();
        let md5 = Some(Digest::Md5("900150983cd24fb0d6963f7d28e17f72".to_owned()));
        verify(&path, &FileSpec { digest: md5, ..spec(3, "") }, &cache).unwrap();
        let error = verify(&path, &spec(4, ABC), &cache).unwrap_err();
        assert!(
            error.message.contains(&format!("expected 4 bytes, SHA-256 {ABC}\n  found    3 bytes")),
            "{error}"
        );
        assert!(
            error.to_string().contains("hint: delete it and download it again from https://example.org/abc")
        );
        // The record in the cache is for the old contents.
        verify(&path, &spec(3, ABC), &cache).unwrap();
        let later = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
        fs::write(&path, "abd").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let error = verify(&path, &spec(3, ABC), &cache).unwrap_err();
        assert!(
            error.message.contains("a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9"),
            "{error}"
        );
    }

    #[test]
    fn does_not_read_a_verified_file_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        let path = folder.path().join("abc");
        fs::write(&path, "abc").unwrap();
        verify(&path, &spec(3, ABC), &cache).unwrap();
        // With a record for it, only reading the file would show the change.
        fs::write(&path, "xyz").unwrap();
        let digest = spec(3, ABC).digest.unwrap();
        let record = format!("{} {digest}\n", stamp(&fs::metadata(&path).unwrap()));
        fs::write(cache.record_path(&path).unwrap(), record).unwrap();
        verify(&path, &spec(3, ABC), &cache).unwrap();
        // Another cache has no record of it.
        assert!(verify(&path, &spec(3, ABC), &Cache::at(folder.path().join("other"))).is_err());
    }
}
