//! Addresses of files, and which files are specs.

use lsp_types::Uri;
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

/// A name of a file that is the same for all of its paths.
pub fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
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
