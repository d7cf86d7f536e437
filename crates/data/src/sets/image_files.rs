//! Lists the images of a folder, the files that are ignored, and the images that can't be decoded.

use super::image_decode::{DecodeError, decode};
use crate::Content;
use crate::store::{Cache, stamp, write_atomically};
use base::display;
use base::error::{IoContext, Result, is_transient};
use data_encoding::HEXLOWER;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The images of a folder with one subfolder per class.
pub(super) struct ImageList {
    pub folder: PathBuf,
    /// Sorted by name. Each has at least one image.
    pub classes: Vec<String>,
    /// Sorted by path, so that the order is the same on every host; each with the index of its class.
    pub images: Vec<(PathBuf, usize)>,
    pub ignored: Ignored,
}

/// Files and folders that are not used.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ignored {
    /// Files and folders whose names begin with a dot.
    hidden: usize,
    /// Folders without images.
    empty: Vec<String>,
    /// Folders within a class folder.
    nested: usize,
    /// Images outside of any class folder, by name.
    outside: Vec<String>,
    /// Files whose extension is neither PNG nor JPEG: their number by extension.
    other_files: BTreeMap<String, usize>,
}

/// Number of files listed by name, per kind.
const MAX_LISTED: usize = 8;
/// Maximum number of files whose sizes are read.
const MAX_SIZES_READ: usize = 4096;

pub(super) fn find_images(folder: &Path) -> Result<ImageList> {
    let mut found = ImageList {
        folder: folder.to_owned(),
        classes: Vec::new(),
        images: Vec::new(),
        ignored: Ignored::default(),
    };
    for entry in sorted(folder)? {
        if !entry.is_dir() && is_image(&entry) {
            found.ignored.outside.push(name_of(&entry));
        } else if !entry.is_dir() {
            found.ignored.add_file(&entry);
        } else if is_hidden(&entry) {
            found.ignored.hidden += 1;
        } else {
            found.add_class(&entry)?;
        }
    }
    Ok(found)
}

impl ImageList {
    fn add_class(&mut self, folder: &Path) -> Result<()> {
        let before = self.images.len();
        for path in sorted(folder)? {
            if is_image(&path) {
                self.images.push((path, self.classes.len()));
            } else if !is_hidden(&path) && path.is_dir() {
                self.ignored.nested += 1;
            } else {
                self.ignored.add_file(&path);
            }
        }
        let name = name_of(folder);
        let list = if self.images.len() > before { &mut self.classes } else { &mut self.ignored.empty };
        list.push(name);
        Ok(())
    }
}

/// Digest of the names and classes of all images in a folder, and of the sizes of some at equal distances: reading a million sizes on
/// a network file system takes minutes.
pub(super) fn content(folder: &Path, images: &[(PathBuf, usize)]) -> Content {
    let mut hasher = Sha256::new();
    let apart = images.len().div_ceil(MAX_SIZES_READ).max(1);
    for (i, (path, class)) in images.iter().enumerate() {
        let name = path.strip_prefix(folder).unwrap_or(path);
        hasher.update(name.as_os_str().as_encoded_bytes());
        let size = i.is_multiple_of(apart).then(|| std::fs::metadata(path).map_or(0, |meta| meta.len()));
        hasher.update(format!("\0{class} {size:?}\n"));
    }
    hasher.finalize().into()
}

pub(super) fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(folder).and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect());
    let mut paths: Vec<PathBuf> = paths.doing("list", folder)?;
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub(super) fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

pub(super) fn is_image(path: &Path) -> bool {
    !is_hidden(path) && matches!(extension(path).as_str(), "png" | "jpg" | "jpeg")
}

impl Ignored {
    fn add_file(&mut self, path: &Path) {
        match is_hidden(path) {
            true => self.hidden += 1,
            false => *self.other_files.entry(extension(path)).or_default() += 1,
        }
    }

