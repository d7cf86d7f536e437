//! The inputs on the command line, one by one: images of files and folders, rows of tables.

use base::error::Result;
use data::{Encoding, ImageEncoding, InputRow, UnusableRow, images_below, read_image, read_rows};
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// One input, read or not.
pub(super) struct Read {
    /// The first entries of its line, which say what it is.
    pub head: Map<String, Value>,
    pub values: Result<Vec<f32>, String>,
}

/// An input that is not read yet.
pub(super) enum Input {
    Image(PathBuf),
    /// A row that is in memory already.
    Row(Read),
    /// A file or folder of which nothing can be read.
    Unreadable(PathBuf, String),
}

/// All inputs, in the order in which they are named; those of a folder by path.
pub(super) fn list(encoding: &Encoding, named: &[PathBuf]) -> Vec<Input> {
    named.iter().flat_map(|path| inputs(encoding, path)).collect()
}

fn inputs(encoding: &Encoding, path: &Path) -> Vec<Input> {
    let unreadable = |why: String| vec![Input::Unreadable(path.to_owned(), why)];
    match encoding {
        Encoding::Table(table) => match read_rows(table, path) {
            Ok(rows) => {
                (1..).zip(rows).map(|(number, row)| Input::Row(read_row(path, number, row))).collect()
            }
            Err(why) => unreadable(why.message),
        },
        _ if path.is_dir() => match images_below(path) {
            Ok(images) if images.is_empty() => unreadable("there are no PNG or JPEG files in it".to_owned()),
            Ok(images) => images.into_iter().map(Input::Image).collect(),
            Err(why) => unreadable(why.message),
        },
        _ => vec![Input::Image(path.to_owned())],
    }
}

fn head(path: &Path) -> Map<String, Value> {
    Map::from_iter([("input".to_owned(), json!(path.to_string_lossy()))])
}

/// `number` counts the rows of the file from 1.
fn read_row(path: &Path, number: usize, row: InputRow) -> Read {
    let mut head = head(path);
    head.insert("row".to_owned(), json!(number));
    head.insert("line".to_owned(), json!(row.line));
    let values = row.values.map_err(|UnusableRow { column, why }| match column {
        Some(column) => {
            head.insert("column".to_owned(), json!(column));
            format!("column `{column}`: {why}")
        }
        None => why,
    });
    Read { head, values }
}

/// Reads a batch of inputs, images on all threads.
pub(super) fn read(encoding: &Encoding, inputs: Vec<Input>) -> Vec<Read> {
    let image =
        |encoding: &ImageEncoding, path: &Path| Read { head: head(path), values: read_image(encoding, path) };
    inputs
        .into_par_iter()
        .map(|input| match (input, encoding) {
            (Input::Row(row), _) => row,
            (Input::Image(path), Encoding::Images(encoding)) => image(encoding, &path),
            (Input::Image(path), _) => {
                Read { head: head(&path), values: Err("it is not an image".to_owned()) }
            }
            (Input::Unreadable(path, why), _) => Read { head: head(&path), values: Err(why) },
        })
        .collect()
}
