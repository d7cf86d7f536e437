//! Finds the Parquet files of the splits of a data set, by their names or by the keys of the spec.

use super::columns::listed;
use super::parquet_names::{PathFacts, parts_fit, place};
use base::display;
use base::error::{Error, IoContext, Result};
use spec::did_you_mean;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names of the splits, and of their keys.
const SPLITS: [&str; 3] = ["train", "val", "test"];
/// Folders within folders that are searched.
const DEPTH: usize = 5;

/// What the spec says of the files.
#[derive(Clone, Copy)]
pub(super) struct FileRequest<'a> {
    /// Absolute.
    pub path: &'a Path,
    pub config: Option<&'a str>,
    /// Names or patterns by split.
    pub by_key: [Option<&'a str>; 3],
}

/// The files of a data set.
pub(super) struct ParquetFiles {
    /// In the order of their names. Training has some.
    pub splits: [Vec<PathBuf>; 3],
    /// Files of no split.
    pub ignored: Vec<PathBuf>,
}

/// A file below the folder, by its name there.
struct Listed {
    name: String,
    path: PathBuf,
}

/// # Errors
/// There are no training files, a split lacks some of its files, or it is not clear which
/// configuration is meant (`ErrorKind::Spec`).
pub(super) fn find(wanted: FileRequest<'_>) -> Result<ParquetFiles> {
    let FileRequest { path, by_key, .. } = wanted;
    let meta = std::fs::metadata(path);
    let folder = match meta {
        Ok(meta) if meta.is_dir() => path,
        Ok(_) => path.parent().unwrap_or(path),
        Err(e) => return Err(missing(path, &e)),
    };
    let mut splits = [const { Vec::new() }; 3];
    let mut rest = Vec::new();
    if folder == path {
        list(folder, "", DEPTH, &mut rest)?;
        for (split, pattern) in by_key.into_iter().enumerate() {
            if let Some(pattern) = pattern {
                splits[split] = take(folder, &mut rest, pattern, SPLITS[split])?;
            }
        }
    } else {
        // A file is the training split; other files may be beside it.
        splits[0] = vec![path.to_owned()];
        if by_key[0].is_some() {
            return Err(Error::data(format!("{} is a file, but `train` is set too", path.display()))
                .hint("set `[dataset] path` to the folder, or remove `train`"));
        }
        for split in [1, 2] {
            if let Some(pattern) = by_key[split] {
                list(folder, "", 1, &mut rest)?;
                splits[split] = take(folder, &mut rest, pattern, SPLITS[split])?;
                rest.clear();
            }
        }
    }
    let ignored = by_name(wanted, rest, &mut splits)?;
    if splits[0].is_empty() {
        return Err(no_training(folder, &ignored));
    }
    for split in 0..3 {
        // What the spec names may be a part of a split.
        parts_fit(folder, &splits[split], SPLITS[split], by_key[split].is_some())?;
    }
    Ok(ParquetFiles { splits, ignored })
}

fn missing(path: &Path, e: &std::io::Error) -> Error {
    let why = match e.kind() {
        std::io::ErrorKind::NotFound => "is missing".to_owned(),
        _ => format!("cannot be read: {e}"),
    };
    Error::data(format!("{} {why}", path.display())).hint(
        "copy the data set there (`hf download --repo-type dataset NAME --local-dir DIR`), or correct `[dataset] path` \
         (a relative one starts in the working directory of ddp-run)",
    )
}

fn no_training(folder: &Path, ignored: &[PathBuf]) -> Error {
    let place = folder.display();
    match ignored.first() {
        None => Error::data(format!("{place} has no Parquet files of a training split"))
            .hint("`[dataset] path` is the folder with the files `train*.parquet`, or above it"),
        Some(first) => Error::data(format!(
            "{place} has no training split: no Parquet file has the word `train` in its name or in that of its folder; \
             there is {}",
            first.display()
        ))
        .hint("`[dataset] train` names the files, as in `train = \"part-*.parquet\"`"),
    }
}

/// All Parquet files below a folder, sorted by name.
fn list(folder: &Path, prefix: &str, depth: usize, to: &mut Vec<Listed>) -> Result<()> {
    let entries = std::fs::read_dir(folder).and_then(|all| all.collect::<std::io::Result<Vec<_>>>());
    let mut entries = entries.doing("list", folder).map_err(Error::of_data)?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            if depth > 1 {
                list(&path, &format!("{prefix}{name}/"), depth - 1, to)?;
            }
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
            to.push(Listed { name: format!("{prefix}{name}"), path });
        }
    }
    Ok(())
}

/// Takes the files that a key of the spec names out of those that were listed.
fn take(folder: &Path, files: &mut Vec<Listed>, pattern: &str, key: &str) -> Result<Vec<PathBuf>> {
    // A name may be that of a file with another extension.
    let named = folder.join(pattern);
    if named.is_file() {
        files.retain(|file| file.path != named);
        return Ok(vec![named]);
    }
    let wrong =
        |e: glob::PatternError| Error::data(format!("`[dataset] {key}`: `{pattern}` is not a pattern: {e}"));
    let matcher = glob::Pattern::new(pattern).map_err(wrong)?;
    let fits = |name: &str| {
        let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        matcher.matches_with(name, options)
    };
    let (taken, rest) = std::mem::take(files).into_iter().partition(|file| fits(&file.name));
    *files = rest;
    let taken: Vec<Listed> = taken;
    if taken.is_empty() {
        let near = did_you_mean(pattern, files.iter().map(|file| file.name.as_str()));
        let (place, pattern) = (folder.display(), display::name(pattern));
        let error =
            Error::data(format!("{place} has no file `{pattern}`, which `[dataset] {key}` names{near}"));
        return Err(match files.is_empty() {
            true => error,
            false => error.hint(format!(
                "its Parquet files are {}",
                listed(files.iter().map(|file| file.name.as_str()))
            )),
        });
    }
    Ok(taken.into_iter().map(|file| file.path).collect())
}