    /// `2 hidden files or folders, 3 files that are neither PNG nor JPEG (2 .bmp, 1 .txt)`; `None` if nothing is ignored.
    pub fn in_words(&self) -> Option<String> {
        let count = |n: usize, one: &str, many: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        };
        let some = |all: Vec<String>| match all.len() {
            n if n > MAX_LISTED => format!("{}, …", all[..MAX_LISTED].join(", ")),
            _ => all.join(", "),
        };
        let names =
            |all: &[String]| some(all.iter().map(|name| format!("`{}`", display::name(name))).collect());
        let kinds = || {
            let kind = |(extension, n): (&String, &usize)| match extension.is_empty() {
                true => format!("{n} without an extension"),
                false => format!("{n} .{}", display::name(extension)),
            };
            some(self.other_files.iter().map(kind).collect())
        };
        let parts = [
            count(self.hidden, "hidden file or folder", "hidden files or folders"),
            count(self.empty.len(), "folder without images", "folders without images")
                .map(|n| format!("{n} ({})", names(&self.empty))),
            count(
                self.outside.len(),
                "image outside of any class folder",
                "images outside of any class folder",
            )
            .map(|n| format!("{n} ({})", names(&self.outside))),
            count(self.nested, "subfolder of a class folder", "subfolders of class folders"),
            count(
                self.other_files.values().sum(),
                "file that is neither PNG nor JPEG",
                "files that are neither PNG nor JPEG",
            )
            .map(|n| format!("{n} ({})", kinds())),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Decodes all images, on all threads, and returns the indices of those that fail, each with its path and reason. The
/// result is stored in `cache` and valid until a file changes.
pub(super) fn unreadable(
    folder: &Path,
    images: &[(PathBuf, usize)],
    cache: &Cache,
    say: &mut dyn FnMut(&str),
) -> Result<BTreeMap<usize, String>> {
    let note = cache.join(&format!("images/{}", identity(images)?)).ok();
    let noted = note.as_ref().and_then(|note| base::files::read_text(note).ok());
    if let Some(noted) = noted.and_then(|text| serde_json::from_str(&text).ok()) {
        return Ok(noted);
    }
    say(&format!("{}: checking all {} images (`bad_images = \"skip\"`)", folder.display(), images.len()));
    let in_words = |path: &Path, why: &str| {
        format!("{} ({})", display::piece(&path.to_string_lossy()), display::name(why))
    };
    // A file that can't be opened is tried again at the next start: its permissions can change without its mtime.
    let all_read = AtomicBool::new(true);
    let bad = images.par_iter().enumerate().filter_map(|(i, (path, _))| match decode(path) {
        Ok(_) => None,
        Err(DecodeError::Invalid(why)) => Some(Ok((i, in_words(path, &why)))),
        // A temporary error must not decide which images are left out.
        Err(DecodeError::Io(e)) if is_transient(&e) => Some(Err(e).doing("read", path)),
        Err(DecodeError::Io(e)) => {
            all_read.store(false, Ordering::Relaxed);
            Some(Ok((i, in_words(path, &e.to_string()))))
        }
    });
    let bad: BTreeMap<usize, String> = bad.collect::<Result<_>>()?;
    let note = note.filter(|_| all_read.into_inner());
    if let (Some(note), Ok(text)) = (note, serde_json::to_string(&bad)) {
        // If this fails, only speed is lost.
        let _ = write_atomically(&note, text.as_bytes());
    }
    Ok(bad)
}

/// Identifies these files by path and `stamp`, and the version of this program, since its decoders may change.
fn identity(images: &[(PathBuf, usize)]) -> Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    for (path, _) in images {
        let meta = match std::fs::metadata(path) {
            // For example a link to what is not there.
            Err(e) if !is_transient(&e) => {
                hasher.update(path.as_os_str().as_encoded_bytes());
                hasher.update(format!("\0{:?}\n", e.kind()));
                continue;
            }
            found => found.doing("read", path)?,
        };
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(format!("\0{}\n", stamp(&meta)));
    }
    Ok(HEXLOWER.encode(&hasher.finalize()[..16]))
}
