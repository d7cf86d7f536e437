use super::*;
use crate::sets::image_folder;
use crate::testing::{configure, sample};
use crate::{Dataset, FieldMut, SampleKey, StoredImages};
use base::error::ErrorKind;
use image::{Rgb, RgbImage};

struct Folder(tempfile::TempDir);

impl Folder {
    /// Images of cats and dogs in turn, in a folder for each class, each with its own pixels.
    fn of_classes(images: u8) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for i in 0..images {
            folder.image(&format!("train/{}/{i}.png", ["cat", "dog"][usize::from(i % 2)]), i);
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn image(&self, name: &str, i: u8) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_fn(12 + u32::from(i), 17, |x, y| Rgb([(x * 9) as u8, (y * u32::from(i)) as u8, i]))
            .save(path)
            .unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// The splits and the lines that `prepare` prints.
    fn open(&self, more: &str) -> Result<(Splits, Vec<String>)> {
        let keys =
            format!("root = '{}'\nimage = 'id'\ntarget = 'y'\nimage_size = 8\n{more}", self.path().display());
        let (source, mut said) = (configure(&image_csv, &keys).unwrap(), Vec::new());
        let place = format!("{}/", self.path().display());
        source.prepare(&mut |line| said.push(line.replace(&place, "")))?;
        Ok((source.open()?, said))
    }

    fn refused(&self, more: &str) -> String {
        let error = self.open(more).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Spec, "{error}");
        error.to_string().replace(&format!("{}/", self.path().display()), "")
    }
}

/// The pixels as bytes and the class of each sample.
fn stored(set: &dyn Dataset) -> Vec<(Vec<u8>, i64)> {
    let images: &dyn StoredImages = set.stored().unwrap();
    let read = |sample| {
        let (mut pixels, mut class) = (vec![0; 3 * 8 * 8], [0]);
        let key = SampleKey { seed: 0, epoch: 0, sample };
        images.write_stored(key, &mut pixels, FieldMut::Index(&mut class)).unwrap();
        (pixels, class[0])
    };
    (0..set.len() as u64).map(read).collect()
}

/// The names of classes that a checkpoint has.
fn classes_of(set: &dyn Dataset) -> Vec<String> {
    set.encoding().unwrap().classes().unwrap().to_vec()
}

#[test]
fn images_are_those_that_image_folder_reads() {
    let folder = Folder::of_classes(6);
    let keys = format!("root = '{}'\nimage_size = 8", folder.path().display());
    let by_folder = configure(&image_folder, &keys).unwrap().open().unwrap().train;
    // With and without extension, in another order, from the root and from the folder of the images.
    folder.write(
        "train.csv",
        "y,id,more\ndog,dog/5,1\ncat,cat/0.png,1\ncat,cat/2,1\ncat,cat/4,1\ndog,dog/1.png,1\ndog,dog/3,1\n",
    );
    let (splits, said) = folder.open("images = 'train'").unwrap();
    assert_eq!((said, splits.val.is_none(), splits.test.is_none()), (vec![], true, true));
    let by_table = stored(&*splits.train);
    let in_order = [1, 2, 3, 4, 5, 0].map(|row| by_table[row].clone());
    assert_eq!(in_order.to_vec(), stored(&*by_folder));
    assert_eq!(sample(&*splits.train, 1, 0), sample(&*by_folder, 0, 0), "normalised alike");
    assert_eq!(
        (classes_of(&*splits.train), splits.train.class_counts()),
        (classes_of(&*by_folder), Some(vec![3, 3]))
    );
    folder.write("train.csv", "id,y\ntrain/cat/0,cat\ntrain/dog/1,dog\n");
    let (splits, said) = folder.open("").unwrap();
    assert_eq!(
        stored(&*splits.train),
        stored(&*by_folder)[..1].iter().chain(&stored(&*by_folder)[3..4]).cloned().collect::<Vec<_>>()
    );
    let place = folder.path().display();
    assert_eq!(said[0], format!("{place}: 4 of 6 images are in no table, such as train/cat/2.png"));
}

