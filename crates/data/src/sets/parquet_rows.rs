//! The rows of Parquet files, read one row group at a time.

use super::columns::{Blobs, Cell, Column, EachRow, RowSet, same_classes};
use super::parquet_pack::{Pack, packed};
use super::parquet_schema::sources;
use super::parquet_values::DecodedColumn;
use crate::store::Cache;
use base::display;
use base::error::{Error, IoContext, Result};
use base::panics::catch_model_panic;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// At the beginning and at the end of a file.
const MAGIC: [u8; 4] = *b"PAR1";
/// What `git clone` leaves without git-lfs.
const POINTER: &[u8] = b"version https://git-lfs";
/// Rows that are decoded at a time.
const ROWS: usize = 4096;
/// Where one of the columns has lists.
const ROWS_OF_LISTS: usize = 64;

/// The files of a split.
struct Rows {
    place: String,
    files: Vec<FilePart>,
    columns: Vec<Column>,
    len: usize,
    cache: Cache,
}

struct FilePart {
    path: PathBuf,
    /// Number of its first row in the split.
    first: usize,
    rows: usize,
}

/// Opens files, of which there are some, with the same columns.
pub(super) fn open(files: &[PathBuf], cache: &Cache) -> Result<Arc<dyn RowSet>> {
    let (mut parts, mut len, mut columns) = (Vec::new(), 0, None);
    for path in files {
        let reader = reader(path)?;
        let meta = reader.metadata().file_metadata();
        let rows = usize::try_from(meta.num_rows())
            .map_err(|_| damaged(path, &format!("it says that it has {} rows", meta.num_rows())))?;
        let own: Vec<Column> = sources(meta).into_iter().map(|source| source.column).collect();
        match &columns {
            None => columns = Some(own),
            Some(first) => {
                same_columns(first, &own, (&files[0], path))?;
                same_classes(first, &own, [&files[0], path].map(|path| path.display().to_string()))?;
            }
        }
        parts.push(FilePart { path: path.clone(), first: len, rows });
        len += rows;
    }
    let place = match files {
        [only] => only.display().to_string(),
        [first, others @ ..] => format!("{} and {} more files", first.display(), others.len()),
        [] => String::new(),
    };
    let columns = columns.unwrap_or_default();
    Ok(Arc::new(Rows { place, files: parts, columns, len, cache: cache.clone() }))
}

/// The order of columns may differ, but not what they are.
fn same_columns(first: &[Column], other: &[Column], (path, other_path): (&Path, &Path)) -> Result<()> {
    for column in first {
        let (here, there, name) = (other_path.display(), path.display(), display::name(&column.name));
        match other.iter().find(|other| other.name == column.name) {
            Some(other) if other.kind == column.kind => {}
            Some(_) => {
                return Err(Error::data(format!(
                    "the column `{name}` of {here} is of another type than in {there}"
                )));
            }
            None => return Err(Error::data(format!("{here} lacks the column `{name}` of {there}"))),
        }
    }
    Ok(())
}

/// Opens a file and reads its metadata.
fn reader(path: &Path) -> Result<SerializedFileReader<File>> {
    let mut file = base::files::open(path).doing("read", path).map_err(Error::of_data)?;
    let mut begin = Vec::new();
    file.by_ref().take(POINTER.len() as u64).read_to_end(&mut begin).doing("read", path)?;
    if begin == POINTER {
        return Err(Error::data(format!("{} is a pointer of Git LFS instead of the file", path.display()))
            .hint("`git lfs pull` in its folder downloads the files"));
    }
    if !begin.starts_with(&MAGIC) {
        return Err(Error::data(format!("{} is not a Parquet file", path.display())));
    }
    let mut end = [0; 4];
    file.seek(SeekFrom::End(-4)).and_then(|_| file.read_exact(&mut end)).doing("read", path)?;
    if end != MAGIC || begin.len() < POINTER.len().min(12) {
        return Err(Error::data(format!("{} is unfinished: its end is missing", path.display()))
            .hint("repeat the download"));
    }
    decoded(path, || SerializedFileReader::new(file))
}

/// The result of the crate, which panics on some damaged files, or an error.
fn decoded<T>(path: &Path, work: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    let why = match catch_model_panic(work) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(e)) => e.to_string(),
        Err(panic) => panic,
    };
    Err(unread_codec(path, &why).unwrap_or_else(|| damaged(path, &why)))
}

/// The error for a file in a compression that the crate was built without, by its message.
fn unread_codec(path: &Path, why: &str) -> Option<Error> {
    let name = why.split_once("Disabled feature at compile time: ").map(|(_, name)| name.trim());
    let codec = name.or_else(|| why.split_once("The codec type ")?.1.split(' ').next())?;
    let message =
        format!("{} is compressed with {}, which is not read", path.display(), display::name(codec));
    Some(Error::data(message).hint(
        "write it with zstd, snappy, gzip or lz4_raw, or without compression; in pandas: `to_parquet(FILE, compression=\"zstd\")`",
    ))
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::data(format!("{} is damaged: {why}", path.display())).hint("repeat the download")
}

