//! Rows of named columns, wherever they are stored: what the data sets `parquet` and `sqlite` have in common.

#![cfg_attr(
    not(any(feature = "parquet", feature = "sqlite")),
    allow(dead_code, reason = "nothing is read without these cargo features")
)]

use crate::store::Cache;
use base::display;
use base::error::{Error, Result};
use spec::did_you_mean;
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// The key that names a column of lists.
pub(super) const TOKENS: &str = "tokens";

/// Maximum number of columns, tables or classes that a message lists.
pub(super) const MAX_LISTED: usize = 20;

/// Where the rows of the splits are.
pub(super) trait RowStore: Send + Sync + fmt::Debug {
    /// The files that `open` reads, those that exist now.
    fn files(&self) -> Vec<PathBuf>;
    /// Where what is made of the rows is kept.
    fn cache(&self) -> &Cache;
    /// Finds what is missing, without reading rows.
    fn check_files(&self) -> Result<()>;
    /// `say` receives one line about each thing that is not used.
    fn open(&self, say: &mut dyn FnMut(&str)) -> Result<Stored>;
}

/// The rows of each split.
pub(super) struct Stored {
    /// All of them, for messages.
    pub place: String,
    pub train: Arc<dyn RowSet>,
    pub val: Option<Arc<dyn RowSet>>,
    pub test: Option<Arc<dyn RowSet>>,
}

/// The rows of a split, counted from 0.
pub(super) trait RowSet: Send + Sync {
    fn place(&self) -> &str;
    fn columns(&self) -> &[Column];
    fn len(&self) -> usize;
    /// The place of a row, for messages.
    fn place_of(&self, row: usize) -> String;
    /// Calls `each` with the cells of these columns, for each row in order until it breaks off.
    fn read(&self, columns: &[usize], each: EachRow<'_>) -> Result<()>;
    /// The values of a column of bytes, for reading in any order. `say` receives progress messages.
    ///
    /// # Errors
    /// A cell of the column holds no bytes (`ErrorKind::Spec`).
    fn blobs(&self, column: usize, say: &mut dyn FnMut(&str)) -> Result<Box<dyn Blobs>>;
}

/// Takes the number of a row and its cells, and says whether it wants the next.
pub(super) type EachRow<'a> = &'a mut dyn FnMut(usize, &[Cell<'_>]) -> Result<ControlFlow<()>>;

/// Values of bytes by row.
pub(super) trait Blobs: Send + Sync {
    fn get(&self, row: usize) -> Result<Cow<'_, [u8]>>;
    /// Its number of bytes.
    fn size(&self, row: usize) -> u64;
}

/// A column, and what its store says of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub name: String,
    pub kind: CellKind,
    /// Says that it holds images.
    pub image: bool,
    /// The names of the classes that its numbers stand for.
    pub classes: Option<Vec<String>>,
    /// It only numbers the rows.
    pub counter: bool,
}

/// The numbers of classes mean the same in `first` and in `other`, columns of these places. A number is no name: where only a count of
/// classes is known, it stands for one.
pub(super) fn same_classes<'a>(
    first: impl IntoIterator<Item = &'a Column>,
    other: &[Column],
    [place, other_place]: [String; 2],
) -> Result<()> {
    for column in first {
        let found = other.iter().find(|other| other.name == column.name);
        let (Some(own), Some(others)) = (&column.classes, found.and_then(|other| other.classes.as_ref()))
        else {
            continue;
        };
        let named = |number: usize, name: &str| name != number.to_string();
        let mut pairs = own.iter().zip(others).enumerate();
        let differ = pairs.find(|(n, (own, other))| own != other && named(*n, own) && named(*n, other));
        if let Some((number, (own, other))) = differ {
            let [name, own, other] = [&column.name, own, other].map(|text| display::name(text));
            return Err(Error::data(format!(
                "the column `{name}` of {other_place} has other classes than in {place}: {number} is `{other}`, and not `{own}`"
            ))
            .hint("write all files with the same list of classes"));
        }
    }
    Ok(())
}

/// [`same_classes`] of the columns `names` in two splits.
pub(super) fn same_in_splits(first: &dyn RowSet, other: &dyn RowSet, names: &[&str]) -> Result<()> {
    let used = first.columns().iter().filter(|column| names.contains(&&*column.name));
    same_classes(used, other.columns(), [first, other].map(|set| set.place().to_owned()))
}

/// What the cells of a column are.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CellKind {
    /// Numbers, texts, or not known.
    Values,
    Texts,
    /// Bytes, such as images.
    Bytes,
    /// Lists of whole numbers.
    Lists,
    /// Unusable, for this reason: `holds …`.
    Other(String),
}

impl Column {
    pub fn new(name: impl Into<String>, kind: CellKind) -> Self {
        Self { name: name.into(), kind, image: false, classes: None, counter: false }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    Single(f32),
    Double(f64),
    /// A number that no float holds exactly, in digits.
    Digits(String),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Whole numbers; those above `i64::MAX` are that.
    List(Vec<i64>),
    /// Something else, with a description.
    Other(String),
}

/// The class of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Number(u64),
    Name(String),
}

