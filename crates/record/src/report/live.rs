//! Pages of running runs: the runs are kept as they were read, and an open page gets what is new.
//!
//! A [`PagePosition`] for each run says what the page has. [`news`] returns what has been added since: new points of the charts,
//! and, where more than steps was added, the parts around them. `report.js` takes it in.

use super::content::{self, NamedRun};
use super::figures::{FigureData, axis};
use super::page::{self, Frame};
use super::records::{Anatomy, Record, RunRecords};
use super::run_figures::titles;
use super::timeline::{Axis, Mark};
use crate::events::Event;
use crate::tail::{FileStamp, PollResult, Tail, file_stamp};
use base::error::Result;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A run whose page is open.
pub struct LiveRun {
    folder: PathBuf,
    run: RunRecords,
    tail: Tail,
    /// The other files that the page shows, as read.
    stamps: Stamps,
    place: PagePosition,
}

/// How much of a run a page has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePosition {
    /// Another one when what came before is void: the page loads itself again.
    generation: u64,
    /// Counts the versions of the folder's other files.
    facts: u64,
    records: usize,
    windows: usize,
}

impl fmt::Display for PagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.generation, self.facts, self.records, self.windows)
    }
}

impl FromStr for PagePosition {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let numbers: Vec<u64> =
            text.split('.').map(str::parse).collect::<std::result::Result<_, _>>().map_err(drop)?;
        let [generation, facts, records, windows] = numbers[..] else { return Err(()) };
        let [records, windows] = [records, windows].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        Ok(Self { generation, facts, records, windows })
    }
}

/// The stamps of the files, other than `metrics.jsonl`, that the page shows.
type Stamps = Vec<(Option<FileStamp>, PathBuf)>;

/// The time of the folder of evaluations would not do: two that follow each other at once may leave the same.
fn stamps(folder: &Path) -> Stamps {
    let evaluations = fs::read_dir(folder.join("evaluations")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = evaluations.map(|entry| entry.path()).collect();
    files.extend(["run.json", "prediction.json"].map(|name| folder.join(name)));
    files.sort();
    files.into_iter().map(|file| (file_stamp(&file), file)).collect()
}

/// No two runs, and no two versions of one, have the same.
fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl LiveRun {
    /// Reads the folder.
    ///
    /// # Errors
    /// `run.json` or `metrics.jsonl` can't be read; the latter may be missing.
    pub fn open(folder: &Path) -> Result<Self> {
        let stamps = stamps(folder);
        let mut live = Self {
            run: RunRecords::without_records(folder)?,
            tail: Tail::new(folder.join("metrics.jsonl")),
            folder: folder.to_owned(),
            stamps,
            place: PagePosition { generation: next_generation(), ..PagePosition::default() },
        };
        live.refresh()?;
        Ok(live)
    }

    /// Reads what is new; whether something is.
    ///
    /// # Errors
    /// `metrics.jsonl` can't be read.
    pub fn refresh(&mut self) -> Result<bool> {
        let stamps = stamps(&self.folder);
        let mut any = false;
        // A `run.json` that can't be read does not stop the charts: its last readable contents stay.
        if stamps != self.stamps
            && let Ok(fresh) = RunRecords::without_records(&self.folder)
        {
            any = true;
            let run = &mut self.run;
            (run.name, run.starts, run.spec) = (fresh.name, fresh.starts, fresh.spec);
            (run.evaluations, run.prediction) = (fresh.evaluations, fresh.prediction);
            self.stamps = stamps;
            self.place.facts += 1;
        }
        let (run, place) = (&mut self.run, &mut self.place);
        any |= self.tail.read(|found| match found {
            PollResult::Anew => {
                (run.records, run.anatomy) = (Vec::new(), Anatomy::default());
                place.generation = next_generation();
            }
            PollResult::Event(event, line) => run.add(*event, line),
        })?;
        (place.records, place.windows) = (run.records.len(), run.anatomy.windows.len());
        Ok(any)
    }

    /// How much there is now.
    pub fn place(&self) -> PagePosition {
        self.place
    }

    /// What came after `place`, as a run.
    fn since(&self, place: PagePosition) -> RunRecords {
        let run = &self.run;
        RunRecords {
            name: run.name.clone(),
            records: run.records[place.records..].to_vec(),
            anatomy: Anatomy {
                phases: run.anatomy.phases.clone(),
                windows: run.anatomy.windows[place.windows..].to_vec(),
                ..Anatomy::default()
            },
            // Which runs compare depends on it.
            spec: run.spec.clone(),
            ..RunRecords::default()
        }
    }

    /// Whether this is a place in the current state of this run.
    fn knows(&self, place: PagePosition) -> bool {
        let now = self.place;
        place.generation == now.generation && place.records <= now.records && place.windows <= now.windows
    }
}

/// The page of these runs, each under its name, in this frame.
pub fn live_page(runs: &[(&str, &LiveRun)], frame: &Frame<'_>) -> String {
    content::page(&named(runs), Some(frame))
}

fn named<'a>(runs: &[(&'a str, &'a LiveRun)]) -> Vec<NamedRun<'a>> {
    runs.iter().map(|(name, live)| (*name, &live.run)).collect()
}

/// The news for a page.
#[derive(Serialize)]
struct News<'a> {
    /// The figures are all there is, not only new points.
    whole: bool,
    /// So are the rows of the axes.
    anew: bool,
    /// The titles of `figures`.
    titles: Vec<&'a str>,
    /// The titles of all charts, in the order of the page.
    order: Vec<String>,
    figures: Vec<FigureData<'a>>,
    axes: Vec<Axis>,
    /// The part above the charts.
    head: String,
    around: Option<Around>,
}

