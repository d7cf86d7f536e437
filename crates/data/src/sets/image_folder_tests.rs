use super::*;
use crate::resample::{Picture, resized_crop};
use crate::resized_crop::ResizedCrop;
use crate::rng::{CounterRng, Stream};
use crate::testing::{configure, sample};
use crate::{Dataset, FieldMut, SampleKey, SampleMut};
use image::{Rgb, RgbImage};

/// Left half `a`, right half `b`.
fn save(path: PathBuf, width: u32, height: u32, a: [u8; 3], b: [u8; 3]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    RgbImage::from_fn(width, height, |x, _| Rgb(if x < width / 2 { a } else { b })).save(path).unwrap();
}

fn open(root: &Path, more: &str) -> Result<Splits> {
    let table = format!("root = '{}'\nnormalize = false\nimage_size = 8\n{more}", root.display());
    let source = configure(&image_folder, &table).unwrap();
    source.prepare(&mut |_| ())?;
    source.open()
}

#[test]
fn reads_folders_of_training_and_validation() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    save(root.join("train/cat/1.png"), 16, 8, [255, 0, 0], [0, 0, 255]);
    save(root.join("train/cat/2.jpg"), 8, 8, [0, 255, 0], [0, 255, 0]);
    save(root.join("train/dog/1.PNG"), 8, 8, [0, 0, 0], [255, 255, 255]);
    save(root.join("val/dog/1.png"), 8, 8, [51, 51, 51], [51, 51, 51]);
    let splits = open(root, "").unwrap();
    assert_eq!((splits.train.len(), splits.val.as_ref().unwrap().len()), (3, 1));
    // Wide image: after the centre crop, red is left and blue is right.
    let (pixels, class) = sample(&*splits.train, 0, 0);
    assert_eq!((class[0], pixels[0], pixels[128], pixels[7], pixels[128 + 7]), (0., 1., 0., 0., 1.));
    let (pixels, _) = sample(&*splits.train, 1, 0);
    assert!(pixels[0] < 0.05 && pixels[64] > 0.95, "JPEG: {} {}", pixels[0], pixels[64]);
    let val = splits.val.unwrap();
    let places = [splits.train.place(2), val.place(0)].map(Option::unwrap);
    assert_eq!(
        places,
        ["train/dog/1.PNG", "val/dog/1.png"].map(|name| root.join(name).display().to_string())
    );
    let (pixels, class) = sample(&*val, 0, 0);
    assert!(class == [1.0] && pixels.iter().all(|p| (p - 0.2).abs() < 1e-3));
    let grey = open(root, "channels = 1").unwrap().train;
    assert_eq!(sample(&*grey, 2, 0).0.len(), 64);
}

/// The window is one of the file's image, not of what validation sees of it, and is scaled once.
#[test]
fn random_resized_crop_takes_its_window_from_the_whole_image() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (width, height) = (40, 10);
    std::fs::create_dir_all(root.join("train/a")).unwrap();
    std::fs::create_dir_all(root.join("train/b")).unwrap();
    let image = RgbImage::from_fn(width, height, |x, y| Rgb([(6 * x) as u8, (20 * y) as u8, (x * y) as u8]));
    image.save(root.join("train/a/1.png")).unwrap();
    image.save(root.join("train/b/1.png")).unwrap();
    let train = open(root, "augment = [\"random-resized-crop\"]\ncrop_scale = [0.05, 0.2]").unwrap().train;
    let (size, mut lefts) = ([height as usize, width as usize], Vec::new());
    let planes: Vec<u8> = (0..3).flat_map(|c| image.as_raw()[c..].iter().copied().step_by(3)).collect();
    for epoch in 0..40 {
        let crop = ResizedCrop { scale: [0.05, 0.2], ratio: [3.0 / 4.0, 4.0 / 3.0] };
        let key = SampleKey { seed: 1, epoch, sample: 1 };
        let window = crop.draw(size, &mut CounterRng::new(key, Stream::ResizedCrop));
        let mut expected = vec![0; 3 * 8 * 8];
        resized_crop(Picture { pixels: &planes, size }, window, [8, 8], &mut expected);
        let (pixels, class) = sample(&*train, 1, epoch);
        let pixels: Vec<u8> = pixels.iter().map(|p| (p * 255.0).round() as u8).collect();
        assert_eq!((pixels, class), (expected, vec![1.0]), "{window:?}");
        lefts.push(window.left);
    }
    assert!(lefts.iter().any(|left| *left < 5) && lefts.iter().any(|left| *left > 28), "{lefts:?}");
}

