//! A data set that is a single file, given by its path.

use super::digest::{Digest, FileSpec, verify};
use super::fetch::download;
use super::place::{Cache, absolute};
use crate::error::{Error, Result};
use crate::spec::Fields;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The one file of the data set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["path"], "x-section" = "File"))]
pub struct NamedFile {
    /// The file.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    pub path: PathBuf,
    /// Where to download the file from if it is missing.
    #[schemars(extend("x-changes-results" = false))]
    url: Option<String>,
    /// Digest that the file must have: 64 hexadecimal digits.
    sha256: Option<String>,
    /// Folder in which verified digests are recorded. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    cache: Cache,
}

impl NamedFile {
    pub fn read(fields: &mut Fields<'_>) -> Self {
        let file: Self = fields.config();
        let sha256 = file.sha256.map(|s| s.to_lowercase());
        if sha256.as_ref().is_some_and(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit())) {
            fields.problem("sha256", "expected 64 hexadecimal digits");
        }
        Self { sha256, ..file }
    }

    /// Downloads the file if it is missing and `url` is set, and verifies it against `sha256` if set. A downloaded file must
    /// also pass `check` before it is renamed to its final name.
    pub fn prepare(&self, check: impl FnOnce(&Path) -> Result<()>, say: &mut dyn FnMut(&str)) -> Result<()> {
        let spec = FileSpec {
            size: None,
            digest: self.sha256.clone().map(Digest::Sha256),
            from: self.url.clone().unwrap_or_else(|| "its source".to_owned()),
        };
        let path = absolute(&self.path);
        if self.path.is_file() {
            return verify(&self.path, &spec, &self.cache);
        }
        if self.path.exists() {
            return Err(Error::data(format!("{} is not a file", path.display())).hint(
                "`[dataset] path` must be the path of a file; a relative one starts in the working directory of ddp-run",
            ));
        }
        match &self.url {
            Some(url) => download(url, &self.path, &spec, check, say),
            None => Err(Error::data(format!("{} is missing\n  expected {spec}", path.display())).hint(
                "copy it there, correct `[dataset] path` (a relative one starts in the working directory of ddp-run), \
                 or set `[dataset] url` to download it",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::serve_file;

    #[test]
    fn errors_show_absolute_paths() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: &std::path::Path| NamedFile {
            path: path.to_owned(),
            url: Some("http://127.0.0.1:9/never-asked".to_owned()),
            sha256: None,
            cache: Cache::none(),
        };
        let error = file(folder.path()).prepare(|_| Ok(()), &mut |_| ()).unwrap_err();
        assert_eq!(error.code, crate::error::ExitCode::Spec);
        assert_eq!(error.message, format!("{} is not a file", folder.path().display()));
        let missing = NamedFile { url: None, ..file(std::path::Path::new("no-such/t.csv")) };
        let error = missing.prepare(|_| Ok(()), &mut |_| ()).unwrap_err();
        let whole = std::env::current_dir().unwrap().join("no-such/t.csv");
        assert!(error.message.starts_with(&format!("{} is missing", whole.display())), "{error}");
    }

    #[test]
    fn downloads_once_and_verifies() {
        let folder = tempfile::tempdir().unwrap();
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let file = |sha: &str| NamedFile {
            path: folder.path().join("new/abc"),
            url: Some(serve_file(b"abc")),
            sha256: Some(sha.to_owned()),
            cache: Cache::at(folder.path().join("cache")),
        };
        assert!(file(&sha.replace('b', "c")).prepare(|_| Ok(()), &mut |_| ()).is_err());
        assert!(!folder.path().join("new/abc").exists());
        file(sha).prepare(|_| Ok(()), &mut |_| ()).unwrap();
        let mut said = 0;
        file(sha).prepare(|_| Ok(()), &mut |_| said += 1).unwrap();
        assert_eq!(
            (std::fs::read_to_string(folder.path().join("new/abc")).unwrap().as_str(), said),
            ("abc", 0)
        );
    }
}
