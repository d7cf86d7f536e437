//! Looks at a folder of images: how many each class has, and what they are like.

use super::image_decode::decode;
use super::image_files::find_images;
use super::image_folder::{invalid, no_images, training_labels};
use super::image_splits::SplitFolders;
use crate::store::absolute;
use base::display::count;
use base::error::{Error, Result};
use image::DynamicImage;
use std::path::{Path, PathBuf};

/// Images that are read, at equal distances.
pub(super) const READ: usize = 24;

/// What a folder of images holds.
#[derive(Debug)]
pub struct ImageSurvey {
    /// Training images.
    pub images: usize,
    /// Classes by name, each with its training images; none where labels are numbers.
    pub classes: Vec<(String, usize)>,
    /// Images of the validation folder, if there is one beside that of training.
    pub val: Option<usize>,
    /// Images of the test folder, if there is one with images of classes.
    pub test: Option<usize>,
    /// The length of the shorter side of the images that were read, the median.
    pub side: usize,
    /// Whether all images that were read are grey.
    pub grey: bool,
    /// Images that were read, and how many of them can't be decoded.
    pub read: (usize, usize),
}

/// Lists the images of the folder at `root` as the data set `image-folder` finds them, and reads some.
///
/// # Errors
/// Exit 78: it is not a folder with at least two classes, or none of the images that were read can be decoded.
pub fn survey_images(root: &Path) -> Result<ImageSurvey> {
    let root = &absolute(root);
    let folders = SplitFolders::find(root)?;
    let folder = &folders.train;
    if !folder.is_dir() {
        return Err(invalid(root, "it is not a folder"));
    }
    let found = find_images(folder).map_err(Error::of_data)?;
    if found.classes.len() < 2 {
        let (classes, images) = (found.classes.len(), found.images.len());
        let found = format!("{} and {} were found", count(classes, "class"), count(images, "image"));
        return Err(invalid(root, &found));
    }
    let other = |folder: &Option<PathBuf>| -> Result<Option<usize>> {
        let Some(folder) = folder else { return Ok(None) };
        let list = find_images(folder).map_err(Error::of_data)?;
        training_labels(&list, &found.classes)?;
        Ok(Some(list.images.len()))
    };
    let (val, test) = (other(&folders.val)?, other(&folders.test)?.filter(|images| *images > 0));
    if let (Some(0), Some(folder)) = (val, &folders.val) {
        return Err(no_images(folder));
    }
    let apart = found.images.len().div_ceil(READ).max(1);
    let sample = || found.images.iter().step_by(apart).map(|(path, _)| decode(path));
    let images: Vec<DynamicImage> = sample().filter_map(|image| image.ok()).collect();
    let read = found.images.len().div_ceil(apart);
    let Some((side, grey)) = side_and_grey(&images) else {
        return Err(invalid(root, &format!("none of {read} images can be decoded")));
    };
    let mut counts = vec![0; found.classes.len()];
    found.images.iter().for_each(|(_, class)| counts[*class] += 1);
    let (total, classes) = (found.images.len(), found.classes.into_iter().zip(counts).collect());
    Ok(ImageSurvey { images: total, classes, val, test, side, grey, read: (read, read - images.len()) })
}

/// The median length of the shorter sides, and whether all are grey; `None` without images.
pub(super) fn side_and_grey(images: &[DynamicImage]) -> Option<(usize, bool)> {
    let mut sides: Vec<usize> =
        images.iter().map(|image| image.width().min(image.height()) as usize).collect();
    sides.sort_unstable();
    let side = *sides.get(sides.len() / 2)?;
    Some((side, images.iter().all(|image| !image.color().has_color())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{Luma, Rgb};
    use std::fs;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| fs::create_dir_all(folder.path().join(name)).unwrap());
        folder
    }

    #[test]
    fn counts_classes_and_measures_images() {
        let folder = folder(&["train/a", "train/b", "val/a"]);
        let at = |name: &str| folder.path().join(name);
        for (name, width, height) in
            [("train/a/1.png", 20, 30), ("train/a/2.png", 24, 50), ("train/b/1.png", 90, 40)]
        {
            image::GrayImage::from_pixel(width, height, Luma([7])).save(at(name)).unwrap();
        }
        fs::copy(at("train/a/1.png"), at("val/a/1.png")).unwrap();
        fs::write(at("train/b/2.png"), "no image").unwrap();
        let found = survey_images(folder.path()).unwrap();
        assert_eq!(found.classes, [("a".to_owned(), 2), ("b".to_owned(), 2)]);
        assert_eq!((found.val, found.test, found.side, found.grey), (Some(1), None, 24, true));
        assert_eq!(found.read, (4, 1));
        image::RgbImage::from_pixel(8, 8, Rgb([1, 2, 3])).save(at("train/a/3.png")).unwrap();
        assert!(!survey_images(folder.path()).unwrap().grey);
    }

    #[test]
    fn validation_images_have_the_classes_of_training() {
        let folder = folder(&["train/a", "train/b", "val"]);
        let write = |name: &str| {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            image::GrayImage::from_pixel(9, 9, Luma([7])).save(folder.path().join(name)).unwrap();
        };
        ["train/a/1.png", "train/b/1.png"].into_iter().for_each(write);
        let refused = || survey_images(folder.path()).unwrap_err();
        assert!(refused().message.ends_with("/val has no images"), "{}", refused());
        assert!(refused().hint.is_some_and(|hint| hint.contains("or remove it")));
        write("val/c/1.png");
        assert!(refused().message.ends_with("has a class that is missing from training: c"), "{}", refused());
        assert_eq!(refused().kind, base::error::ErrorKind::Spec);
    }

    #[test]
    fn a_folder_without_classes_is_refused() {
        let folder = folder(&["a", "b"]);
        for (place, why) in [
            ("a/none", "it is not a folder"),
            ("a", "0 classes and 0 images"),
            ("", "0 classes and 0 images"),
        ] {
            let error = survey_images(&folder.path().join(place)).unwrap_err();
            assert_eq!(error.kind, base::error::ErrorKind::Spec);
            assert!(error.message.contains(why), "{error}");
        }
        fs::write(folder.path().join("a/1.png"), "no image").unwrap();
        let error = survey_images(folder.path()).unwrap_err();
        assert!(error.message.contains("1 class and 1 image were found"), "{error}");
        for name in ["a/1.png", "b/1.png"] {
            fs::write(folder.path().join(name), "no image").unwrap();
        }
        let error = survey_images(folder.path()).unwrap_err();
        assert!(error.message.contains("none of 2 images can be decoded"), "{error}");
    }
}
