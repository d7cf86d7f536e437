//! Shared memory between the ranks of a host: the segment and its layout, how it is handed around, and what a rank does
//! with it.

mod arena;
mod layout;
mod memory;
mod processors;
mod share;

pub(super) use arena::{Arena, Progress};
pub(super) use layout::{CHUNK, FLAT, SLOTS};
pub(super) use share::share;

/// Tries to make memory that processes can share, as a group's ranks do.
///
/// Errors: the system's, for instance where memfd_create(2) is not allowed.
pub(crate) fn available() -> std::io::Result<()> {
    let (_, file) = memory::Segment::create(4096)?;
    memory::Segment::open(&file, 4096).map(drop)
}
