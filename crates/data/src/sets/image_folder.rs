//! `image-folder`: PNG and JPEG files, one folder per class. `root/train/<class>/…` with `root/val/<class>/…` (and
//! `root/test`; other names: `image_splits`), or `root/<class>/…` alone with `val_split`. The loader's workers decode the files.

use super::image_files::{ImageList, find_images};
use super::image_source::ImageFiles;
use super::image_splits::SplitFolders;
use crate::images::ImageSource;
use crate::split::{SplitOptions, Subset};
use crate::store::absolute;
use crate::{DataFacts, DatasetSource, Splits};
use base::display;
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use spec::Fields;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// PNG and JPEG files: `root/train/<class>/…` with `root/val/<class>/…` and `root/test/<class>/…`, or `root/<class>/…`
/// with `val_split`. `train`, `val` and `test` may have the other names that `parquet` takes (`training`; `valid`,
/// `validation`, `dev`; `testing`, `eval`, `evaluation`), in any case. With `train` and `test` alone, the test images
/// are the validation split, unless `val_split` is set. Hidden files, folders without images and other formats are
/// ignored; the run reports how many.
#[derive(Clone, Debug, Deserialize, JsonSchema, Default)]
#[serde(default)]
#[schemars(extend("required" = ["root"]))]
struct FolderSource {
    /// The folder.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    root: PathBuf,
    #[serde(skip)]
    files: ImageFiles,
    #[serde(skip)]
    split: SplitOptions,
}

/// Reads the `[dataset]` table.
pub fn image_folder(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let FolderSource { root, .. } = fields.config();
    let mut files: ImageFiles = fields.config();
    let split = SplitOptions::read(fields);
    files.read_transform(fields);
    // Messages show absolute paths.
    Arc::new(FolderSource { root: absolute(&root), files, split })
}

impl DatasetSource for FolderSource {
    fn facts(&self) -> DataFacts {
        self.files.facts()
    }

    fn check_files(&self) -> Result<()> {
        if self.root.is_dir() { Ok(()) } else { self.list_splits(&mut |_| ()).map(drop) }
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        let found = self.list_splits(say)?;
        let (classes, images) = (found.train.classes.len(), found.train.images.len());
        if classes < 2 || images == 0 {
            return Err(self.invalid(format!("{classes} classes and {images} images were found")));
        }
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        Some(self.root.clone()).filter(|root| root.is_dir()).into_iter().collect()
    }

    fn open(&self) -> Result<Splits> {
        let Folders { train, val, test } = self.list_splits(&mut |_| ())?;
        if let Some(val) = val.as_ref().filter(|_| self.split.val_split > 0.0) {
            let message = format!("there is the folder {}, but `val_split` is set too", val.folder.display());
            return Err(Error::data(message).hint("remove `val_split`, or move the folder away"));
        }
        let [val, test] = [val, test]
            .map(|found| found.map(|found| self.with_training_labels(found, &train.classes)).transpose());
        let (val, test) = (val?, test?);
        let classes = train.classes.clone();
        let builder = self.files.builder(classes);
        let mut splits = builder.splits(self.source(&train), val.or(test.clone()), &self.split)?;
        splits.test = test.map(|t| builder.set(&t, Subset::all(t.len()), false));
        Ok(splits)
    }
}

/// The images of each split.
struct Folders {
    train: ImageList,
    val: Option<ImageList>,
    test: Option<ImageList>,
}

