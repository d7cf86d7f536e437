//! A data set that is a single file: one given by its path, or a published one with known addresses and digest.

use super::digest::{Digest, FileSpec, verify};
use super::fetch::{Download, Refusal, fetch};
use super::place::{Cache, absolute};
use super::url::Url;
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::path::{Path, PathBuf};

/// The one file of the data set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["path"], "x-section" = "File"))]
struct FileKeys {
    /// The file. Of `text` also a pattern such as `texts/*.txt`: several files, in the order of their names.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    path: PathBuf,
    /// Where to download the file from if it is missing.
    #[schemars(extend("x-changes-results" = false))]
    url: Option<Url>,
    /// Digest that the file must have: 64 hexadecimal digits.
    sha256: Option<String>,
    /// Folder in which verified digests are recorded. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    cache: Cache,
}

/// The one file of a published data set; its digest is checked.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Published file"))]
struct PublishedKeys {
    /// The file. Default: in `cache`, under its own name.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    path: Option<PathBuf>,
    /// Download the file if it is missing.
    #[default = true]
    #[schemars(extend("x-changes-results" = false))]
    download: bool,
    /// Where to download the file from, instead of its known addresses.
    #[schemars(extend("x-changes-results" = false))]
    url: Option<Url>,
    /// Folder of the file and of records of verified digests. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    cache: Cache,
}

/// A file that is published at known addresses.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub name: &'static str,
    /// In the order in which they are asked.
    pub urls: &'static [&'static str],
    pub size: u64,
    pub sha256: &'static str,
}

/// The file of a data set.
#[derive(Clone, Debug)]
pub struct NamedFile {
    pub path: PathBuf,
    /// Where it is downloaded from; empty if that is not known.
    urls: Vec<String>,
    download: bool,
    spec: FileSpec,
    cache: Cache,
    /// `path` is a pattern of paths.
    is_pattern: bool,
}

impl Default for NamedFile {
    /// A placeholder until the keys are read.
    fn default() -> Self {
        Self::new(FileKeys::default())
    }
}

