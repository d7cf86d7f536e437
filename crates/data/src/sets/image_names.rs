//! The images of a folder by the names that a table gives them, with or without extension.

use super::image_files::{is_hidden, is_image, sorted};
use crate::store::below;
use base::error::Result;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// What a name stands for.
#[derive(Debug, PartialEq)]
pub(super) enum ImageName {
    /// The path of an image, from the root.
    Image(PathBuf),
    /// Several images have the name, with different extensions.
    Several(Vec<PathBuf>),
    /// There is no such image.
    Missing,
    /// The path is absolute, or leads out of the root.
    Outside,
}

/// The images below a folder of a root.
pub(super) struct ImageNames {
    root: PathBuf,
    /// From the root.
    folder: PathBuf,
    /// The paths of all images from the root, each with whether it has been named.
    pub images: BTreeMap<PathBuf, bool>,
    /// The images by their paths without extension.
    stems: HashMap<PathBuf, Vec<PathBuf>>,
}

impl ImageNames {
    /// # Errors
    /// A folder can't be listed (`ErrorKind::Io`).
    pub fn list(root: &Path, folder: &Path) -> Result<Self> {
        let top = below(Path::new(""), folder).unwrap_or_default();
        let (mut images, mut folders) = (BTreeMap::new(), vec![top.clone()]);
        while let Some(folder) = folders.pop() {
            for path in sorted(&root.join(&folder))? {
                let own = folder.join(path.file_name().unwrap_or_default());
                if is_image(&path) {
                    images.insert(own, false);
                } else if !is_hidden(&path) && path.is_dir() && (!path.is_symlink() || folder == top) {
                    // Deeper links may lead to a folder above.
                    folders.push(own);
                }
            }
        }
        let mut stems: HashMap<PathBuf, Vec<PathBuf>> = HashMap::new();
        images.keys().for_each(|path| stems.entry(path.with_extension("")).or_default().push(path.clone()));
        Ok(Self { root: root.to_owned(), folder: top, images, stems })
    }

    /// The folder, for messages.
    pub fn place(&self) -> PathBuf {
        // Joined to an empty path it would end in a slash.
        if self.folder.as_os_str().is_empty() { self.root.clone() } else { self.root.join(&self.folder) }
    }

    /// The image that a name stands for, which counts as named from now on.
    pub fn find(&mut self, name: &str) -> ImageName {
        let Some(path) = below(&self.folder, Path::new(name)) else { return ImageName::Outside };
        let path = match self.stems.get(&path).map(Vec::as_slice) {
            _ if self.images.contains_key(&path) => path,
            Some([only]) => only.clone(),
            Some(several) => return ImageName::Several(several.to_vec()),
            // In another folder of the root.
            None if is_image(&path) && self.root.join(&path).is_file() => path,
            None => return ImageName::Missing,
        };
        if let Some(named) = self.images.get_mut(&path) {
            *named = true;
        }
        ImageName::Image(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_extensions_or_none() {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "train/a.png",
            "train/b.v2.JPG",
            "train/c/d.jpeg",
            "train/e.png",
            "train/e.jpg",
            "f.png",
            "train/g.webp",
        ] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let mut names = ImageNames::list(root.path(), Path::new("train")).unwrap();
        assert_eq!(names.images.len(), 5);
        let image = |path: &str| ImageName::Image(PathBuf::from(path));
        for (name, found) in [
            ("a.png", image("train/a.png")),
            ("a", image("train/a.png")),
            ("./c//d", image("train/c/d.jpeg")),
            // What looks like an extension may be none.
            ("b.v2", image("train/b.v2.JPG")),
            ("b", ImageName::Missing),
            ("e.jpg", image("train/e.jpg")),
            ("e", ImageName::Several(vec!["train/e.jpg".into(), "train/e.png".into()])),
            ("../f.png", image("f.png")),
            ("../../f.png", ImageName::Outside),
            ("/f.png", ImageName::Outside),
            ("g", ImageName::Missing),
            ("g.webp", ImageName::Missing),
            ("", ImageName::Missing),
            ("c", ImageName::Missing),
        ] {
            assert_eq!(names.find(name), found, "{name}");
        }
        // A folder elsewhere, and one that has itself.
        std::os::unix::fs::symlink(root.path().join("train"), root.path().join("linked")).unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("train/up")).unwrap();
        let linked = ImageNames::list(root.path(), Path::new("")).unwrap().find("linked/c/d");
        assert_eq!(linked, image("linked/c/d.jpeg"));
        let left: Vec<_> = names.images.iter().filter(|(_, named)| !**named).map(|(path, _)| path).collect();
        assert_eq!(left, [Path::new("train/e.png")]);
    }
}
