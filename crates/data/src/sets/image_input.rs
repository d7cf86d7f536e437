//! Images outside of any data set, for predictions: decoded and scaled as those of `image-folder`, and normalised as in an
//! evaluation.

use super::image_decode::{DecodeError, decode};
use super::image_files::{is_hidden, is_image, sorted};
use super::image_pixels::Pixels;
use crate::scaling::Scaling;
use crate::transforms::TransformOptions;
use crate::{ImageEncoding, SampleKey};
use base::error::Result;
use std::path::{Path, PathBuf};

/// The values of an image file, `[channels, size, size]`.
///
/// # Errors
/// In words: why the file can't be read or decoded.
pub fn read_image(encoding: &ImageEncoding, path: &Path) -> Result<Vec<f32>, String> {
    let decoded = decode(path).map_err(|why| match why {
        DecodeError::Io(e) => format!("cannot read it: {e}"),
        DecodeError::Invalid(why) => format!("cannot decode it: {why}"),
    })?;
    let ImageEncoding { channels, size, mean, std, resize, interpolation, .. } = encoding;
    let scaling = Scaling { resize: *resize, interpolation: *interpolation };
    let mut planes = Vec::new();
    Pixels { size: *size, channels: *channels, scaling }.fitted(decoded, &mut planes);
    let options = TransformOptions { normalize: Some((mean.clone(), std.clone())), ..Default::default() };
    let mut values = vec![0.0; planes.len()];
    // Without augmentation nothing is drawn.
    let key = SampleKey { seed: 0, epoch: 0, sample: 0 };
    options.build([*channels, *size, *size], false).apply(key, &planes, &mut values);
    Ok(values)
}

/// The PNG and JPEG files in a folder and the folders in it, sorted by path; hidden ones are left out.
///
/// # Errors
/// A folder can't be listed (`ErrorKind::Io`).
pub fn images_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in sorted(&folder)? {
            if is_image(&path) && path.is_file() {
                found.push(path);
            } else if path.is_dir() && !path.is_symlink() && !is_hidden(&path) {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::image_folder;
    use crate::testing::{configure, sample};
    use crate::{Encoding, transforms::TransformOptions};
    use image::{Rgb, RgbImage};

    fn noise(path: &Path, width: u32, height: u32) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_fn(width, height, |x, y| Rgb([(x * 9) as u8, (y * 7) as u8, (x * y) as u8]))
            .save(path)
            .unwrap();
    }

    #[test]
    fn an_image_has_the_values_that_an_evaluation_sees() {
        let root = tempfile::tempdir().unwrap();
        for class in ["cat", "dog"] {
            noise(&root.path().join(format!("train/{class}/1.png")), 20, 31);
        }
        let val = root.path().join("val/dog/2.png");
        noise(&val, 40, 25);
        let keys = format!("root = '{}'\nimage_size = 16\naugment = ['flip']", root.path().display());
        let read = |more: &str| {
            let splits = configure(&image_folder, &format!("{keys}\n{more}")).unwrap().open().unwrap();
            let Some(Encoding::Images(encoding)) = splits.train.encoding() else { panic!("it has images") };
            assert_eq!(encoding.classes, ["cat", "dog"]);
            let (expected, class) = sample(&**splits.val.as_ref().unwrap(), 0, 0);
            let found = read_image(&encoding, &val).unwrap();
            assert_eq!(found.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>(), expected);
            assert_eq!(class, [1.0]);
            (encoding, found)
        };
        let (encoding, usual) = read("");
        assert_ne!(read("resize = 'squash'").1, usual);
        assert_ne!(read("interpolation = 'pil'").1, usual);
        let missing = read_image(&encoding, &root.path().join("none.png")).unwrap_err();
        assert!(missing.starts_with("cannot read it: "), "{missing}");
        std::fs::write(root.path().join("a.png"), "text").unwrap();
        let wrong = read_image(&encoding, &root.path().join("a.png")).unwrap_err();
        assert_eq!(wrong, "cannot decode it: it is neither PNG nor JPEG");
    }

    #[test]
    fn folders_are_searched_for_images() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b/2.png", "b/a/1.JPG", "a.jpeg", ".hidden/3.png", "b/notes.txt", "b/.4.png"] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let found = images_below(root.path()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.strip_prefix(root.path()).unwrap()).collect();
        assert_eq!(names, ["a.jpeg", "b/2.png", "b/a/1.JPG"].map(Path::new));
        let none = ImageEncoding::new(1, 8, &TransformOptions::default(), Vec::new());
        assert!(read_image(&none, root.path()).is_err());
    }
}
