//! Images in a table of an SQLite database.

use super::columns::{Blobs, Cell};
use super::columns_images::no_image;
use super::sqlite_item::ItemFields;
use super::sqlite_rows::{Database, no_item};
use base::error::Result;
use std::borrow::Cow;
use std::sync::Arc;

/// The images of a table, each read when it is needed.
pub(super) struct Images {
    pub database: Arc<Database>,
    pub place: String,
    pub query: String,
    /// The field of the items that holds them.
    pub field: Option<(usize, String)>,
    pub ids: Vec<i64>,
    pub sizes: Vec<u64>,
}

impl Blobs for Images {
    fn get(&self, row: usize) -> Result<Cow<'_, [u8]>> {
        let id = self.ids[row];
        let bytes = self
            .database
            .with(|connection| connection.query_row(&self.query, [id], |row| row.get::<_, Vec<u8>>(0)))?;
        let Some((at, name)) = &self.field else { return Ok(Cow::Owned(bytes)) };
        let place = format!("{}, row {id}", self.place);
        let item = ItemFields::read(&bytes).map_err(|why| no_item(&place, &why))?;
        match item.cell(*at, name) {
            Cell::Bytes(bytes) => Ok(Cow::Owned(bytes.into_owned())),
            other => Err(no_image(&place, name, &other)),
        }
    }

    fn size(&self, row: usize) -> u64 {
        self.sizes[row]
    }
}
