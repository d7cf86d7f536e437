//! What an open page is told: server-sent events.

use super::shared::{Id, Page, Shared};
use crate::show;
use crate::telemetry::report::{Place, news};
use std::fmt::Write;
use std::sync::{PoisonError, RwLockReadGuard};

/// What one page listens to.
pub(super) enum Stream {
    /// The table: it asks for it again when it is told so.
    Table {
        /// The version that it was told of.
        told: Option<u64>,
    },
    /// Runs: it gets what is new.
    Runs {
        ids: Vec<Id>,
        /// What the page has of each.
        places: Vec<Place>,
        /// Held, so that they stay in memory.
        pages: Vec<Page>,
        /// The page was told that a run is not there, or how the runs are doing.
        said: String,
    },
}

/// What there is to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Send(String),
    /// Then the stream ends.
    Last(String),
}

impl Stream {
    pub fn of_table() -> Self {
        Self::Table { told: None }
    }

    /// `from` is what the page says that it has ([`place_of`]).
    pub fn of_runs(ids: Vec<Id>, from: &str) -> Self {
        let places = from.split('-').map(|place| place.parse().unwrap_or_default()).collect();
        Self::Runs { ids, places, pages: Vec::new(), said: String::new() }
    }

    /// What the page is to be told now.
    pub fn next(&mut self, shared: &Shared) -> Next {
        match self {
            Self::Table { told } => {
                let version = shared.now().table;
                match told.replace(version) == Some(version) {
                    true => Next::Nothing,
                    false => Next::Send(event("runs", "", &version.to_string())),
                }
            }
            Self::Runs { ids, places, pages, said } => {
                let found = match find(ids, shared) {
                    Ok(found) => found,
                    // It may come back: a start archives the folder before it makes another one.
                    Err(why) => {
                        pages.clear();
                        places.clear();
                        let before = std::mem::replace(said, event("gone", "", &why));
                        return if before == *said { Next::Nothing } else { Next::Send(said.clone()) };
                    }
                };
                *pages = found.iter().map(|(_, page)| page.clone()).collect();
                let states = event("states", "", &states(ids, shared));
                match tell(&found, places) {
                    last @ Next::Last(_) => last,
                    news if *said == states => news,
                    news => {
                        said.clone_from(&states);
                        Next::Send(if let Next::Send(news) = news { states + &news } else { states })
                    }
                }
            }
        }
    }
}

/// The labels and pages of runs; else which of them is not there, and why.
fn find(ids: &[Id], shared: &Shared) -> Result<Vec<(String, Page)>, String> {
    let gone = || "the folder of the run is gone".to_owned();
    let one = |id: &Id| {
        let page = shared.page(id).map_err(|e| show::message(&e.message).into_owned())?.ok_or_else(gone)?;
        Ok((shared.label(id).ok_or_else(gone)?, page))
    };
    ids.iter().map(one).collect()
}

/// How the runs are doing, as the table says it: a run that was killed has not written that it ended.
fn states(ids: &[Id], shared: &Shared) -> String {
    ids.iter().filter_map(|id| shared.state(id)).collect::<Vec<_>>().join(" · ")
}

/// What these runs have behind `places`, which then are those of now.
fn tell(found: &[(String, Page)], places: &mut Vec<Place>) -> Next {
    let runs: Vec<_> = found.iter().map(|(label, page)| (label.as_str(), read(page))).collect();
    let runs: Vec<_> = runs.iter().map(|(label, run)| (*label, &**run)).collect();
    match news(&runs, places) {
        Err(()) => Next::Last(event("reload", "", "")),
        Ok(None) => Next::Nothing,
        Ok(Some(data)) => {
            *places = runs.iter().map(|(_, run)| run.place()).collect();
            Next::Send(event("news", &place_of(places), &data))
        }
    }
}

/// A run that no other request changes meanwhile.
pub(super) fn read(page: &Page) -> RwLockReadGuard<'_, crate::telemetry::report::LiveRun> {
    page.read().unwrap_or_else(PoisonError::into_inner)
}

/// Places as a page has them in its address.
pub(super) fn place_of(places: &[Place]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join("-")
}

/// What keeps a connection from being taken for a dead one.
pub(super) const COMMENT: &str = ":\n\n";

/// An event of a stream; its data may have several lines.
pub(super) fn event(name: &str, id: &str, data: &str) -> String {
    let mut out = format!("event: {name}\n");
    if !id.is_empty() {
        let _ = writeln!(out, "id: {id}");
    }
    for line in data.split(['\n', '\r']) {
        let _ = writeln!(out, "data: {line}");
    }
    out.push('\n');
    out
}
