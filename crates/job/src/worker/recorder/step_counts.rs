//! What rank 0 counts of the steps, between its events.

use crate::worker::messages::warn;
use base::display;
use train::training::{BatchAlgebra, Position, StepAnatomy, StepReport, Stragglers, Sums};

/// Counts of steps: of the current epoch, and since the last step event.
#[derive(Default)]
pub(super) struct StepCounts {
    /// The last step, and its epoch.
    pub last: (u64, u64),
    /// Micro-batches since the beginning of the epoch, or since a resize redistributed its rest.
    micro_batches: u64,
    /// Samples of the epoch that were finished before this process.
    samples_before: f64,
    since_event: StepWindow,
}

/// The steps since the last step event.
#[derive(Default)]
pub(super) struct StepWindow {
    samples: f64,
    seconds: f64,
    data_wait: f64,
}

impl StepWindow {
    pub fn samples_per_s(&self) -> f64 {
        self.samples / self.seconds
    }

    /// The fraction of the time that was waited for data.
    pub fn data_wait(&self) -> f64 {
        self.data_wait / self.seconds
    }
}

impl StepCounts {
    pub fn new(position: &Position) -> Self {
        Self { last: (position.step, position.epoch), ..Self::default() }
    }

    pub fn begin_epoch(&mut self, position: &Position, algebra: &BatchAlgebra) {
        self.micro_batches = algebra.micro_batches();
        self.samples_before = position.epoch_sums.samples;
    }

    pub fn count(&mut self, report: &StepReport) {
        self.since_event.samples += report.sums.samples;
        self.since_event.seconds += report.seconds;
        self.since_event.data_wait += report.data_wait;
    }

    /// The steps since the last call.
    pub fn take_window(&mut self) -> StepWindow {
        std::mem::take(&mut self.since_event)
    }

    /// Samples of the epoch that this process has trained on, of the sums of the whole epoch.
    pub fn own_samples(&self, train: &Sums) -> f64 {
        train.samples - self.samples_before
    }

    /// Whether `max_steps` cuts the epoch short here.
    pub fn is_cut(&self, position: &Position) -> bool {
        position.micro < self.micro_batches
    }
}

/// Finds slow ranks and warns of them, with the names of their hosts.
pub(super) struct SlowRanks {
    stragglers: Stragglers,
    hosts: Vec<String>,
}

impl SlowRanks {
    /// `hosts` has the name of each rank's host.
    pub fn new(hosts: Vec<String>) -> Self {
        Self { stragglers: Stragglers::default(), hosts }
    }

    /// Warns of the ranks that have become slow by these times.
    pub fn warn_of(&mut self, anatomy: &StepAnatomy) {
        for slow in self.stragglers.after(anatomy) {
            let host = self.hosts.get(slow.rank);
            let host = host.map_or(String::new(), |host| format!(" on {}", display::name(host)));
            warn(&format!("rank {}{host} is slow: {slow}", slow.rank));
        }
    }
}