/// Calls `each` with the number of each row of a file and the cells of these columns, until it breaks off; else returns how many
/// rows there are.
fn read(path: &Path, names: &[&str], each: EachRow<'_>) -> Result<ControlFlow<(), usize>> {
    let reader = reader(path)?;
    let all = sources(reader.metadata().file_metadata());
    let leaf = |name: &&str| {
        let source = all.iter().find(|source| source.column.name == **name)?;
        Some((source.leaf?, source.number, source.element))
    };
    let leaves: Option<Vec<_>> = names.iter().map(leaf).collect();
    let leaves = leaves.ok_or_else(|| damaged(path, "it lacks the values of a column"))?;
    let has_lists = leaves.iter().any(|(.., element)| element.is_some());
    let most = if has_lists { ROWS_OF_LISTS } else { ROWS };
    let mut row = 0;
    for group in 0..reader.num_row_groups() {
        let group = decoded(path, || reader.get_row_group(group))?;
        let mut columns = Vec::new();
        for (leaf, number, element) in &leaves {
            let level = group.metadata().column(*leaf).column_descr().max_def_level();
            let column = decoded(path, || group.get_column_reader(*leaf))?;
            columns.push(DecodedColumn::new(column, level, *number, *element));
        }
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        while left > 0 {
            let rows = left.min(most);
            for (column, name) in columns.iter_mut().zip(names) {
                let found = decoded(path, || column.load(rows))?;
                if found != rows {
                    let name = display::name(name);
                    return Err(damaged(path, &format!("the column `{name}` ends before its last row")));
                }
            }
            for _ in 0..rows {
                let cells: Vec<Cell<'_>> = columns.iter_mut().map(DecodedColumn::next).collect();
                if each(row, &cells)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                row += 1;
            }
            left -= rows;
        }
    }
    Ok(ControlFlow::Continue(row))
}

impl RowSet for Rows {
    fn place(&self) -> &str {
        &self.place
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn len(&self) -> usize {
        self.len
    }

    fn place_of(&self, row: usize) -> String {
        let part = self.part(row);
        in_file(&part.path, row - part.first)
    }

    fn read(&self, columns: &[usize], each: EachRow<'_>) -> Result<()> {
        let names: Vec<&str> = columns.iter().map(|at| self.columns[*at].name.as_str()).collect();
        for part in &self.files {
            if part.read(&names, &mut |row, cells| each(part.first + row, cells))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn blobs(&self, column: usize, say: &mut dyn FnMut(&str)) -> Result<Box<dyn Blobs>> {
        let column = &self.columns[column].name;
        let mut pack = |part: &FilePart| {
            let mut fill = |add: &mut dyn FnMut(usize, &Cell<'_>) -> Result<()>| {
                let each = &mut |row, cells: &[Cell<'_>]| add(row, &cells[0]).map(ControlFlow::Continue);
                part.read(&[column], each).map(drop)
            };
            packed(&part.path, column, part.rows, &self.cache, &mut fill, say)
        };
        let mut packs = Vec::new();
        for part in &self.files {
            packs.push((part.first, pack(part)?));
        }
        Ok(Box::new(Packs(packs)))
    }
}

impl Rows {
    /// The file of a row.
    fn part(&self, row: usize) -> &FilePart {
        &self.files[self.files.partition_point(|part| part.first <= row).max(1) - 1]
    }
}

impl FilePart {
    /// As [`read`]; all rows must be there.
    fn read(&self, names: &[&str], each: EachRow<'_>) -> Result<ControlFlow<()>> {
        match read(&self.path, names, each)? {
            ControlFlow::Continue(rows) if rows != self.rows => {
                Err(damaged(&self.path, &format!("it has {rows} rows instead of {}", self.rows)))
            }
            ControlFlow::Continue(_) => Ok(ControlFlow::Continue(())),
            ControlFlow::Break(()) => Ok(ControlFlow::Break(())),
        }
    }
}

/// The place of a row in a file, for messages.
pub(super) fn in_file(path: &Path, row: usize) -> String {
    format!("{}, row {row} (counted from 0)", path.display())
}

/// The images of several files, each with the number of its first row.
struct Packs(Vec<(usize, Pack)>);

impl Packs {
    fn pack(&self, row: usize) -> (&Pack, usize) {
        let at = self.0.partition_point(|(first, _)| *first <= row).max(1) - 1;
        let (first, pack) = &self.0[at];
        (pack, row - first)
    }
}

impl Blobs for Packs {
    fn get(&self, row: usize) -> Result<Cow<'_, [u8]>> {
        let (pack, row) = self.pack(row);
        pack.get(row).map(Cow::Owned)
    }

    fn size(&self, row: usize) -> u64 {
        let (pack, row) = self.pack(row);
        pack.size(row) as u64
    }
}
