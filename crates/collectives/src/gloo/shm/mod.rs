//! Shared memory between the ranks of a host: the segment, its layout, how ranks get it, and how they use it.

mod arena;
mod layout;
mod memory;
mod processors;
mod share;

pub(super) use arena::{Arena, ChunkProgress};
pub(super) use layout::{CHUNK, FLAT, SLOTS};
pub(super) use share::share;

/// Tries to create shared memory, as a group's ranks do.
///
/// Returns the system's error, for instance where memfd_create(2) is not allowed.
pub fn available() -> std::io::Result<()> {
    let (_, file) = memory::SharedSegment::create(4096)?;
    memory::SharedSegment::open(&file, 4096).map(drop)
}
