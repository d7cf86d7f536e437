use super::*;
use crate::error::ExitCode;

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
    let found = find(Wanted { path: root, config, by_key }).map_err(|e| {
        assert_eq!(e.code, ExitCode::Spec);
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
