//! Memory-mapped files: the ranks of a host share the pages. The only `unsafe` code in this room.

#![allow(unsafe_code)]

use crate::error::{IoContext, Result};
use memmap2::Mmap;
use std::fs::File;
use std::path::Path;

/// The bytes of a file.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).doing("read", path)?;
        // SAFETY: the mapping is private and read-only, and is read as plain bytes, for which every bit pattern is valid. ddp-run
        // itself never changes a data file in place: it renames complete files. If another program truncates the file while it
        // is mapped, SIGBUS kills this process, which the supervisor reports like any other signal.
        let map = unsafe { Mmap::map(&file) }.doing("map", path)?;
        Ok(Self(map))
    }
}

impl std::ops::Deref for MappedFile {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_the_bytes_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [7u8, 8, 9]).unwrap();
        let map = MappedFile::open(&path).unwrap();
        assert_eq!(&map[..], [7, 8, 9]);
        // Replacing the file does not change the mapping.
        std::fs::write(folder.path().join("g"), [1u8]).unwrap();
        std::fs::rename(folder.path().join("g"), &path).unwrap();
        assert_eq!(&map[..], [7, 8, 9]);
        assert!(MappedFile::open(&folder.path().join("none")).is_err());
    }
}
