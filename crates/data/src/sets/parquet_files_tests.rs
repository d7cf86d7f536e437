use super::*;
use base::error::ErrorKind;

/// A folder with these empty files.
fn folder(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    folder
}

fn names(root: &Path, paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
}

fn found(
    root: &Path,
    config: Option<&str>,
    by_key: [Option<&str>; 3],
) -> Result<([Vec<String>; 3], usize), String> {
    let found = find(FileRequest { path: root, config, by_key }).map_err(|e| {
        assert_eq!(e.kind, ErrorKind::Spec);
        e.to_string().replace(&root.display().to_string(), "DIR")
    })?;
    let base = if root.is_dir() { root } else { root.parent().unwrap() };
    Ok((found.splits.each_ref().map(|files| names(base, files)), found.ignored.len()))
}

#[test]
fn names_tell_the_splits() {
    let all = |files: &[&str]| {
        let folder = folder(files);
        found(folder.path(), None, [None; 3]).unwrap()
    };
    let (splits, ignored) = all(&[
        "data/train-00001-of-00002.parquet",
        "data/train-00000-of-00002.parquet",
        "data/test-00000-of-00001-a1b2c3.parquet",
        "data/validation-00000-of-00001.parquet",
        "README.md",
        ".cache/huggingface/download/data/train-00000-of-00002.parquet",
    ]);
    assert_eq!(splits[0], ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]);
    assert_eq!(splits[1], ["data/validation-00000-of-00001.parquet"]);
    assert_eq!((&splits[2][..], ignored), (&["data/test-00000-of-00001-a1b2c3.parquet".to_owned()][..], 0));
    // What Hugging Face converts.
    let (splits, _) = all(&[
        "default/partial-train/0000.parquet",
        "default/partial-train/0001.parquet",
        "default/dev/0000.parquet",
    ]);
    assert_eq!((splits[0].len(), splits[1].len()), (2, 1));
    // Words, not parts of words.
    let (splits, ignored) = all(&["TRAIN.parquet", "contest.parquet", "val_1.PARQUET"]);
    assert_eq!((&splits[0][..], splits[1].len(), ignored), (&["TRAIN.parquet".to_owned()][..], 1, 1));
    // No name implies a split.
    let (splits, _) = all(&["0001.parquet", "0000.parquet"]);
    assert_eq!(splits[0], ["0000.parquet", "0001.parquet"]);
}

#[test]
fn one_of_several_configurations_is_named() {
    let folder = folder(&[
        "en/train.parquet",
        "en/test.parquet",
        "de/train-00000-of-00001.parquet",
        "de/notes.parquet",
    ]);
    let root = folder.path();
    let error = found(root, None, [None; 3]).unwrap_err();
    assert_eq!(
        error,
        "DIR has several configurations: `de`, `en`\n\nhint: set `[dataset] config` to one of them"
    );
    let (splits, ignored) = found(root, Some("en"), [None; 3]).unwrap();
    assert_eq!((splits[0][0].as_str(), splits[2].len(), ignored), ("en/train.parquet", 1, 2));
    let error = found(root, Some("eng"), [None; 3]).unwrap_err();
    assert!(error.starts_with("DIR has no configuration `eng`; did you mean `en`?"), "{error}");
    // Names of files need none.
    let (splits, _) = found(root, None, [Some("de/*.parquet"), None, None]).unwrap();
    assert_eq!((splits[0].len(), splits[2].len()), (2, 0));
}

#[test]
fn keys_name_files() {
    let folder = folder(&["a-1.parquet", "a-2.parquet", "b.parquet", "c.pq", "sub/a-3.parquet"]);
    let root = folder.path();
    let (splits, ignored) = found(root, None, [Some("a-*.parquet"), Some("c.pq"), Some("sub/*")]).unwrap();
    assert_eq!((&splits[0][..], ignored), (&["a-1.parquet".to_owned(), "a-2.parquet".to_owned()][..], 1));
    assert_eq!((splits[1][0].as_str(), splits[2][0].as_str()), ("c.pq", "sub/a-3.parquet"));
    let (splits, _) = found(&root.join("b.parquet"), None, [None, Some("a-1.parquet"), None]).unwrap();
    assert_eq!(
        (splits[0][0].as_str(), splits[1][0].as_str(), splits[2].len()),
        ("b.parquet", "a-1.parquet", 0)
    );
    let error = found(root, None, [Some("a-3.parquet"), None, None]).unwrap_err();
    assert!(
        error.starts_with("DIR has no file `a-3.parquet`, which `[dataset] train` names; did you mean `a-"),
        "{error}"
    );
    let error = found(root, None, [Some("a-[.parquet"), None, None]).unwrap_err();
    assert!(error.contains("`a-[.parquet` is not a pattern"), "{error}");
}