impl FolderSource {
    fn list_splits(&self, say: &mut dyn FnMut(&str)) -> Result<Folders> {
        let folders = SplitFolders::find(&self.root)?;
        let mut other = |folder: &Option<PathBuf>| {
            folder.as_ref().map(|folder| self.list_images(folder, say)).transpose()
        };
        let (val, mut test) = (other(&folders.val)?, other(&folders.test)?);
        let train = self.list_training_images(&folders.train, say)?;
        if let Some(val) = val.as_ref().filter(|val| val.images.is_empty()) {
            return Err(no_images(&val.folder));
        }
        if let Some(unlabelled) = test.take_if(|test| test.images.is_empty()) {
            let folder = unlabelled.folder.display();
            say(&format!("{folder}: not used, because it has no folders of classes with images"));
        }
        if let Some(unused) = folders.unused_in_words() {
            say(&format!("{}: {unused}", self.root.display()));
        }
        if let (None, Some(test), true) = (&val, &test, self.split.val_split == 0.0) {
            say(&format!("{}: validation uses these test images", test.folder.display()));
        }
        Ok(Folders { train, val, test })
    }

    /// The usable images of a folder; reports files that are left out.
    fn list_images(&self, folder: &Path, say: &mut dyn FnMut(&str)) -> Result<ImageList> {
        if !folder.is_dir() {
            return Err(self.invalid(format!("{} is not a folder", folder.display())));
        }
        let mut found = find_images(folder)?;
        if let Some(ignored) = found.ignored.in_words() {
            say(&format!("{}: ignored {ignored}", folder.display()));
        }
        self.files.leave_out_unreadable(folder, &mut found.images, say)?;
        Ok(found)
    }

    /// The training images. A class without any readable image is an error: the model could not learn it.
    fn list_training_images(&self, folder: &Path, say: &mut dyn FnMut(&str)) -> Result<ImageList> {
        let found = self.list_images(folder, say)?;
        let left: BTreeSet<usize> = found.images.iter().map(|(_, class)| *class).collect();
        match (0..found.classes.len()).find(|class| !left.contains(class)) {
            None => Ok(found),
            Some(class) => {
                let (folder, name) = (folder.display(), display::name(&found.classes[class]));
                Err(self.invalid(format!(
                    "{folder}: no image of the class `{name}` can be read (`bad_images = \"skip\"`)"
                )))
            }
        }
    }

    /// Gives validation or test images the labels of training. A class may have no images there.
    fn with_training_labels(&self, mut found: ImageList, classes: &[String]) -> Result<Arc<dyn ImageSource>> {
        let own = training_labels(&found, classes)?;
        found.images.iter_mut().for_each(|(_, label)| *label = own[*label]);
        Ok(self.source(&found))
    }

    fn source(&self, found: &ImageList) -> Arc<dyn ImageSource> {
        self.files.source(&found.folder, found.images.clone())
    }

    fn invalid(&self, why: String) -> Error {
        invalid(&self.root, &why)
    }
}

/// The labels that the classes of validation or test images have in training.
///
/// # Errors
/// Exit 78: training has no such class.
pub(super) fn training_labels(found: &ImageList, training: &[String]) -> Result<Vec<usize>> {
    let labels: BTreeMap<&String, usize> = training.iter().enumerate().map(|(i, class)| (class, i)).collect();
    let label = |class: &String| {
        labels.get(class).copied().ok_or_else(|| {
            let (folder, class) = (found.folder.display(), display::name(class));
            Error::data(format!("{folder} has a class that is missing from training: {class}"))
        })
    };
    found.classes.iter().map(label).collect()
}

/// The error of a validation folder without images.
pub(super) fn no_images(folder: &Path) -> Error {
    Error::data(format!("{} has no images", folder.display()))
        .hint("put a subfolder of PNG or JPEG files per class into it, or remove it")
}

/// The error of a folder that is none of this data set.
pub(super) fn invalid(root: &Path, why: &str) -> Error {
    let root = root.display();
    Error::data(format!("{root} is not a folder of images: {why}\n  looked for {root}/train/<class>/*.png|jpg|jpeg, then {root}/<class>/*"))
        .hint("`[dataset] root` must be a folder with one subfolder of PNG or JPEG files per class")
}

#[cfg(test)]
#[path = "image_folder_tests.rs"]
mod tests;
