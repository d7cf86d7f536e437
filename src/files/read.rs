//! Reading the files of run folders. Whoever can write to a folder could put a named pipe into it, on which a reader would wait for ever:
//! only regular files are read. Files that a user names may be pipes, such as `<(…)` of a shell, and are opened as usual.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file, or a link to one.
///
/// # Errors
/// It can't be opened, or is something else.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Without it, opening a pipe waits for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    if kind.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    Err(io::Error::other("it is no regular file (a named pipe, for example); remove it"))
}

/// As `std::fs::read`, of a regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::with_capacity(file.metadata().map_or(0, |meta| meta.len().min(1 << 30) as usize));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As `std::fs::read_to_string`, of a regular file.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    String::from_utf8(read(path)?).map_err(not_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Nobody writes to the pipe: a read that waits would hang here.
    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let [pipe, link] = ["pipe", "link"].map(|name| dir.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link, Path::new("/dev/null")] {
            for error in [open(path).map(drop), read(path).map(drop), read_text(path).map(drop)] {
                let error = error.unwrap_err().to_string();
                assert!(error.contains("no regular file"), "{error}");
            }
        }
        assert_eq!(read(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(open(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn files_and_links_to_them_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| dir.path().join(name));
        fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!((read(&link).unwrap(), read_text(&file).unwrap()), (b"text".to_vec(), "text".to_owned()));
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_text(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
