//! A run folder that is polled: of a file that grows, only the new lines are read.

use super::course::Course;
use super::folder::{Ranking, RunFolder, reason, size, state};
use record::{FileStamp, PollResult, Tail, file_stamp};
use std::fs;
use std::path::Path;

/// A run folder at the last poll.
pub(crate) struct Watched {
    pub run: RunFolder,
    stamps: Stamps,
    tail: Tail,
    /// Bytes of all files but `metrics.jsonl`.
    others: u64,
}

/// The parts of a folder that are read again when they change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamps {
    job: Option<FileStamp>,
    starts: Option<FileStamp>,
    checkpoints: Option<FileStamp>,
}

impl Stamps {
    fn read(folder: &Path) -> Self {
        let stamp = |name: &str| file_stamp(&folder.join(name));
        Self { job: stamp("job.toml"), starts: stamp("run.json"), checkpoints: stamp("checkpoints") }
    }
}

impl Watched {
    /// Reads the folder.
    pub fn open(folder: &Path, ranking: Ranking<'_>) -> Self {
        let stamps = Stamps::read(folder);
        let run = RunFolder::read_with(folder, ranking, |_, _| Ok(Course::default()));
        let mut watched = Self { run, stamps, tail: Tail::new(folder.join("metrics.jsonl")), others: 0 };
        watched.follow();
        watched.measure();
        watched
    }

    /// Reads what has changed; returns whether anything has.
    pub fn look(&mut self, ranking: Ranking<'_>) -> bool {
        let stamps = Stamps::read(&self.run.folder);
        let other = stamps != self.stamps;
        if other {
            let mut course = std::mem::take(&mut self.run.course);
            if stamps.job != self.stamps.job {
                // Another metric may rank the epochs.
                course = Course::default();
                self.tail = Tail::new(self.run.folder.join("metrics.jsonl"));
            }
            self.run = RunFolder::read_with(&self.run.folder, ranking, |_, _| Ok(course));
            self.stamps = stamps;
        }
        let before = self.run.state.clone();
        let more = self.follow();
        if other || before != self.run.state {
            self.measure();
        }
        self.run.bytes = self.others + self.tail.bytes();
        other || more || before != self.run.state
    }

    /// Reads the new lines of the metrics; whether there were any.
    fn follow(&mut self) -> bool {
        let (course, by) = (&mut self.run.course, self.run.by.as_ref());
        let read = self.tail.read(|found| match found {
            PollResult::Anew => *course = Course::default(),
            PollResult::Event(event, _) => course.add(*event, by),
        });
        self.run.state = state(&self.run.folder, &self.run.course);
        let problem = read.as_ref().err().map(|e| format!("metrics.jsonl: {}", reason(&e.message)));
        let before = self.run.problems.clone();
        self.run.problems.retain(|other| !other.starts_with("metrics.jsonl: "));
        self.run.problems.extend(problem);
        read.unwrap_or_default() || self.run.problems != before
    }

    /// Looks at all files. Checkpoints are most of them, so it is done when those change.
    fn measure(&mut self) {
        let folder = &self.run.folder;
        let metrics = fs::symlink_metadata(folder.join("metrics.jsonl")).map_or(0, |about| about.len());
        self.others = size(folder).saturating_sub(metrics);
        self.run.bytes = self.others + self.tail.bytes();
    }
}
