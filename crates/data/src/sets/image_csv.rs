//! `image-csv`: PNG and JPEG files, and a table of their names and labels.

use super::csv_joined::without_targets;
use super::csv_table::RawTable;
use super::image_listed::{Listed, check_labels, remarks};
use super::image_names::ImageNames;
use super::image_rows::{ImageRow, ImageTable};
use super::image_source::{BadImages, ImageFiles};
use super::table::Task;
use super::table_values::Scale;
use crate::images::ImageSource;
use crate::split::{SplitOptions, Subset};
use crate::store::{absolute, check_names_below};
use crate::{DataFacts, DatasetSource, Encoding, FieldFacts, FieldKind, NumberEncoding, Splits};
use base::display;
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// PNG and JPEG files, and a table of their names and labels: `root/train.csv` beside `root/train_images/…`. A row has the name of an
/// image, with or without extension, as a path from the folder of the images; absolute paths and paths that leave `root` are refused.
/// All rows without an image are named; a row that repeats an earlier one is left out, and named, and two labels of one image are
/// refused. The run counts images in no table. Without a validation table the validation split is `val_split` of the training images, or
/// with `val_split = 0` the test table; a test table in which no row has a label is left out.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["root", "image", "target"]))]
struct TableSource {
    /// The folder of the tables and of the images.
    #[schemars(extend("x-changes-results" = false, "format" = "path"))]
    root: PathBuf,
    /// The training table in `root`, with a header line.
    #[default = "train.csv"]
    train: String,
    /// The validation table in `root`. `val_split` has no effect with it.
    val: Option<String>,
    /// The test table in `root`.
    test: Option<String>,
    /// Separator of columns: one ASCII character.
    #[default = ","]
    delimiter: String,
    /// The column of the names of images.
    image: String,
    /// The column of the labels.
    target: String,
    /// The folder of the images in `root`.
    #[default = "."]
    images: String,
    /// The folder of the validation images in `root`. Default: `images`.
    val_images: Option<String>,
    /// The folder of the test images in `root`. Default: `images`.
    test_images: Option<String>,
    /// The type of the labels.
    #[default(Task::Classification)]
    task: Task,
    #[serde(skip)]
    standardise_target: bool,
    #[serde(skip)]
    files: ImageFiles,
    #[serde(skip)]
    split: SplitOptions,
}

// Read only for `regression`.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct NumberTarget {
    /// Scale the labels to mean 0 and standard deviation 1, both measured on the training split; only for `regression`. The loss is that
    /// of the scaled labels; `mae` and `mse` are in their own units.
    #[default = true]
    standardise_target: bool,
}

/// Reads the `[dataset]` table.
pub fn image_csv(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let own: TableSource = fields.config();
    if own.delimiter.len() != 1 {
        fields.problem("delimiter", "expected one ASCII character");
    }
    let train = Some(own.train.clone());
    check_names_below(fields, [("train", &train), ("val", &own.val), ("test", &own.test)], "`root`");
    let images = Some(own.images.clone());
    let folders = [("images", &images), ("val_images", &own.val_images), ("test_images", &own.test_images)];
    check_names_below(fields, folders, "`root`");
    for (folder, table) in [("val_images", "val"), ("test_images", "test")] {
        if !fields.has(table) {
            fields.misplaced(&[folder], &format!("without `{table}`"));
        }
    }
    let numbers: Option<NumberTarget> = fields.config_if(own.task == Task::Regression);
    let mut files: ImageFiles = fields.config();
    let split = SplitOptions::of_samples(fields, own.val.is_some().then_some("with `val`"));
    files.read_transform(fields);
    Arc::new(TableSource {
        // Messages show absolute paths.
        root: absolute(&own.root),
        standardise_target: numbers.is_some_and(|numbers| numbers.standardise_target),
        files,
        split,
        ..own
    })
}

impl DatasetSource for TableSource {
    fn facts(&self) -> DataFacts {
        let target = FieldFacts { shape: vec![1], kind: FieldKind::Float };
        DataFacts { target: (self.task == Task::Regression).then_some(target), ..self.files.facts() }
    }

    fn check_files(&self) -> Result<()> {
        for (key, table, folder) in self.tables() {
            let (table, folder) = (self.root.join(table), self.root.join(folder));
            let missing = |path: &Path, what: &str, key: &str| {
                let path = path.display();
                Error::data(format!("{path} is not a {what}, which `[dataset] {key}` names in `root`"))
                    .hint("copy the data there, or correct the key (a relative `root` starts in the working directory of ddp-run)")
            };
            if !table.is_file() {
                return Err(missing(&table, "file", key));
            }
            if !folder.is_dir() {
                let key = if key == TRAIN { "images".to_owned() } else { format!("{key}_images") };
                return Err(missing(&folder, "folder", &key));
            }
        }
        Ok(())
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.check_files()?;
        self.listed(say).map(drop)
    }

    fn files(&self) -> Vec<PathBuf> {
        Some(self.root.clone()).filter(|root| root.is_dir()).into_iter().collect()
    }

    fn open(&self) -> Result<Splits> {
        self.open_as(None)
    }

    fn open_encoded(&self, known: &Encoding) -> Result<Splits> {
        self.open_as(known.number())
    }
}

const TRAIN: &str = "train";
const TEST: &str = "test";

