use super::*;
use image::{GrayImage, Luma};

fn folder(images: &[&str], tables: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for name in images {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        GrayImage::from_pixel(20, 24, Luma([7])).save(path).unwrap();
    }
    tables.iter().for_each(|(name, text)| std::fs::write(root.path().join(name), text).unwrap());
    root
}

/// The images of training and test have the same names.
#[test]
fn the_usual_layout_of_kaggle_is_recognised() {
    let images = [
        "train_images/0.jpg",
        "train_images/1.jpg",
        "train_images/2.jpg",
        "test_images/0.jpg",
        "test_images/1.jpg",
    ];
    let root = folder(
        &images,
        &[
            ("train.csv", "image_id,label\n0.jpg,1\n1.jpg,0\n2.jpg,1\n"),
            ("test.csv", "image_id\n0.jpg\n1.jpg\n"),
            ("sample_submission.csv", "image_id,label\n0.jpg,0\n"),
        ],
    );
    for path in [root.path().to_owned(), root.path().join("train.csv")] {
        let found = propose_image_table(&path).unwrap().unwrap();
        assert_eq!(
            (found.image.as_str(), found.target.as_str(), found.numbers),
            ("image_id", "label", false)
        );
        assert_eq!(found.images, ["train_images", "train_images", "test_images"].map(PathBuf::from));
        assert_eq!(found.survey.classes, [("0".to_owned(), 1), ("1".to_owned(), 2)]);
        let test = found.tables.test.unwrap();
        assert_eq!((test.name.as_str(), test.labelled, found.survey.test), ("test.csv", false, None));
        assert_eq!(found.tables.unused, ["sample_submission.csv"]);
        assert_eq!((found.survey.side, found.survey.grey, found.missing), (20, true, 0));
    }
}

#[test]
fn names_may_lack_extensions_and_labels_may_be_numbers() {
    let images: Vec<String> = (0..12).map(|i| format!("faces/{i}.png")).collect();
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    // Ages are names of images, too.
    let rows: String = (0..12).map(|i| format!("{i},{}.5\n", i * i % 7)).collect();
    let root = folder(&images, &[("ages.csv", &format!("id,age\n{rows}"))]);
    let found = propose_image_table(root.path()).unwrap().unwrap();
    assert_eq!((found.image.as_str(), found.target.as_str(), found.numbers), ("id", "age", true));
    assert_eq!((found.images[0].as_path(), found.survey.classes.len()), (Path::new("faces"), 0));
    assert_eq!(found.survey.images, 12);
    std::fs::remove_file(root.path().join("faces/11.png")).unwrap();
    assert_eq!(propose_image_table(root.path()).unwrap().unwrap().missing, 1);
}

#[test]
fn other_folders_are_none() {
    let classes = ["train/a/0.png", "train/b/1.png"];
    let root = folder(&classes, &[("train.csv", "id,y\na/0.png,a\nb/1.png,b\n")]);
    assert!(propose_image_table(root.path()).unwrap().is_none(), "a folder for each class");
    let root = folder(&["a/0.png"], &[("train.csv", "x,y\n1.5,2\n3.5,4\n")]);
    assert!(propose_image_table(root.path()).unwrap().is_none(), "a table of numbers");
    assert!(propose_image_table(&root.path().join("a")).unwrap().is_none(), "no table");
}
