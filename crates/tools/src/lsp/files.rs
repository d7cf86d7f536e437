//! Addresses of files, and which files are specs.

use lsp_types::Uri;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Files of other programs.
const OTHERS: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    "pyproject.toml",
    "clippy.toml",
    "rustfmt.toml",
    "rust-toolchain.toml",
    "taplo.toml",
    "deny.toml",
];

/// Whether the file may be a spec: not if it has the name of another program's file, its name begins with a dot, or
/// its folder is Cargo's.
pub fn may_be_spec(path: &Path) -> bool {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let of_cargo = path.parent().and_then(name).is_some_and(|folder| folder == ".cargo");
    !of_cargo && !name(path).is_some_and(|name| name.starts_with('.') || OTHERS.contains(&name.as_str()))
}

/// The path of a `file:` address of this machine.
pub fn path_of(uri: &Uri) -> Option<PathBuf> {
    let rest = uri.as_str().strip_prefix("file://")?;
    let path = &rest[rest.find('/')?..];
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    use std::os::unix::ffi::OsStringExt;
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// The address of an absolute path.
pub fn uri_of(path: &Path) -> Option<Uri> {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                text.push(char::from(*byte));
            }
            // Writing to a string can't fail.
            other => drop(write!(text, "%{other:02X}")),
        }
    }
    path.is_absolute().then(|| Uri::from_str(&text).ok())?
}

/// A name of a file that is the same for all of its paths, whether the file is there or not.
pub fn identity(path: &Path) -> PathBuf {
    spec::identify(path)
}

/// Addresses of documents that are none by the standard, as some clients write them: with raw brackets, blanks or letters. Here
/// they are those that the client means; it is answered in its own words.
#[derive(Default)]
pub struct Addresses {
    /// By the address that is used here.
    given: BTreeMap<String, String>,
}

impl Addresses {
    /// Makes the address of the document in a message's parameters one.
    pub fn accept(&mut self, params: &mut Json) {
        let Some(Json::String(uri)) = params.pointer_mut("/textDocument/uri") else { return };
        if Uri::from_str(uri).is_err() {
            let encoded = encoded(uri);
            self.given.insert(encoded.clone(), std::mem::replace(uri, encoded));
        }
    }

    /// Writes all addresses in an answer as the client does.
    pub fn restore(&self, answer: &mut Json) {
        if self.given.is_empty() {
            return;
        }
        match answer {
            Json::String(text) => self.given.get(text).into_iter().for_each(|given| text.clone_from(given)),
            Json::Array(items) => items.iter_mut().for_each(|item| self.restore(item)),
            Json::Object(map) => {
                let entries = std::mem::take(map).into_iter().map(|(key, mut value)| {
                    self.restore(&mut value);
                    (self.given.get(&key).cloned().unwrap_or(key), value)
                });
                *map = entries.collect::<Map<_, _>>();
            }
            _ => {}
        }
    }
}

/// An address whose other characters are in percent-encoding.
fn encoded(uri: &str) -> String {
    let mut text = String::new();
    for (at, byte) in uri.bytes().enumerate() {
        let is_code =
            || uri.as_bytes().get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        match byte {
            b'%' if !is_code() => text.push_str("%25"),
            byte if byte.is_ascii_alphanumeric() || b"-._~:/?#@!$&'()*+,;=%".contains(&byte) => {
                text.push(char::from(byte));
            }
            // Writing to a string can't fail.
            other => drop(write!(text, "%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_the_same() {
        for path in ["/a/b.toml", "/with space/ü/100%.toml", "/a?b#c/[x].toml"] {
            let uri = uri_of(Path::new(path)).expect("an address");
            assert_eq!(path_of(&uri).as_deref(), Some(Path::new(path)), "{}", uri.as_str());
        }
        let path = |text: &str| path_of(&Uri::from_str(text).expect("an address"));
        assert_eq!(path("file:///a%20b/%C3%BC.toml"), Some(PathBuf::from("/a b/ü.toml")));
        assert_eq!(path("file://host/a.toml"), Some(PathBuf::from("/a.toml")));
        assert_eq!(path("untitled:Untitled-1"), None);
        assert_eq!(uri_of(Path::new("relative.toml")), None);
    }

    #[test]
    fn addresses_that_are_none_are_taken_and_given_back() {
        for (given, path) in [
            ("file:///a b/[x].toml", "/a b/[x].toml"),
            ("file:///ü/50%.toml", "/ü/50%.toml"),
            ("file:///a%20b/{c}.toml", "/a b/{c}.toml"),
        ] {
            let mut addresses = Addresses::default();
            let mut params = serde_json::json!({ "textDocument": { "uri": given } });
            addresses.accept(&mut params);
            let uri = params["textDocument"]["uri"].as_str().expect("an address").to_owned();
            let parsed = Uri::from_str(&uri).unwrap_or_else(|e| panic!("{uri}: {e}"));
            assert_eq!(path_of(&parsed).as_deref(), Some(Path::new(path)));
            let mut answer = serde_json::json!([{ "uri": uri, "changes": { uri.as_str(): 1 }, "x": "y" }]);
            addresses.restore(&mut answer);
            assert_eq!(answer, serde_json::json!([{ "uri": given, "changes": { given: 1 }, "x": "y" }]));
        }
    }

    #[test]
    fn files_of_other_programs_are_no_specs() {
        for (path, is) in [
            ("/a/job.toml", true),
            ("/a/Cargo.toml", false),
            ("/a/pyproject.toml", false),
            ("/a/.cargo/config.toml", false),
            ("/a/.taplo.toml", false),
            ("/.x/job.toml", true),
        ] {
            assert_eq!(may_be_spec(Path::new(path)), is, "{path}");
        }
    }
}
