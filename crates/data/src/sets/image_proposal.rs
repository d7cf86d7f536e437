//! Proposes how a model may learn from images and a table of their names and labels, for `ddp-run init`.

use super::csv_columns::Column;
use super::csv_guessed::read_table;
use super::csv_joined::without_targets;
use super::csv_proposal::{Beside, target, task};
use super::csv_table::RawTable;
use super::csv_tables::{CsvTables, Files, OtherTable};
use super::image_decode::decode;
use super::image_files::find_images;
use super::image_names::{ImageName, ImageNames};
use super::image_rows::ImageTable;
use super::image_splits::SplitFolders;
use super::image_survey::{ImageSurvey, READ, side_and_grey};
use super::parquet_names::split_of_name;
use crate::store::{absolute, below};
use base::error::Result;
use image::DynamicImage;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Rows that are looked at, at equal distances, for the column of names.
const ROWS: usize = 50;

/// Images with a table of their names and labels.
#[derive(Debug)]
pub struct ImageTableProposal {
    /// The folder of the tables.
    pub root: PathBuf,
    /// The tables of the splits.
    pub tables: CsvTables,
    /// What separates the columns.
    pub delimiter: char,
    /// The column of the names.
    pub image: String,
    /// The column of the labels.
    pub target: String,
    /// Why this one.
    pub target_reason: String,
    /// The labels are numbers, not classes.
    pub numbers: bool,
    /// Why.
    pub task_reason: String,
    /// The folder of the images of each split in the root.
    pub images: [PathBuf; 3],
    /// Training rows whose image is missing.
    pub missing: usize,
    /// The properties of the images.
    pub survey: ImageSurvey,
}

/// Looks for a table of images at `path`, or in that folder; `None` if there is none, or if the folder has one folder for each class.
///
/// # Errors
/// A folder can't be listed.
pub fn propose_image_table(path: &Path) -> Result<Option<ImageTableProposal>> {
    let Ok(files) = Files::from_path(path) else { return Ok(None) };
    let root = absolute(base::files::folder(&files.train));
    let by_folder = SplitFolders::find(&root).is_ok_and(|folders| {
        folders.train != root && find_images(&folders.train).is_ok_and(|found| found.classes.len() > 1)
    });
    let all = ImageNames::list(&root, Path::new(""))?;
    if by_folder || all.images.is_empty() {
        return Ok(None);
    }
    let Ok((table, _)) = read_table(&files.train) else { return Ok(None) };
    let places = Places::new(&all);
    let Some(image) = places.column(&table) else { return Ok(None) };
    let folder = |table: &RawTable, split: usize| {
        let column = table.header.iter().position(|name| *name == table.header[image])?;
        choose(places.folders(table, column), split)
    };
    let Some(own) = folder(&table, 0) else { return Ok(None) };
    let other = |path: &Option<PathBuf>| {
        path.as_ref().and_then(|path| RawTable::read(path, table.delimiter, vec![String::new()]).ok())
    };
    let (val, test) = (other(&files.val), other(&files.test));
    let of_other = |other: &Option<RawTable>, split: usize| {
        let found = other.as_ref().and_then(|other| {
            let column = other.header.iter().position(|name| *name == table.header[image])?;
            choose(places.folders(other, column), split)
        });
        found.unwrap_or_else(|| own.clone())
    };
    let images = [own.clone(), of_other(&val, 1), of_other(&test, 2)];
    let Some(labels) = labels(&table, image, test.as_ref()) else { return Ok(None) };
    let table = ImageTable { table, image, target: Some(labels.at) };
    let mut names = ImageNames::list(&root, &own)?;
    let paths: Vec<Option<PathBuf>> = table
        .names()
        .map(|name| match names.find(name) {
            ImageName::Image(path) => Some(root.join(path)),
            _ => None,
        })
        .collect();
    let missing = paths.iter().filter(|path| path.is_none()).count();
    let target = table.table.header[labels.at].clone();
    let beside = |table: Option<RawTable>| {
        let table = table?;
        let name = Path::new(&table.path).file_name()?.to_string_lossy().into_owned();
        Some(OtherTable {
            name,
            rows: table.rows.len(),
            labelled: without_targets(&table, &target).is_none(),
        })
    };
    let tables = CsvTables { train: files.train, val: beside(val), test: beside(test), unused: files.unused };
    let Some(survey) = survey(&table, &paths, &labels, &tables) else { return Ok(None) };
    Ok(Some(ImageTableProposal {
        root,
        tables,
        delimiter: char::from(table.table.delimiter),
        image: table.table.header[image].clone(),
        target,
        target_reason: labels.reason,
        numbers: labels.classes.is_none(),
        task_reason: labels.task_reason,
        images,
        missing,
        survey,
    }))
}

/// The column of the labels.
struct Labels {
    at: usize,
    reason: String,
    /// How many there are; `None`: they are numbers.
    classes: Option<usize>,
    task_reason: String,
}