/// Adds files to the splits that have none, by the words of their names; returns those of no split.
fn by_name(
    wanted: FileRequest<'_>,
    files: Vec<Listed>,
    splits: &mut [Vec<PathBuf>; 3],
) -> Result<Vec<PathBuf>> {
    let open: Vec<bool> =
        (0..3).map(|split| wanted.by_key[split].is_none() && splits[split].is_empty()).collect();
    let mut configs: BTreeMap<String, Vec<(PathFacts, Listed)>> = BTreeMap::new();
    for file in files {
        let place = place(&file.name);
        configs.entry(place.config.clone()).or_default().push((place, file));
    }
    // Where no name implies a split, all files are for training.
    let unnamed = configs.values().flatten().all(|(place, _)| place.split.is_none());
    if splits.iter().all(Vec::is_empty) && unnamed {
        configs.values_mut().flatten().for_each(|(place, _)| place.split = Some(0));
    }
    let mut ignored = Vec::new();
    let mut candidates = [const { Candidates::new() }; 3];
    let config = configuration(wanted, &configs)?;
    for (name, files) in configs {
        for (place, file) in files {
            match place.split.filter(|split| open[*split] && Some(&name) == config.as_ref()) {
                Some(split) => candidates[split].entry(place.name).or_default().push(file),
                None => ignored.push(file.path),
            }
        }
    }
    only_candidates(wanted.path, &candidates)?;
    for (split, found) in candidates.into_iter().enumerate().filter(|(split, _)| open[*split]) {
        splits[split] = found.into_values().flatten().map(|file| file.path).collect();
    }
    Ok(ignored)
}

/// The files of each name that stands for a split.
type Candidates = BTreeMap<String, Vec<Listed>>;

/// Checks that one name stands for each split: `validation_matched` and `validation_mismatched` are two.
fn only_candidates(root: &Path, candidates: &[Candidates; 3]) -> Result<()> {
    let several: Vec<usize> = (0..3).filter(|split| candidates[*split].len() > 1).collect();
    if several.is_empty() {
        return Ok(());
    }
    let found = several.iter().map(|split| {
        let names = listed(candidates[*split].keys().map(String::as_str));
        format!("\n  {}: {names}", SPLITS[*split])
    });
    let keys = several.iter().filter_map(|split| {
        let first = candidates[*split].values().next()?;
        Some(format!("`{} = \"{}\"`", SPLITS[*split], display::name(&pattern(first))))
    });
    let what = format!("{} has several splits of one kind:{}", root.display(), found.collect::<String>());
    Err(Error::data(what)
        .hint(format!("choose one of each in `[dataset]`, as in {}", keys.collect::<Vec<_>>().join(" and "))))
}

/// A pattern of the files of one candidate.
fn pattern(files: &[Listed]) -> String {
    let (first, last) = match files {
        [] => return String::new(),
        [only] => return only.name.clone(),
        [first, .., last] => (&first.name, &last.name),
    };
    // Sorted names have in common what the first and the last have.
    let same = first
        .char_indices()
        .zip(last.chars())
        .find(|((_, a), b)| a != b)
        .map_or(first.len(), |((at, _), _)| at);
    let start = first[..same].trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = first[start.len()..].starts_with(|c: char| c.is_ascii_digit());
    format!("{start}{}*.parquet", if digits { "[0-9]" } else { "" })
}

/// The configuration to be read; `None` if there are no files of a split by name.
fn configuration(
    wanted: FileRequest<'_>,
    configs: &BTreeMap<String, Vec<(PathFacts, Listed)>>,
) -> Result<Option<String>> {
    let parted = configs.iter().filter(|(_, files)| files.iter().any(|(place, _)| place.split.is_some()));
    let names: Vec<&str> = parted.map(|(name, _)| name.as_str()).collect();
    let root = wanted.path.display();
    let shown = || listed(names.iter().map(|name| if name.is_empty() { "." } else { name }));
    // Files that the spec names determine the configuration of the other splits.
    if let (None, Some(pattern)) = (wanted.config, wanted.by_key[0]) {
        return Ok(Some(place(pattern).config));
    }
    match (wanted.config, &names[..]) {
        (Some(config), _) => match names.iter().find(|name| **name == config) {
            Some(name) => Ok(Some((*name).to_owned())),
            None => {
                let near = did_you_mean(config, names.iter().copied());
                let config = display::name(config);
                Err(Error::data(format!("{root} has no configuration `{config}`{near}"))
                    .hint(format!("its folders with Parquet files of splits are {}", shown())))
            }
        },
        (None, []) => Ok(None),
        (None, [only]) => Ok(Some((*only).to_owned())),
        (None, _) => Err(Error::data(format!("{root} has several configurations: {}", shown()))
            .hint("set `[dataset] config` to one of them")),
    }
}

#[cfg(test)]
#[path = "parquet_files_tests.rs"]
mod tests;