impl NamedFile {
    /// Reads the keys of a file that the user names.
    pub fn read(fields: &mut Fields<'_>) -> Self {
        let mut file: FileKeys = fields.config();
        file.sha256 = file.sha256.map(|s| s.to_lowercase());
        if file.sha256.as_ref().is_some_and(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit())) {
            fields.problem("sha256", "expected 64 hexadecimal digits");
        }
        Self::new(file)
    }

    /// As [`NamedFile::read`]; the path may be a pattern that several files fit.
    pub fn of_several(fields: &mut Fields<'_>) -> Self {
        let mut file = Self::read(fields);
        file.is_pattern = !file.path.exists() && file.path.to_string_lossy().contains(['*', '?', '[']);
        if file.is_pattern {
            fields.misplaced(&["url", "sha256"], "where `path` is a pattern");
        }
        file
    }

    fn new(file: FileKeys) -> Self {
        let url = file.url.map(|url| url.0);
        let from = url.clone().unwrap_or_else(|| "its source".to_owned());
        Self {
            path: file.path,
            urls: url.into_iter().collect(),
            download: true,
            spec: FileSpec { size: None, digest: file.sha256.map(Digest::Sha256), from },
            cache: file.cache,
            is_pattern: false,
        }
    }

    /// Reads the keys of a published file.
    pub fn published(fields: &mut Fields<'_>, file: &Published) -> Self {
        let keys: PublishedKeys = fields.config();
        let known = || file.urls.iter().map(|url| (*url).to_owned()).collect();
        let urls: Vec<String> = keys.url.map_or_else(known, |url| vec![url.0]);
        // Without a cache, in the working directory.
        let in_cache = || keys.cache.join(file.name).unwrap_or_else(|_| file.name.into());
        Self {
            path: keys.path.clone().unwrap_or_else(in_cache),
            download: keys.download,
            spec: FileSpec {
                size: Some(file.size),
                digest: Some(Digest::Sha256(file.sha256.to_owned())),
                from: urls[0].clone(),
            },
            urls,
            cache: keys.cache,
            is_pattern: false,
        }
    }

    /// Whether it is a file that is known, not one of the user's.
    pub fn is_published(&self) -> bool {
        self.spec.size.is_some()
    }

    /// Where what is made of the file is kept.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The files that are there, in the order of their names.
    ///
    /// # Errors
    /// The path is a pattern that no file fits, or none at all.
    pub fn paths(&self) -> Result<Vec<PathBuf>> {
        if !self.is_pattern {
            return Ok(Some(self.path.clone()).filter(|path| path.is_file()).into_iter().collect());
        }
        fitting(&self.path)
    }

    /// Downloads the file if it is missing and an address is known, and verifies it. A downloaded file must also pass `check`
    /// before it is renamed to its final name.
    pub fn prepare(&self, check: &dyn Fn(&Path) -> Result<()>, say: &mut dyn FnMut(&str)) -> Result<()> {
        if self.is_pattern {
            return self.paths().map(drop);
        }
        if !self.is_there()? {
            fetch(Download { urls: &self.urls, target: &self.path, spec: &self.spec }, check, say)?;
        }
        verify(&self.path, &self.spec, &self.cache)
    }

    /// Whether the file is there; otherwise it can be downloaded.
    ///
    /// # Errors
    /// The file is missing, and is not to be downloaded.
    pub fn is_there(&self) -> Result<bool> {
        if self.is_pattern {
            return self.paths().map(|_| true);
        }
        let path = absolute(&self.path);
        if self.path.is_file() {
            return Ok(true);
        }
        if self.path.exists() {
            return Err(Error::data(format!("{} is not a file", path.display())).hint(
                "`[dataset] path` must be the path of a file; a relative one starts in the working directory of ddp-run",
            ));
        }
        let known = self.spec.size.is_some() || self.spec.digest.is_some();
        let expected = if known { format!("\n  expected {}", self.spec) } else { String::new() };
        let missing = Error::data(format!("{} is missing{expected}", path.display()));
        let Some(url) = self.urls.first() else {
            return Err(missing.hint(
                "copy it there, correct `[dataset] path` (a relative one starts in the working directory of ddp-run), \
                 or set `[dataset] url` to download it",
            ));
        };
        Refusal::new(self.download)
            .map_or(Ok(false), |refusal| Err(refusal.explain(missing, url, &self.path)))
    }
}

