//! Opens a database file so that nothing is ever written, not even beside it.

use base::error::{Error, IoContext, Result};
use rusqlite::{Connection, OpenFlags};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"SQLite format 3\0";
/// Length of the header.
const HEADER: usize = 100;
/// Beginning of a journal from which a transaction has to be taken back.
const JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Opens a connection. With `immutable`, SQLite takes no locks and makes no files beside the database; changes that are still in
/// such files are an error here, because they would not be seen.
pub(super) fn open(path: &Path) -> Result<Connection> {
    check(path)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri(path), flags).map_err(|e| failed(path, &e))
}

/// What SQLite says about a database.
pub(super) fn failed(path: &Path, e: &rusqlite::Error) -> Error {
    Error::data(format!("{}: {e}", path.display()))
}

fn uri(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let encoded =
        |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    let path: String = path.as_os_str().as_bytes().iter().map(encoded).collect();
    format!("file:{path}?immutable=1")
}

/// Checks that it is a whole database whose changes are all in it.
fn check(path: &Path) -> Result<()> {
    let shown = path.display();
    let mut file = match base::files::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Error::data(format!("{shown} is missing")).hint(
                "copy it there, or correct `[dataset] path` (a relative one starts in the working directory of ddp-run)",
            ));
        }
        opened => opened.doing("read", path).map_err(Error::of_data)?,
    };
    let length = file.metadata().doing("read", path)?.len();
    let mut header = Vec::new();
    file.by_ref().take(HEADER as u64).read_to_end(&mut header).doing("read", path).map_err(Error::of_data)?;
    if !header.starts_with(MAGIC) {
        return Err(Error::data(format!("{shown} is not an SQLite database")));
    }
    let wanted = size(&header).unwrap_or(HEADER as u64);
    if length < wanted {
        return Err(Error::data(format!("{shown} is unfinished: it has {length} of {wanted} bytes"))
            .hint("copy it again"));
    }
    // SQLite names them after the file that a link leads to.
    let path = &path.canonicalize().doing("read", path).map_err(Error::of_data)?;
    let shown = path.display();
    if !beside(path, "-wal", usize::MAX).is_empty() {
        return Err(Error::data(format!(
            "{shown}: another program is writing to it, or has not finished: {shown}-wal has changes"
        ))
        .hint(format!("close that program, or run `sqlite3 {shown} \"pragma wal_checkpoint(truncate)\"`")));
    }
    if beside(path, "-journal", JOURNAL.len()) == JOURNAL {
        return Err(Error::data(format!("{shown}: a change was not finished: {shown}-journal takes it back"))
            .hint(format!("close the program that writes it, or run `sqlite3 {shown} \"select count(*) from sqlite_schema\"`")));
    }
    Ok(())
}

/// The first bytes of the file beside the database, at most 8; nothing if there is none.
fn beside(path: &Path, ending: &str, bytes: usize) -> Vec<u8> {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    let mut begin = Vec::new();
    if let Ok(file) = base::files::open(&PathBuf::from(name)) {
        // What can't be read is taken for empty: SQLite could not read it either.
        let _ = file.take(bytes.min(8) as u64).read_to_end(&mut begin);
    }
    begin
}

/// The number of bytes that the header says, if it was written by a program that keeps it.
fn size(header: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?));
    let page = match u16::from_be_bytes(*header.get(16..)?.first_chunk()?) {
        1 => 65_536,
        page => u64::from(page),
    };
    (number(24)? == number(92)?).then_some(page * u64::from(number(28)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(&base::testing::pipe(folder.path()).unwrap()).unwrap_err();
        assert!(error.message.contains("no regular file"), "{error}");
    }

    #[test]
    fn addresses_hold_any_path() {
        assert_eq!(uri(Path::new("/a b/ü?#%.db")), "file:/a%20b/%c3%bc%3f%23%25.db?immutable=1");
    }
}
