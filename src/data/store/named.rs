//! A single file that the spec names by its path: `path`, `url` and `sha256` of a `[dataset]` table.

use super::digest::{Digest, FileSpec, verify};
use super::fetch::download;
use super::place::Cache;
use crate::error::{Error, Result};
use crate::spec::Fields;
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct NamedFile {
    pub path: PathBuf,
    url: Option<String>,
    sha256: Option<String>,
    cache: Cache,
}

impl NamedFile {
    pub fn read(fields: &mut Fields<'_>) -> Self {
        let sha256 = fields.opt_str("sha256").map(|s| s.to_lowercase());
        if sha256.as_ref().is_some_and(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit())) {
            fields.problem("sha256", "expected 64 hexadecimal digits");
        }
        Self {
            path: fields.req_str("path").into(),
            url: fields.opt_str("url"),
            sha256,
            cache: Cache::read(fields),
        }
    }

    /// Fetches the file where it is not there and `url` says from where; checks it where `sha256` says how.
    pub fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        let spec = FileSpec {
            size: None,
            digest: self.sha256.clone().map(Digest::Sha256),
            from: self.url.clone().unwrap_or_else(|| "where it came from".to_owned()),
        };
        if self.path.is_file() {
            return verify(&self.path, &spec, &self.cache);
        }
        match &self.url {
            Some(url) => download(url, &self.path, &spec, say),
            None => Err(Error::data(format!("{} is missing\n  expected {spec}", self.path.display()))
                .hint("put it there, mend `[dataset] path`, or let `[dataset] url` say where to get it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::serve_once;

    #[test]
    fn fetched_once_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let file = |sha: &str| NamedFile {
            path: folder.path().join("new/abc"),
            url: Some(serve_once(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")),
            sha256: Some(sha.to_owned()),
            cache: Cache::at(folder.path().join("cache")),
        };
        assert!(file(&sha.replace('b', "c")).prepare(&mut |_| ()).is_err());
        assert!(!folder.path().join("new/abc").exists());
        file(sha).prepare(&mut |_| ()).unwrap();
        let mut said = 0;
        file(sha).prepare(&mut |_| said += 1).unwrap();
        assert_eq!(
            (std::fs::read_to_string(folder.path().join("new/abc")).unwrap().as_str(), said),
            ("abc", 0)
        );
    }
}
