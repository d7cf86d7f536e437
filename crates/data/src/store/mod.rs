//! Finds, verifies, downloads, unpacks and reads the files of data sets. Verified files are recorded in the cache, so that a
//! second start does not read them again; unpacked files appear under their final names complete or not at all.

mod data_file;
mod digest;
mod fetch;
mod named;
mod pickle;
mod place;
mod unpack;
mod url;

pub use data_file::DataFile;
pub use digest::{Digest, FileSpec, verify};
pub use fetch::{Download, Refusal, fetch, megabytes};
pub use named::{NamedFile, Published, fitting};
pub use pickle::read_batch;
pub use place::{
    Cache, absolute, below, check_names_below, create_atomically, identity, in_git_work_tree, is_writable,
    stamp, with_temporary_path, write_atomically,
};
pub use unpack::{Member, gunzip, untar};
pub use url::Url;