#[test]
fn every_folder_beside_training_is_used_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let grey = |name: &str| save(root.join(name), 8, 8, [1; 3], [1; 3]);
    ["train/cat/1.png", "train/dog/1.png", "Valid/dog/1.png", "eval/cat/1.png", "eval/dog/2.png"]
        .iter()
        .for_each(|name| grey(name));
    assert_eq!(said(root, ""), [""; 0]);
    let splits = open(root, "").unwrap();
    assert_eq!((splits.val.unwrap().len(), splits.test.unwrap().len()), (1, 2));
    let error = open(root, "val_split = 0.5").err().unwrap().to_string();
    assert!(error.contains("/Valid, but `val_split` is set too"), "{error}");
    // Without a validation folder, the test images are the validation split.
    std::fs::rename(root.join("Valid"), root.join("holdout")).unwrap();
    let place = root.display();
    let unused = format!(
        "{place}: not used, beside the training images: `holdout` (folders of validation images are `validation`, `valid`, `val`, `dev`)"
    );
    assert_eq!(said(root, ""), [unused.clone(), format!("{place}/eval: validation uses these test images")]);
    let splits = open(root, "").unwrap();
    assert_eq!((splits.val.unwrap().len(), splits.test.unwrap().len()), (2, 2));
    assert_eq!(said(root, "val_split = 0.5"), [unused]);
    assert_eq!(open(root, "val_split = 0.5").unwrap().val.unwrap().len(), 1);
    // Images without classes are no test split, and no validation split.
    std::fs::remove_dir_all(root.join("eval")).unwrap();
    grey("test/1.png");
    assert!(
        said(root, "").iter().any(|line| line.contains("/test: not used, because")),
        "{:?}",
        said(root, "")
    );
    assert!(open(root, "").unwrap().val.is_none());
    std::fs::create_dir_all(root.join("dev/cat")).unwrap();
    let error = open(root, "").err().unwrap().to_string();
    assert!(error.contains("/dev has no images"), "{error}");
}

#[test]
fn splits_a_single_folder() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..10u8 {
        let name = if i % 2 == 0 { "even" } else { "odd" };
        save(folder.path().join(format!("{name}/{i}.png")), 8, 8, [i; 3], [i; 3]);
    }
    let splits = open(folder.path(), "val_split = 0.3").unwrap();
    assert_eq!((splits.train.len(), splits.val.unwrap().len()), (7, 3));
}

fn sample_error(set: &dyn Dataset, sample: u64) -> Error {
    let (mut input, mut target) = (vec![0.0; 192], vec![0]);
    let key = SampleKey { seed: 0, epoch: 0, sample };
    set.write(key, SampleMut::new(FieldMut::Float(&mut input), FieldMut::Index(&mut target))).unwrap_err()
}

/// The lines that `prepare` prints.
fn said(root: &Path, more: &str) -> Vec<String> {
    let table = format!("root = '{}'\nnormalize = false\nimage_size = 8\n{more}", root.display());
    let mut lines = Vec::new();
    configure(&image_folder, &table).unwrap().prepare(&mut |line| lines.push(line.to_owned())).unwrap();
    lines
}

#[test]
fn reports_ignored_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    save(root.join("cat/1.png"), 8, 8, [1; 3], [1; 3]);
    save(root.join("dog/1.png"), 8, 8, [1; 3], [1; 3]);
    assert_eq!(said(root, ""), [""; 0]);
    save(root.join(".git/1.png"), 8, 8, [1; 3], [1; 3]);
    save(root.join("loose.jpg"), 8, 8, [1; 3], [1; 3]);
    for name in ["cat/._1.png", "cat/2.webp", "dog/3.BMP", "dog/4.bmp", "dog/readme", "labels.csv"] {
        std::fs::write(root.join(name), "").unwrap();
    }
    for name in ["a notes", "cat/more"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    assert_eq!(
        said(root, ""),
        [format!(
            "{}: ignored 2 hidden files or folders, 1 folder without images (`a notes`), 1 image outside of any class folder (`loose.jpg`), \
             1 subfolder of a class folder, \
             5 files that are neither PNG nor JPEG (1 without an extension, 2 .bmp, 1 .csv, 1 .webp)",
            root.display()
        )]
    );
    let splits = open(root, "").unwrap();
    assert_eq!((splits.train.len(), splits.train.target()), (2, crate::images::class_facts(2)));
    assert_eq!((sample(&*splits.train, 0, 0).1[0], sample(&*splits.train, 1, 0).1[0]), (0., 1.));
}

/// Truncates each of the files to half its length.
fn tear(root: &Path, names: &[&str]) {
    for name in names {
        let whole = std::fs::read(root.join(name)).unwrap();
        std::fs::write(root.join(name), &whole[..whole.len() / 2]).unwrap();
    }
}

