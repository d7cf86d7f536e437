//! The rows of a table of an SQLite database.

use super::columns::{Blobs, Cell, CellKind, Column, EachRow, RowSet};
use super::columns_images::no_image;
use super::sqlite_file;
use super::sqlite_images::Images;
use super::sqlite_item::ItemFields;
use base::error::{Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The column by which Burn counts rows, from 1.
const ROW_ID: &str = "row_id";
/// The column of items in MessagePack, which Burn's writer makes.
const ITEM: &str = "item";

/// A database of which no file is ever written. Many threads and processes may read it at once.
pub(super) struct Database {
    path: PathBuf,
    /// Connections that no thread uses.
    idle: Mutex<Vec<Connection>>,
}

impl Database {
    pub fn open(path: &Path) -> Result<Self> {
        let connection = sqlite_file::open(path)?;
        Ok(Self { path: path.to_owned(), idle: Mutex::new(vec![connection]) })
    }

    /// The names of the tables and views.
    pub fn tables(&self) -> Result<Vec<String>> {
        self.with(|connection| {
            let mut query = connection.prepare(
                "select name from sqlite_schema where type in ('table', 'view') and name not like 'sqlite\\_%' escape '\\' \
                 order by name",
            )?;
            let names = query.query_map([], |row| row.get(0))?;
            names.collect()
        })
    }

    /// The rows of the table `name`, which exists.
    pub fn table(self: Arc<Self>, name: &str) -> Result<Arc<dyn RowSet>> {
        let place = format!("{}, table `{}`", self.path.display(), base::display::name(name));
        let (mut columns, own_id) = self.with(|connection| columns(connection, name))?;
        let id = own_id.filter(|_| self.has_row_ids(name).unwrap_or(false));
        let by_item = is_of_items(&columns);
        let order = match (&id, columns.iter().any(|column| column.name.eq_ignore_ascii_case(ROW_ID))) {
            (Some(id), true) => format!("order by {}, {id}", quoted(ROW_ID)),
            (Some(id), false) => format!("order by {id}"),
            (None, true) => format!("order by {}", quoted(ROW_ID)),
            (None, false) => String::new(),
        };
        let from = format!("from {} {order}", quoted(name));
        let ids = id.as_ref().map(|id| {
            self.with(|connection| {
                let mut query = connection.prepare(&format!("select {id} {from}"))?;
                let ids = query.query_map([], |row| row.get::<_, i64>(0))?;
                ids.collect::<rusqlite::Result<Vec<i64>>>()
            })
        });
        let ids = ids.transpose()?;
        let len = match &ids {
            Some(ids) => ids.len(),
            None => self.with(|connection| {
                connection.query_row(&format!("select count(*) from {}", quoted(name)), [], |row| {
                    row.get::<_, i64>(0)
                })
            })? as usize,
        };
        if by_item {
            columns = self.item_columns(&from, &place)?;
        }
        let name = name.to_owned();
        Ok(Arc::new(Rows { database: self, place, name, from, columns, id, ids, len, by_item }))
    }

    /// Whether rows have numbers: those of views, and of tables that are declared so, have none.
    fn has_row_ids(&self, name: &str) -> Result<bool> {
        self.with(|connection| {
            connection.query_row(
                "select type = 'table' and not wr from pragma_table_list where schema = 'main' and name = ?",
                [name],
                |row| row.get(0),
            )
        })
    }

    /// The fields of the first item.
    fn item_columns(&self, from: &str, place: &str) -> Result<Vec<Column>> {
        let first = self.with(|connection| {
            let mut query = connection.prepare(&format!("select {} {from} limit 1", quoted(ITEM)))?;
            let mut rows = query.query([])?;
            rows.next()?.map(|row| row.get::<_, Vec<u8>>(0)).transpose()
        })?;
        let Some(first) = first else { return Ok(Vec::new()) };
        let item =
            ItemFields::read(&first).map_err(|why| no_item(&format!("{place}, the first row"), &why))?;
        Ok(item.columns())
    }

    /// Calls `work` with a connection that no other thread uses.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.with_any(|connection| work(connection).map_err(|e| self.failed(&e)))
    }

    /// As `with`, where not only the database may fail.
    fn with_any<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = idle.map_or_else(|| sqlite_file::open(&self.path), Ok)?;
        let done = work(&connection);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        done
    }

    fn failed(&self, e: &rusqlite::Error) -> Error {
        sqlite_file::failed(&self.path, e)
    }
}

/// The columns of a table, and the name of SQLite's own row id.
fn columns(connection: &Connection, table: &str) -> rusqlite::Result<(Vec<Column>, Option<String>)> {
    let mut query =
        connection.prepare("select name, type, pk from pragma_table_xinfo(?) where hidden <> 1")?;
    let columns = query.query_map([table], |row| {
        let (name, declared, key): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let declared = declared.to_lowercase();
        // As SQLite derives the affinity of a column.
        let kind = match &declared {
            declared if ["char", "clob", "text"].iter().any(|text| declared.contains(text)) => {
                CellKind::Texts
            }
            declared if declared.contains("blob") => CellKind::Bytes,
            _ => CellKind::Values,
        };
        let counts = key > 0 && declared == "integer" || name.eq_ignore_ascii_case(ROW_ID);
        Ok(Column { counter: counts, ..Column::new(name, kind) })
    })?;
    let columns = columns.collect::<rusqlite::Result<Vec<_>>>()?;
    let free = |id: &&str| !columns.iter().any(|column| column.name.eq_ignore_ascii_case(id));
    let id = ["rowid", "_rowid_", "oid"].into_iter().find(free).map(str::to_owned);
    Ok((columns, id))
}