impl TableSource {
    /// Each table with its key and the folder of its images.
    fn tables(&self) -> Vec<(&'static str, &str, &str)> {
        let mut tables = vec![(TRAIN, self.train.as_str(), self.images.as_str())];
        let others = [("val", &self.val, &self.val_images), (TEST, &self.test, &self.test_images)];
        tables.extend(others.into_iter().filter_map(|(key, table, folder)| {
            Some((key, table.as_deref()?, folder.as_deref().unwrap_or(&self.images)))
        }));
        tables
    }

    /// The images of each split, that of training first.
    fn listed(&self, say: &mut dyn FnMut(&str)) -> Result<Vec<Listed>> {
        let mut folders: BTreeMap<&str, ImageNames> = BTreeMap::new();
        let mut found: Vec<Listed> = Vec::new();
        for (key, table, folder) in self.tables() {
            let table = self.table(key, table)?;
            if !folders.contains_key(folder) {
                let names = ImageNames::list(&self.root, Path::new(folder)).map_err(Error::of_data)?;
                folders.insert(folder, names);
            }
            let Some(names) = folders.get_mut(folder) else { continue };
            if table.target.is_none() {
                // Its images are in a table all the same.
                table.names().for_each(|name| drop(names.find(name)));
                let (path, target) = (&table.table.path, display::name(&self.target));
                let what = "left out, because no row has a label in";
                say(&format!("{path}: {what} `{target}`; `ddp-run predict` takes such images"));
                continue;
            }
            let place = names.place();
            let skip = self.files.bad_images == BadImages::Skip;
            let mut rows = table.rows(names, &place.display().to_string(), skip, say)?;
            self.leave_out_unreadable(&place, &mut rows, say)?;
            found.push(Listed { key, table, rows });
        }
        remarks(self.task, &found, &folders, say);
        check_labels(self.task, &found)?;
        Ok(found)
    }

    fn table(&self, key: &str, name: &str) -> Result<ImageTable> {
        let delimiter = self.delimiter.bytes().next().unwrap_or(b',');
        let table = RawTable::read(&self.root.join(name), delimiter, vec![String::new()]);
        let table = table.map_err(Error::of_data)?;
        let image = table.column(&self.image, "image")?;
        let target = match without_targets(&table, &self.target).is_none() {
            false if key == TEST => None,
            _ => Some(table.column(&self.target, "target")?),
        };
        Ok(ImageTable { table, image, target })
    }

    fn leave_out_unreadable(
        &self,
        place: &Path,
        rows: &mut Vec<ImageRow>,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut images: Vec<(PathBuf, usize)> =
            rows.iter().enumerate().map(|(i, row)| (self.root.join(&row.path), i)).collect();
        self.files.leave_out_unreadable(place, &mut images, say)?;
        let kept: BTreeSet<usize> = images.iter().map(|(_, i)| *i).collect();
        let mut i = 0..;
        rows.retain(|_| i.next().is_none_or(|i| kept.contains(&i)));
        Ok(())
    }

    /// Numbers are scaled as `known`, if that is given.
    fn open_as(&self, known: Option<NumberEncoding>) -> Result<Splits> {
        let found = self.listed(&mut |_| ())?;
        let train = found.first().ok_or_else(|| Error::internal("there are no training images"))?;
        let (builder, sources) = match self.task {
            Task::Classification => {
                let index = train.table.classes();
                let class = |of: &Listed, row: usize| index.index_of(of.table.label(row)).unwrap_or(0);
                let sources: Vec<_> = found
                    .iter()
                    .map(|of| self.files.source(&self.root, self.images_of(of, |row| class(of, row))))
                    .collect();
                (self.files.builder(index.names()), sources)
            }
            Task::Regression => {
                let numbers = found.iter().map(Listed::numbers).collect::<Result<Vec<Vec<f64>>>>()?;
                let trained = self.split.split(numbers[0].len(), None)?.0;
                let scale = match known {
                    Some(NumberEncoding { mean, std }) => Scale { mean, std },
                    None if self.standardise_target => Scale::new(&numbers[0], &trained),
                    None => Scale::NONE,
                };
                let source = |(of, numbers): (&Listed, &Vec<f64>)| {
                    let scaled = numbers.iter().map(|x| scale.apply(*x)).collect();
                    self.files.source_of_numbers(&self.root, self.images_of(of, |_| 0), scaled)
                };
                let sources = found.iter().zip(&numbers).map(source).collect();
                let number = NumberEncoding { mean: scale.mean, std: scale.std };
                (self.files.builder(Vec::new()).of_numbers(number), sources)
            }
        };
        let of = |key: &str| -> Option<Arc<dyn ImageSource>> {
            let at = found.iter().position(|listed| listed.key == key)?;
            sources.get(at).cloned()
        };
        let (val, test) = (of("val"), of(TEST));
        let mut splits = builder.splits(sources[0].clone(), val.or(test.clone()), &self.split)?;
        splits.test = test.map(|test| builder.set(&test, Subset::all(test.len()), false));
        Ok(splits)
    }

    fn images_of(&self, of: &Listed, class: impl Fn(usize) -> usize) -> Vec<(PathBuf, usize)> {
        of.rows.iter().map(|row| (self.root.join(&row.path), class(row.row))).collect()
    }
}

#[cfg(test)]
#[path = "image_csv_tests.rs"]
mod tests;
