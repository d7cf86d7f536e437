//! `image-folder`: PNG and JPEG files, one folder per class. `root/train/<class>/…` with `root/val/<class>/…` (and
//! `root/test`), or `root/<class>/…` alone with `val_split`. Files are decoded by the loader's workers, when they are asked for.

use crate::data::images::{ImageParts, ImageSource};
use crate::data::split::SplitOptions;
use crate::data::transforms::{ChannelStats, TransformOptions};
use crate::data::{DataFacts, DatasetKind, DatasetSource, FieldFacts, FieldKind, Splits};
use crate::error::{Error, IoContext, Result};
use crate::spec::Fields;
use image::imageops::FilterType;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind.
pub struct ImageFolder;

/// ImageNet's.
const USUAL: ChannelStats = ChannelStats { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

#[derive(Clone, Debug)]
struct FolderSource {
    root: PathBuf,
    size: usize,
    channels: usize,
    split: SplitOptions,
    transform: TransformOptions,
}

impl DatasetKind for ImageFolder {
    fn configure(&self, fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
        let channels = fields.usize("channels", 1..=3, 3);
        if channels == 2 {
            fields.problem("channels", "expected 1 (grey) or 3 (colour)");
        }
        Arc::new(FolderSource {
            root: fields.req_str("root").into(),
            size: fields.usize("image_size", 8..=1024, 224),
            channels,
            split: SplitOptions::read(fields, 0.0),
            transform: TransformOptions::read(fields, channels, USUAL),
        })
    }
}

impl DatasetSource for FolderSource {
    fn facts(&self) -> DataFacts {
        let shape = vec![self.channels, self.size, self.size];
        let input = Some(FieldFacts { shape, kind: FieldKind::Float });
        DataFacts { input, target: None, train: None, val: None, test: None }
    }

    fn prepare(&self, _say: &mut dyn FnMut(&str)) -> Result<()> {
        let (classes, images) = self.list(&self.train_folder())?;
        if classes.len() < 2 || images.is_empty() {
            return Err(self.unfit(format!(
                "{} classes and {} images were found",
                classes.len(),
                images.len()
            )));
        }
        Ok(())
    }

    fn open(&self) -> Result<Splits> {
        let (classes, images) = self.list(&self.train_folder())?;
        let other = |name: &str| -> Result<Option<Arc<dyn ImageSource>>> {
            let folder = self.root.join(name);
            if !folder.is_dir() || self.train_folder() == self.root {
                return Ok(None);
            }
            let (own, images) = self.list(&folder)?;
            if let Some(class) = own.iter().find(|c| !classes.contains(c)) {
                return Err(Error::data(format!(
                    "{} has a class that training has not: {class}",
                    folder.display()
                )));
            }
            // A class may be without images here: labels are those of training.
            let label = |i: usize| classes.iter().position(|c| *c == own[i]).unwrap_or(i);
            let images = images.into_iter().map(|(path, i)| (path, label(i))).collect();
            Ok(Some(self.source(images)))
        };
        let (val, test) = (other("val")?, other("test")?);
        if val.is_some() && self.split.val_split > 0.0 {
            let message = format!(
                "{} has a folder `val`, but `val_split` takes validation from training",
                self.root.display()
            );
            return Err(Error::data(message).hint("leave `val_split` out, or move the folder away"));
        }
        let parts = ImageParts {
            shape: [self.channels, self.size, self.size],
            classes: classes.len(),
            transform: self.transform.clone(),
        };
        let mut splits = parts.splits(self.source(images), val, &self.split);
        splits.test = test.map(|t| parts.set(&t, crate::data::split::Part::all(t.len()), false));
        Ok(splits)
    }
}

impl FolderSource {
    fn train_folder(&self) -> PathBuf {
        let train = self.root.join("train");
        if train.is_dir() { train } else { self.root.clone() }
    }

    fn source(&self, images: Vec<(PathBuf, usize)>) -> Arc<dyn ImageSource> {
        Arc::new(Images { images, size: self.size as u32, channels: self.channels })
    }

    /// The classes of a folder, sorted by name, and its images with their classes, sorted by path: the same on every host.
    fn list(&self, folder: &Path) -> Result<Listing> {
        let entries = |folder: &Path| -> Result<Vec<PathBuf>> {
            let paths = std::fs::read_dir(folder).and_then(|e| e.map(|e| e.map(|e| e.path())).collect());
            let mut paths: Vec<PathBuf> = paths.doing("list", folder)?;
            paths.sort();
            Ok(paths)
        };
        if !folder.is_dir() {
            return Err(self.unfit(format!("{} is no folder", folder.display())));
        }
        let (mut classes, mut images) = (Vec::new(), Vec::new());
        for class in entries(folder)?.iter().filter(|p| p.is_dir()) {
            let files = entries(class)?.into_iter().filter(|p| is_image(p));
            images.extend(files.map(|path| (path, classes.len())));
            classes.push(class.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok((classes, images))
    }

    fn unfit(&self, why: String) -> Error {
        let root = self.root.display();
        Error::data(format!("{root} is no folder of images: {why}\n  looked for {root}/train/<class>/*.png|jpg|jpeg, then {root}/<class>/*"))
            .hint("`[dataset] root` names a folder that has one folder of PNG or JPEG files for each class")
    }
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_lowercase);
    matches!(extension.as_deref(), Some("png" | "jpg" | "jpeg"))
}

/// The classes of a folder, and its images with the number of their class.
type Listing = (Vec<String>, Vec<(PathBuf, usize)>);

struct Images {
    images: Vec<(PathBuf, usize)>,
    size: u32,
    channels: usize,
}

impl ImageSource for Images {
    fn len(&self) -> usize {
        self.images.len()
    }

    /// The shorter side becomes `image_size`, then the middle is cut out.
    fn image<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<(&'a [u8], usize)> {
        let (path, class) = &self.images[index];
        let decoded = decode(path).map_err(|e| {
            Error::data(format!("{} can't be read as an image: {e}", path.display()))
                .hint("replace the file, or take it out of the folder")
        })?;
        let fitted = decoded.resize_to_fill(self.size, self.size, FilterType::Triangle);
        scratch.clear();
        if self.channels == 1 {
            scratch.extend_from_slice(fitted.to_luma8().as_raw());
        } else {
            let pixels = fitted.to_rgb8();
            for c in 0..3 {
                scratch.extend(pixels.as_raw().iter().skip(c).step_by(3));
            }
        }
        Ok((scratch, *class))
    }
}

fn decode(path: &Path) -> Result<image::DynamicImage, image::ImageError> {
    let mut reader = image::ImageReader::open(path)?.with_guessed_format()?;
    // A few kilobytes can declare terabytes.
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(1 << 15);
    limits.max_image_height = Some(1 << 15);
    limits.max_alloc = Some(512 << 20);
    reader.limits(limits);
    reader.decode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{configure, sample};
    use image::{Rgb, RgbImage};

    /// Left half `a`, right half `b`.
    fn save(path: PathBuf, width: u32, height: u32, a: [u8; 3], b: [u8; 3]) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_fn(width, height, |x, _| Rgb(if x < width / 2 { a } else { b })).save(path).unwrap();
    }

    fn open(root: &Path, more: &str) -> Result<Splits> {
        let table = format!("root = '{}'\nnormalize = false\nimage_size = 8\n{more}", root.display());
        let source = configure(&ImageFolder, &table).unwrap();
        source.prepare(&mut |_| ())?;
        source.open()
    }

    #[test]
    fn folders_of_training_and_validation() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        save(root.join("train/cat/1.png"), 16, 8, [255, 0, 0], [0, 0, 255]);
        save(root.join("train/cat/2.jpg"), 8, 8, [0, 255, 0], [0, 255, 0]);
        save(root.join("train/dog/1.PNG"), 8, 8, [0, 0, 0], [255, 255, 255]);
        save(root.join("val/dog/1.png"), 8, 8, [51, 51, 51], [51, 51, 51]);
        std::fs::write(root.join("train/dog/readme.txt"), "no image").unwrap();
        let splits = open(root, "").unwrap();
        assert_eq!((splits.train.len(), splits.val.as_ref().unwrap().len()), (3, 1));
        // Wide: the middle is cut out, so red is left and blue is right.
        let (pixels, class) = sample(&*splits.train, 0, 0);
        assert_eq!((class[0], pixels[0], pixels[128], pixels[7], pixels[128 + 7]), (0., 1., 0., 0., 1.));
        let (pixels, _) = sample(&*splits.train, 1, 0);
        assert!(pixels[0] < 0.05 && pixels[64] > 0.95, "JPEG: {} {}", pixels[0], pixels[64]);
        let (pixels, class) = sample(&*splits.val.unwrap(), 0, 0);
        assert!(class == [1.0] && pixels.iter().all(|p| (p - 0.2).abs() < 1e-3));
        let grey = open(root, "channels = 1").unwrap().train;
        assert_eq!(sample(&*grey, 2, 0).0.len(), 64);
    }

    #[test]
    fn one_folder_is_split() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..10u8 {
            let name = if i % 2 == 0 { "even" } else { "odd" };
            save(folder.path().join(format!("{name}/{i}.png")), 8, 8, [i; 3], [i; 3]);
        }
        let splits = open(folder.path(), "val_split = 0.3").unwrap();
        assert_eq!((splits.train.len(), splits.val.unwrap().len()), (7, 3));
    }

    #[test]
    fn what_is_no_image_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(&folder.path().join("none"), "").err().unwrap().to_string();
        assert!(
            error.contains("none is no folder of images") && error.contains("train/<class>/*.png"),
            "{error}"
        );
        save(folder.path().join("a/1.png"), 8, 8, [1; 3], [1; 3]);
        save(folder.path().join("b/1.png"), 8, 8, [1; 3], [1; 3]);
        let whole = std::fs::read(folder.path().join("b/1.png")).unwrap();
        std::fs::write(folder.path().join("b/1.png"), &whole[..whole.len() / 2]).unwrap();
        let train = open(folder.path(), "").unwrap().train;
        let (mut input, mut target) = (vec![0.0; 192], vec![0]);
        let key = crate::data::SampleKey { seed: 0, epoch: 0, sample: 1 };
        let (input, target) =
            (crate::data::FieldMut::Float(&mut input), crate::data::FieldMut::Index(&mut target));
        let error = train.write(key, input, target).unwrap_err().to_string();
        assert!(error.contains("b/1.png can't be read as an image"), "{error}");
    }
}
