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
