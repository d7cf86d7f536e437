//! The updates of an open page: server-sent events.

use super::shared::{BoardShared, Id, Page};
use base::display;
use record::report::{PagePosition, news};
use std::fmt::Write;
use std::sync::{PoisonError, RwLockReadGuard};

/// The subject of one page's stream.
pub(super) enum Stream {
    /// The page of the table: it requests the table again after an event.
    Table {
        /// The version that was announced to it.
        announced: Option<u64>,
    },
    /// The page of runs: it gets what is new.
    Runs {
        ids: Vec<Id>,
        /// How much of each the page has.
        places: Vec<PagePosition>,
        /// Held, so that they stay in memory.
        pages: Vec<Page>,
        /// The last event about a missing run, or about the states of the runs.
        said: String,
    },
}

/// The next thing to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Send(String),
    /// Then the stream ends.
    Last(String),
}

impl Stream {
    pub fn of_table() -> Self {
        Self::Table { announced: None }
    }

    /// `from` is what the page says that it has ([`place_of`]).
    pub fn of_runs(ids: Vec<Id>, from: &str) -> Self {
        let places = from.split('-').map(|place| place.parse().unwrap_or_default()).collect();
        Self::Runs { ids, places, pages: Vec::new(), said: String::new() }
    }

    /// The next event for the page.
    pub fn next(&mut self, shared: &BoardShared) -> Next {
        match self {
            Self::Table { announced } => {
                let version = shared.now().table;
                match announced.replace(version) == Some(version) {
                    true => Next::Nothing,
                    false => Next::Send(event("runs", "", &version.to_string())),
                }
            }
            Self::Runs { ids, places, pages, said } => {
                let found = match find(ids, shared) {
                    Ok(found) => found,
                    // It may return: a start archives the folder before it creates a new one.
                    Err(why) => {
                        pages.clear();
                        places.clear();
                        let before = std::mem::replace(said, event("gone", "", &why));
                        return if before == *said { Next::Nothing } else { Next::Send(said.clone()) };
                    }
                };
                *pages = found.iter().map(|(_, page)| page.clone()).collect();
                let states = event("states", "", &states(ids, shared));
                match next_news(&found, places) {
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

/// The labels and pages of runs, or which of them is missing, and why.
fn find(ids: &[Id], shared: &BoardShared) -> Result<Vec<(String, Page)>, String> {
    let gone = || "the folder of the run is gone".to_owned();
    let one = |id: &Id| {
        let page =
            shared.page(id).map_err(|e| display::message(&e.message).into_owned())?.ok_or_else(gone)?;
        Ok((shared.label(id).ok_or_else(gone)?, page))
    };
    ids.iter().map(one).collect()
}

/// The states of the runs, as in the table: a run that was killed has not written that it ended.
fn states(ids: &[Id], shared: &BoardShared) -> String {
    ids.iter().filter_map(|id| shared.state(id)).collect::<Vec<_>>().join(" · ")
}

/// What these runs have after `places`, which are then updated.
fn next_news(found: &[(String, Page)], places: &mut Vec<PagePosition>) -> Next {
    let runs: Vec<_> = found.iter().map(|(label, page)| (label.as_str(), read(page))).collect();
    let runs: Vec<_> = runs.iter().map(|(label, run)| (*label, &**run)).collect();
    match news(&runs, places) {
        Err(record::report::StalePage) => Next::Last(event("reload", "", "")),
        Ok(None) => Next::Nothing,
        Ok(Some(data)) => {
            *places = runs.iter().map(|(_, run)| run.place()).collect();
            Next::Send(event("news", &place_of(places), &data))
        }
    }
}

/// A run, locked against changes by other requests.
pub(super) fn read(page: &Page) -> RwLockReadGuard<'_, record::report::LiveRun> {
    page.read().unwrap_or_else(PoisonError::into_inner)
}

/// Places as in the address of a page.
pub(super) fn place_of(places: &[PagePosition]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join("-")
}

/// Keeps an idle connection open.
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
