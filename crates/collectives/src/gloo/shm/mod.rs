//! Shared memory between the ranks of a host: the segment, its layout, how ranks get it, and how they use it.

mod arena;
mod layout;
mod memory;
mod processors;
mod share;

pub(super) use arena::{Arena, Progress};
pub(super) use layout::{CHUNK, FLAT, SLOTS};
pub(super) use share::share;

/// Tries to create shared memory, as a group's ranks do.
///
/// Returns the system's error, for instance where memfd_create(2) is not allowed.
pub fn available() -> std::io::Result<()> {
    let (_, file) = memory::Segment::create(4096)?;
    memory::Segment::open(&file, 4096).map(drop)
}
