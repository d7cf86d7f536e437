//! What an open page is told: server-sent events.

use super::shared::{Id, Page, Shared};
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
        Self::Runs { ids, places, pages: Vec::new() }
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
            Self::Runs { ids, places, pages } => {
                let found = ids.iter().map(|id| Some((shared.label(id)?, shared.page(id).ok()??)));
                let Some(found) = found.collect::<Option<Vec<(String, Page)>>>() else {
                    return Next::Last(event("gone", "", ""));
                };
                *pages = found.iter().map(|(_, page)| page.clone()).collect();
                tell(&found, places)
            }
        }
    }
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