fn labels(table: &RawTable, image: usize, test: Option<&RawTable>) -> Option<Labels> {
    let header = &table.header;
    let mut columns: Vec<Column> = (0..header.len()).map(|c| Column::new(table, c)).collect();
    columns[image].useless = Some("it names the images".to_owned());
    let lacks = |test: &RawTable| header.iter().filter(|name| !test.header.contains(name)).cloned().collect();
    let beside = Beside {
        lacking: test.map(lacks).unwrap_or_default(),
        lacks: test
            .and_then(|test| Some(Path::new(&test.path).file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_default(),
        ..Beside::default()
    };
    let (at, reason, _) = target(header, &columns, &beside)?;
    let different: BTreeSet<&str> = table.rows.iter().map(|row| &row[at]).collect();
    let (classes, task_reason) = task(&columns[at], different.len(), table.rows.len());
    Some(Labels { at, reason, classes, task_reason })
}

/// Reads some of the images; `None` if none can be decoded.
fn survey(
    table: &ImageTable,
    paths: &[Option<PathBuf>],
    labels: &Labels,
    tables: &CsvTables,
) -> Option<ImageSurvey> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let there = || paths.iter().enumerate().filter_map(|(row, path)| Some((row, path.as_ref()?)));
    there().for_each(|(row, _)| *counts.entry(table.label(row)).or_default() += 1);
    let images = there().count();
    let apart = images.div_ceil(READ).max(1);
    let read: Vec<Option<DynamicImage>> = there().step_by(apart).map(|(_, path)| decode(path).ok()).collect();
    let decoded: Vec<DynamicImage> = read.iter().flatten().cloned().collect();
    let (side, grey) = side_and_grey(&decoded)?;
    let classes = match labels.classes {
        Some(_) => table.classes().names(),
        None => Vec::new(),
    };
    let count = |name: String| {
        let n = counts.get(name.as_str()).copied().unwrap_or(0);
        (name, n)
    };
    Some(ImageSurvey {
        images,
        classes: classes.into_iter().map(count).collect(),
        val: tables.val.as_ref().map(|val| val.rows),
        test: tables.test.as_ref().filter(|test| test.labelled).map(|test| test.rows),
        side,
        grey,
        read: (read.len(), read.len() - decoded.len()),
    })
}

/// All images of a root by the last parts of their paths, with and without extension.
struct Places<'a> {
    by_name: HashMap<PathBuf, Vec<&'a Path>>,
}

impl<'a> Places<'a> {
    fn new(all: &'a ImageNames) -> Self {
        let mut by_name: HashMap<PathBuf, Vec<&Path>> = HashMap::new();
        for path in all.images.keys() {
            let name = Path::new(path.file_name().unwrap_or_default());
            by_name.entry(name.to_owned()).or_default().push(path);
            by_name.entry(name.with_extension("")).or_default().push(path);
        }
        Self { by_name }
    }

    /// The column of the names of images, the one with the most different cells.
    fn column(&self, table: &RawTable) -> Option<usize> {
        let able = (0..table.header.len()).filter(|column| !self.folders(table, *column).is_empty());
        let different =
            |column: &usize| table.rows.iter().map(|row| &row[*column]).collect::<BTreeSet<_>>().len();
        // The first of several.
        able.rev().max_by_key(different)
    }

    /// The folders from which the cells of a column are paths of images, but for a few.
    fn folders(&self, table: &RawTable, column: usize) -> Vec<PathBuf> {
        let apart = table.rows.len().div_ceil(ROWS).max(1);
        let (mut hits, mut rows): (BTreeMap<PathBuf, usize>, usize) = (BTreeMap::new(), 0);
        for row in table.rows.iter().step_by(apart) {
            rows += 1;
            self.folders_of(&row[column])
                .into_iter()
                .for_each(|folder| *hits.entry(folder).or_default() += 1);
        }
        hits.into_iter().filter(|(_, n)| n * 5 >= rows * 4).map(|(folder, _)| folder).collect()
    }

    /// The folders from which a cell is the path of an image.
    fn folders_of(&self, cell: &str) -> BTreeSet<PathBuf> {
        let Some(cell) = below(Path::new(""), Path::new(cell)) else { return BTreeSet::new() };
        let name = Path::new(cell.file_name().unwrap_or_default());
        let found = self.by_name.get(name).into_iter().flatten();
        let fits = |path: &&&Path| path.ends_with(&cell) || path.with_extension("").ends_with(&cell);
        let folder = |path: &&Path| path.ancestors().nth(cell.components().count()).map(Path::to_owned);
        found.filter(fits).filter_map(folder).collect()
    }
}

/// The folder of a split: one with a word for it in its path, else one with none for another.
fn choose(folders: Vec<PathBuf>, split: usize) -> Option<PathBuf> {
    let rank = |folder: &PathBuf| {
        let words = folder.components().filter_map(|part| split_of_name(&part.as_os_str().to_string_lossy()));
        let words: Vec<usize> = words.collect();
        let fits = match words.as_slice() {
            [] => 1,
            words if words.contains(&split) => 0,
            _ => 2,
        };
        (fits, folder.components().count(), folder.clone())
    };
    folders.into_iter().min_by_key(rank)
}

#[cfg(test)]
#[path = "image_proposal_tests.rs"]
mod tests;