/// The parts that change when other events than steps are added.
#[derive(Serialize)]
struct Around {
    marks: Vec<Mark>,
    legend: String,
    rest: String,
}

/// The page has to be reloaded: its places are none in the current state of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalePage;

/// What is new since `places`, as JSON; `Ok(None)` if nothing is.
///
/// # Errors
/// The page has to be reloaded.
pub fn news(
    runs: &[(&str, &LiveRun)],
    places: &[PagePosition],
) -> std::result::Result<Option<String>, StalePage> {
    if runs.len() != places.len() || !runs.iter().zip(places).all(|((_, live), place)| live.knows(*place)) {
        return Err(StalePage);
    }
    if runs.iter().zip(places).all(|((_, live), place)| live.place == *place) {
        return Ok(None);
    }
    let all = named(runs);
    let added: Vec<RunRecords> =
        runs.iter().zip(places).map(|((_, live), place)| live.since(*place)).collect();
    let only_steps = added.iter().all(|run| run.events().all(|event| matches!(event, Event::Step(_))))
        && runs.iter().zip(places).all(|((_, live), place)| live.place.facts == place.facts);
    // Which charts several runs have depends on the epochs of all.
    let whole = runs.len() > 1 && added.iter().any(|run| run.epochs().next().is_some());
    let new: Vec<NamedRun<'_>> = runs.iter().zip(&added).map(|((name, _), run)| (*name, run)).collect();
    let figures = content::figures(if whole { &all } else { &new });
    let rows = |((_, live), place): (&(&str, &LiveRun), &PagePosition)| {
        let known = live.run.records[..place.records].iter().rev().find_map(step_of);
        let axis = axis(&live.run);
        if only_steps { axis.after(known.unwrap_or(f64::NEG_INFINITY)) } else { axis }
    };
    let axes = runs.iter().zip(places).map(rows).collect();
    let around = (!only_steps).then(|| {
        let marks = content::marks(&all);
        Around { legend: page::legend(&marks, runs.len()), marks, rest: content::rest(&all) }
    });
    let news = News {
        whole,
        anew: !only_steps,
        titles: figures.iter().map(|figure| figure.title.as_str()).collect(),
        order: titles(&all),
        figures: figures.iter().map(FigureData::new).collect(),
        axes,
        head: content::head(&all),
        around,
    };
    // Plain numbers and texts always have a JSON form.
    Ok(Some(serde_json::to_string(&news).unwrap_or_default()))
}

/// The step of a line that has a row in the axes.
fn step_of(record: &Record) -> Option<f64> {
    match &record.event {
        Event::Step(step) => Some(step.step as f64),
        Event::Epoch(epoch) => Some(epoch.step as f64),
        _ => None,
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
