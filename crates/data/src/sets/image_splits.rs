//! Finds the folders of training, validation and test images by their names.

use super::columns::listed;
use super::image_files::{is_hidden, sorted};
use super::parquet_names::WORDS;
use base::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The names of the splits, which win over other names for them.
pub(super) const NAMES: [&str; 3] = ["train", "val", "test"];

/// The folders of a data set of images.
#[derive(Debug)]
pub(super) struct SplitFolders {
    pub train: PathBuf,
    pub val: Option<PathBuf>,
    pub test: Option<PathBuf>,
    /// Folders beside that of training that are of no split, by name.
    pub unused: Vec<String>,
}

impl SplitFolders {
    /// The folders of the splits in `root`; without one for training, `root` itself is that.
    ///
    /// # Errors
    /// Exit 78: several folders may be the one of a split.
    pub fn find(root: &Path) -> Result<Self> {
        let of_root = || Self { train: root.to_owned(), val: None, test: None, unused: Vec::new() };
        if !root.is_dir() {
            return Ok(of_root());
        }
        let folders = sorted(root).map_err(Error::of_data)?;
        let mut folders: Vec<PathBuf> =
            folders.into_iter().filter(|path| !is_hidden(path) && path.is_dir()).collect();
        // A class may be called `Training`: its folder holds images, and no folders.
        let of_classes = |folder: &Path| folder.ends_with(NAMES[0]) || has_folders(folder);
        let mut take = |split: usize, fits: &dyn Fn(&Path) -> bool| {
            let stands_for =
                |path: &Path, name: &str| WORDS[split].contains(&&*name.to_lowercase()) && fits(path);
            take((root, "folders"), &mut folders, split, name_of, &stands_for)
        };
        let Some(train) = take(0, &of_classes)? else { return Ok(of_root()) };
        let [val, test] = [1, 2].map(|split| take(split, &|_| true));
        let (val, test) = (val?, test?);
        Ok(Self { train, val, test, unused: folders.iter().map(|path| name_of(path)).collect() })
    }

    /// The folders that are not used, in words; `None` if all are.
    pub fn unused_in_words(&self) -> Option<String> {
        let unused = listed(self.unused.iter().map(String::as_str));
        let known = match self.val {
            Some(_) => String::new(),
            None => format!(" (folders of validation images are {})", listed(WORDS[1].iter().copied())),
        };
        (!self.unused.is_empty()).then(|| format!("not used, beside the training images: {unused}{known}"))
    }
}

/// Takes the file or folder of a split out of those beside each other in `root`: the one with the split's name, or the only one whose
/// name stands for it. `kind` is what they are called.
pub(super) fn take(
    (root, kind): (&Path, &str),
    paths: &mut Vec<PathBuf>,
    split: usize,
    name_of: fn(&Path) -> String,
    stands_for: &dyn Fn(&Path, &str) -> bool,
) -> Result<Option<PathBuf>> {
    let able: Vec<&PathBuf> = paths.iter().filter(|path| stands_for(path, &name_of(path))).collect();
    let chosen = match (able.iter().find(|path| name_of(path) == NAMES[split]), &able[..]) {
        (Some(named), _) => (*named).clone(),
        (None, []) => return Ok(None),
        (None, [only]) => (*only).clone(),
        (None, several) => {
            let names: Vec<String> = several.iter().map(|path| name_of(path)).collect();
            let (root, name) = (root.display(), NAMES[split]);
            let names = listed(names.iter().map(String::as_str));
            return Err(Error::data(format!("{root} has several {kind} for the split `{name}`: {names}"))
                .hint(format!("rename the one to use to `{name}`")));
        }
    };
    paths.retain(|path| *path != chosen);
    Ok(Some(chosen))
}

fn has_folders(folder: &Path) -> bool {
    sorted(folder).is_ok_and(|all| all.iter().any(|path| !is_hidden(path) && path.is_dir()))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folders: &[&str]) -> Result<[Option<String>; 3], String> {
        let root = tempfile::tempdir().unwrap();
        folders.iter().for_each(|name| std::fs::create_dir_all(root.path().join(name)).unwrap());
        let found = SplitFolders::find(root.path())
            .map_err(|e| e.to_string().replace(&root.path().display().to_string(), "DIR"))?;
        let name = |path: PathBuf| name_of(&path);
        let train = Some(found.train).filter(|train| train != root.path()).map(name);
        Ok([train, found.val.map(name), found.test.map(name)])
    }

    #[test]
    fn validation_folders_have_the_names_that_parquet_takes() {
        for val in ["val", "valid", "validation", "Val", "dev", "DEV"] {
            let splits = found(&["train/a", val, ".valid", "more"]).unwrap();
            assert_eq!(splits, [Some("train".to_owned()), Some(val.to_owned()), None]);
        }
        for test in ["test", "Testing", "eval", "evaluation"] {
            let splits = found(&["Train/a", test]).unwrap();
            assert_eq!(splits, [Some("Train".to_owned()), None, Some(test.to_owned())]);
        }
        // The name of the split wins.
        assert_eq!(found(&["train/a", "val", "dev"]).unwrap()[1].as_deref(), Some("val"));
        assert_eq!(
            found(&["train/a", "dev", "valid"]).unwrap_err(),
            "DIR has several folders for the split `val`: `dev`, `valid`\n\nhint: rename the one to use to `val`"
        );
        // Classes.
        assert_eq!(found(&["training", "val", "cat"]).unwrap(), [None, None, None]);
    }
}