/// The file of this path, or else those that fit it as a pattern, in the order of their names.
///
/// # Errors
/// There is none, or one that can't be read.
pub fn fitting(pattern: &Path) -> Result<Vec<PathBuf>> {
    if pattern.is_file() {
        return Ok(vec![pattern.to_owned()]);
    }
    let shown = absolute(pattern).display().to_string();
    // The working directory is no part of the pattern.
    let here = std::env::current_dir().map(|here| glob::Pattern::escape(&here.to_string_lossy()));
    let whole = match &here {
        Ok(here) if pattern.is_relative() => format!("{here}/{}", pattern.display()),
        _ => pattern.display().to_string(),
    };
    // As in a shell.
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let found = glob::glob_with(&whole, options)
        .map_err(|e| Error::data(format!("`[dataset] path`: `{shown}` is not a pattern: {e}")))?;
    let mut paths = Vec::new();
    for path in found {
        let path = path.map_err(|e| Error::data(format!("{}: {}", e.path().display(), e.error())))?;
        if path.is_dir() {
            continue;
        }
        if !path.is_file() {
            let what = format!("{} fits {shown}, and is no file that can be read", path.display());
            return Err(Error::data(what).hint("remove it, or correct `[dataset] path`"));
        }
        paths.push(path);
    }
    paths.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    match paths.is_empty() {
        true => Err(Error::data(format!("no file fits {shown}")).hint("correct `[dataset] path`")),
        false => Ok(paths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::serve_file;

    #[test]
    fn errors_show_absolute_paths() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: &std::path::Path, url: Option<&str>| {
            let url = url.map(|url| Url(url.to_owned()));
            NamedFile::new(FileKeys { path: path.to_owned(), url, sha256: None, cache: Cache::none() })
        };
        let never_asked = Some("http://127.0.0.1:9/never-asked");
        let error = file(folder.path(), never_asked).prepare(&|_| Ok(()), &mut |_| ()).unwrap_err();
        assert_eq!(error.kind, base::error::ErrorKind::Spec);
        assert_eq!(error.message, format!("{} is not a file", folder.path().display()));
        let missing = file(std::path::Path::new("no-such/t.csv"), None);
        let error = missing.prepare(&|_| Ok(()), &mut |_| ()).unwrap_err();
        let whole = std::env::current_dir().unwrap().join("no-such/t.csv");
        assert!(error.message.starts_with(&format!("{} is missing", whole.display())), "{error}");
    }

    /// What is known of a published file, and what its keys replace.
    #[test]
    fn a_published_file_needs_no_keys() {
        const ABC: Published = Published {
            name: "abc",
            urls: &["http://127.0.0.1:9/first", "http://127.0.0.1:9/second"],
            size: 3,
            sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        };
        let folder = tempfile::tempdir().unwrap();
        let read = |table: &str| {
            let text = format!("[dataset]\ncache = '{}'\n{table}\n", folder.path().display());
            let job = spec::JobTree::parse("job.toml", &text, &[]);
            let read =
                job.read(|fields| fields.table("dataset").map(|mut f| NamedFile::published(&mut f, &ABC)));
            read.unwrap().0.unwrap()
        };
        let file = read("download = false");
        assert_eq!((file.path.clone(), file.urls.len()), (folder.path().join("abc"), 2));
        let error = file.prepare(&|_| Ok(()), &mut |_| ()).unwrap_err();
        let start = format!("{} is missing\n  expected 3 bytes, SHA-256 ba78", file.path.display());
        assert!(error.message.starts_with(&start), "{error}");
        let hint = error.hint.unwrap();
        assert!(hint.starts_with("`[dataset] download` is false. `ddp-run data fetch SPEC`"), "{hint}");
        assert!(hint.contains("copy http://127.0.0.1:9/first to "), "{hint}");
        if cfg!(feature = "download") {
            let elsewhere = folder.path().join("mine/a.txt");
            let url = serve_file(b"abc");
            let file = read(&format!("url = '{url}'\npath = '{}'", elsewhere.display()));
            file.prepare(&|_| Ok(()), &mut |_| ()).unwrap();
            assert_eq!(std::fs::read(&elsewhere).unwrap(), b"abc");
        }
        // The digest is checked without any key.
        std::fs::write(folder.path().join("abc"), "abd").unwrap();
        let error = read("").prepare(&|_| Ok(()), &mut |_| ()).unwrap_err();
        assert!(error.message.contains("is damaged or the wrong file"), "{error}");
    }

    #[test]
    fn downloads_once_and_verifies() {
        let folder = tempfile::tempdir().unwrap();
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let file = |sha: &str| {
            NamedFile::new(FileKeys {
                path: folder.path().join("new/abc"),
                url: Some(Url(serve_file(b"abc"))),
                sha256: Some(sha.to_owned()),
                cache: Cache::at(folder.path().join("cache")),
            })
        };
        assert!(file(&sha.replace('b', "c")).prepare(&|_| Ok(()), &mut |_| ()).is_err());
        assert!(!folder.path().join("new/abc").exists());
        file(sha).prepare(&|_| Ok(()), &mut |_| ()).unwrap();
        let mut said = 0;
        file(sha).prepare(&|_| Ok(()), &mut |_| said += 1).unwrap();
        assert_eq!(
            (std::fs::read_to_string(folder.path().join("new/abc")).unwrap().as_str(), said),
            ("abc", 0)
        );
    }
}
