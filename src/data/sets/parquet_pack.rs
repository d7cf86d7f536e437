//! Images of a Parquet file, unpacked to a file of the cache: still encoded, one after the other, and mapped into memory. A
//! Parquet file compresses hundreds of them together, so that one of them could not be read alone.

use super::columns::Cell;
use super::columns_images::no_image;
use super::parquet_rows::in_file;
use crate::data::fingerprint::digest_of_parts;
use crate::data::store::{Cache, MappedFile, create_atomically, identity};
use crate::error::{Error, IoContext, Result};
use data_encoding::HEXLOWER;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// At the end of a file, after the number of images. A change of the format changes it.
const MAGIC: [u8; 8] = *b"ddpimgs1";
/// The end of a file: the number of images, and the magic bytes.
const FOOTER: usize = 16;

/// The images of a file: their bytes, then the end of each, as u64, then the footer.
pub(super) struct Pack {
    map: MappedFile,
    images: usize,
}

/// Calls its argument with each row and its cell.
pub(super) type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(usize, &Cell<'_>) -> Result<()>) -> Result<()>;

/// The images in this column of the file at `path`, which has `rows` rows. `fill` reads them if they are not in the cache.
pub(super) fn packed(
    path: &Path,
    column: &str,
    rows: usize,
    cache: &Cache,
    fill: Fill<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<Pack> {
    let column_digest = HEXLOWER.encode(&digest_of_parts([column])[..4]);
    let target = cache.join(&format!("parquet/{}-{column_digest}.images", identity(path)?))?;
    if let Some(pack) = Pack::open(&target, rows) {
        return Ok(pack);
    }
    say(&format!("{}: unpacking {rows} images to {}", path.display(), target.display()));
    // A file of that name is damaged, or of another version: it is replaced.
    let write = |to: &Path| {
        let mut file = BufWriter::new(File::create(to).doing("create", to)?);
        let (mut ends, mut end) = (Vec::with_capacity(rows * 8 + FOOTER), 0u64);
        fill(&mut |row, cell| {
            let Cell::Bytes(bytes) = cell else {
                return Err(no_image(&in_file(path, row), column, cell));
            };
            end += bytes.len() as u64;
            ends.extend(end.to_le_bytes());
            file.write_all(bytes).doing("write", to)
        })?;
        ends.extend((rows as u64).to_le_bytes());
        ends.extend(MAGIC);
        file.write_all(&ends).and_then(|()| file.flush()).doing("write", to)
    };
    create_atomically(&target, write).map_err(|e| match e.caused_by::<std::io::Error>() {
        Some(_) => e.hint("images are unpacked to `[dataset] cache`; set it to a folder with space for them"),
        None => e,
    })?;
    Pack::open(&target, rows)
        .ok_or_else(|| Error::data(format!("{} cannot be read, just after it was written", target.display())))
}

impl Pack {
    /// `None` if it is not there, or not whole.
    fn open(path: &Path, rows: usize) -> Option<Self> {
        let map = MappedFile::open(path).ok()?;
        let end = map.len().checked_sub(FOOTER)?;
        let footer = [&(rows as u64).to_le_bytes()[..], &MAGIC].concat();
        let pack = (map[end..] == footer).then_some(Self { map, images: rows })?;
        let table = end.checked_sub(rows.checked_mul(8)?)?;
        let whole = (0..rows).all(|row| pack.start(row) <= pack.end(row)) && pack.start(rows) == table;
        whole.then_some(pack)
    }

    pub fn get(&self, row: usize) -> &[u8] {
        &self.map[self.start(row)..self.end(row)]
    }

    fn start(&self, row: usize) -> usize {
        if row == 0 { 0 } else { self.end(row - 1) }
    }

    fn end(&self, row: usize) -> usize {
        let at = self.map.len() - FOOTER - 8 * (self.images - row);
        let bytes = self.map[at..].first_chunk().copied().unwrap_or_default();
        usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
    }
}
