//! Proposes what the columns of a data set hold, for `ddp-run init`.

use super::columns::{Cell, CellKind, Column, RowSet, RowStore, Stored, column};
use super::columns_images::{count_classes, no_image};
use super::columns_source::{image_roles, text_role};
use super::columns_table::raw_table;
use super::csv_proposal::{Beside, CsvProposal, propose};
use super::csv_table::BLANK_MARKS;
use super::image_decode::decode_bytes;
use super::image_survey::{ImageSurvey, side_and_grey};
use super::parquet::parquet_store;
use super::sqlite::sqlite_store;
use base::error::{Error, Result};
use image::DynamicImage;
use std::ops::ControlFlow::{Break, Continue};
use std::path::Path;
use std::sync::Arc;

/// Images that are read, from the first on.
const READ: usize = 24;

/// How a data set of columns is stored.
#[derive(Clone, Copy, Debug)]
pub enum ColumnsFormat<'a> {
    /// The configuration, if it has several.
    Parquet(Option<&'a str>),
    /// The table, if it is not `train`.
    Sqlite(Option<&'a str>),
}

/// How a model may learn from a data set of columns.
#[derive(Debug)]
pub struct ColumnsProposal {
    /// What its columns hold.
    pub holds: Holds,
    /// Rows of its validation split, if there is one.
    pub val: Option<usize>,
    /// Rows of its test split, if there is one.
    pub test: Option<usize>,
}

/// What columns hold.
#[derive(Debug)]
pub enum Holds {
    /// Images and their classes.
    Images {
        /// The properties of the images.
        survey: ImageSurvey,
        /// The column of the images.
        image: String,
        /// The column of the classes.
        target: String,
    },
    /// Numbers and texts.
    Table(CsvProposal),
    /// A text in this column, which is the only one of use.
    Text(String),
}

/// Opens the data set at `path` and examines its columns.
///
/// # Errors
/// Exit 78: it can't be read, or has no columns to learn from. Exit 69: this build lacks the cargo feature.
pub fn propose_columns(path: &Path, format: ColumnsFormat<'_>) -> Result<ColumnsProposal> {
    let stored = match format {
        ColumnsFormat::Parquet(config) => parquet_store(path, config).open(&mut |_| ()),
        ColumnsFormat::Sqlite(table) => sqlite_store(path, table).open(&mut |_| ()),
    }?;
    let len = |set: &Option<Arc<dyn RowSet>>| set.as_ref().map(|set| set.len());
    let (val, test) = (len(&stored.val), len(&stored.test));
    let columns = stored.train.columns();
    let bytes = |name: &str| columns.iter().any(|c| c.name == name && c.kind == CellKind::Bytes);
    let holds = match image_roles(&stored, None, None) {
        Ok((image, target)) if bytes(&image) => {
            let survey = survey(&stored, &image, &target, (val, test))?;
            Holds::Images { survey, image, target }
        }
        _ if columns.iter().filter(|column| of_use(column)).count() == 1 => {
            match text_role(&*stored.train, None) {
                Ok(text) => Holds::Text(text),
                Err(_) => Holds::Table(table(&stored)?),
            }
        }
        _ if !columns.iter().any(of_use) && columns.iter().any(|c| c.kind == CellKind::Lists) => {
            return Err(Error::data(format!("{} has lists of whole numbers only", stored.place)).hint(
                "if they are tokens, write a spec with `content = \"tokens\"` and the `[tokenizer]` that has made them",
            ));
        }
        _ => Holds::Table(table(&stored)?),
    };
    Ok(ColumnsProposal { holds, val, test })
}

/// Whether a table may have the column.
fn of_use(column: &Column) -> bool {
    matches!(column.kind, CellKind::Values | CellKind::Texts) && !column.counter
}

fn table(stored: &Stored) -> Result<CsvProposal> {
    let columns = stored.train.columns();
    let names: Vec<String> = columns.iter().filter(|c| of_use(c)).map(|c| c.name.clone()).collect();
    let blanks = BLANK_MARKS.map(str::to_owned).to_vec();
    let table = raw_table(&stored.place, vec![stored.train.clone()], &names, blanks)?;
    let mut found = propose(&table, Vec::new(), &Beside::default())?;
    let target = columns.iter().find(|column| column.name == found.target);
    if let Some(classes) = target.and_then(|column| column.classes.as_ref()) {
        found.classes = Some(classes.len());
        found.task_reason = "the data set says that these are classes".to_owned();
    }
    let why = |column: &Column| match &column.kind {
        CellKind::Other(what) => format!("it {what}"),
        CellKind::Bytes => "it holds bytes".to_owned(),
        CellKind::Lists => "it holds lists".to_owned(),
        CellKind::Values | CellKind::Texts => "it numbers the rows".to_owned(),
    };
    found.left_out.extend(columns.iter().filter(|c| !of_use(c)).map(|c| (c.name.clone(), why(c))));
    Ok(found)
}

/// The properties of the images; reads the first of them.
fn survey(
    stored: &Stored,
    name: &str,
    target: &str,
    (val, test): (Option<usize>, Option<usize>),
) -> Result<ImageSurvey> {
    let classes = count_classes(stored, target)?;
    let set = &*stored.train;
    let at = column(set, name, "image")?;
    let (mut images, mut read): (Vec<DynamicImage>, usize) = (Vec::new(), 0);
    set.read(&[at], &mut |row, cells| {
        let Cell::Bytes(bytes) = &cells[0] else {
            return Err(no_image(&set.place_of(row), name, &cells[0]));
        };
        images.extend(decode_bytes(bytes).ok());
        read = row + 1;
        Ok(if read == READ { Break(()) } else { Continue(()) })
    })?;
    let Some((side, grey)) = side_and_grey(&images) else {
        let what = format!("{}: none of the first {read} values of `{name}` is an image", set.place());
        return Err(Error::data(what).hint("images are PNG or JPEG files as bytes"));
    };
    let total = classes.iter().map(|(_, count)| count).sum();
    Ok(ImageSurvey { images: total, classes, val, test, side, grey, read: (read, read - images.len()) })
}