#[test]
fn splits_are_tables_or_parts_of_training() {
    let folder = Folder::of_classes(10);
    let row = |i: u8, dir: &str| format!("{dir}{i}.png,{}\n", ["cat", "dog"][usize::from(i % 2)]);
    let table = |rows: std::ops::Range<u8>, dir: &str| {
        format!("id,y\n{}", rows.map(|i| row(i, dir)).collect::<String>())
    };
    (0..10).for_each(|i| folder.image(&format!("all/{i}.png"), i));
    (0..3).for_each(|i| folder.image(&format!("held/{i}.png"), 20 + i));
    folder.write("train.csv", &table(0..10, ""));
    let sizes = |more: &str| {
        let (splits, said) = folder.open(&format!("images = 'all'\n{more}")).unwrap();
        ((splits.train.len(), splits.val.map(|val| val.len()), splits.test.map(|test| test.len())), said)
    };
    assert_eq!(sizes("").0, (10, None, None));
    assert_eq!(sizes("val_split = 0.3").0, (7, Some(3), None));
    assert_eq!(sizes("max_train = 4").0, (4, None, None));
    folder.write("held.csv", &table(0..3, ""));
    let held = "test = 'held.csv'\ntest_images = 'held'";
    assert_eq!(sizes(held), ((10, Some(3), Some(3)), vec![]), "validation uses the test images");
    assert_eq!(sizes(&format!("{held}\nval_split = 0.3")).0, (7, Some(3), Some(3)));
    let (splits, said) = folder.open("images = 'all'\nval = 'held.csv'\nval_images = 'held'").unwrap();
    assert_eq!(said, [""; 0]);
    assert_eq!(stored(&*splits.val.unwrap())[1].0[128..], [21; 64], "not those of the other folder");
    // With the folder of training they are training images.
    let (_, said) = sizes("val = 'held.csv'");
    assert_eq!(
        said,
        [
            "warning: held.csv: 3 images are training images, too: line 2: `0.png`; line 3: `1.png`; line 4: `2.png`"
        ]
    );
    // As Kaggle has them.
    folder.write("test.csv", "id\n0\n1\n");
    let (sizes, said) = sizes("test = 'test.csv'\ntest_images = 'held'\nval_split = 0.3");
    assert_eq!(sizes, (7, Some(3), None));
    assert_eq!(
        said[0],
        "test.csv: left out, because no row has a label in `y`; `ddp-run predict` takes such images"
    );
    assert_eq!(said[1..], ["held: 1 of 3 images are in no table, such as held/2.png"]);
    folder.write("held.csv", "id,y\n0,cow\n");
    assert!(
        folder
            .refused(&format!("images = 'all'\n{held}"))
            .starts_with("held.csv, line 2, column `y`: the class `cow` is missing from training")
    );
}

/// As numpy: `(labels - labels[train].mean()) / labels[train].std()`.
#[test]
fn labels_may_be_numbers() {
    let folder = Folder::of_classes(4);
    folder.write("train.csv", "id,y\ncat/0,10\ndog/1,30\n");
    folder.write("val.csv", "id,y\ncat/2,50\ndog/3,-2.5\n");
    let regression = "images = 'train'\nval = 'val.csv'\ntask = 'regression'";
    let (splits, said) = folder.open(regression).unwrap();
    assert_eq!(said, [""; 0]);
    let targets = |set: &dyn Dataset| (0..set.len()).map(|i| sample(set, i, 0).1[0]).collect::<Vec<f64>>();
    let val = splits.val.unwrap();
    assert_eq!((targets(&*splits.train), targets(&*val)), (vec![-1.0, 1.0], vec![3.0, -2.25]));
    assert_eq!(
        (val.target(), val.target_scale()),
        (FieldFacts { shape: vec![1], kind: FieldKind::Float }, 10.0)
    );
    let encoding = val.encoding().unwrap();
    assert_eq!(
        (encoding.number(), encoding.classes()),
        (Some(NumberEncoding { mean: 20.0, std: 10.0 }), None)
    );
    let raw = folder.open(&format!("{regression}\nstandardise_target = false")).unwrap().0;
    assert_eq!((targets(&*raw.train), raw.train.target_scale()), (vec![10.0, 30.0], 1.0));
    // A checkpoint is evaluated in its own scale.
    let keys = format!(
        "root = '{}'\nimage = 'id'\ntarget = 'y'\nimage_size = 8\nimages = 'train'\ntrain = 'val.csv'\ntask = 'regression'",
        folder.path().display()
    );
    let other = configure(&image_csv, &keys).unwrap().open_encoded(&encoding).unwrap().train;
    assert_eq!((targets(&*other), other.encoding()), (vec![3.0, -2.25], Some(encoding)));
    folder.write("val.csv", "id,y\ncat/2,old\n");
    assert!(
        folder.refused(regression).contains("val.csv, line 2, column `y`: the label `old` is not a number")
    );
}