impl Cell<'_> {
    /// As a cell of a text file, `""` for no value.
    ///
    /// # Errors
    /// A description of what it is instead.
    pub fn to_text(&self) -> Result<Cow<'_, str>, String> {
        Ok(match self {
            Self::Null => Cow::Borrowed(""),
            Self::Bool(yes) => Cow::Borrowed(if *yes { "1" } else { "0" }),
            Self::Integer(i) => Cow::Owned(i.to_string()),
            Self::Single(x) => Cow::Owned(x.to_string()),
            Self::Double(x) => Cow::Owned(x.to_string()),
            Self::Digits(digits) => Cow::Borrowed(digits),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Bytes(_) | Self::List(_) | Self::Other(_) => return Err(self.in_words()),
        })
    }

    /// The class that it stands for. `None`: it is not known, which data sets write as no value or as -1.
    ///
    /// # Errors
    /// A description of what it is instead.
    pub fn to_label(&self) -> Result<Option<Label>, String> {
        match self {
            Self::Null | Self::Integer(-1) => Ok(None),
            Self::Bool(yes) => Ok(Some(Label::Number(u64::from(*yes)))),
            Self::Integer(i) => match u64::try_from(*i) {
                Ok(i) => Ok(Some(Label::Number(i))),
                Err(_) => Err(self.in_words()),
            },
            Self::Text(text) => Ok(Some(Label::Name(text.clone().into_owned()))),
            _ => Err(self.in_words()),
        }
    }

    pub fn in_words(&self) -> String {
        match self {
            Self::Null => "no value".to_owned(),
            Self::Bool(yes) => yes.to_string(),
            Self::Integer(i) => format!("the number {i}"),
            Self::Single(x) => format!("the number {x}"),
            Self::Double(x) => format!("the number {x}"),
            Self::Digits(digits) => format!("the number {digits}"),
            Self::Text(text) => format!("the text `{}`", display::name(text)),
            Self::Bytes(bytes) => display::count(bytes.len(), "byte"),
            Self::List(list) => format!("a list of {}", display::count(list.len(), "number")),
            Self::Other(what) => what.clone(),
        }
    }
}

/// The index of the column `name`, which `key` of the spec names. Only that of tokens has lists.
pub(super) fn column(set: &dyn RowSet, name: &str, key: &str) -> Result<usize> {
    let found = set.columns().iter().position(|column| column.name == name);
    let (place, shown) = (set.place(), display::name(name));
    let Some(at) = found else {
        let names = || set.columns().iter().map(|column| column.name.as_str());
        let near = did_you_mean(name, names());
        let what = format!("{place} has no column `{shown}`, which `[dataset] {key}` names{near}");
        return Err(Error::data(what).hint(format!("its columns are {}", listed(names()))));
    };
    let what = match &set.columns()[at].kind {
        CellKind::Other(what) => what,
        CellKind::Lists if key != TOKENS => "holds lists",
        CellKind::Lists | CellKind::Values | CellKind::Texts | CellKind::Bytes => return Ok(at),
    };
    Err(Error::data(format!("{place}: the column `{shown}`, which `[dataset] {key}` names, {what}")).hint(
        "only columns of numbers, texts, booleans and images can be read, and with `content = \"tokens\"` lists of whole numbers",
    ))
}

/// Names in a message: `a`, `b` and 3 more.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{}`", display::name(name))).collect();
    let more = names.len().saturating_sub(MAX_LISTED);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_texts_or_labels() {
        for (cell, text) in [
            (Cell::Null, ""),
            (Cell::Bool(true), "1"),
            (Cell::Integer(-7), "-7"),
            // The same f32 when it is read again.
            (Cell::Single(0.1), "0.1"),
            (Cell::Double(f64::NAN), "NaN"),
            (Cell::Text("a b".into()), "a b"),
        ] {
            assert_eq!(cell.to_text().unwrap(), text);
        }
        assert_eq!(Cell::Bytes((&b"ab"[..]).into()).to_text().unwrap_err(), "2 bytes");
        assert_eq!(Cell::Integer(3).to_label().unwrap(), Some(Label::Number(3)));
        assert_eq!(Cell::Integer(-1).to_label().unwrap(), None);
        assert_eq!(Cell::Null.to_label().unwrap(), None);
        assert_eq!(Cell::Text("cat".into()).to_label().unwrap(), Some(Label::Name("cat".to_owned())));
        for no_label in [Cell::Integer(-2), Cell::Double(1.5), Cell::Other("a list of 3 values".to_owned())] {
            assert_eq!(no_label.to_label().unwrap_err(), no_label.in_words());
        }
    }

    #[test]
    fn lists_end() {
        let names: Vec<String> = (0..25).map(|i| format!("c{i}")).collect();
        let all = listed(names.iter().map(String::as_str));
        assert!(all.ends_with("`c19` and 5 more"), "{all}");
        assert_eq!(listed(["a", "b"].into_iter()), "`a`, `b`");
    }
}
