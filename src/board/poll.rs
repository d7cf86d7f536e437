//! Looks at the folders again and again.

use super::shared::{Shared, Table};
use crate::error::Result;
use crate::runs::{Ranking, RunFolder, Watched, is_listed, places, places_but};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What each look needs.
pub(super) struct Poller<'a> {
    folders: Vec<PathBuf>,
    archived: bool,
    ranking: Ranking<'a>,
    /// In the order of their folders.
    watched: Vec<Watched>,
    shared: Arc<Shared>,
}

impl<'a> Poller<'a> {
    /// Of the runs in `folders`, with `archived` also of the numbered folders of earlier starts. It has not looked yet.
    pub fn new(folders: &[PathBuf], archived: bool, ranking: Ranking<'a>) -> Self {
        Self {
            folders: folders.to_vec(),
            archived,
            ranking,
            watched: Vec::new(),
            shared: Arc::new(Shared::default()),
        }
    }

    /// Where it puts what it finds.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Whether the folders can be looked at.
    ///
    /// # Errors
    /// Exit code 74: one can't be read.
    pub fn check(&self) -> Result<()> {
        places(&self.folders, self.archived).map(drop)
    }

    /// Reads what has changed since the last look, at this time of a clock. A run that is read for the first time is shown at
    /// once: many long ones take a while.
    pub fn poll(&mut self, now: Duration) {
        let mut problems = Vec::new();
        let places = places_but(&self.folders, self.archived, |e| problems.push(e.message));
        self.look(&places, &problems);
        self.shared.refresh_pages(now);
    }

    /// `problems` tell which folders can't be read.
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

    /// Puts what is known into the table.
    fn show(&self, reading: Option<(usize, usize)>, problems: &[String]) {
        let runs = self.watched.iter().map(|watched| &watched.run);
        let listed = runs.filter(|run| is_listed(run, &self.folders, self.archived));
        let runs: Vec<RunFolder> = listed.cloned().collect();
        self.shared.change(|table| *table = Table { runs, reading, problems: problems.to_vec() });
    }
}