#[test]
fn rows_without_an_image_are_all_named() {
    let folder = Folder::of_classes(6);
    let rows = "id,y\ncat/0,cat\ncat/7.png,cat\ndog/1,dog\n\ndog/9,dog\ndog/3,dog\n";
    folder.write("train.csv", rows);
    let error = folder.refused("images = 'train'");
    let expected = "train.csv: 2 rows of 5 without a PNG or JPEG file in train:\n  line 3: `cat/7.png`\n  line 6: `dog/9`\n";
    assert!(error.starts_with(expected) && error.contains("hint: "), "{error}");
    let (splits, said) = folder.open("images = 'train'\nbad_images = 'skip'\ncache = '/none'").unwrap();
    assert_eq!(splits.train.len(), 3);
    let expected = "warning: train.csv: 2 rows of 5 without a PNG or JPEG file in train, left out: line 3: `cat/7.png`; line 6: `dog/9`";
    assert!(said.contains(&expected.to_owned()), "{said:?}");
    let many: String = (0..30).map(|i| format!("none{i},cat\n")).collect();
    folder.write("train.csv", &format!("id,y\n{many}"));
    let error = folder.refused("images = 'train'");
    assert!(error.contains("30 rows of 30") && error.contains("`none19`\n  and 10 more"), "{error}");
}

#[test]
fn rows_that_repeat_an_image_are_named() {
    let folder = Folder::of_classes(4);
    folder.write("train.csv", "id,y\ncat/0,cat\ndog/1,dog\ncat/0.png,cat\n");
    let (splits, said) = folder.open("images = 'train'").unwrap();
    assert_eq!(splits.train.len(), 2);
    assert_eq!(
        said[0],
        "warning: train.csv: 1 row repeats an earlier row, left out: line 4: `cat/0.png`, as line 2"
    );
    folder.write("train.csv", "id,y\ncat/0,cat\ndog/1,dog\ncat/0.png,dog\n");
    let error = folder.refused("images = 'train'");
    let expected = "train.csv: 1 row gives the image of an earlier row another label:\n  line 4: `cat/0.png`, as line 2, but `dog` and not `cat`\n";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn names_that_leave_the_root_are_refused() {
    let folder = Folder::of_classes(4);
    folder.write("train.csv", "id,y\n../../etc/passwd,cat\n/etc/passwd,dog\n../train/dog/1,dog\n");
    let error = folder.refused("images = 'train'");
    let expected = "train.csv: 2 rows have an absolute path or one that leaves `root`:\n  line 2: `../../etc/passwd`\n  line 3: `/etc/passwd`\n";
    assert!(error.starts_with(expected), "{error}");
    let keys = "root = 'a'\nimage = 'id'\ntarget = 'y'\nimages = '/b'\nval = '../c'\ntest_images = 'd'";
    let error = configure(&image_csv, keys).err().unwrap();
    assert!(error.contains("3 problems") && error.contains("has no effect without `test`"), "{error}");
}

#[test]
fn tables_that_cannot_be_used_are_refused() {
    let folder = Folder::of_classes(4);
    folder.image("train/cat/0.jpg", 3);
    for (rows, why) in [
        ("name,y\na,b\n", "train.csv has no column `id`, which `[dataset] image` names"),
        ("id,label\na,b\n", "train.csv has no column `y`, which `[dataset] target` names"),
        ("id,y\ncat/2,cat\ndog/1,\n", "train.csv: 1 row has no label in `y`:\n  line 3: `dog/1`"),
        ("id,y\ncat/2,cat\ndog/1,cat\n", "train.csv: `y` has one class only"),
        (
            "id,y\ncat/0,cat\ndog/1,dog\n",
            "train.csv: 1 row names several images:\n  line 2: `cat/0` (train/cat/0.jpg, train/cat/0.png)",
        ),
        ("id,y\n", "train.csv names no image that can be used"),
    ] {
        folder.write("train.csv", rows);
        let error = folder.refused("images = 'train'");
        assert!(error.starts_with(why), "{error}");
    }
    assert!(
        folder.refused("images = 'none'").starts_with("none is not a folder, which `[dataset] images` names")
    );
    assert!(
        folder
            .refused("train = 'none.csv'")
            .starts_with("none.csv is not a file, which `[dataset] train` names")
    );
}
