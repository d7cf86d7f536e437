//! Images of a Parquet file, unpacked to a file of the cache: still encoded, one after the other. A Parquet file
//! compresses hundreds of them together, so that one of them could not be read alone.

use super::columns::Cell;
use super::columns_images::no_image;
use super::parquet_rows::in_file;
use crate::fingerprint::digest_of_parts;
use crate::store::{Cache, DataFile, create_atomically, identity, megabytes};
use base::error::{Error, IoContext, Result};
use data_encoding::HEXLOWER;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// At the end of a file, after the number of images. A change of the format changes it.
const MAGIC: [u8; 8] = *b"ddpimgs1";
/// The end of a file: the number of images, and the magic bytes.
const FOOTER: usize = 16;

/// The images of a file: their bytes, then the end of each, as u64, then the footer.
pub(super) struct Pack {
    /// Opened for each image: a set may have more files than a process may keep open.
    path: PathBuf,
    /// Where the image of each row ends.
    ends: Vec<u64>,
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
    // Images are stored as they are: packed and unpacked they take about the same.
    let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
    say(&format!(
        "{}: unpacking {rows} images to {} (about {})",
        path.display(),
        target.display(),
        megabytes(size)
    ));
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
        let file = DataFile::open(path).ok()?;
        let table = file.len().checked_sub(FOOTER)?.checked_sub(rows.checked_mul(8)?)?;
        let mut bytes = vec![0; file.len() - table];
        file.read_at(table, &mut bytes).ok()?;
        let footer = bytes.split_off(8 * rows);
        let ends: Vec<u64> = bytes.as_chunks().0.iter().map(|end| u64::from_le_bytes(*end)).collect();
        let whole = footer == [&(rows as u64).to_le_bytes()[..], &MAGIC].concat()
            && ends.is_sorted()
            && ends.last().copied().unwrap_or(0) == table as u64;
        whole.then_some(Self { path: path.to_owned(), ends })
    }

    /// # Errors
    /// The file cannot be read.
    pub fn get(&self, row: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.size(row)];
        DataFile::open(&self.path)
            .and_then(|file| file.read_at(self.start(row), &mut bytes))
            .map_err(|e| e.hint("resume the run: the images are unpacked again"))?;
        Ok(bytes)
    }

    pub fn size(&self, row: usize) -> usize {
        self.ends[row] as usize - self.start(row)
    }

    fn start(&self, row: usize) -> usize {
        if row == 0 { 0 } else { self.ends[row - 1] as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(images: &[u8], ends: &[u64], rows: u64) -> Vec<u8> {
        let ends = ends.iter().flat_map(|end| end.to_le_bytes());
        images.iter().copied().chain(ends).chain(rows.to_le_bytes()).chain(MAGIC).collect()
    }

    #[test]
    fn only_a_whole_pack_of_as_many_rows_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.images");
        let open = |bytes: Vec<u8>, rows| {
            std::fs::write(&path, bytes).unwrap();
            Pack::open(&path, rows)
        };
        let pack = open(file(b"abcde", &[2, 2, 5], 3), 3).unwrap();
        assert_eq!([0, 1, 2].map(|row| pack.get(row).unwrap()), [&b"ab"[..], b"", b"cde"]);
        assert_eq!([0, 1, 2].map(|row| pack.size(row)), [2, 0, 3]);
        assert!(open(file(b"", &[], 0), 0).is_some());
        for (damaged, rows) in [
            (file(b"abcde", &[2, 2, 5], 3), 2),
            (file(b"abcde", &[2, 2, 5], 3), usize::MAX),
            (file(b"abcde", &[2, 2, 5], 2), 3),
            (file(b"abcde", &[3, 2, 5], 3), 3),
            (file(b"abcde", &[2, 2, 4], 3), 3),
            (file(b"abcde", &[2, 2, 6], 3), 3),
            (file(b"a", &[], 0), 0),
            (file(b"abcde", &[2, 2, 5], 3)[..44].to_vec(), 3),
            (b"short".to_vec(), 0),
        ] {
            assert!(open(damaged.clone(), rows).is_none(), "{damaged:?} for {rows} rows");
        }
        std::fs::remove_file(&path).unwrap();
        let gone = pack.get(0).unwrap_err();
        assert_eq!(gone.hint.as_deref(), Some("resume the run: the images are unpacked again"));
    }
}
