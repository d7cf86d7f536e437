//! What the names of Parquet files say: the split, its parts, and the configuration.

use base::display;
use base::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Words in names of files and folders that stand for training, validation and test, as in Hugging Face's `datasets`.
pub(super) const WORDS: [&[&str]; 3] = [
    &["train", "training"],
    &["validation", "valid", "val", "dev"],
    &["test", "testing", "eval", "evaluation"],
];

/// What the path of a file below the folder says.
pub(super) struct PathFacts {
    /// The index of the split that it implies.
    pub split: Option<usize>,
    /// The folders above, without `data` and the folder of the split.
    pub config: String,
    /// The name of the split, with the folders above: `CONFIG/train_sft` of `CONFIG/train_sft-00000-of-00002.parquet`,
    /// `CONFIG/train/` of `CONFIG/train/0000.parquet`.
    pub name: String,
}

pub(super) fn place(path: &str) -> PathFacts {
    let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
    let mut parts: Vec<&str> = stem.split('/').collect();
    let file = parts.pop().unwrap_or_default();
    let own = without_number(file);
    let mut split = split_of_name(own);
    let folder = parts.iter().rposition(|folder| split_of_name(folder).is_some());
    let name = match folder {
        Some(at) if split.is_none() => {
            let name = format!("{}/", parts[..=at].join("/"));
            split = split_of_name(parts.remove(at));
            name
        }
        // Files that are no numbered parts, and whose names imply nothing, belong together.
        None if split.is_none() && part(file).is_none() => format!("{}/", parts.join("/")),
        _ => [&parts[..], &[own]].concat().join("/"),
    };
    parts.retain(|folder| *folder != "data");
    PathFacts { split, config: parts.join("/"), name }
}

/// The name of a file without what numbers the files of a split: `train` of `train-00000-of-00002-a1b2` and of `train_1`.
fn without_number(stem: &str) -> &str {
    let separator = |c: char| !c.is_alphanumeric();
    if let Some(part) = part(stem) {
        return part.before.trim_end_matches(separator);
    }
    let name = stem.trim_end_matches(|c: char| c.is_ascii_digit() || separator(c));
    // The digits of `train2` belong to the name.
    match stem[name.len()..].starts_with(separator) {
        true => name,
        false => stem,
    }
}

/// The split that the first such word of a name implies.
pub(super) fn split_of_name(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let mut words = name.split(|c: char| !c.is_alphanumeric());
    words.find_map(|word| WORDS.iter().position(|words| words.contains(&word)))
}

/// Files of one name.
struct Parts<'a> {
    /// How many parts there are, if they are numbered.
    count: Option<usize>,
    /// By their numbers.
    files: BTreeMap<Option<usize>, &'a Path>,
}

/// Checks files that say that they are `00000-of-00002`: no two are the same part, and, unless `some` of them are enough, all are there.
pub(super) fn parts_fit(root: &Path, files: &[PathBuf], split: &str, some: bool) -> Result<()> {
    let mut seen: BTreeMap<(&Path, String), Parts<'_>> = BTreeMap::new();
    for path in files {
        let (folder, stem) = (path.parent().unwrap_or(path), path.file_stem().unwrap_or_default());
        let stem = stem.to_string_lossy();
        let (index, count) = part(&stem).map(|part| (part.index, part.count)).unzip();
        let name = (folder, without_number(&stem).to_owned());
        let parts = seen.entry(name).or_insert_with(|| Parts { count, files: BTreeMap::new() });
        let other = match parts.count == count {
            true => parts.files.get(&index).filter(|_| index.is_some()),
            false => parts.files.values().next(),
        };
        if let Some(other) = other {
            return Err(two_versions(root, split, other, path));
        }
        parts.files.insert(index, path);
    }
    for ((folder, _), Parts { count, files: there }) in seen {
        let mut absent = (0..count.unwrap_or(0).min(1 << 20)).filter(|i| !there.contains_key(&Some(*i)));
        if let (Some(first), Some(count), false) = (absent.next(), count, some) {
            let (folder, missing) = (folder.display(), 1 + absent.count());
            let known = there.values().next().and_then(|path| path.file_stem()).unwrap_or_default();
            let known = known.to_string_lossy();
            let before = part(&known).map_or("", |part| part.before);
            return Err(Error::data(format!(
                "{folder}: {missing} of {count} files of the split `{split}` are missing, such as \
                 {before}{first:05}-of-{count:05}.parquet"
            ))
            .hint("the download is unfinished: repeat it; or name the files to use in `[dataset]`"));
        }
    }
    Ok(())
}

/// The error of two files that would double a part of the data.
fn two_versions(root: &Path, split: &str, one: &Path, other: &Path) -> Error {
    let in_root = |path: &Path| display::name(&path.strip_prefix(root).unwrap_or(path).to_string_lossy());
    let (root, one, other) = (root.display(), in_root(one), in_root(other));
    Error::data(format!("{root} has two versions of the split `{split}`: `{one}` and `{other}`")).hint(format!(
        "remove the files of the older one, or choose in `[dataset]`, as in `{split} = \"{other}\"` (with `*` for any part of a name)"
    ))
}

/// `train-00000-of-00002`: what stands before the numbers, and the numbers.
struct NumberedName<'a> {
    before: &'a str,
    index: usize,
    count: usize,
}

fn part(stem: &str) -> Option<NumberedName<'_>> {
    let at = stem.rfind("-of-")?;
    let before = stem[..at].trim_end_matches(|c: char| c.is_ascii_digit());
    let rest = &stem[at + 4..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (index, count) = (stem[before.len()..at].parse().ok()?, rest[..digits].parse().ok()?);
    Some(NumberedName { before, index, count })
}
