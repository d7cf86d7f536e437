//! The state of the runs: the poller writes it, and requests read it.

use crate::runs::RunFolder;
use base::error::Result;
use data_encoding::HEXLOWER;
use record::report::LiveRun;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// How long a run stays in memory after its last page was closed; hidden pages count as closed.
pub(super) const KEPT: Duration = Duration::from_secs(120);

/// A run in addresses: a hash of its folder's path, so that no address names a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(String);

impl Id {
    pub fn new(folder: &Path) -> Self {
        Self(HEXLOWER.encode(&Sha256::digest(folder.as_os_str().as_bytes())[..8]))
    }

    /// Parses the id in an address.
    pub fn parse(text: &str) -> Option<Self> {
        let is_one =
            text.len() == 16 && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
        is_one.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Versions; a page requests again what has a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Versions {
    /// The version of the table.
    pub table: u64,
    /// The version of the runs whose pages are open.
    pub pages: u64,
}

/// A run whose page is open. Pages read it, only the poller writes.
pub(super) type Page = Arc<RwLock<LiveRun>>;

struct CachedRun {
    page: Page,
    /// When the poller first found that no page has it.
    unused: Option<Duration>,
}

/// What the table shows.
#[derive(Clone, Default)]
pub(super) struct Table {
    /// In the order of their folders.
    pub runs: Vec<RunFolder>,
    /// How many runs of how many have been read, until all are.
    pub reading: Option<(usize, usize)>,
    /// Why folders can't be read now.
    pub problems: Vec<String>,
}

#[derive(Default)]
pub(super) struct BoardShared {
    table: Mutex<Table>,
    pages: Mutex<BTreeMap<Id, CachedRun>>,
    /// Held while a run is read for its page, so that two requests do not read it at the same time.
    opening: Mutex<()>,
    versions: watch::Sender<Versions>,
}

/// Nothing that may panic runs while one of these locks is held, so none is poisoned.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BoardShared {
    /// Notified of each change.
    pub fn versions(&self) -> watch::Receiver<Versions> {
        self.versions.subscribe()
    }

    pub fn now(&self) -> Versions {
        *self.versions.borrow()
    }

    /// The number of listeners.
    #[cfg(test)]
    pub fn listeners(&self) -> usize {
        self.versions.receiver_count()
    }

    pub fn table(&self) -> Table {
        lock(&self.table).clone()
    }

    /// Tests a condition on the table.
    pub fn table_is(&self, so: impl FnOnce(&Table) -> bool) -> bool {
        so(&lock(&self.table))
    }

    /// Changes the table.
    pub fn change(&self, by: impl FnOnce(&mut Table)) {
        by(&mut lock(&self.table));
        self.versions.send_modify(|versions| versions.table += 1);
    }

    /// Applies `of` to a run; `None` if there is no such run.
    fn find<T>(&self, id: &Id, of: impl FnOnce(&RunFolder) -> T) -> Option<T> {
        lock(&self.table).runs.iter().find(|run| Id::new(&run.folder) == *id).map(of)
    }

    /// The label of a run; `None` if there is no such run.
    pub fn label(&self, id: &Id) -> Option<String> {
        self.find(id, RunFolder::label)
    }

    /// The state of a run, as one word; `None` if there is no such run.
    pub fn state(&self, id: &Id) -> Option<&'static str> {
        self.find(id, |run| run.state.word())
    }

    /// The run for its page; `None` if there is no such run. It is read if no page has it.
    ///
    /// # Errors
    /// The run can't be read.
    pub fn page(&self, id: &Id) -> Result<Option<Page>> {
        let Some(folder) = self.find(id, |run| run.folder.clone()) else { return Ok(None) };
        let known = || {
            let mut pages = lock(&self.pages);
            let kept = pages.get_mut(id)?;
            kept.unused = None;
            Some(Arc::clone(&kept.page))
        };
        if let Some(page) = known() {
            return Ok(Some(page));
        }
        let _alone = lock(&self.opening);
        // Another request may have read it meanwhile.
        if let Some(page) = known() {
            return Ok(Some(page));
        }
        let page = Arc::new(RwLock::new(LiveRun::open(&folder)?));
        lock(&self.pages).insert(id.clone(), CachedRun { page: Arc::clone(&page), unused: None });
        Ok(Some(page))
    }

    /// Reads what is new in the runs that pages have open, and drops those that no page has had for a while.
    pub fn refresh_pages(&self, now: Duration) {
        let mut open = Vec::new();
        lock(&self.pages).retain(|_, kept| {
            let used = Arc::strong_count(&kept.page) > 1;
            let since = *kept.unused.get_or_insert(now);
            kept.unused = kept.unused.filter(|_| !used);
            let stays = used || now.saturating_sub(since) < KEPT;
            if stays {
                open.push(Arc::clone(&kept.page));
            }
            stays
        });
        let refreshed = |page: &Page| {
            let mut run = page.write().unwrap_or_else(PoisonError::into_inner);
            // What can't be read now is read later; the table says what is damaged.
            run.refresh().unwrap_or(false)
        };
        if open.iter().map(refreshed).fold(false, |any, one| any | one) {
            self.versions.send_modify(|versions| versions.pages += 1);
        }
    }

    /// How many runs are kept for pages.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        lock(&self.pages).len()
    }
}
