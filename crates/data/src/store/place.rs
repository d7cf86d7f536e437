//! The user's cache, and atomic creation of files and folders: they appear complete or not at all.

use base::error::{Error, IoContext, Result};
use base::files::{TempPath, folder, remove_begun};
use data_encoding::HEXLOWER;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use spec::Fields;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// Folder for unpacked data, if the data folder is read-only, and for records of verified files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(from = "PathBuf")]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl From<PathBuf> for Cache {
    fn from(folder: PathBuf) -> Self {
        Self::at(folder)
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::of_user()
    }
}

impl Cache {
    /// The cache in this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// No cache: nothing is recorded.
    pub fn none() -> Self {
        Self { folder: None }
    }

    /// `$XDG_CACHE_HOME/ddp-run`, otherwise `~/.cache/ddp-run`.
    pub fn of_user() -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
        Self { folder: base.map(|base| base.join("ddp-run")) }
    }

    /// A path in the cache; an error if there is no cache.
    pub fn join(&self, name: &str) -> Result<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(name)).ok_or_else(|| {
            Error::data("no cache folder: neither XDG_CACHE_HOME nor HOME is set")
                .hint("set one in the spec: `[dataset] cache = \"/some/folder\"`")
        })
    }

    /// The folder of the cache, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The path of the verification record of a file.
    pub(super) fn record_path(&self, path: &Path) -> Option<PathBuf> {
        let canonical = path.canonicalize().ok()?;
        let hash = Sha256::digest(canonical.as_os_str().as_encoded_bytes());
        Some(self.folder.as_ref()?.join("verified").join(HEXLOWER.encode(&hash[..16])))
    }
}

/// The absolute path, for messages.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Reports the keys whose values are not names of files below a folder, `place`: the location of a data set is no part of what results
/// depend on.
pub fn check_names_below<const N: usize>(
    fields: &mut Fields<'_>,
    keys: [(&str, &Option<String>); N],
    place: &str,
) {
    for (key, name) in keys {
        if name.as_ref().is_some_and(|name| below(Path::new(""), Path::new(name)).is_none()) {
            fields.problem(key, format!("expected the name of a file in {place}"));
        }
    }
}

/// The path `name` from the folder `from` in a root, as a path from the root without `.` and `..`; `None` if it is absolute or leaves the
/// root. Links are not followed.
pub fn below(from: &Path, name: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for component in from.components().chain(name.components()) {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// What changes with a file: its size, its times and its inode. A copy with the times of the original (`cp -p`) has another change time.
pub fn stamp(meta: &fs::Metadata) -> String {
    let (modified, changed) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
    let [modified, changed] = [modified, changed].map(|(s, ns)| format!("{s}.{ns:09}"));
    format!("{} {modified} {changed} {}", meta.len(), meta.ino())
}

/// A short hash of a file's path and [`stamp`].
pub fn identity(path: &Path) -> Result<String> {
    let meta = fs::metadata(path).doing("read", path)?;
    let canonical = path.canonicalize().doing("read", path)?;
    let mut hasher = Sha256::new();
    hasher.update(canonical.as_os_str().as_encoded_bytes());
    hasher.update(format!(" {}", stamp(&meta)));
    Ok(HEXLOWER.encode(&hasher.finalize()[..8]))
}

/// Whether files may be created in a folder. A folder without any write permission counts as read-only even for root.
pub fn is_writable(folder: &Path) -> bool {
    let permitted = fs::metadata(folder).is_ok_and(|m| m.is_dir() && m.permissions().mode() & 0o222 != 0);
    permitted && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Whether a folder is in a work tree of git, of which unpacked files would become a part.
pub fn in_git_work_tree(folder: &Path) -> bool {
    let folder = folder.canonicalize().unwrap_or_else(|_| absolute(folder));
    folder.ancestors().any(|above| above.join(".git").exists())
}

/// Calls `fill` to create a file or a folder at a path beside `target`, then renames it. If another process was faster, its
/// result is kept. What killed processes have left of the same file is removed.
pub fn create_atomically(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let parent = folder(target);
    fs::create_dir_all(parent).doing("create", parent)?;
    with_temporary_path(target, |path| {
        fill(path)?;
        match fs::rename(path, target) {
            // A folder can't be renamed over one that is not empty.
            Err(_) if target.is_dir() => Ok(()),
            // A faster process has taken it for what a killed one left.
            Err(e) if e.kind() == io::ErrorKind::NotFound && target.is_file() => Ok(()),
            renamed => renamed.doing("create", target),
        }
    })?;
    // Not of a folder, in which another process may be creating files.
    if target.is_file() {
        remove_begun(parent, |name| Some(name.as_ref()) == target.file_name());
    }
    Ok(())
}

/// Calls `work` with a temporary path beside `file`, which is removed afterwards. Errors name `file` instead of it.
pub fn with_temporary_path<T>(file: &Path, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let scratch = TempPath::beside(file).doing("create", file)?;
    work(scratch.path()).map_err(|e| {
        let message = e.message.replace(&scratch.path().display().to_string(), &file.display().to_string());
        Error { message, ..e }
    })
}

/// Writes a small file atomically.
pub fn write_atomically(target: &Path, bytes: &[u8]) -> Result<()> {
    create_atomically(target, |path| fs::write(path, bytes).doing("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_creation_leaves_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("deep/er/file");
        let failed = create_atomically(&target, |path| {
            fs::write(path, "half").unwrap();
            Err(Error::data(format!("{} is half", path.display())))
        });
        assert_eq!(failed.unwrap_err().message, format!("{} is half", target.display()));
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 0);
        write_atomically(&target, b"whole").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"whole");
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn keeps_the_result_of_a_faster_process() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("set");
        create_atomically(&target, |path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("a"), "mine").unwrap();
            fs::create_dir(&target).unwrap();
            fs::write(target.join("a"), "theirs").unwrap();
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn names_stay_below_their_root() {
        for (from, name, path) in [
            ("", "a.csv", Some("a.csv")),
            ("", "./a//b.csv", Some("a/b.csv")),
            ("train", "../b.png", Some("b.png")),
            ("train", "../../b.png", None),
            ("train", "/etc/passwd", None),
            ("", "a/../../b", None),
        ] {
            assert_eq!(below(Path::new(from), Path::new(name)).as_deref(), path.map(Path::new), "{name}");
        }
    }

    /// As `cp -p` and `rsync -t` do it.
    #[test]
    fn a_file_that_is_replaced_with_equal_size_and_time_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let (before, time) = (identity(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
        assert_eq!(identity(&path).unwrap(), before);
        let with_time = |path: &Path| {
            fs::write(path, "new").unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
            assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), time);
        };
        with_time(&folder.path().join("b"));
        fs::rename(folder.path().join("b"), &path).unwrap();
        let renamed = identity(&path).unwrap();
        assert_ne!(renamed, before);
        // Written in place: only the change time is another, whose clock may tick a hundred times a second.
        while identity(&path).unwrap() == renamed {
            with_time(&path);
        }
    }

    #[test]
    fn what_a_killed_process_left_of_a_file_goes_when_another_has_made_it() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("f");
        let left = folder.path().join(".f.part-0123456789abcdef");
        fs::write(&left, "half").unwrap();
        // A slower process, whose file is taken for such a one.
        create_atomically(&target, |path| {
            fs::write(path, "slower").unwrap();
            write_atomically(&target, b"faster")
        })
        .unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"faster");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_without_write_permission_is_not_writable() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_writable(folder.path()));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
        assert!(!is_writable(folder.path()));
        assert!(!is_writable(&folder.path().join("absent")));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}
