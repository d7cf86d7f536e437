//! `image-folder`: PNG and JPEG files, one folder per class. `root/train/<class>/…` with `root/val/<class>/…` (and
//! `root/test`; other names: `image_splits`), or `root/<class>/…` alone with `val_split`. The loader's workers decode the files.

use super::image_decode::{DecodeError, decode};
use super::image_files::{ImageList, find_images, unreadable};
use super::image_pixels::Pixels;
use super::image_splits::SplitFolders;
use crate::data::image_config::ChannelStats;
use crate::data::images::{ImageSetBuilder, ImageSource, Original};
use crate::data::split::{Part, SplitOptions};
use crate::data::store::{Cache, absolute};
use crate::data::transforms::TransformOptions;
use crate::data::{Content, DataFacts, DatasetSource, FieldFacts, FieldKind, Splits};
use crate::error::{Error, IoContext, Result};
use crate::show;
use crate::spec::{Fields, choice};
use image::DynamicImage;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The statistics of ImageNet.
pub(super) const DEFAULT_STATS: ChannelStats =
    ChannelStats { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

choice! {
    /// What to do with unreadable images.
    BadImages:
    /// End the run at the first one.
    Error = "error",
    /// Read all images at the first start, leave out the unreadable ones, and keep the result in `cache` until a file
    /// changes.
    Skip = "skip",
}

/// PNG and JPEG files: `root/train/<class>/…` with `root/val/<class>/…` and `root/test/<class>/…`, or `root/<class>/…`
/// with `val_split`. `train`, `val` and `test` may have the other names that `parquet` takes (`training`; `valid`,
/// `validation`, `dev`; `testing`, `eval`, `evaluation`), in any case. With `train` and `test` alone, the test images
/// are the validation split, unless `val_split` is set. Hidden files, folders without images and other formats are
/// ignored; the run reports how many.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["root"]))]
struct FolderSource {
    /// The folder.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    root: PathBuf,
    /// Width and height of the samples, to which images are scaled (`resize`).
    #[default = 224]
    #[schemars(range(min = 8, max = 1024))]
    image_size: usize,
    /// 1 for grey (brightness by ITU-R 601, as Pillow's mode `L`), 3 for colour.
    #[default = 3]
    #[schemars(range(min = 1, max = 3))]
    channels: usize,
    /// What to do with unreadable images.
    bad_images: BadImages,
    /// Where the result of `bad_images = "skip"` is kept. Default: `~/.cache/ddp-run`.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    cache: Cache,
    #[serde(skip)]
    split: SplitOptions,
    #[serde(skip)]
    transform: TransformOptions,
}

/// Reads the `[dataset]` table.
pub fn image_folder(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let own: FolderSource = fields.config();
    Arc::new(FolderSource {
        // Messages show absolute paths.
        root: absolute(&own.root),
        split: SplitOptions::read(fields),
        transform: TransformOptions {
            scaling: fields.config(),
            ..TransformOptions::read(fields, own.channels, DEFAULT_STATS)
        },
        ..own
    })
}

impl DatasetSource for FolderSource {
    fn facts(&self) -> DataFacts {
        let shape = vec![self.channels, self.image_size, self.image_size];
        let input = Some(FieldFacts { shape, kind: FieldKind::Float });
        DataFacts { input, ..DataFacts::default() }
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
        let builder = ImageSetBuilder::new(self.channels, self.image_size, classes, self.transform.clone());
        let mut splits = builder.splits(self.source(&train), val.or(test.clone()), &self.split)?;
        splits.test = test.map(|t| builder.set(&t, Part::all(t.len()), false));
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
        if self.bad_images == BadImages::Skip {
            let bad = unreadable(folder, &found.images, &self.cache, say)?;
            if let Some((_, first)) = bad.first_key_value() {
                let (n, of) = (bad.len(), found.images.len());
                say(&format!(
                    "warning: {}: {n} of {of} images can't be read and are left out, such as {first}",
                    folder.display()
                ));
            }
            let mut index = 0..;
            found.images.retain(|_| index.next().is_none_or(|i| !bad.contains_key(&i)));
        }
        Ok(found)
    }

    /// The training images. A class without any readable image is an error: the model could not learn it.
    fn list_training_images(&self, folder: &Path, say: &mut dyn FnMut(&str)) -> Result<ImageList> {
        let found = self.list_images(folder, say)?;
        let left: BTreeSet<usize> = found.images.iter().map(|(_, class)| *class).collect();
        match (0..found.classes.len()).find(|class| !left.contains(class)) {
            None => Ok(found),
            Some(class) => {
                let (folder, name) = (folder.display(), show::name(&found.classes[class]));
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
        Arc::new(Images {
            content: found.content(),
            images: found.images.clone(),
            pixels: Pixels {
                size: self.image_size,
                channels: self.channels,
                scaling: self.transform.scaling,
            },
        })
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
            let (folder, class) = (found.folder.display(), show::name(class));
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

struct Images {
    content: Content,
    images: Vec<(PathBuf, usize)>,
    pixels: Pixels,
}

impl ImageSource for Images {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn content(&self) -> Option<Content> {
        Some(self.content)
    }

    fn place(&self, index: usize) -> Option<String> {
        Some(self.images[index].0.display().to_string())
    }

    fn class(&self, index: usize) -> Result<usize> {
        Ok(self.images[index].1)
    }

    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)> {
        self.pixels.fitted(self.decoded(index)?, scratch);
        Ok((scratch, self.images[index].1))
    }

    fn original<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Original<'a>> {
        let size = Some(self.pixels.whole(self.decoded(index)?, scratch));
        Ok(Original { pixels: scratch, class: self.images[index].1, size })
    }
}

impl Images {
    fn decoded(&self, index: usize) -> Result<DynamicImage> {
        let (path, _) = &self.images[index];
        match decode(path) {
            Ok(decoded) => Ok(decoded),
            Err(DecodeError::Io(e)) => Err(e).doing("read", path).map_err(Error::of_data),
            Err(DecodeError::Invalid(why)) => {
                let what = format!("cannot decode the image {}: {why}", path.display());
                Err(Error::data(what).hint(
                    "replace or remove the file, or set `[dataset] bad_images = \"skip\"` to leave out such images",
                ))
            }
        }
    }
}

#[cfg(test)]
#[path = "image_folder_tests.rs"]
mod tests;