#[test]
fn skips_unreadable_images_if_specified() {
    let folder = tempfile::tempdir().unwrap();
    let (root, cache) = (folder.path().join("set"), folder.path().join("cache"));
    for i in 0..4u8 {
        save(root.join(format!("train/{}/{i}.jpg", i % 2)), 64, 64, [i; 3], [200; 3]);
        save(root.join(format!("val/{}/{i}.png", i % 2)), 8, 8, [i; 3], [i; 3]);
    }
    tear(&root, &["train/0/0.jpg", "train/1/3.jpg", "val/1/1.png"]);
    let skip = format!("bad_images = 'skip'\ncache = '{}'", cache.display());
    let lines = said(&root, &skip);
    let expected = format!(
        "warning: {0}/train: 2 of 4 images can't be read and are left out, such as {0}/train/0/0.jpg (it is truncated)",
        root.display()
    );
    assert!(lines.contains(&expected), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("checking all")).count(), 2);
    let splits = open(&root, &skip).unwrap();
    assert_eq!((splits.train.len(), splits.val.as_ref().unwrap().len()), (2, 3));
    let classes =
        |set: &dyn crate::Dataset| (0..set.len()).map(|i| sample(set, i, 0).1[0]).collect::<Vec<_>>();
    assert_eq!((classes(&*splits.train), classes(&*splits.val.unwrap())), (vec![0., 1.], vec![0., 0., 1.]));
    // The result is cached until a file changes.
    assert!(said(&root, &skip).iter().all(|line| line.starts_with("warning")));
    save(root.join("train/0/0.jpg"), 64, 64, [9; 3], [9; 3]);
    assert!(said(&root, &skip).iter().any(|line| line.contains("1 of 4 images")));
    assert_eq!(open(&root, &skip).unwrap().train.len(), 3);
    // A class without validation images is not an error.
    tear(&root, &["val/1/3.png"]);
    assert_eq!(open(&root, &skip).unwrap().val.unwrap().len(), 2);
    // A class without training images is.
    tear(&root, &["train/0/0.jpg", "train/0/2.jpg"]);
    let error = open(&root, &skip).err().unwrap();
    assert!(error.message.contains("no image of the class `0` can be read"), "{error}");
    assert_eq!(error.kind, base::error::ErrorKind::Spec);
    // Without `skip`, an image that can't be read is an error when it is used.
    assert_eq!(open(&root, "").unwrap().train.len(), 4);
}

/// Permissions and mounts change without a file's mtime.
#[test]
fn unreadable_files_are_tried_again_at_each_start() {
    let folder = tempfile::tempdir().unwrap();
    let (root, cache) = (folder.path().join("set"), folder.path().join("cache"));
    for i in 0..4u8 {
        save(root.join(format!("train/{}/{i}.png", i % 2)), 8, 8, [i; 3], [i; 3]);
    }
    // It is listed, but can't be read.
    let path = root.join("train/0/0.png");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let skip = format!("val_split = 0.0\nbad_images = 'skip'\ncache = '{}'", cache.display());
    for start in 0..4 {
        if start == 2 {
            // A link to what is not there.
            std::fs::remove_dir(&path).unwrap();
            std::os::unix::fs::symlink(root.join("none.png"), &path).unwrap();
        }
        let lines = said(&root, &skip);
        assert!(lines.iter().any(|line| line.contains("checking all")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("1 of 4 images can't be read")), "{lines:#?}");
    }
    let error = sample_error(&*open(&root, "val_split = 0.0").unwrap().train, 0);
    assert_eq!(error.kind, base::error::ErrorKind::Spec);
    assert!(error.message.starts_with("cannot read ") && error.hint.is_none(), "{error}");
}

#[test]
fn reports_invalid_folders_and_images() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(&folder.path().join("none"), "").err().unwrap().to_string();
    assert!(
        error.contains("none is not a folder of images") && error.contains("train/<class>/*.png"),
        "{error}"
    );
    save(folder.path().join("a/1.png"), 8, 8, [1; 3], [1; 3]);
    save(folder.path().join("b/1.png"), 8, 8, [1; 3], [1; 3]);
    let whole = std::fs::read(folder.path().join("b/1.png")).unwrap();
    std::fs::write(folder.path().join("b/1.png"), &whole[..whole.len() / 2]).unwrap();
    let train = open(folder.path(), "").unwrap().train;
    let error = sample_error(&*train, 1).to_string();
    assert!(error.contains("b/1.png: it is truncated"), "{error}");
    assert!(error.contains("hint: ") && error.contains("bad_images = \"skip\""), "{error}");
    // Relative to the working directory of the tests.
    let up = "../".repeat(std::env::current_dir().unwrap().components().count() - 1);
    let relative = Path::new(&up).join(folder.path().strip_prefix("/").unwrap());
    let error = sample_error(&*open(&relative, "").unwrap().train, 1).message;
    assert!(error.starts_with("cannot decode the image /"), "{error}");
}