/// Whether it is a table that Burn's writer made.
fn is_of_items(columns: &[Column]) -> bool {
    let called = |at: usize, name: &str| columns[at].name.eq_ignore_ascii_case(name);
    columns.len() == 2 && called(0, ROW_ID) && called(1, ITEM) && columns[1].kind == CellKind::Bytes
}

pub(super) fn no_item(place: &str, why: &str) -> Error {
    Error::data(format!("{place}: `{ITEM}` is not an item in MessagePack: {why}"))
        .hint("a table with the columns `row_id` and `item` is one that Burn's SqliteDatasetWriter wrote")
}

/// A name in a statement.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn cell<'r>(row: &'r Row<'_>, at: usize) -> rusqlite::Result<Cell<'r>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(i) => Cell::Integer(i128::from(i)),
        ValueRef::Real(x) => Cell::Double(x),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Cell::Text(Cow::Borrowed(text)),
            Err(_) => Cell::Other("a text that is not UTF-8".to_owned()),
        },
        ValueRef::Blob(bytes) => Cell::Bytes(Cow::Borrowed(bytes)),
    })
}

/// A table.
struct Rows {
    database: Arc<Database>,
    place: String,
    name: String,
    /// `from` the table, in order.
    from: String,
    columns: Vec<Column>,
    /// The name of SQLite's own row id.
    id: Option<String>,
    /// The row ids in order, if there are any.
    ids: Option<Vec<i64>>,
    len: usize,
    /// Its columns are the fields of items.
    by_item: bool,
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
        match self.ids.as_ref().and_then(|ids| ids.get(row)) {
            Some(id) => format!("{}, row {id}", self.place),
            None => format!("{}, row {row} (counted from 0)", self.place),
        }
    }

    fn read(&self, columns: &[usize], each: EachRow<'_>) -> Result<()> {
        let names: Vec<String> = match self.by_item {
            true => vec![quoted(ITEM)],
            false => columns.iter().map(|at| quoted(&self.columns[*at].name)).collect(),
        };
        let sql = format!("select {} {}", names.join(", "), self.from);
        let failed = |e: rusqlite::Error| self.database.failed(&e);
        self.database.with_any(|connection| {
            let mut query = connection.prepare(&sql).map_err(failed)?;
            let mut rows = query.query([]).map_err(failed)?;
            let mut number = 0;
            while let Some(row) = rows.next().map_err(failed)? {
                let next = if self.by_item {
                    let item = self.item(number, &cell(row, 0).map_err(failed)?)?;
                    let cells: Vec<Cell<'_>> =
                        columns.iter().map(|at| item.cell(*at, &self.columns[*at].name)).collect();
                    each(number, &cells)?
                } else {
                    let cells: rusqlite::Result<Vec<Cell<'_>>> =
                        (0..columns.len()).map(|at| cell(row, at)).collect();
                    each(number, &cells.map_err(failed)?)?
                };
                if next.is_break() {
                    break;
                }
                number += 1;
            }
            Ok(())
        })
    }

    fn blobs(&self, column: usize, _say: &mut dyn FnMut(&str)) -> Result<Box<dyn Blobs>> {
        let (Some(id), Some(ids)) = (&self.id, &self.ids) else {
            return Err(Error::data(format!(
                "{}: its rows have no row ids, by which images are read",
                self.place
            ))
            .hint("copy it to a table: `create table images as select …`"));
        };
        let name = &self.columns[column].name;
        let stored = if self.by_item { ITEM } else { name };
        let mut sizes = Vec::with_capacity(self.len);
        // Neither reads the bytes.
        let sql = format!("select typeof({0}), length({0}) {1}", quoted(stored), self.from);
        let all: Vec<(String, Option<i64>)> = self.database.with(|connection| {
            let mut query = connection.prepare(&sql)?;
            let all = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            all.collect()
        })?;
        for (row, (kind, size)) in all.into_iter().enumerate() {
            if kind != "blob" {
                let cell = match kind.as_str() {
                    "null" => Cell::Null,
                    kind => Cell::Other(format!("a value of the type {kind}")),
                };
                return Err(no_image(&self.place_of(row), stored, &cell));
            }
            sizes.push(u64::try_from(size.unwrap_or(0)).unwrap_or(0));
        }
        let query = format!("select {} from {} where {id} = ?", quoted(stored), quoted(&self.name));
        let field = self.by_item.then(|| (column, name.clone()));
        Ok(Box::new(Images {
            database: self.database.clone(),
            place: self.place.clone(),
            query,
            field,
            ids: ids.clone(),
            sizes,
        }))
    }
}

impl Rows {
    fn item(&self, row: usize, cell: &Cell<'_>) -> Result<ItemFields> {
        let why = match cell {
            Cell::Bytes(bytes) => match ItemFields::read(bytes) {
                Ok(item) => return Ok(item),
                Err(why) => why,
            },
            other => format!("it holds {}", other.in_words()),
        };
        Err(no_item(&self.place_of(row), &why))
    }
}
