//! Polls the folders.

use super::shared::{BoardShared, Table};
use crate::runs::{Ranking, RunFolder, Watched, is_listed, places, places_but};
use base::error::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The state between polls.
pub(super) struct Poller<'a> {
    folders: Vec<PathBuf>,
    archived: bool,
    ranking: Ranking<'a>,
    /// In the order of their folders.
    watched: Vec<Watched>,
    shared: Arc<BoardShared>,
}

impl<'a> Poller<'a> {
    /// A poller of the runs in `folders`, with `archived` also of the numbered folders of earlier starts. It has not polled yet.
    pub fn new(folders: &[PathBuf], archived: bool, ranking: Ranking<'a>) -> Self {
        Self {
            folders: folders.to_vec(),
            archived,
            ranking,
            watched: Vec::new(),
            shared: Arc::new(BoardShared::default()),
        }
    }

    /// Where the results go.
    pub fn shared(&self) -> Arc<BoardShared> {
        Arc::clone(&self.shared)
    }

    /// Checks that the folders can be read.
    ///
    /// # Errors
    /// Exit code 74: one can't be read.
    pub fn check(&self) -> Result<()> {
        places(&self.folders, self.archived).map(drop)
    }

    /// Reads what has changed since the last poll; `now` is the time of a clock. Each run is shown as soon as it is read for the
    /// first time: many long runs take a while.
    pub fn poll(&mut self, now: Duration) {
        let mut problems = Vec::new();
        let places = places_but(&self.folders, self.archived, |e| problems.push(e.message));
        self.look(&places, &problems);
        self.shared.refresh_pages(now);
    }

    /// `problems` are the folders that can't be read, and why.
    fn look(&mut self, places: &[PathBuf], problems: &[String]) {
        let known = std::mem::take(&mut self.watched);
        let first = known.is_empty();
        let mut changed = !known.iter().map(|watched| &watched.run.folder).eq(places);
        let mut known: BTreeMap<PathBuf, Watched> =
            known.into_iter().map(|watched| (watched.run.folder.clone(), watched)).collect();
        for (number, place) in places.iter().enumerate() {
            match known.remove(place) {
                Some(mut watched) => {
                    changed |= watched.look(self.ranking);
                    self.watched.push(watched);
                }
                None => {
                    self.watched.push(Watched::open(place, self.ranking));
                    if first {
                        self.show(Some((number + 1, places.len())), problems);
                    }
                }
            }
        }
        if changed || self.shared.table_is(|table| table.reading.is_some() || table.problems != problems) {
            self.show(None, problems);
        }
    }

    /// Updates the table.
    fn show(&self, reading: Option<(usize, usize)>, problems: &[String]) {
        let runs = self.watched.iter().map(|watched| &watched.run);
        let listed = runs.filter(|run| is_listed(run, &self.folders, self.archived));
        let runs: Vec<RunFolder> = listed.cloned().collect();
        self.shared.change(|table| *table = Table { runs, reading, problems: problems.to_vec() });
    }
}
