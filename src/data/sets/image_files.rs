//! The files of a folder of images: which are used, which are not and why, and which can't be read.

use super::image_decode::{Unread, decode};
use crate::data::Content;
use crate::data::store::{Cache, write_into_place};
use crate::error::{IoContext, Result, is_transient};
use crate::show;
use data_encoding::HEXLOWER;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The images of a folder that has one folder for each class.
pub(super) struct Found {
    pub folder: PathBuf,
    /// Sorted by name. Each has images.
    pub classes: Vec<String>,
    /// Sorted by path, each with the number of its class: the same on every host.
    pub images: Vec<(PathBuf, usize)>,
    pub ignored: Ignored,
}

/// What else there is.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ignored {
    /// Files and folders whose names begin with a dot.
    hidden: usize,
    /// Folders without images.
    empty: Vec<String>,
    /// Folders within a class's.
    nested: usize,
    /// Images beside the folders of the classes, by name.
    loose: Vec<String>,
    /// Files that are neither PNG nor JPEG by their names, by extension.
    others: BTreeMap<String, usize>,
}

/// Of each kind so many are named.
const NAMED: usize = 8;

pub(super) fn find_images(folder: &Path) -> Result<Found> {
    let mut found = Found {
        folder: folder.to_owned(),
        classes: Vec::new(),
        images: Vec::new(),
        ignored: Ignored::default(),
    };
    for entry in sorted(folder)? {
        if !entry.is_dir() && is_image(&entry) {
            found.ignored.loose.push(name_of(&entry));
        } else if !entry.is_dir() {
            found.ignored.file(&entry);
        } else if is_hidden(&entry) {
            found.ignored.hidden += 1;
        } else {
            found.class(&entry)?;
        }
    }
    Ok(found)
}

impl Found {
    fn class(&mut self, folder: &Path) -> Result<()> {
        let before = self.images.len();
        for path in sorted(folder)? {
            if is_image(&path) {
                self.images.push((path, self.classes.len()));
            } else if !is_hidden(&path) && path.is_dir() {
                self.ignored.nested += 1;
            } else {
                self.ignored.file(&path);
            }
        }
        let name = name_of(folder);
        let list = if self.images.len() > before { &mut self.classes } else { &mut self.ignored.empty };
        list.push(name);
        Ok(())
    }
}

/// Files whose sizes are looked at.
const SIZED: usize = 4096;

impl Found {
    /// Names and classes of all, and sizes of some at equal distances: to ask for each of a million on a network file system takes minutes.
    pub fn content(&self) -> Content {
        let mut hasher = Sha256::new();
        let apart = self.images.len().div_ceil(SIZED).max(1);
        for (i, (path, class)) in self.images.iter().enumerate() {
            let name = path.strip_prefix(&self.folder).unwrap_or(path);
            hasher.update(name.as_os_str().as_encoded_bytes());
            let size = i.is_multiple_of(apart).then(|| std::fs::metadata(path).map_or(0, |meta| meta.len()));
            hasher.update(format!("\0{class} {size:?}\n"));
        }
        hasher.finalize().into()
    }
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(folder).and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect());
    let mut paths: Vec<PathBuf> = paths.doing("list", folder)?;
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_lowercase()
}

fn is_image(path: &Path) -> bool {
    !is_hidden(path) && matches!(extension(path).as_str(), "png" | "jpg" | "jpeg")
}

impl Ignored {
    fn file(&mut self, path: &Path) {
        match is_hidden(path) {
            true => self.hidden += 1,
            false => *self.others.entry(extension(path)).or_default() += 1,
        }
    }

    /// `2 hidden files or folders, 3 files that are neither PNG nor JPEG (2 .bmp, 1 .txt)`; nothing where nothing is ignored.
    pub fn in_words(&self) -> Option<String> {
        let count = |n: usize, one: &str, many: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        };
        let some = |all: Vec<String>| match all.len() {
            n if n > NAMED => format!("{}, …", all[..NAMED].join(", ")),
            _ => all.join(", "),
        };
        let names = |all: &[String]| some(all.iter().map(|name| format!("`{}`", show::name(name))).collect());
        let kinds = || {
            let kind = |(extension, n): (&String, &usize)| match extension.is_empty() {
                true => format!("{n} without an extension"),
                false => format!("{n} .{}", show::name(extension)),
            };
            some(self.others.iter().map(kind).collect())
        };
        let parts = [
            count(self.hidden, "hidden file or folder", "hidden files or folders"),
            count(self.empty.len(), "folder without images", "folders without images")
                .map(|n| format!("{n} ({})", names(&self.empty))),
            count(
                self.loose.len(),
                "image outside of any class folder",
                "images outside of any class folder",
            )
            .map(|n| format!("{n} ({})", names(&self.loose))),
            count(self.nested, "folder within that of a class", "folders within those of classes"),
            count(
                self.others.values().sum(),
                "file that is neither PNG nor JPEG",
                "files that are neither PNG nor JPEG",
            )
            .map(|n| format!("{n} ({})", kinds())),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The images that can't be decoded: their numbers, each with its path and why. All are tried, on all threads; the result is kept in
/// `cache` for as long as no file changes.
pub(super) fn unreadable(
    folder: &Path,
    images: &[(PathBuf, usize)],
    cache: &Cache,
    say: &mut dyn FnMut(&str),
) -> Result<BTreeMap<usize, String>> {
    let note = cache.join(&format!("images/{}", identity(images)?)).ok();
    let noted = note.as_ref().and_then(|note| std::fs::read_to_string(note).ok());
    if let Some(noted) = noted.and_then(|text| serde_json::from_str(&text).ok()) {
        return Ok(noted);
    }
    say(&format!(
        "{}: trying to read all {} images (`bad_images = \"skip\"`)",
        folder.display(),
        images.len()
    ));
    let in_words =
        |path: &Path, why: &str| format!("{} ({})", show::piece(&path.to_string_lossy()), show::name(why));
    // What a file that can't be opened holds is not known, and its rights change without its time.
    let all_read = AtomicBool::new(true);
    let bad = images.par_iter().enumerate().filter_map(|(i, (path, _))| match decode(path) {
        Ok(_) => None,
        Err(Unread::Image(why)) => Some(Ok((i, in_words(path, &why)))),
        // What is left out must not depend on the moment.
        Err(Unread::File(e)) if is_transient(&e) => Some(Err(e).doing("read", path)),
        Err(Unread::File(e)) => {
            all_read.store(false, Ordering::Relaxed);
            Some(Ok((i, in_words(path, &e.to_string()))))
        }
    });
    let bad: BTreeMap<usize, String> = bad.collect::<Result<_>>()?;
    let note = note.filter(|_| all_read.into_inner());
    if let (Some(note), Ok(text)) = (note, serde_json::to_string(&bad)) {
        // Only speed is lost when this fails.
        let _ = write_into_place(&note, text.as_bytes());
    }
    Ok(bad)
}

/// Of these files as they are now, and of this version, which may read others.
fn identity(images: &[(PathBuf, usize)]) -> Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    for (path, _) in images {
        let meta = std::fs::metadata(path).doing("read", path)?;
        let time = meta.modified().doing("read", path)?;
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(format!("\0{} {time:?}\n", meta.len()));
    }
    Ok(HEXLOWER.encode(&hasher.finalize()[..16]))
}
