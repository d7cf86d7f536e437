//! Memory shared by processes: an anonymous file, sealed at its size and mapped by each of them. This module owns every
//! pointer into it. Nothing is left in a file system, because the file has no name and is freed with its last process.

#![allow(unsafe_code)]

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A mapping. Ranges and words are checked against its size; its user's protocol says which rank may access what, and when.
pub(super) struct SharedSegment {
    map: MmapRaw,
}

impl SharedSegment {
    /// Creates and maps a file of `len` zero bytes, which use no memory before they are touched.
    pub(super) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        // Beyond this limit the kernel does not return an error but kills the process.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < len as u64) {
            return Err(io::Error::other(format!("{len} bytes exceed the file size limit (ulimit -f)")));
        }
        let fd = memfd_create("ddp-run", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, len as u64)?;
        fcntl_add_seals(&fd, seals())?;
        Ok((Self::map(&fd, len)?, fd))
    }

    /// Maps a file that another process has created; rejects one that could still shrink under the mapping.
    pub(super) fn open(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        if !fcntl_get_seals(fd)?.contains(seals()) || fstat(fd)?.st_size != len as i64 {
            return Err(io::Error::other("the shared memory does not have the expected size and seals"));
        }
        Self::map(fd, len)
    }

    fn map(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        Ok(Self { map: MmapOptions::new().len(len).map_raw(fd)? })
    }

    fn pointer(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.map.len(), "{range:?} is not in the segment");
        self.map.as_mut_ptr().wrapping_add(range.start)
    }

    /// The word at a byte offset that is a multiple of 8.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8));
        let pointer = self.pointer(&(at..at + 8));
        // SAFETY: in the mapping, which lives as long as `self`; aligned, because mappings start at a page. All other
        // users of the word access it atomically, too.
        unsafe { AtomicU64::from_ptr(pointer.cast()) }
    }

    /// The half word at a byte offset that is a multiple of 4.
    pub(super) fn half_word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4));
        let pointer = self.pointer(&(at..at + 4));
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(pointer.cast()) }
    }

    /// # Safety
    /// As long as the slice lives, no process writes to the range.
    pub(super) unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: in the mapping; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer(&range), range.len()) }
    }

    /// # Safety
    /// As long as the slice lives, nothing else in any process reads or writes the range.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: in the mapping; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(&range), range.len()) }
    }
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_a_segment_are_the_same_memory() {
        let (a, fd) = SharedSegment::create(10_000).unwrap();
        let b = SharedSegment::open(&fd, 10_000).unwrap();
        a.word(8).store(7, Relaxed);
        // SAFETY: this thread is the only user of the range.
        unsafe { a.bytes_mut(9_000..9_003) }.copy_from_slice(b"abc");
        assert_eq!(b.word(8).load(Relaxed), 7);
        assert_eq!(b.half_word(8).load(Relaxed), 7);
        // SAFETY: there are no writers any more.
        assert_eq!(unsafe { b.bytes(9_000..9_004) }, b"abc\0");
    }

    #[test]
    fn unsealed_files_and_files_of_another_size_are_rejected() {
        let (_, fd) = SharedSegment::create(4096).unwrap();
        assert!(SharedSegment::open(&fd, 8192).is_err());
        assert!(ftruncate(&fd, 0).is_err());
        let unsealed = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&unsealed, 4096).unwrap();
        assert!(SharedSegment::open(&unsealed, 4096).is_err());
    }

    #[test]
    #[should_panic(expected = "not in the segment")]
    fn words_beyond_the_end_panic() {
        SharedSegment::create(4096).unwrap().0.word(4096);
    }
}
