//! Opening files. A named pipe where a file is expected would make its reader, or its writer, wait for ever: only regular files are
//! read. What a shell passes as `<(…)` is a pipe with a path below `/dev/fd`, and is read.

use rustix::fs::{Mode, OFlags};
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file, or a link to one.
///
/// # Errors
/// It can't be opened, or is something else.
pub fn open(path: &Path) -> io::Result<File> {
    if ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|passed| path.starts_with(passed)) {
        return File::open(path);
    }
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
    Err(not_regular())
}

/// Opens a file that is written, as `options` say. A device such as `/dev/full` may be written to; a named pipe waits for a reader.
///
/// # Errors
/// It can't be opened, or is a named pipe.
pub fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let is_pipe = |kind: FileType| kind.is_fifo() || kind.is_socket();
    match options.custom_flags(flags.bits() as i32).open(path) {
        Ok(file) if is_pipe(file.metadata()?.file_type()) => Err(not_regular()),
        // A pipe without a reader.
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Err(not_regular()),
        opened => opened,
    }
}

fn not_regular() -> io::Error {
    let what = "it is no regular file (a named pipe, for example)";
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// As `std::fs::read`, of a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::with_capacity(file.metadata().map_or(0, |meta| meta.len().min(1 << 30) as usize));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As `std::fs::read_to_string`, of a regular file.
pub fn read_text(path: &Path) -> io::Result<String> {
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
        // Both ways to write: with a reader's part, as a lock is opened, it would be opened, and its first read would wait.
        for options in [File::options().append(true), File::options().read(true).write(true)] {
            let error = open_with(&pipe, options.create(true)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        open_with(Path::new("/dev/null"), File::options().append(true)).unwrap();
        open_with(&dir.path().join("new"), File::options().append(true).create(true)).unwrap();
        assert_eq!(read(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(open(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_pipe_that_a_shell_passes_is_read() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"text").unwrap();
        drop(writer);
        let passed = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(read_text(Path::new(&passed)).unwrap(), "text");
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