#[test]
fn an_unfinished_download_is_an_error() {
    let folder = folder(&[
        "train-00000-of-00003.parquet",
        "train-00002-of-00003.parquet",
        "test-00000-of-00001.parquet",
    ]);
    let root = folder.path();
    let error = found(root, None, [None; 3]).unwrap_err();
    assert!(
        error.starts_with(
            "DIR: 1 of 3 files of the split `train` are missing, such as train-00001-of-00003.parquet"
        ),
        "{error}"
    );
    // A part may be wanted.
    let (splits, _) = found(root, None, [Some("train-*.parquet"), None, None]).unwrap();
    assert_eq!((splits[0].len(), splits[2].len()), (2, 1));
}

/// Splits are what stands before the numbers, and one of several is chosen by its key.
#[test]
fn splits_of_one_kind_are_never_merged() {
    let error = |files: &[&str]| found(folder(files).path(), None, [None; 3]).unwrap_err();
    let mnli = [
        "data/train-00000-of-00001.parquet",
        "data/validation_matched-00000-of-00001.parquet",
        "data/validation_mismatched-00000-of-00002.parquet",
        "data/validation_mismatched-00001-of-00002.parquet",
    ];
    assert_eq!(
        error(&mnli),
        "DIR has several splits of one kind:\n  val: `data/validation_matched`, `data/validation_mismatched`\n\n\
         hint: choose one of each in `[dataset]`, as in `val = \"data/validation_matched-00000-of-00001.parquet\"`"
    );
    let all = folder(&mnli);
    let chosen = "data/validation_mismatched-*.parquet";
    let (splits, ignored) = found(all.path(), None, [None, Some(chosen), None]).unwrap();
    assert_eq!(
        (&splits[1][..], ignored),
        (&mnli[2..].iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..], 1)
    );
    // Two at once; the pattern of parts leaves out `train-extra`.
    let both = error(&[
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
        "train-extra-00000-of-00001.parquet",
        "test_gen.parquet",
        "test_sft.parquet",
    ]);
    assert!(both.contains("\n  train: `train`, `train-extra`\n  test: `test_gen`, `test_sft`"), "{both}");
    assert!(both.ends_with("`train = \"train-[0-9]*.parquet\"` and `test = \"test_gen.parquet\"`"), "{both}");
    for (files, names) in [
        (
            ["train_sft-00000-of-00001.parquet", "train_gen-00000-of-00001.parquet"],
            "train: `train_gen`, `train_sft`",
        ),
        (["train/0.parquet", "partial-train/0.parquet"], "train: `partial-train/`, `train/`"),
        (["train/0.parquet", "train.parquet"], "train: `train`, `train/`"),
        (["train.parquet", "data/train.parquet"], "train: `data/train`, `train`"),
        // No name implies a split.
        (["en-00000-of-00001.parquet", "de-00000-of-00001.parquet"], "train: `de`, `en`"),
    ] {
        let error = error(&files);
        assert!(error.contains(&format!(":\n  {names}\n\n")), "{error}");
    }
    // Numbers alone make no other split.
    for files in
        [["train_1.parquet", "train_2.parquet"], ["train/a.parquet", "train/b-00000-of-00001.parquet"]]
    {
        assert_eq!(found(folder(&files).path(), None, [None; 3]).unwrap().0[0], files);
    }
}

#[test]
fn two_versions_of_a_split_do_not_double_the_data() {
    for versions in [
        ["data/train-00000-of-00001-b42a775f407cee45.parquet", "data/train-00000-of-00001.parquet"],
        ["data/train-00000-of-00001.parquet", "data/train-00001-of-00002.parquet"],
        ["data/train-00000-of-00001.parquet", "data/train.parquet"],
    ] {
        let folder = folder(&versions);
        let [one, other] = versions;
        let expected = format!("DIR has two versions of the split `train`: `{one}` and `{other}`");
        for train in [None, Some("data/train*.parquet")] {
            let error = found(folder.path(), None, [train, None, None]).unwrap_err();
            assert!(error.starts_with(&expected), "{error}");
        }
        let (splits, _) = found(folder.path(), None, [Some(versions[1]), None, None]).unwrap();
        assert_eq!(splits[0], [versions[1]]);
    }
}

#[test]
fn says_where_nothing_was_found() {
    let folder = folder(&["data/test.parquet"]);
    let root = folder.path();
    let error = found(root, None, [None; 3]).unwrap_err();
    assert!(error.starts_with("DIR has no Parquet files of a training split"), "{error}");
    let error = found(&root.join("none"), None, [None; 3]).unwrap_err();
    assert!(error.starts_with("DIR is missing"), "{error}");
    std::fs::write(root.join("data/more.parquet"), "").unwrap();
    let error = found(root, None, [None; 3]).unwrap_err();
    assert!(error.contains("has no training split") && error.contains("data/more.parquet"), "{error}");
}
