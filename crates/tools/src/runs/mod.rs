//! The folders of runs on disk: their contents (`folder`, `course`), which there are (`find`), what `ddp-run runs` prints about
//! them (`list`, `show`, `compare`) and what it removes (`remove`).
//!
//! Reading takes no lock, changes nothing, and never fails because of a folder's contents: damaged files are listed as its problems.

mod compare;
mod course;
mod facts;
mod filter;
mod find;
mod folder;
mod list;
mod remove;
mod show;
#[cfg(feature = "board")]
mod watch;

pub use compare::{compare, compare_json, diff, diff_json};
pub use facts::FACTS;
pub use filter::{Filter, SortBy};
pub use find::{SWEEP, find, of_argument};
#[cfg(feature = "board")]
pub(crate) use find::{is_listed, places, places_but};
pub use folder::{Ranking, RunFolder, RunStatus, ranking};
#[cfg(feature = "board")]
pub(crate) use list::list_table;
pub use list::{Listing, list_json, list_text};
pub use remove::{KeptParts, Removal};
pub use show::show;
#[cfg(feature = "board")]
pub(crate) use watch::Watched;

#[cfg(test)]
mod folder_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "board"))]
mod watch_tests;
